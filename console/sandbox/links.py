"""Links that carry messages: into an entity, and out of a queue or subscription.

A served link knows its AMQP link, its entity and the connection it belongs to. It holds no queue state: what it takes
in is the broker's at once, what it gives out stays the broker's until it is settled there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from console.amqp.errors import DecodeError
from console.amqp.events import DeliveryReceived, DispositionReceived, FlowReceived
from console.amqp.link import Link
from console.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Error, Modified, Rejected, Released
from console.amqp.receiver import ReceiverLink
from console.amqp.sender import SenderLink
from console.sandbox.broker.access import Right
from console.sandbox.broker.entities import SendTarget
from console.sandbox.broker.errors import BrokerError
from console.sandbox.broker.lane import Consumer
from console.sandbox.broker.message import StoredMessage
from console.sandbox.broker.message_queue import DESCRIPTION, REASON, MessageQueue
from console.sandbox.conditions import Refusal, bad_argument, busy, detached, refusal_of
from console.sandbox.faults import Moment, Verdict
from console.sandbox.wire_messages import read_delivery, write_message

if TYPE_CHECKING:
    from console.sandbox.server import AmqpServerProtocol

INCOMING_CREDIT: Final = 1000
SETTLED_BY_SENDER: Final = 1
DEAD_LETTER: Final = "com.microsoft:dead-letter"


def error_of(refusal: Refusal) -> Error:
    return Error(condition=refusal.condition, description=refusal.description)


def rejected(refusal: Refusal) -> Rejected:
    return Rejected(error=error_of(refusal))


class ServedLink:
    """What every link of the server has in common.

    `path` is its entity's, `resource` what its token has to cover, `right` what the token has to give; any if None.
    """

    right: ClassVar[Right | None] = None

    def __init__(self, server: AmqpServerProtocol, link: Link, path: str, resource: str) -> None:
        self.server = server
        self.link = link
        self.path = path
        self.resource = resource
        self._stands_still = False

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A message came in; only links into the server get any."""

    def on_flow(self, event: FlowReceived) -> None:
        """The peer granted credit."""

    def on_disposition(self, event: DispositionReceived) -> None:
        """The peer settled, or wants to settle, a message it was given."""

    def gone(self) -> None:
        """The link is detached or its connection lost."""

    def pause(self) -> None:
        """Give out nothing until `resume`."""

    def resume(self) -> None:
        """Undo `pause`."""

    def detach(self, refusal: Refusal) -> None:
        """End the link from our side, with a reason."""
        self.gone()
        self.link.detach(error=error_of(refusal))
        self.server.forget(self)

    def verdict(self, moment: Moment) -> Verdict:
        return self.server.node.faults.verdict(moment, self.path)

    def follow_faults(self) -> None:
        """Act on faults that have begun or ended: detach, stand still, go on."""
        match self.verdict(Moment.LIVING_LINK):
            case Verdict.REFUSE:
                self.detach(detached(self.path))
            case Verdict.SWALLOW:
                self.pause()
                self._stands_still = True
            case _ if self._stands_still:
                self._stands_still = False
                self.resume()


class IncomingLink(ServedLink):
    """Messages into a queue or topic."""

    link: ReceiverLink
    right = Right.SEND

    def __init__(
        self, server: AmqpServerProtocol, link: ReceiverLink, path: str, resource: str, target: SendTarget
    ) -> None:
        super().__init__(server, link, path, resource)
        self._intake = target.intake
        self._taken = 0
        link.flow(INCOMING_CREDIT)

    def on_delivery(self, event: DeliveryReceived) -> None:
        verdict = self.verdict(Moment.TRANSFER)
        self._taken += 1
        if verdict is Verdict.SWALLOW:
            return
        outcome = self._take_in(event, verdict)
        if outcome is not None and not event.settled:
            self.link.settle(event.delivery_id, outcome)
        if 2 * self._taken >= INCOMING_CREDIT:
            self.resume()

    def resume(self) -> None:
        """Grant credit anew for what was taken or swallowed."""
        if self._taken:
            self._taken = 0
            self.link.flow(INCOMING_CREDIT)

    def _take_in(self, event: DeliveryReceived, verdict: Verdict) -> DeliveryState | None:
        """The outcome for the sender; None where it is to hear nothing."""
        if verdict is Verdict.BUSY:
            return rejected(busy(self.path))
        try:
            self._intake.send(read_delivery(event.payload, event.message_format))
        except BrokerError as error:
            return rejected(refusal_of(error))
        except DecodeError as error:
            return rejected(bad_argument(f"the message cannot be read: {error}"))
        return None if verdict is Verdict.TAKE_SILENTLY else ACCEPTED


class OutgoingLink(ServedLink):
    """Messages out of a queue, a subscription, or one of their sub-queues."""

    link: SenderLink
    right = Right.LISTEN

    def __init__(
        self, server: AmqpServerProtocol, link: SenderLink, path: str, resource: str, messages: MessageQueue
    ) -> None:
        super().__init__(server, link, path, resource)
        self.messages = messages
        remote = link.remote
        settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self.consumer = Consumer(self._deliver, self._lost, settles_on_delivery=settled)
        self._paused = False

    def _deliver(self, stored: StoredMessage) -> None:
        token = stored.lock_token
        data = write_message(stored)
        if token is None:
            self.link.send(data, tag=stored.sequence_number.to_bytes(16, "little"), settled=True)
        else:
            self.link.send(data, tag=token)
        self.server.count_outgoing(len(data))

    def _lost(self, error: BrokerError) -> None:
        self.link.detach(error=error_of(refusal_of(error)))
        self.server.forget(self)

    def on_flow(self, event: FlowReceived) -> None:
        if not self._paused:
            self.messages.grant(self.consumer, self.link.credit)

    def pause(self) -> None:
        self._paused = True
        self.messages.grant(self.consumer, 0)

    def resume(self) -> None:
        if self._paused and not self._stands_still and not self.server.is_holding:
            self._paused = False
            self.messages.grant(self.consumer, self.link.credit)

    def gone(self) -> None:
        self.messages.detach(self.consumer)

    def on_disposition(self, event: DispositionReceived) -> None:
        if self.verdict(Moment.SETTLE) is not Verdict.SERVE:
            return
        answer = event.state
        try:
            self._settle(event.tag, event.state)
        except BrokerError as error:
            answer = rejected(refusal_of(error))
        else:
            if isinstance(event.state, Rejected):
                answer = Rejected()  # echoed without the error, which would be read as a failure
        if not event.settled:
            self.link.settle(event.delivery_id, answer)

    def _settle(self, token: bytes, state: DeliveryState | None) -> None:
        """Act on an outcome. Raises BrokerError."""
        messages = self.messages
        match state:
            case Accepted():
                messages.complete(token)
            case Modified(undeliverable_here=True):
                messages.defer(token, _as_properties(state.message_annotations))
            case Modified():
                messages.abandon(token, _as_properties(state.message_annotations))
            case Rejected():
                self._dead_letter(token, state.error)
            case Released() | None:
                messages.release(token)

    def _dead_letter(self, token: bytes, error: Error | None) -> None:
        if error is None:
            self.messages.dead_letter(token)
            return
        info = dict(_as_properties(error.info) or {})
        reason = info.pop(REASON, None) or ("" if error.condition == DEAD_LETTER else error.condition)
        description = info.pop(DESCRIPTION, None) or error.description
        self.messages.dead_letter(token, str(reason), str(description), info)


def _as_properties(given: dict[object, object] | None) -> dict[str, object] | None:
    return {str(name): value for name, value in given.items()} if given else None

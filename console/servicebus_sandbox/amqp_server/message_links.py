"""Links that carry messages into an entity, or out of a queue or subscription.

A link holds no queue state. The broker owns an incoming message immediately, and an outgoing one until it is settled.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from servicebus_amqp.encoding.message_sections import BATCH_FORMAT
from servicebus_amqp.encoding.messaging_types import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Rejected,
    Released,
)
from servicebus_amqp.nodes.request_ends import SETTLED_BY_SENDER, bad_argument, error_of, rejected
from servicebus_amqp.protocol.link_receiver import ReceiverLink
from servicebus_amqp.protocol.link_sender import SenderLink
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_sandbox.amqp_server.message_codec import read_batch, read_message, write_message
from servicebus_sandbox.amqp_server.served_link import SETTLING, ServedLink, ServedLinkOwner
from servicebus_sandbox.broker.broker_errors import BrokerError, EntityDisabled, MessageTooLarge
from servicebus_sandbox.broker.entity_settings import Right
from servicebus_sandbox.broker.message import StoredMessage
from servicebus_sandbox.broker.queues.lane import Consumer
from servicebus_sandbox.broker.queues.message_queue import DESCRIPTION, REASON, MessageQueue
from servicebus_sandbox.broker.topology.messaging_entities import SendTarget
from servicebus_sandbox.faults import Direction, FaultVerdict, InjectionPoint, Operation
from servicebus_sandbox.serving.amqp_conditions import refusal_by, refusal_of

INCOMING_CREDIT: Final = 1000
MAX_BATCH_BYTES: Final = 1024 * 1024
"""The limit of a batch, even where single messages may be larger."""
DEAD_LETTER: Final = "com.microsoft:dead-letter"


class IncomingLink(ServedLink):
    """A link into a queue or topic."""

    link: ReceiverLink
    right = Right.SEND
    operations = frozenset({Operation.SEND})

    def __init__(
        self, server: ServedLinkOwner, link: ReceiverLink, path: str, resource: str, target: SendTarget
    ) -> None:
        super().__init__(server, link, path, resource)
        self.used_at = server.node.clock()
        self._intake = target.intake
        self._taken = 0
        link.flow(INCOMING_CREDIT)

    def on_delivery(self, event: DeliveryReceived) -> None:
        self.used_at = self.server.read_at
        self._taken += 1
        if self.is_untouched:
            outcome = self._take_in(event)
            if outcome is None:
                return
            if not event.settled:
                self.link.answer(event.delivery_id, outcome)
        elif not self._take_in_through_faults(event):
            return
        if 2 * self._taken >= INCOMING_CREDIT:
            self.resume()

    def _take_in_through_faults(self, event: DeliveryReceived) -> bool:
        """Accept the message as far as faults allow; return False if the link is cut or stands still."""
        verdict = self.verdict(InjectionPoint.TRANSFER)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return False
        refusal = refusal_by(verdict, self.path)
        late = self.server.node.faults.lateness(self.path, self.caller)
        outcome = rejected(refusal) if refusal is not None else self._take_in(event, late)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
            return False
        if outcome is None:
            return False
        is_told = verdict is not FaultVerdict.TAKE_SILENTLY or outcome is not ACCEPTED
        if is_told and not event.settled:
            if self.is_slow:
                self.later(partial(self.link.answer, event.delivery_id, outcome), Direction.OUT)
            else:
                self.link.answer(event.delivery_id, outcome)
        return True

    def end_if_closed(self, path: str) -> None:
        """Detach if `path` is this link's entity and it accepts no messages."""
        if self.path.lower() == path.lower():
            try:
                self._intake.check_open()
            except EntityDisabled as error:
                self.detach(refusal_of(error))

    def resume(self) -> None:
        """Grant credit for the messages that were accepted or swallowed."""
        if self._taken:
            self._taken = 0
            self.link.flow(INCOMING_CREDIT)

    def _take_in(self, event: DeliveryReceived, late: float = 0.0) -> DeliveryState | None:
        """Return the outcome for the sender; None if the link was detached instead."""
        payload = event.payload
        try:
            if event.message_format != BATCH_FORMAT:
                self._intake.send((read_message(payload),), late=late)
            elif len(payload) > MAX_BATCH_BYTES:
                refusal = refusal_of(MessageTooLarge(self.path, len(payload), MAX_BATCH_BYTES))
                is_large = self._intake.max_message_bytes > MAX_BATCH_BYTES
                if not is_large or not self.server.node.namespace.behaves.oversize_batch_detaches:
                    return rejected(refusal)
                self.detach(refusal)
                return None
            else:
                self._intake.send(read_batch(payload), late=late)
        except BrokerError as error:
            return rejected(refusal_of(error))
        except DecodeError as error:
            return rejected(bad_argument(f"the message cannot be read: {error}"))
        return ACCEPTED


class OutgoingLink(ServedLink):
    """A link out of a queue, a subscription, or one of their sub-queues."""

    link: SenderLink
    right = Right.LISTEN
    operations = frozenset({Operation.RECEIVE})

    def __init__(
        self, server: ServedLinkOwner, link: SenderLink, path: str, resource: str, messages: MessageQueue
    ) -> None:
        super().__init__(server, link, path, resource)
        self.used_at = server.node.clock()
        self.messages = messages
        remote = link.remote
        settled = remote is not None and remote.snd_settle_mode == SETTLED_BY_SENDER
        self.consumer = Consumer(self._deliver, self._lost, settles_on_delivery=settled)
        self._paused = False

    def begin(self) -> None:
        super().begin()
        if self.link.credit and not self._paused and self.link in self.server.links:
            self.messages.grant(self.consumer, self.link.credit)  # granted before the attach was answered

    def _deliver(self, stored: StoredMessage) -> None:
        if not self.is_untouched:
            verdict = self.verdict(InjectionPoint.DELIVERY)
            if verdict is FaultVerdict.TAKE_AND_RESET:
                self.server.abort()
                return
            if self.is_cut_by(verdict):
                return
        data, token = write_message(stored), stored.lock_token
        tag = token or b""  # settled on delivery: the service sends an empty tag
        if self.is_slow:
            self.later(partial(self._transfer, data, tag, token is None), Direction.OUT)
        else:
            self._transfer(data, tag, token is None)

    def _transfer(self, data: bytes, tag: bytes, settled: bool) -> None:
        if self.link.is_attached:
            self.used_at = self.server.node.woken_at
            self.link.send(data, tag=tag, settled=settled)
            self.server.count_outgoing(len(data))

    def _lost(self, error: BrokerError) -> None:
        self.link.detach(error=error_of(refusal_of(error)))
        self.server.forget(self)

    def on_flow(self, event: FlowReceived) -> None:
        self.used_at = self.server.read_at
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
        super().gone()
        self.messages.detach(self.consumer)

    def on_disposition(self, event: DispositionReceived) -> None:
        self.used_at = self.server.read_at
        if self.is_untouched:
            answer = self._settled_as(event)
            if not event.settled:
                self.link.settle(event.delivery_id, answer)
            return
        verdict = self.verdict(InjectionPoint.SETTLE)
        if verdict is FaultVerdict.SWALLOW or self.is_cut_by(verdict):
            return
        refusal = refusal_by(verdict, self.path)
        answer = rejected(refusal) if refusal is not None else self._settled_as(event)
        if verdict is FaultVerdict.TAKE_AND_RESET:
            self.server.abort()
        elif event.settled or verdict is FaultVerdict.TAKE_SILENTLY:
            return
        elif self.is_slow:
            self.later(partial(self.link.settle, event.delivery_id, answer), Direction.OUT, SETTLING)
        else:
            self.link.settle(event.delivery_id, answer)

    def _settled_as(self, event: DispositionReceived) -> DeliveryState | None:
        """Settle the delivery and return the outcome for the receiver."""
        try:
            self._settle(event.tag, event.state)
        except BrokerError as error:
            return rejected(refusal_of(error))
        if isinstance(event.state, Rejected):
            return Rejected()  # without the error, which clients read as a failure
        return event.state

    def _settle(self, token: bytes, state: DeliveryState | None) -> None:
        """Apply an outcome. Raises BrokerError."""
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

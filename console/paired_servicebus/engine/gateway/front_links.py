"""The links of one client of the gateway: senders to entities, `$cbs`, and `$management` for schedules; the relay.

Accepted means that a namespace has it: a message is settled with the outcome of its paired send, not before. Not here:
what is relayed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeVar

from paired_servicebus.core.errors import (
    ScheduledInBacklogError,
    WireConnectionError,
    WireError,
    WireLinkError,
    WireRequestError,
)
from paired_servicebus.core.model.gateway_view import LinkDirection, TurnedAway
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.engine.gateway.gateway_census import ClientTally
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing
from paired_servicebus.engine.gateway.send_refusals import refusal_of_send, rejection_of
from paired_servicebus.pairing.amqp_client.client_connection import (
    AttachFields,
    ClientConnection,
    OnDelivery,
    OnLost,
    OnOutcome,
    WireReceiver,
    WireSender,
)
from paired_servicebus.pairing.amqp_client.endpoint import Endpoint
from paired_servicebus.pairing.amqp_client.reconnecting import Backoff, ReconnectingConnection
from paired_servicebus.pairing.envelope_codec import is_ping
from paired_servicebus.pairing.runtime.deadlines import CLOSING, end_all
from paired_servicebus.pairing.sending.encoded_sender import SCHEDULE, EncodedSender, SendTransaction
from servicebus_amqp.access import Flaw, Grants, NodeAddress, ProvenAccess, TokenError
from servicebus_amqp.encoding.codec import Array
from servicebus_amqp.encoding.performatives import ACCEPTED, DeliveryState, Error, Rejected, TransactionalState
from servicebus_amqp.nodes.request_ends import (
    AmqpRefusal,
    NodeReply,
    NodeRequest,
    ReplyEnd,
    ReplyVocabulary,
    RequestEnd,
    bad_argument,
    bad_token,
    error_of,
    read_put_token,
    refused,
    too_many_replies,
    unauthorized,
    write_reply,
)
from servicebus_amqp.protocol.connection import Session
from servicebus_amqp.protocol.links import (
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    Link,
    LinkSession,
    ReceiverLink,
    SenderLink,
)
from servicebus_amqp.protocol_errors import Condition
from servicebus_amqp.server.server_connection import KeyBudget, ServedLink, ServedSession

# The primary's side of one client's connection: opened with its first relayed link, and again after a loss.
#
# Everything relayed goes to the primary, whether an entity has failed over or not. While the primary is away, an attach
# is tried again for 50 seconds before it is refused, or as long as its client waits if that is less. Older clients loop
# tightly on fast refusals; JavaScript waits 30 seconds after each, and would be back long after the primary. Nothing is
# read from the primary while the client has no room for it.

IDLE_SECONDS: Final = 20.0
"""Seconds within which the primary must send something; a silent one holds receivers no longer."""
CONNECTING_SECONDS: Final = 5.0
ATTACHING_SECONDS: Final = 10.0
HOLDING_SECONDS: Final = 50.0
"""Seconds for which an attach waits for a primary that is away; Java and JavaScript wait 60 themselves."""
LAST_TRY_SECONDS: Final = 1.0
"""Seconds that a try has at least, so that an attach ends so long after its time at most."""
_RETRY_SECONDS: Final = 0.25
"""Seconds between tries of one attach; the connection's own pauses are longer after a while."""
_MAX_PAUSE: Final = 2.0
_ANSWERS: Final = (FailureKind.NOT_FOUND, FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHORIZED)
"""Failures that a primary answers with, besides the refusal of a link."""

T = TypeVar("T", WireReceiver, WireSender)
SessionOpener = Callable[[ClientConnection], Awaitable[Session]]
"""Returns a session of the primary's for links of one session of a client. Raises WireError."""


class RelayConnection(ReconnectingConnection):
    """One client's connection to the primary, with the engine's own credential. Its tasks end with it."""

    def __init__(self, endpoint: Endpoint, *, holding: float = HOLDING_SECONDS) -> None:
        super().__init__(
            endpoint,
            name="paired-gateway",
            idle_timeout=IDLE_SECONDS,
            backoff=Backoff(random.random, first=_RETRY_SECONDS, most=_MAX_PAUSE),
            connecting=CONNECTING_SECONDS,
        )
        self._holding = holding
        self._work: set[asyncio.Task[None]] = set()
        self._full: set[Callable[[], bool]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task of a link."""
        task = asyncio.get_running_loop().create_task(work, name=f"relay to {self.endpoint.hostname}")
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def close(self) -> None:
        await end_all(tuple(self._work), CLOSING)
        await super().close()

    async def relayed_receiver(
        self,
        address: NodeAddress,
        fields: AttachFields,
        *,
        on_delivery: OnDelivery,
        on_settled: OnOutcome,
        on_lost: OnLost,
        timeout: float = ATTACHING_SECONDS,
        patience: float = inf,
        opener: SessionOpener | None = None,
    ) -> WireReceiver:
        """Attach to a node for the messages of a client's link. Raises WireError.

        patience: the client's seconds. opener: of its session; None: it shares one.
        """

        async def attach(line: ClientConnection) -> WireReceiver:
            await line.authorizer.authorize(address.path)
            own = fields if opener is None else replace(fields, session=await opener(line))
            return await line.attach_receiver(
                address.resource, on_delivery=on_delivery, on_settled=on_settled, on_lost=on_lost, fields=own
            )

        return await self._attach(attach, timeout, address, patience)

    async def relayed_sender(
        self, address: NodeAddress, fields: AttachFields, *, on_outcome: OnOutcome, on_lost: OnLost
    ) -> WireSender:
        """Attach to a node for the requests of a client's link. Raises WireError."""

        async def attach(line: ClientConnection) -> WireSender:
            await line.authorizer.authorize(address.path)
            return await line.attach_sender(address.resource, on_outcome=on_outcome, on_lost=on_lost, fields=fields)

        return await self._attach(attach, ATTACHING_SECONDS, address)

    # -- room of the client -----------------------------------------------------------------------------------

    def hold_back(self, is_full: Callable[[], bool]) -> None:
        """Read nothing more until `is_full` is no longer so, as `relieve` finds."""
        self._full.add(is_full)
        self._hold_reading(True)

    def relieve(self) -> None:
        """Read again if there is room for it."""
        if self._full:
            self._full = {is_full for is_full in self._full if is_full()}
            self._hold_reading(bool(self._full))

    def _hold_reading(self, held: bool) -> None:
        if self._line is not None:
            self._line.hold_reading(held)

    # -- inside -----------------------------------------------------------------------------------------------

    async def _attach(
        self,
        attach: Callable[[ClientConnection], Coroutine[Any, Any, T]],
        timeout: float,
        address: NodeAddress,
        patience: float = inf,
    ) -> T:
        """Attach; a primary that is away is tried again for a while. Raises WireError.

        An attach for the next session may be answered later than that: the primary waits for a message.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() + min(self._holding, patience)
        ends = last if timeout <= ATTACHING_SECONDS else max(last, loop.time() + timeout)
        seconds = timeout
        while True:
            try:
                return await self.run(attach, seconds, f"attaching to {address.resource}")
            except WireError as error:
                left = last - loop.time()
                if left <= 0 or is_answer(error):
                    raise
                await asyncio.sleep(min(left, _RETRY_SECONDS))
            seconds = min(timeout, max(LAST_TRY_SECONDS, ends - loop.time()))


def is_answer(error: WireError) -> bool:
    """Return whether the primary answered with this error; otherwise it is away."""
    return isinstance(error, WireLinkError) or kind_of(error) in _ANSWERS


def refusal_of_relay(error: WireError) -> AmqpRefusal:
    """Return the refusal of a link or a request that the primary did not serve."""
    refusal = refusal_of_send(error)
    if kind_of(error) is FailureKind.NOT_FOUND:
        return AmqpRefusal(Condition.NOT_FOUND, refusal.description, 404)
    return refusal


def error_of_refusal(error: WireError) -> Error:
    """Return the error of a refused attach: the primary's own, or one that every client retries."""
    return _peers_error(error) or error_of(refusal_of_relay(error))


def error_of_end(error: WireError) -> Error | None:
    """Return the error of a detach: the primary's own; `detach-forced` if its connection was lost."""
    if isinstance(error, WireLinkError):
        return _peers_error(error)
    return Error(condition=Condition.DETACH_FORCED, description=refusal_of_send(error).description)


def _peers_error(error: WireError) -> Error | None:
    """Return the primary's error; a forced close of the connection would end the client's own."""
    found = error.peers_error if isinstance(error, WireLinkError) else None
    if not isinstance(found, Error):
        return None
    if found.condition == Condition.CONNECTION_FORCED:
        return Error(condition=Condition.DETACH_FORCED, description=found.description, info=found.info)
    return found


def closed_by_client(path: str) -> WireError:
    """Return the reason of a link that ends because the client's has."""
    return WireConnectionError(f"the client's link to {path} ended")


SEND_SECONDS: Final = 25.0
"""The whole time of a send: less than the time-out of every SDK for one try."""
PING_SECONDS: Final = 10.0
"""For a client's ping, such as that of `paired check`: it is never parked, and its failure fails nothing over."""
SENDER_CREDIT: Final = 500
"""The most unsettled messages of one link: more than a client has in flight at any round trip to a region."""
MAX_WAITING_REPLIES: Final = 100
"""The most replies that wait for a client's credit: it has as many requests under way, and no more."""

_SERVER_TIMEOUT: Final = "com.microsoft:server-timeout"
_SHARE: Final = 0.9
_OVERTIME: Final = 1.05
"""Of a request's time, for a call that has not ended by itself; its own end names the reason."""

SenderFinder = Callable[[], Awaitable[EncodedSender]]
"""Returns an entity's sender once the entity is known to exist. Raises AmqpRefusal, PairedError."""


class OpenAct(SendTransaction, Protocol):
    """One link's part in an open transaction, as the links use it."""

    @property
    def transaction(self) -> OpenTransaction: ...


class OpenTransaction(Protocol):
    """An open transaction, as the links use it."""

    id: bytes
    order: asyncio.Lock

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run an act; the discharge waits for it."""

    def wait_for(self, act: asyncio.Future[Any]) -> None:
        """Have the discharge wait for an act."""

    def lose(self, why: str) -> None:
        """Note that an act has no answer."""

    def note_refusal(self, text: str) -> None:
        """Note a refused send."""

    async def state_at_primary(self) -> TransactionalState:
        """Return the primary's state of it. The caller has `order`. Raises WireError, AmqpRefusal."""


class OpenTransactions(Protocol):
    """The open transactions of one connection, as the links use them."""

    def find(self, state: DeliveryState | None) -> OpenTransaction:
        """Return the transaction of a state. Raises AmqpRefusal."""

    def enlist(self, state: DeliveryState | None, link: Link, address: NodeAddress, *, is_send: bool) -> OpenAct:
        """Return a link's part in the transaction of an act. Raises AmqpRefusal."""


class FrontOwner(Protocol):
    """A link's view of its connection."""

    grants: Grants
    budget: KeyBudget | None
    tally: ClientTally
    sessions: dict[LinkSession, ServedSession]

    @property
    def transactions(self) -> OpenTransactions: ...

    @property
    def keys(self) -> KeyRing: ...

    def now(self) -> float:
        """Return the time of day, in epoch seconds."""

    def warn(self, kind: str, text: str) -> None:
        """Log a line for the operator, at most one of its kind a minute."""

    def touch(self) -> None:
        """Schedule a write."""

    def touch_after_read(self) -> None:
        """Write at the end of the present read of the primary."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that ends with the connection at the latest, unless it is a send."""

    def opener_of(self, link: Link) -> SessionOpener | None:
        """Return how the primary's session for a receiver is opened; None: it shares one."""

    def grant(self, access: ProvenAccess) -> None:
        """Store proven access. Raises AmqpRefusal."""

    def turn_away(self, why: TurnedAway, text: str) -> None:
        """Count a refusal of what the client may not do, for the operator."""

    def refusal(self, error: Exception) -> AmqpRefusal:
        """Return the answer to what ended with `error`; a kind that no table knows is counted, and logged once."""

    @property
    def relay(self) -> RelayConnection:
        """The connection to the primary for what is relayed."""

    def refused(self, link: Link, error: Error, *, by_primary: bool) -> None:
        """Refuse a link. by_primary: the refusal is the primary's."""

    def end_lost(self, link: SenderLink, error: Error | None, *, with_connection: bool) -> None:
        """Detach a receiver that the primary has ended, with its connection or alone."""

    def reply_ends(self) -> list[ReplyEnd]: ...
    def replies_of(self, end: ReplyEnd | None) -> FrontReplies | None: ...
    def pause(self, reason: str) -> None: ...
    def resume(self, reason: str) -> None: ...
    def end_beyond(self, refusal: AmqpRefusal) -> None: ...


class FrontLink(ServedLink):
    """A link in service. `resource`: the path that a token has to cover; empty for $cbs."""

    direction: LinkDirection | None = None
    """Its use, for the operator; None: it is not counted."""

    def __init__(self, owner: FrontOwner, resource: str, right: GatewayRight | None) -> None:
        self.owner = owner
        self.resource = resource
        self.right = right

    def drain(self) -> None:
        """Grant no more credit: the gateway ends."""


class FrontSender(FrontLink):
    """A client's sender: each transfer becomes a paired send, without a task of its own while all is well."""

    direction = LinkDirection.SENDS
    has_transactions = True

    def __init__(self, owner: FrontOwner, link: ReceiverLink, address: NodeAddress, sender: EncodedSender) -> None:
        super().__init__(owner, address.resource, GatewayRight.SEND)
        self._address = address
        self.tally = owner.tally.sends_to(address.path)
        self.link = link
        self._sender = sender
        assert owner.budget is not None, "the client is admitted"
        self._budget = owner.budget
        self._taken = 0
        self._is_draining = False
        link.flow(SENDER_CREDIT)

    def drain(self) -> None:
        self._is_draining = True
        self.link.flow(0)

    def on_delivery(self, event: DeliveryReceived) -> None:
        owner, sender, data, form = self.owner, self._sender, event.payload, event.message_format
        self._budget.add(len(data), owner)
        self.tally.bytes_in_hand += len(data)
        if event.state is not None:
            self._include(event)
            return
        if is_ping(data):
            owner.start(self._finish(event, sender.ping(data, timeout=PING_SECONDS)))
            return
        try:
            goes = sender.go_straight(data, form, partial(self._on_straight_end, event), timeout=SEND_SECONDS)
        except Exception as error:  # noqa: BLE001 - any error is the outcome of this message alone
            self._refuse(event, error)
        else:
            if not goes:
                owner.start(self._finish(event, sender.send(data, form, timeout=SEND_SECONDS)))

    def _on_straight_end(self, event: DeliveryReceived, rest: Coroutine[Any, Any, None] | None) -> None:
        if rest is None:  # in a read of the primary
            self._settle(event, ACCEPTED)
            self.owner.touch_after_read()
        else:
            self.owner.start(self._finish(event, rest))

    def _include(self, event: DeliveryReceived) -> None:
        """Make a send an act of its transaction."""
        try:
            act = self.owner.transactions.enlist(event.state, self.link, self._address, is_send=True)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(event, error)
            return
        sending = self._sender.send_in(act, event.payload, event.message_format, timeout=SEND_SECONDS)
        act.transaction.start(self._finish(event, sending, act.transaction))

    async def _finish(
        self, event: DeliveryReceived, work: Coroutine[Any, Any, None], transaction: OpenTransaction | None = None
    ) -> None:
        """Complete a send, and settle its message with the outcome."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(event, error, transaction)
        except BaseException:
            self._remove(event)
            raise
        else:
            self._end(
                event, ACCEPTED if transaction is None else TransactionalState(txn_id=transaction.id, outcome=ACCEPTED)
            )

    def _refuse(self, event: DeliveryReceived, error: Exception, transaction: OpenTransaction | None = None) -> None:
        refusal = self.owner.refusal(error)
        if transaction is not None:
            transaction.note_refusal(refusal.description)
        self.owner.warn(f"refused a client's message, {refusal.condition}", refusal.description)
        self._end(event, rejection_of(error))

    def _end(self, event: DeliveryReceived, outcome: DeliveryState) -> None:
        """Settle a message whose send has ended, outside a read of the primary."""
        self._settle(event, outcome)
        self.owner.touch()

    def _settle(self, event: DeliveryReceived, outcome: DeliveryState) -> None:
        self._remove(event)
        if isinstance(outcome, Rejected):
            self.tally.refuse(outcome, self.owner.now())
        else:
            self.tally.accepted += 1
        if not event.settled:
            self.link.answer(event.delivery_id, outcome)
        self._renew()

    def on_too_large(self, event: DeliveryTooLarge) -> None:
        text = f"a message for {self.resource} has {event.size} bytes, the link takes {self.link.max_message_size}"
        self.owner.warn(f"refused a client's message, {Condition.MESSAGE_SIZE_EXCEEDED}", text)
        error = Error(condition=Condition.MESSAGE_SIZE_EXCEEDED, description=text)
        self.tally.refuse(Rejected(error=error), self.owner.now())
        if event.state is not None:
            with suppress(AmqpRefusal):  # of no open transaction
                self.owner.transactions.find(event.state).note_refusal(text)
        self._renew()

    def _renew(self) -> None:
        self._taken += 1
        if 2 * self._taken >= SENDER_CREDIT and not self._is_draining:
            # credit for settled messages only: a slow primary slows its clients
            self.link.flow(self.link.credit + self._taken)
            self._taken = 0

    def _remove(self, event: DeliveryReceived) -> None:
        size = len(event.payload)
        self._budget.remove(size)
        self.tally.bytes_in_hand -= size


class FrontReplies(FrontLink):
    """The replies of one node."""

    def __init__(self, owner: FrontOwner, link: SenderLink, address: NodeAddress) -> None:
        super().__init__(owner, address.resource, None)
        self.end = ReplyEnd(link, address)

    def on_disposition(self, event: DispositionReceived) -> None:
        self.end.on_disposition(event)


class FrontRequests(FrontLink):
    """The requests to one node."""

    vocabulary: ReplyVocabulary

    def __init__(self, owner: FrontOwner, link: ReceiverLink, address: NodeAddress) -> None:
        super().__init__(owner, address.resource, None)
        self.link = link
        self._requests = RequestEnd(link, address)

    def on_delivery(self, event: DeliveryReceived) -> None:
        request = self._requests.read(event)
        if request is not None:
            self._requests.accept(event)
            try:
                self.handle(request)
            except Exception as error:  # noqa: BLE001 - any error is the answer to this request alone
                self.reply(request, refused(self.owner.refusal(error)))

    def handle(self, request: NodeRequest) -> None:
        """Perform a request, now or in a task, and reply."""
        raise NotImplementedError

    def reply(self, request: NodeRequest, reply: NodeReply) -> None:
        """Reply on the link that the request names; without one the reply is dropped."""
        end = self._requests.partner(request.reply_to, self.owner.reply_ends())
        if end is None:
            return
        if end.link.waiting >= MAX_WAITING_REPLIES:
            refusal = too_many_replies()
            self.owner.warn(f"ended a client's link, {refusal.condition}", refusal.description)
            self.link.detach(error=error_of(refusal))
        else:
            end.send(write_reply(request, reply, self.vocabulary))
        self.owner.touch()


class FrontTokens(FrontRequests):
    """The client's tokens, by the gateway's own keys."""

    vocabulary = ReplyVocabulary.CBS

    def handle(self, request: NodeRequest) -> None:
        try:
            audience, token = read_put_token(request.properties, request.body)
            self.owner.grant(self.owner.keys.judge(token, audience, self.owner.now()))
        except TokenError as error:
            self.owner.warn("refused a client's token", error.reason)
            wrong = error.flaw in (Flaw.SIGNATURE, Flaw.MALFORMED)
            self.owner.turn_away(TurnedAway.WRONG_KEY if wrong else TurnedAway.BAD_TOKEN, error.reason)
            self.reply(request, refused(bad_token(error)))
        else:
            self.reply(request, NodeReply(status=202, description="Accepted"))


class FrontManagement(FrontRequests):
    """`$management` of an entity: schedule and cancel go through the pairing; they ask for the entity first."""

    vocabulary = ReplyVocabulary.MANAGEMENT
    direction = LinkDirection.MANAGES

    def __init__(self, owner: FrontOwner, link: ReceiverLink, address: NodeAddress, find_sender: SenderFinder) -> None:
        super().__init__(owner, link, address)
        self._find_sender = find_sender
        self._sender: EncodedSender | None = None

    def handle(self, request: NodeRequest, act: OpenAct | None = None) -> None:
        work = self._answer(request, act)
        if act is None:
            self.owner.start(work)
        else:
            act.transaction.start(work)

    async def _answer(self, request: NodeRequest, act: OpenAct | None) -> None:
        seconds = seconds_for(request.properties, SEND_SECONDS)
        ends = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout(seconds * _OVERTIME):
                reply = NodeReply(status=200, description="OK", body=await self._perform(request, ends, act))
        except ScheduledInBacklogError as error:
            reply = refused(bad_argument(str(error)))
        except Exception as error:  # noqa: BLE001 - as above
            reply = refused(self.owner.refusal(error))
        self.reply(request, reply)

    async def _perform(self, request: NodeRequest, ends: float, act: OpenAct | None) -> Any:
        """Perform a request until `ends` in the loop's time; return the body of its reply."""
        owner, body = self.owner, request.body if isinstance(request.body, dict) else {}
        if not owner.grants.allow(self.resource, GatewayRight.SEND, owner.now()):
            raise unauthorized(self.resource, GatewayRight.SEND)
        sender = self._sender = self._sender or await self._find_sender()
        if request.operation == SCHEDULE:
            entries = _listed(body, "messages")
            numbers = await sender.schedule(entries, timeout=_left(ends), transaction=act)
            return {"sequence-numbers": Array.of(int, numbers)}
        await _cancel(sender, _listed(body, "sequence-numbers"), _left(ends), act)
        return None


def seconds_for(properties: Mapping[Any, Any], most: float) -> float:
    """Return the seconds for a request: at most nine tenths of the client's own limit, if it names one."""
    given = properties.get(_SERVER_TIMEOUT)
    return min(most, _SHARE * given / 1000) if isinstance(given, int) and given > 0 else most


def _left(ends: float) -> float:
    """Return the seconds until `ends`. Raises TimeoutError: there is none left."""
    left = ends - asyncio.get_running_loop().time()
    if left <= 0:
        raise TimeoutError("the client's time for this request is over")
    return left


async def _cancel(sender: EncodedSender, numbers: list[Any], seconds: float, act: OpenAct | None) -> None:
    """Cancel scheduled messages. Raises AmqpRefusal: a number is none, is unknown, or its message was sent."""
    if not all(isinstance(number, int) for number in numbers):
        raise bad_argument("'sequence-numbers' holds something else than numbers")
    try:
        await sender.cancel(numbers, timeout=seconds, transaction=act)
    except WireRequestError as error:  # the primary's own answer
        raise AmqpRefusal(error.condition or "", str(error), error.status) from error


def _listed(body: dict[Any, Any], name: str) -> list[Any]:
    found = body.get(name)
    if isinstance(found, Array):
        return list(found.values)
    if not isinstance(found, list):
        raise bad_argument(f"the request has no list '{name}'")
    return found

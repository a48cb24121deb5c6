"""The sender under a pairing for encoded messages: the bytes of clients of any language, as a gateway has them.

A message without an id gets one. The same bytes get the same id until a namespace has accepted them, but never while
another call has it: two equal messages in flight are two messages, and duplicate detection must not drop one.

`SendDriver` makes its attempts, by the same rules as those of `PairedSender`. An attempt at the primary goes over our
own AMQP and carries the client's bytes.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from paired_servicebus.core.errors import (
    BacklogUnavailableError,
    ReservedPropertyError,
    UnreadableError,
    WireConnectionError,
    WireError,
    WireOutcomeError,
)
from paired_servicebus.core.failover.send_router import PRIMARY, Route, Try
from paired_servicebus.core.model.pairing_events import SendAccepted
from paired_servicebus.core.model.verdict import Verdict, at_backlog
from paired_servicebus.pairing import envelope_codec
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.envelope_codec import EncodedMessage, exceeds, read_message, unreadable
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.amqp_link import AmqpLink, too_large
from paired_servicebus.pairing.sending.paired_sender import (
    Backlog,
    MessageForm,
    OpenTransaction,
    SendCall,
    SendDriver,
    check_timeout,
)
from paired_servicebus.pairing.sending.pairing_links import PrimaryLinks
from servicebus_amqp.encoding.codec import Array
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT, split, unbatch, with_message_id, write_data
from servicebus_amqp.encoding.performatives import TransactionalState
from servicebus_amqp.nodes.request_ends import AmqpRefusal, NodeReply

SCHEDULE: Final = "com.microsoft:schedule-message"
CANCEL: Final = "com.microsoft:cancel-scheduled-message"
SMALL_BYTES: Final = 64 * 1024
"""Bytes that are far from the limit of any backlog queue."""
MAX_GIVEN_IDS: Final = 10_000
MAX_BATCH_MESSAGES: Final = 4_500
"""The service's own limit; a batch of empty messages would stop all others for as long as it is read."""
Rest = Coroutine[Any, Any, None]
"""The rest of a call, to be awaited once; raises as `EncodedSender.send`."""
OnStraightEnd = Callable[[Rest | None], None]
"""Gets the end of a straight send, inside a socket's read: None when it is accepted. Must not raise."""
ENCODED_FORM: Final[MessageForm[EncodedMessage]] = MessageForm(
    id_of=lambda message: message.message_id,
    body_bytes=envelope_codec.body_bytes,
    is_scheduled=envelope_codec.is_scheduled,
    seconds_to_live=envelope_codec.seconds_to_live,
    encoded=lambda message: message,
)


class EncodedPayload(NamedTuple):
    """One transfer of a client. messages: each has an id. given_ids: those that came from here.

    data: the bytes to send with `message_format`, with these ids. as_sent: the client's own bytes.
    """

    data: bytes
    message_format: int
    messages: list[EncodedMessage]
    given_ids: list[str]
    as_sent: bytes


class GivenIds:
    """The ids of messages that came without one, by the digest of their bytes. Bounded; the oldest are forgotten."""

    def __init__(self, most: int = MAX_GIVEN_IDS) -> None:
        self._most = most
        self._free: OrderedDict[bytes, list[str]] = OrderedDict()
        self._taken: dict[str, bytes] = {}

    def take(self, digest: bytes) -> str:
        """Return the id of these bytes: one that an ended call left, else a new one."""
        left = self._free.get(digest)
        given = left.pop(0) if left else str(uuid.uuid4())
        if left is not None and not left:
            del self._free[digest]
        self._taken[given] = digest
        return given

    def release(self, given: str, *, accepted: bool) -> None:
        """End a call's use of an id. accepted: the bytes are a new message when they are sent again."""
        digest = self._taken.pop(given, None)
        if digest is None or accepted:
            return
        self._free.setdefault(digest, []).append(given)
        if len(self._free) > self._most:
            self._free.popitem(last=False)


def read_payload(data: bytes, message_format: int, ids: GivenIds) -> EncodedPayload:
    """Read one transfer: a message, or a batch of them. Release its `given_ids` when its call has ended.

    Raises:
        ReservedPropertyError: a message has a property of the envelope.
        UnreadableError: it is not a message, or has a field of another type than AMQP's.
    """
    try:
        if message_format == BATCH_FORMAT:
            return _read_batch(data, ids)
        message = read_message(data)
        if message.message_id:
            return EncodedPayload(data, message_format, [message], [], data)
        given = ids.take(_digest(data))
        named = _named(message, given)
        return EncodedPayload(named.data, message_format, [named], [given], data)
    except ReservedPropertyError:
        raise
    except Exception as error:  # from an unknown client: any error is its own
        raise unreadable(error) from error


def _read_batch(data: bytes, ids: GivenIds) -> EncodedPayload:
    messages = [read_message(inner) for inner in islice(unbatch(data), MAX_BATCH_MESSAGES + 1)]
    if not 0 < len(messages) <= MAX_BATCH_MESSAGES:
        raise UnreadableError(f"a batch holds 1 to {MAX_BATCH_MESSAGES} messages")
    if all(message.message_id for message in messages):
        return EncodedPayload(data, BATCH_FORMAT, messages, [], data)
    given: list[str] = []
    for index, message in enumerate(messages):
        if not message.message_id:
            name = ids.take(_digest(message.data))
            given.append(name)
            messages[index] = _named(message, name)
    body = b"".join([write_data(message.data) for message in messages])
    whole = split(data)._replace(body=body).join()
    return EncodedPayload(whole, BATCH_FORMAT, messages, given, data)


def _named(message: EncodedMessage, given: str) -> EncodedMessage:
    named = message.sections._replace(properties=with_message_id(message.sections.properties, given))
    return EncodedMessage(named.join(), named, given)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


# Sends in a transaction of a gateway's client.
#
# Such a call ends when the primary has the act, or when the act is held for the backlog: at the commit all held acts
# go to one backlog queue in one batch. Acceptance counts for failover at once, and is announced at the commit.


class SendTransaction(OpenTransaction, Protocol):
    """A transaction, as its sends use it. What accepts no more acts raises AmqpRefusal."""

    order: asyncio.Lock
    """Held while an act is sent to the primary: acts leave in their order."""

    @property
    def ready_state(self) -> TransactionalState | None:
        """The primary's state of it; None: it is not declared there yet, or an earlier act has not left."""

    async def declare(self) -> TransactionalState:
        """Return the primary's state; declare it there first. The caller has `order`. Raises WireError."""

    def add(self, act: SendAct) -> None:
        """Count an act that begins."""

    def drop(self, act: SendAct) -> None:
        """Forget an act that was refused."""

    def hold(self, size: int) -> None:
        """Count the bytes of an act that is held."""

    def lose(self, why: str) -> None:
        """Note that the primary has an act or not."""

    async def request(self, path: str, operation: str, body: dict[str, Any], timeout: float) -> NodeReply:
        """Send a request in it to the primary. Raises WireError."""


@dataclass(slots=True, eq=False)
class SendAct:
    """A send in a transaction. link: to the primary, in its session.

    given_ids: those of its messages that came from here. is_sent: the primary has it. is_held: the backlog gets it.
    Both False: it has no answer yet.
    """

    transaction: SendTransaction
    sender: EncodedSender
    link: AmqpLink
    messages: Sequence[EncodedMessage] = ()
    given_ids: Sequence[str] = ()
    is_sent: bool = False
    is_held: bool = False

    def check(self) -> None:
        self.transaction.check()

    def begin(self, messages: Sequence[EncodedMessage], given: Sequence[str]) -> None:
        """Count its messages. Raises AmqpRefusal: they are too many."""
        self.messages, self.given_ids = list(messages), given
        self.transaction.add(self)

    def note(self, failure: WireError | None) -> WireError | None:
        """Note the end of an attempt at the primary; without an answer the transaction is lost."""
        self.is_sent = failure is None
        if failure is not None and not isinstance(failure, WireOutcomeError):
            self.transaction.lose(str(failure))
        return failure

    async def send(self, payload: EncodedPayload, timeout: float) -> None:
        """Send it to the primary, within `timeout` seconds. Raises WireError, AmqpRefusal."""
        loop = asyncio.get_running_loop()
        ends, ended = loop.time() + timeout, loop.create_future()
        async with self.transaction.order:
            await self.link.open(timeout)
            state, limits = await self.transaction.declare(), self.link.limits
            largest = len(payload.data) if limits is None else limits[0]
            data = payload.data if len(payload.data) <= largest else payload.as_sent
            if len(data) > largest:
                raise too_large(self.link.path, len(data), largest)
            now = loop.time()
            if not self.link.put(data, payload.message_format, ends - now, ended.set_result, began=now, state=state):
                raise WireConnectionError(f"the link to {self.link.path} was lost")
        failure = self.note(await ended)
        if failure is not None:
            raise self.link.error_of(failure)

    def hold(self) -> None:
        """Keep it for the backlog. Raises AmqpRefusal: there is no room."""
        self.transaction.hold(sum(len(message.data) for message in self.messages))
        self.is_held = True


class EncodedSender(SendDriver[EncodedMessage]):
    """A sender of bytes to one entity of the primary namespace, or to the backlog while that entity is failed over.

    Made by the paired client; several calls may be under way. Times are seconds.

    Args:
        ids: of messages without one; shared by all senders of a gateway.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        primaries: PrimaryLinks,
        entity_name: str,
        backlog: Backlog,
        ids: GivenIds,
    ) -> None:
        super().__init__(steering, entity_name, backlog, ENCODED_FORM)
        self._link = primaries.encoded_link(entity_name)
        self._ids = ids

    @property
    def wire(self) -> ReconnectingConnection:
        """The primary's connection, which senders of a pairing share."""
        return self._link.wire

    @property
    def limits(self) -> tuple[int, int] | None:
        """Bytes of the largest message and batch that the primary accepts; None while it was never reached."""
        return self._link.limits

    async def send(
        self, data: bytes, message_format: int = 0, *, timeout: float | None = None, act: SendAct | None = None
    ) -> None:
        """Send one transfer, a message or a batch; on return, a namespace has accepted it, or its transaction has.

        Args:
            data: the encoded message, or a batch in BATCH_FORMAT.
            timeout: for the whole call; None: `send_timeout` at the primary, and then twice that at the backlog.
            act: its part in a transaction.

        Raises:
            UnreadableError, ReservedPropertyError: before anything is sent.
            AmqpRefusal: the transaction accepts no more acts.
            BacklogMessageSizeError, BacklogUnavailableError: while failed over.
            PairingClosedError: the pairing was closed.
            WireError, ServiceBusError, TimeoutError: the failure of an attempt.
        """
        check_timeout(timeout)
        payload = read_payload(data, message_format, self._ids)
        with self._entered(payload.messages, payload.given_ids, act):
            await self._deliver(self._act_call(act, payload.messages, payload, timeout))

    def go_straight(
        self,
        data: bytes,
        message_format: int,
        on_end: OnStraightEnd,
        *,
        timeout: float | None = None,
        act: SendAct | None = None,
    ) -> bool:
        """Send as `send`, without a task; return False, with nothing done, if the entity or its link is not ready.

        on_end: called once, later. A failed attempt has a rest: the call goes on by the rules of all calls.

        Raises:
            UnreadableError, ReservedPropertyError, AmqpRefusal: nothing is sent.
        """
        link, state = (self._link, None) if act is None else (act.link, act.transaction.ready_state)
        if not (self._may_go_straight() and link.is_open) or (act is not None and state is None):
            return False
        payload = read_payload(data, message_format, self._ids)
        began = asyncio.get_running_loop().time()
        end = partial(self._end_straight, payload, timeout, on_end, began, act)
        limit = self._limit if timeout is None else min(timeout, self._limit)
        try:
            if act is not None:
                act.begin(payload.messages, payload.given_ids)
            goes = link.put(payload.data, message_format, limit, end, began=began, state=state)
        except AmqpRefusal:
            self._release(payload.given_ids, accepted=False)
            raise
        if not goes:
            self._leave(payload.given_ids, act)
            return False
        self._steering.in_flight.count += 1
        return True

    async def schedule(
        self,
        entries: Sequence[Mapping[str, Any]],
        *,
        timeout: float | None = None,
        act: SendAct | None = None,
    ) -> list[int]:
        """Schedule messages; return the numbers for cancelling, negative for those in the backlog.

        entries: as in the request `schedule-message`: maps of message-id, message, and possibly session-id,
        partition-key and via-partition-key. The time is in the message's annotations. act: as of `send`.

        Raises: as `send`.
        """
        check_timeout(timeout)
        payloads = [read_payload(_message_in(entry), 0, self._ids) for entry in entries]
        singles = [payload.messages[0] for payload in payloads]
        if not singles:
            return []
        given = [name for payload in payloads for name in payload.given_ids]
        numbers: list[int] = []

        async def schedule(_: object, left: list[EncodedMessage], limit: float) -> None:
            rest = zip(entries[-len(left) :], left, strict=True)
            body = {"messages": [{**entry, "message-id": one.message_id, "message": one.data} for entry, one in rest]}
            numbers.extend(await self._ask_for_numbers(body, limit, act))

        with self._entered(singles, given, act):
            await self._deliver(self._act_call(act, singles, None, timeout, schedule))
        return self._number_parked(singles[: len(singles) - len(numbers)]) + numbers

    async def cancel(
        self,
        numbers: Sequence[int],
        *,
        timeout: float | None = None,
        act: SendAct | None = None,
    ) -> None:
        """Cancel scheduled messages by the numbers the primary gave. act: as of `send`.

        Raises:
            ScheduledInBacklogError: a number is negative: its message is, or was, in the backlog.
            WireError: the primary refused, or did not answer.
        """
        body = {"sequence-numbers": Array.of(int, numbers)}

        async def cancel(seconds: float) -> None:
            await self._request_of(act, CANCEL, body, seconds)

        await self._cancel(numbers, timeout, cancel)

    async def park(self, acts: Sequence[SendAct], timeout: float) -> None:
        """Send held acts, also of other senders, to one backlog queue in one batch: all of them or none.

        After a failure another queue gets them, until `timeout` seconds are over.

        Raises:
            BacklogUnavailableError: no queue accepted them in time; each that did not answer may have them.
            MessageSizeExceededError: a batch cannot be so large.
            ServiceBusError: a queue refused the messages themselves.
        """
        steering, loop = self._steering, asyncio.get_running_loop()
        ends, tried, rotation = loop.time() + timeout, set[int](), self._steering.machine.rotation
        parked = [one for act in acts for one in act.sender._parked(act.messages, self._room())]
        failure: Exception | None = None
        while loop.time() < ends:
            index = rotation.pick(steering.draw(), avoid=tried)
            index = rotation.first_out(avoid=tried) if index is None else index
            if index is None:
                break
            try:
                await self._backlog[index].link.send(parked, min(steering.policy.send_timeout, ends - loop.time()))
            except Exception as error:
                failure, route = error, Route(index)
                judgement = steering.judge(error)
                for act in acts:
                    act.sender._report_failure(route, judgement, error, ids=act.messages)
                if at_backlog(judgement) is Verdict.CALLERS:
                    raise
                self._count(route, judgement, messages=len(parked))
                tried.add(index)
            else:
                for act in acts:
                    act.sender._accepted(Route(index), act.messages)
                return
        raise BacklogUnavailableError(
            f"no backlog queue accepted the {len(parked)} messages of the transaction within {timeout:g} s; last: "
            f"{'none was tried' if failure is None else steering.judge(failure).reason}"
        ) from failure

    def conclude(self, act: SendAct, *, is_committed: bool) -> None:
        """End an act: announce what the primary has, and free the ids that were given."""
        if is_committed and act.is_sent:
            self._report(act.messages)
        self._release(act.given_ids, accepted=is_committed)

    def doubt(self, act: SendAct, reason: str) -> None:
        """Announce that the primary may have the messages of an act, or not."""
        self._in_doubt(PRIMARY, act.messages, reason)

    async def ping(self, data: bytes, *, timeout: float) -> None:
        """Send an encoded ping to the primary and nowhere else; a failure says nothing of the entity.

        Raises:
            WireError: the primary did not accept it within `timeout` seconds.
        """
        await self._link.send_bytes(data, 0, timeout)
        self._steering.meter.sends += 1

    # -- inside -----------------------------------------------------------------------------------------------

    def _end_straight(
        self,
        payload: EncodedPayload,
        timeout: float | None,
        on_end: OnStraightEnd,
        began: float,
        act: SendAct | None,
        failure: WireError | None,
    ) -> None:
        """Count an accepted straight send; a failed one goes on as a call. began: in the loop's time."""
        age = asyncio.get_running_loop().time() - began
        messages = payload.messages
        if failure is not None:
            call = self._act_call(act, messages, payload, timeout, began=self._steering.clock() - age)
            on_end(self._go_on(call, failure if act is None else act.note(failure) or failure, payload.given_ids, act))
            return
        self._tally.times.add(age)
        if act is not None:
            act.note(None)
            self._steering.in_flight.leave()
            on_end(None)
            return
        if not self._count_straight(len(messages), sum(map(envelope_codec.body_bytes, messages))):
            self._report(messages)
        elif len(payload.data) > SMALL_BYTES:
            self._count_too_large(messages)
        if payload.given_ids:
            self._release(payload.given_ids, accepted=True)
        self._steering.in_flight.leave()
        on_end(None)

    async def _go_on(
        self, call: SendCall[EncodedMessage], failure: WireError, given: Sequence[str], act: SendAct | None
    ) -> None:
        """Complete a call whose straight send failed, as if its first attempt had."""
        try:
            with self._ids_of(given, act):
                await self._deliver(call, self._link.error_of(failure))
        finally:
            self._steering.in_flight.leave()

    def _act_call(self, act: SendAct | None, *call: Any, **options: Any) -> SendCall[EncodedMessage]:
        made = self._call(*call, **options)
        made.transaction = act
        return made

    async def _attempt(self, step: Try, call: SendCall[EncodedMessage]) -> None:
        act = call.transaction
        if not isinstance(act, SendAct):
            await super()._attempt(step, call)
        elif step.route.queue is not None:
            self._parked(call.left, self._room())  # what no queue can accept fails now
            act.hold()
        else:
            if call.schedule is None:
                await act.send(call.whole, step.timeout)
            else:
                await call.schedule(None, call.left, step.timeout)
                act.is_sent = True
            self._steering.tell(SendAccepted(at=self._steering.clock(), entity=self.entity_name, messages=0))

    async def _send_to_primary(self, call: SendCall[EncodedMessage], timeout: float) -> None:
        left, whole = call.left, call.whole
        if call.schedule is not None:
            await call.schedule(None, left, timeout)
            self._report(left)
        elif isinstance(whole, EncodedPayload):
            limits = self._link.limits
            fits = limits is None or len(whole.data) <= limits[0]
            await self._link.send_bytes(whole.data if fits else whole.as_sent, whole.message_format, timeout)
            self._report(left)
        else:  # the backlog has taken some of its messages
            while left:
                await self._link.send_bytes(left[0].data, 0, timeout)
                self._report(left[:1])
                del left[0]

    def _report(self, accepted: Sequence[EncodedMessage]) -> None:
        self._accepted(PRIMARY, accepted)
        self._count_too_large(accepted)

    def _count_too_large(self, accepted: Sequence[EncodedMessage]) -> None:
        room = self._room()
        self._tally.too_large += sum(exceeds(message, self.entity_name, room) for message in accepted)

    async def _request_of(self, act: SendAct | None, operation: str, body: dict[str, Any], timeout: float) -> NodeReply:
        request = self.wire.request if act is None else act.transaction.request
        return await request(self.entity_name, operation, body, timeout=timeout)

    async def _ask_for_numbers(self, body: dict[str, Any], timeout: float, act: SendAct | None) -> Sequence[int]:
        reply = await self._request_of(act, SCHEDULE, body, timeout)
        found = reply.body.get("sequence-numbers") if isinstance(reply.body, dict) else None
        numbers = found.values if isinstance(found, Array) else found
        if not isinstance(numbers, list | tuple) or len(numbers) != len(body["messages"]):
            raise WireError(f"{self.entity_name} answered {SCHEDULE} without the messages' numbers")
        return [int(number) for number in numbers]

    @contextmanager
    def _entered(self, messages: Sequence[EncodedMessage], given: Sequence[str], act: SendAct | None) -> Iterator[None]:
        """Count a call with these messages until it has ended. Raises AmqpRefusal: its transaction refuses it."""
        with self._ids_of(given, act), self._steering.enter_call(self.entity_name, len(messages)):
            if act is not None:
                act.begin(messages, given)
            yield

    @contextmanager
    def _ids_of(self, given: Sequence[str], act: SendAct | None) -> Iterator[None]:
        """Keep ids from other calls until this one has ended, or the transaction of its act."""
        try:
            yield
        except BaseException:
            self._leave(given, act)
            raise
        if act is None:
            self._release(given, accepted=True)

    def _leave(self, given: Sequence[str], act: SendAct | None) -> None:
        """End a call that was not accepted."""
        self._release(given, accepted=False)
        if act is not None:
            act.transaction.drop(act)

    def _release(self, given: Sequence[str], *, accepted: bool) -> None:
        for name in given:
            self._ids.release(name, accepted=accepted)


def _message_in(entry: Mapping[str, Any]) -> bytes:
    found = entry.get("message") if isinstance(entry, Mapping) else None
    if not isinstance(found, bytes):
        raise UnreadableError("an entry of schedule-message has no binary 'message'")
    return found

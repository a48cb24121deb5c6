"""The messages of the AMQP pumps on their way: their deliveries, and the outcomes for their backlog queues.

`AmqpDelivery` sends all pumps' messages: one shared link for each destination, in limited number. A destination starts
with one message in flight and gains one with each acceptance, so that a failed one costs one try and not a full window.
Waiting messages of a silent destination return to be deferred; those in flight stay until their answer or
`send_timeout`. Everything but opening links and a check each second runs inside socket reads.

`Settlement` settles one pump's messages: on the link while it lives, otherwise by lock token. On a link the queue
confirms each outcome, and neighbours with equal outcomes share a frame. A `$management` request settles many lock
tokens, all or none; a refused one is halved until the lost locks are known.

The pumps' machines decide what follows from each outcome, and whether a destination may be tried.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Final, Protocol, TypeVar
from uuid import UUID

from paired_servicebus.core.errors import (
    WireError,
    WireOutcomeError,
    WireRequestError,
    WireTimeoutError,
    WireUnavailableError,
)
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault
from paired_servicebus.core.pump.pump_events import (
    DeliveryFailed,
    DeliveryWithheld,
    MessagesAccepted,
    MessagesSettled,
    Outcome,
    PumpEvent,
    PumpMessage,
)
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver, WireSender, failure_of
from paired_servicebus.pairing.amqp_client.reconnecting import Status, receive_deferred, renew_locks, update_disposition
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.runtime.tracing import DetachedSpan
from servicebus_amqp.encoding import performatives
from servicebus_amqp.encoding.codec import decode
from servicebus_amqp.encoding.message_sections import find_in_map, split
from servicebus_amqp.encoding.performatives import ACCEPTED, DeliveryState, Error, Modified, Rejected
from servicebus_amqp.protocol.deliveries import Payload
from servicebus_amqp.protocol.links import DispositionReceived
from servicebus_amqp.protocol_errors import DecodeError
from servicebus_amqp.transport import serves_clients

MANAGED: Final = 10.0
"""Seconds for a management request or a settlement of a backlog queue: shorter than a lock."""
USUAL_LOCK_SECONDS: Final = 60.0
"""Seconds of a lock, used if the namespace's clock and ours differ too much."""
_CONTEXT_NAMES: Final = frozenset(name.encode() for name in tracing.CONTEXT_NAMES)


def lock_ends(until_ms: float, now: float) -> float:
    """Return a lock's end in seconds since 1970. until_ms: by the namespace's clock, in milliseconds."""
    left = until_ms / 1000 - now
    return now + (left if 0 < left <= 5 * USUAL_LOCK_SECONDS else USUAL_LOCK_SECONDS)


def context_in(payload: Payload) -> tracing.Headers:
    """Return the trace context that an encoded message carries; empty without a readable one."""
    try:
        section = split(payload if isinstance(payload, bytes) else b"".join(payload)).application_properties
        if section is None:
            return {}
        return tracing.context_of({name: decode(section, at)[0] for name, at in find_in_map(section, _CONTEXT_NAMES)})
    except DecodeError:  # a stranger's property
        return {}


class BacklogMessage(PumpMessage):
    """One message on its way.

    payload: in its destination's form. receiver, delivery_id: for its settlement while the link lives; without a
    receiver it was received by its number.
    """

    __slots__ = ("_token", "delivery_id", "payload", "pump", "receiver")

    def __init__(
        self,
        pump: DeliveryOwner,
        path: str,
        number: int,
        message_id: str,
        payload: Payload,
        token: UUID | bytes,
        locked_until_ms: int,
        at: float,
        receiver: WireReceiver | None = None,
        delivery_id: int = 0,
    ) -> None:
        # As PumpMessage's own, without the call: each message makes one.
        self.path = path
        self.key = path.casefold()
        self.number = number
        self.message_id = message_id
        self.size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        self.lock_ends = lock_ends(locked_until_ms, at)
        self.is_recalled = receiver is None
        self.deferred_as = None
        self.sent_at = 0.0
        self.pump = pump
        self.payload = payload
        self._token = token
        self.receiver = receiver
        self.delivery_id = delivery_id

    @property
    def token(self) -> UUID:
        """The lock token, which settles a message without its link; a delivery's tag contains it."""
        return self._token if isinstance(self._token, UUID) else UUID(bytes_le=self._token)

    def relock(self, again: BacklogMessage) -> None:
        """Use the lock of another delivery of this message."""
        self._token, self.receiver, self.delivery_id = again._token, again.receiver, again.delivery_id


class DeliveryOwner(Protocol):
    """The pump of a message, as deliveries use it."""

    def apply(self, event: PumpEvent[BacklogMessage]) -> None:
        """Step the pump's machine and perform its effects, without waiting."""


COMPLETED: Final = Outcome.COMPLETED
DEFERRED: Final = Outcome.DEFERRED
DEAD_LETTERED: Final = Outcome.DEAD_LETTERED
RELEASED: Final = Outcome.RELEASED
STATUSES: Final[dict[Outcome, Status]] = {
    COMPLETED: "completed",
    DEFERRED: "defered",
    DEAD_LETTERED: "suspended",
    RELEASED: "abandoned",
}
"""The service's own words in requests."""
TOKENS_PER_REQUEST: Final = 250
"""Lock tokens in one request."""
REASON: Final = "Undeliverable"
_LEAVES: Final = (COMPLETED, DEAD_LETTERED)
_ASIDE: Final = Modified(undeliverable_here=True)
_DEAD_LETTER: Final = "com.microsoft:dead-letter"
_ONE_OF_THEM: Final = frozenset(
    {"com.microsoft:message-lock-lost", "com.microsoft:message-not-found", "amqp:not-found"}
)
"""Conditions that concern one message of a request, not the queue."""

T = TypeVar("T")
Apply = Callable[[MessagesSettled[BacklogMessage]], object]


class Settlement:
    """Settles one pump's messages; `apply` gets each result."""

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection, path: str, apply: Apply) -> None:
        self._steering = steering
        self._wire = wire
        self._path = path
        self._apply = apply
        self._unconfirmed: dict[int, tuple[BacklogMessage, Outcome, str]] = {}
        self._by_token: defaultdict[tuple[Outcome, str, bool], list[BacklogMessage]] = defaultdict(list)
        self._completed: list[BacklogMessage] = []
        """Confirmed, and told after the read."""
        self._confirmations = 0
        self._seen = 0
        self._quiet_since = 0.0
        self._requested: set[int] = set()
        self._is_requesting = False

    @property
    def is_busy(self) -> bool:
        """Whether any settlement is unconfirmed."""
        return bool(self._unconfirmed) or bool(self._by_token) or self._is_requesting

    def quiet(self, now: float) -> float:
        """Return the seconds since the last confirmation while any is pending, as seen by occasional callers."""
        if not self._unconfirmed or self._confirmations != self._seen:
            self._seen, self._quiet_since = self._confirmations, now
        return now - self._quiet_since

    def leaving(self) -> int:
        """Return the number of completed and dead-lettered messages without confirmation."""
        waiting = sum(len(messages) for (how, *_), messages in self._by_token.items() if how in _LEAVES)
        return waiting + sum(how in _LEAVES for _, how, _ in self._unconfirmed.values())

    def numbers(self) -> set[int]:
        """Return the numbers of messages with an unconfirmed settlement."""
        waiting = {message.number for messages in self._by_token.values() for message in messages}
        return waiting | self._requested | {message.number for message, *_ in self._unconfirmed.values()}

    def complete(self, messages: list[BacklogMessage]) -> None:
        """Complete messages that their destinations accepted."""
        if len(messages) > 1:
            messages.sort(key=attrgetter("delivery_id"))  # neighbours share a frame
        for message in messages:
            self._settle(message, COMPLETED, ACCEPTED)

    def defer(self, message: BacklogMessage) -> None:
        """Defer a message."""
        self._settle(message, DEFERRED, _ASIDE)

    def dead_letter(self, message: BacklogMessage, reason: str) -> None:
        """Dead-letter a message."""
        info = {"DeadLetterReason": REASON, "DeadLetterErrorDescription": reason}
        self._settle(
            message, DEAD_LETTERED, Rejected(error=Error(condition=_DEAD_LETTER, description=reason, info=info)), reason
        )

    def release(self, message: BacklogMessage) -> None:
        """Release a message; on a living link the queue confirms nothing."""
        receiver = message.receiver
        if receiver is not None and receiver.is_up:
            receiver.settle(message.delivery_id, performatives.RELEASED)
        else:
            self._settle(message, RELEASED, performatives.RELEASED)

    def on_settled(self, event: DispositionReceived) -> None:
        """Handle the queue's answer to an outcome on the link."""
        found = self._unconfirmed.pop(event.delivery_id, None)
        if found is None:
            return
        self._confirmations += 1
        message, how, _ = found
        state = event.state
        if state is ACCEPTED and how is COMPLETED:  # most are
            self._completed.append(message)
            return
        is_done = state is ACCEPTED or not (isinstance(state, Rejected) and state.error is not None)
        self._apply(MessagesSettled([message], how, is_done))

    def tell(self) -> None:
        """Tell the machine of confirmed completions, once after each read."""
        if self._completed:
            completed, self._completed = self._completed, []
            self._apply(MessagesSettled(completed, COMPLETED, True))

    def lost(self) -> None:
        """Settle the unconfirmed messages of a lost link again, by lock token."""
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        for message, how, reason in unconfirmed.values():
            self._by_token[how, reason, True].append(message)
        if unconfirmed:
            self._start_requests()

    def _settle(self, message: BacklogMessage, how: Outcome, state: DeliveryState, reason: str = "") -> None:
        self._steering.meter.settlements += 1
        receiver = message.receiver
        if receiver is None or not receiver.is_up:
            self._by_token[how, reason, False].append(message)
            self._start_requests()
            return
        self._unconfirmed[message.delivery_id] = (message, how, reason)
        receiver.settle(message.delivery_id, state, settled=False)

    # -- by lock token ------------------------------------------------------------------------------------------------

    async def finish(self, within: float) -> None:
        """Settle the rest by lock token, for some seconds, after the pairing's tasks have ended."""
        if self._by_token:  # a request cancelled before its first step leaves `_is_requesting` behind
            pause = min(within, self._wire.pause)
            await asyncio.sleep(pause)
            try:
                await bounded(self._settle_by_token(), within - pause, f"settling messages of {self._path}")
            except TimeoutError:
                return  # their locks end by themselves

    def _start_requests(self) -> None:
        if not self._is_requesting:
            work = self._settle_by_token()
            self._is_requesting = self._steering.tasks.start(work, name=f"settle messages of {self._path}") is not None

    async def _settle_by_token(self) -> None:
        try:
            while self._by_token:
                how, reason, is_again = kind = next(iter(self._by_token))
                messages = self._by_token.pop(kind)
                portion, rest = messages[:TOKENS_PER_REQUEST], messages[TOKENS_PER_REQUEST:]
                if rest:
                    self._by_token[kind] = rest
                self._requested = {message.number for message in portion}
                try:
                    await self._settle_portion(portion, how, reason, is_again=is_again)
                except asyncio.CancelledError:
                    self._by_token[how, reason, True] += portion  # the request may have arrived
                    raise
        finally:
            self._requested = set()
            self._is_requesting = False

    async def _settle_portion(
        self, messages: list[BacklogMessage], how: Outcome, reason: str, *, is_again: bool
    ) -> None:
        """Settle a portion.

        Repeated settlements are mostly confirmed already: only large parts of them are tried again, and a message that
        stays locked comes again when its lock ends.
        """

        async def act(part: Sequence[BacklogMessage]) -> None:
            tokens = [message.token for message in part]
            status = STATUSES[how]
            text = REASON if how == DEAD_LETTERED else ""
            await update_disposition(
                self._wire, self._path, tokens, status, reason=text, description=reason, timeout=MANAGED
            )

        async for part, is_done, _ in _in_parts(messages, act, least=TOKENS_PER_REQUEST // 8 if is_again else 1):
            self._apply(MessagesSettled(part, how, None if is_again and not is_done else is_done))


async def receive_again(
    wire: ReconnectingConnection, path: str, numbers: Sequence[int]
) -> AsyncIterator[tuple[bytes, UUID]]:
    """Yield deferred messages by number, with their lock tokens; missing and locked ones are omitted.

    Raises:
        WireError: the namespace did not answer for them.
    """
    async for _, is_done, found in _in_parts(
        list(numbers), lambda part: receive_deferred(wire, path, part, timeout=MANAGED), strict=True
    ):
        if is_done and found is not None:
            for one in found:
                yield one.payload, one.lock_token


async def renew_each(
    wire: ReconnectingConnection, path: str, messages: list[BacklogMessage]
) -> AsyncIterator[tuple[BacklogMessage, int]]:
    """Renew locks; yield the messages with valid locks, and their ends in milliseconds since 1970.

    Raises:
        WireError: the namespace did not renew them.
    """

    async def act(part: Sequence[BacklogMessage]) -> list[int]:
        return await renew_locks(wire, path, [message.token for message in part], timeout=MANAGED)

    async for part, is_done, ends in _in_parts(messages, act, strict=True):
        if is_done and ends is not None:
            for message, until in zip(part, ends, strict=False):
                yield message, until


Item = TypeVar("Item")


async def _in_parts(
    items: list[Item], act: Callable[[Sequence[Item]], Awaitable[T]], *, strict: bool = False, least: int = 1
) -> AsyncIterator[tuple[list[Item], bool, T | None]]:
    """Apply `act` to items in portions, or to halves of one and so on if one of its items fails the request.

    Yields each part, whether it succeeded, and its result. strict: raise failures that do not concern single items.
    least: smaller parts are not tried.
    """
    parts = [items[at : at + TOKENS_PER_REQUEST] for at in range(0, len(items), TOKENS_PER_REQUEST)][::-1]
    while parts:
        part = parts.pop()
        try:
            result = await act(part)
        except WireError as error:
            is_of_one = isinstance(error, WireRequestError) and error.condition in _ONE_OF_THEM
            if is_of_one and len(part) > least:
                half = len(part) // 2
                parts += [part[half:], part[:half]]
                continue
            if strict and not is_of_one:
                raise
            yield part, False, None
        else:
            yield part, True, result


MAX_LINKS: Final = 1000
"""Links to destinations at a time; idle ones make way for waiting ones. The service's limit is 5,000."""
MAX_IN_FLIGHT: Final = 5000
"""Messages in flight to one destination."""
STALLED_SECONDS: Final = 1.0
"""Seconds without an answer after which a destination's waiting messages are deferred, to let others pass."""
OPENING_SECONDS: Final = 5.0
"""The same while a link opens: connecting, a token and an attach need many round trips."""
PORTION: Final = 64
"""Accepted messages that are settled in one turn of a loop that serves clients: half a millisecond."""
IDLE_SECONDS: Final = 60.0
"""Seconds after which an unused link is closed."""


@dataclass(slots=True, eq=False)
class DestinationLink:
    """One destination's link, its messages in flight by tag, and its waiting messages.

    allowed: messages that may be in flight. budget: messages that may be sent before the next check. largest: bytes of
    a message that it accepts. failed_at: its latest failure. answered_at: its last answer or first need. Times are
    seconds since 1970.
    """

    path: str
    key: str
    link: WireSender | None = None
    is_opening: bool = False
    is_stalled: bool = False
    under_way: dict[bytes, BacklogMessage] = field(default_factory=dict)
    waiting: deque[BacklogMessage] = field(default_factory=deque)
    allowed: int = 1
    budget: int = 0
    largest: int = 0
    failed_at: float = 0.0
    answered_at: float = 0.0
    changed: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it has work to do."""
        return bool(self.waiting or self.under_way or self.is_stalled)


class AmqpDelivery:
    """Delivers to the primary namespace. unusable: the reason why our own AMQP cannot work at all, or None."""

    def __init__(self, steering: PairingRuntime, wire: ReconnectingConnection) -> None:
        self.unusable: WireUnavailableError | None = None
        self._steering = steering
        self._wire = wire
        self._known: dict[str, DestinationLink] = {}
        self._touched: dict[DestinationLink, None] = {}
        self._held: dict[DestinationLink, None] = {}
        """Those with messages to send while the connection accepts none."""
        self._accepted: list[BacklogMessage] = []
        self._has_rest = False
        """Whether accepted messages wait for the next turn."""
        self._for_a_link: deque[DestinationLink] = deque()
        self._links = 0
        self._tag = 0
        self._is_traced = tracing.is_on()
        self._spans: dict[bytes, DetachedSpan] = {}
        """Of the messages in flight, by tag."""
        self._is_closed = False
        wire.after_read.append(self._after_read)

    # -- used by pumps ------------------------------------------------------------------------------------------------

    def room(self, key: str) -> int:
        """Return how many more messages the destination may get; 1 if it is unknown."""
        found = self._known.get(key)
        return 1 if found is None else found.allowed - len(found.under_way) - len(found.waiting)

    def give(self, message: BacklogMessage, now: float) -> None:
        """Send a message as soon as its destination is ready, after the ones given before."""
        found = self._known.get(message.key)
        if found is None:
            found = self._known[message.key] = DestinationLink(message.path, message.key)
            found.answered_at = now
        if not found.waiting:
            found.budget = found.budget or _budget(found)
            if found.budget and self._wire.is_writable:
                found.budget -= 1
                self._send(found, message, now)
                return
            if not found.under_way:
                found.answered_at = now
        found.waiting.append(message)
        if len(found.waiting) == 1:
            self._send_waiting(found, now)

    async def wait_for_change(self, key: str, seconds: float) -> None:
        """Wait for a change at the destination, at most `seconds`."""
        found = self._known.get(key)
        if found is None:  # it signals no change
            await asyncio.sleep(seconds)
            return
        if found.changed is None:
            found.changed = asyncio.get_running_loop().create_future()
        await asyncio.wait((found.changed,), timeout=seconds)

    def withdraw(self, pump: DeliveryOwner) -> list[BacklogMessage]:
        """Remove a pump's unsent messages, in order, and return them."""
        found: list[BacklogMessage] = []
        for destination in self._known.values():
            found += [message for message in destination.waiting if message.pump is pump]
            destination.waiting = deque(message for message in destination.waiting if message.pump is not pump)
        return found

    def under_way(self, pump: DeliveryOwner) -> int:
        """Return the number of a pump's messages in flight, or accepted and not settled yet."""
        in_flight = chain.from_iterable(destination.under_way.values() for destination in self._known.values())
        return sum(message.pump is pump for message in chain(in_flight, self._accepted))

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send(self, found: DestinationLink, message: BacklogMessage, now: float) -> None:
        link = found.link
        assert link is not None, "a destination without a link has no budget"
        if message.size > found.largest:
            text = f"the message has {message.size} bytes, the destination takes {found.largest}"
            self._fail(found, WireOutcomeError(text, "amqp:link:message-size-exceeded"), [message])
            return
        self._tag += 1
        tag = self._tag.to_bytes(8, "big")
        if not found.under_way:
            found.answered_at = now
        found.under_way[tag] = message
        message.sent_at = now
        self._steering.meter.moves += 1
        self._steering.meter.moved_bytes += message.size
        if self._is_traced:
            host = self._wire.endpoint.hostname
            self._spans[tag] = DetachedSpan(tracing.send_span(host, found.path, [context_in(message.payload)]))
        link.send(message.payload, tag)

    def _advance(self, found: DestinationLink, now: float) -> None:
        """Handle a change: send waiting messages, or return them if the destination is closed."""
        if found.changed is not None:
            found.changed.set_result(None)
            found.changed = None
        if found.waiting and not self._steering.machine.may_deliver(found.path, at=now):
            self._withhold(found, now)
        self._send_waiting(found, now)

    def _send_waiting(self, found: DestinationLink, now: float) -> None:
        """Send waiting messages within the destination's budget."""
        budget, wire = _budget(found), self._wire
        while budget and found.waiting and wire.is_writable:
            budget -= 1
            self._send(found, found.waiting.popleft(), now)
        found.budget = budget
        if found.waiting:
            if found.link is None or not found.link.is_up:
                self._request_link(found)
            elif not wire.is_writable:
                self._held[found] = None
        if (self._for_a_link or found.link is None) and not found.is_busy:
            self._drop_unused(found)

    def _drop_unused(self, found: DestinationLink) -> None:
        """Drop a destination without work if others wait for links, or it has none."""
        if found.link is not None:
            self._close_idle(found)
        elif not found.is_opening:
            self._known.pop(found.key, None)

    def _withhold(self, found: DestinationLink, now: float) -> None:
        """Return the waiting messages to their pumps."""
        for pump, messages in _by_pump(_drain(found)).items():
            pump.apply(DeliveryWithheld(messages, now))

    def _set_stalled(self, found: DestinationLink, is_stalled: bool) -> None:
        found.is_stalled = is_stalled
        stalled = self._steering.machine.destinations.stalled
        if is_stalled:
            stalled.add(found.key)
        else:
            stalled.discard(found.key)

    # -- links --------------------------------------------------------------------------------------------------------

    def _request_link(self, found: DestinationLink) -> None:
        if found.is_opening or self._is_closed:
            return
        found.is_opening = True
        if self._links >= MAX_LINKS:
            self._for_a_link.append(found)
            idle = next((one for one in self._known.values() if one.link is not None and not one.is_busy), None)
            if idle is not None:
                self._close_idle(idle)
            return
        self._links += 1
        if self._steering.tasks.start(self._open(found), name=f"open the link to {found.path}") is None:
            self._links -= 1
            found.is_opening = False

    async def _open(self, found: DestinationLink) -> None:
        found.answered_at = self._steering.clock()
        try:
            found.link = await self._wire.sender(
                found.path,
                on_outcome=partial(self._on_outcome, found),
                on_lost=partial(self._on_lost, found),
                on_room=partial(self._on_room, found),
                timeout=self._steering.policy.send_timeout,
            )
        except WireUnavailableError as error:
            self.unusable = error
            self._steering.changed()
            self._not_opened(found, error)
        except Exception as error:  # noqa: BLE001 - any error means that the destination is unreachable
            self._not_opened(found, error)
        else:
            found.is_opening = False
            self._set_stalled(found, False)
            found.allowed, found.largest = 1, found.link.max_message_size
            found.answered_at = now = self._steering.clock()
            self._advance(found, now)

    def _not_opened(self, found: DestinationLink, error: Exception) -> None:
        found.is_opening = False
        self._set_stalled(found, False)
        self._links -= 1
        is_ours = isinstance(error, WireUnavailableError)
        failure = WireError(str(error)) if is_ours else error
        waiting = _drain(found)
        if is_messages_fault(self._steering.judge(failure).kind, alone=True):
            for message in waiting:  # a name that is refused is refused for each of them
                self._fail(found, failure, [message])
        else:
            self._fail(found, failure, waiting)
        self._advance(found, self._steering.clock())
        self._next_link()

    def _close_idle(self, found: DestinationLink) -> None:
        """Detach an idle link in the background, and open the next requested one."""
        link, found.link, found.budget = found.link, None, 0
        self._known.pop(found.key, None)
        self._links -= 1
        if link is not None:
            self._steering.tasks.start(link.detach(), name=f"close the idle link to {found.path}")
        self._next_link()

    def _next_link(self) -> None:
        while self._for_a_link and self._links < MAX_LINKS:
            following = self._for_a_link.popleft()
            following.is_opening = False
            self._set_stalled(following, False)
            if following.waiting:
                self._request_link(following)

    # -- called by the wire  ------------------------------------------------------------------------------------------

    def _on_outcome(self, found: DestinationLink, event: DispositionReceived) -> None:
        message = found.under_way.pop(event.tag, None)
        if message is None:
            return
        self._touched[found] = None
        is_accepted = event.state is ACCEPTED or event.state == ACCEPTED
        failure = None if is_accepted else failure_of(event.state, found.path)
        if self._spans:
            self._end_spans([event.tag], failure)
        if is_accepted:
            if message.sent_at > found.failed_at and found.allowed < MAX_IN_FLIGHT:
                found.allowed += 1
            self._accepted.append(message)
            return
        assert failure is not None, "only an accepted message has none"
        self._fail(found, failure, [message])

    def _on_room(self, found: DestinationLink) -> None:
        self._touched[found] = None

    def _on_lost(self, found: DestinationLink, error: WireError) -> None:
        """Handle a lost link: its messages in flight are in doubt. A single one may be its cause."""
        found.link, found.budget = None, 0
        self._links -= 1
        self._end_spans(found.under_way, error)
        under_way, found.under_way = list(found.under_way.values()), {}
        self._touched[found] = None
        if under_way:
            self._fail(found, error, under_way, in_doubt=True)
        self._next_link()
        asyncio.get_running_loop().call_soon(self._after_read)

    def _after_read(self) -> None:
        """Announce and settle once after each read from the primary, then send within the new budgets."""
        if not self._has_rest:
            self._settle_accepted()
        if self._held and self._wire.is_writable:
            self._touched.update(self._held)
            self._held.clear()
        if self._touched:
            touched, self._touched = self._touched, {}
            now = self._steering.clock()
            for found in touched:
                found.answered_at = now
                if found.is_stalled:
                    self._set_stalled(found, False)
                if found.waiting or found.changed is not None or self._for_a_link or found.link is None:
                    self._advance(found, now)
                else:
                    found.budget = 0  # its link is checked before the next send

    def _settle_accepted(self) -> None:
        """Settle the accepted messages; beside clients a portion in each turn of the event loop."""
        accepted, self._accepted = self._accepted, []
        if len(accepted) > PORTION and serves_clients():
            accepted, self._accepted = accepted[:PORTION], accepted[PORTION:]
            asyncio.get_running_loop().call_soon(self._settle_accepted)
        self._has_rest = bool(self._accepted)
        now = self._steering.clock()
        for pump, messages in _by_pump(accepted).items():
            pump.apply(MessagesAccepted(messages, now))

    # -- failures -----------------------------------------------------------------------------------------------------

    def _fail(
        self, found: DestinationLink, failure: Exception, tried: list[BacklogMessage], *, in_doubt: bool = False
    ) -> None:
        """Report the failure of these messages; unless it is the fault of a lone one, return the waiting ones too."""
        judgement, now = self._steering.judge(failure), self._steering.clock()
        alone = len(tried) == 1
        is_its_own = is_messages_fault(judgement.kind, alone=alone)
        if not is_its_own:
            found.failed_at, found.allowed, found.budget = now, 1, 0
        for pump, messages in _by_pump(tried).items():
            pump.apply(DeliveryFailed(found.path, messages, judgement, now, in_doubt, alone))
        if not is_its_own:
            self._withhold(found, now)

    def _end_spans(self, tags: Iterable[bytes], failure: WireError | None) -> None:
        for tag in tags:
            span = self._spans.pop(tag, None)
            if span is not None:
                span.end(failure)

    def watch(self, now: float) -> None:
        """Check destinations without answers and unused links, once a second."""
        self._is_traced = tracing.is_on()
        for found in list(self._known.values()):
            if found.is_busy:
                self._check(found, now)
            elif self._for_a_link or found.link is None or now - found.answered_at >= IDLE_SECONDS:
                self._drop_unused(found)

    def _check(self, found: DestinationLink, now: float) -> None:
        """Check whether a busy destination answers."""
        timeout, quiet = self._steering.policy.send_timeout, now - found.answered_at
        if quiet >= timeout and found.link is not None:
            error = WireTimeoutError(f"{found.path} did not answer within {timeout:g} s")
            if not found.under_way:  # it never gave credit
                self._fail(found, error, _drain(found))
            found.link.drop(error)
        elif quiet >= (OPENING_SECONDS if found.is_opening else STALLED_SECONDS):
            self._advance(found, now)
            if found.waiting or found.under_way:
                self._set_stalled(found, True)
                self._withhold(found, now)

    def close(self) -> None:
        """Stop sending; the links end with their connection."""
        self._is_closed = True
        self._end_spans(tuple(self._spans), None)
        if self._after_read in self._wire.after_read:
            self._wire.after_read.remove(self._after_read)


def _budget(found: DestinationLink) -> int:
    """Return how many messages may be sent to it now."""
    link = found.link
    return 0 if link is None else max(0, min(found.allowed - len(found.under_way), link.room))


def _drain(found: DestinationLink) -> list[BacklogMessage]:
    """Remove and return the waiting messages."""
    waiting, found.waiting = found.waiting, deque()
    return list(waiting)


def _by_pump(messages: Iterable[BacklogMessage]) -> dict[DeliveryOwner, list[BacklogMessage]]:
    found: dict[DeliveryOwner, list[BacklogMessage]] = {}
    for message in messages:
        found.setdefault(message.pump, []).append(message)
    return found

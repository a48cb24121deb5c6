"""A backlog message in the AMQP pump's hand, its lock, and the outcomes for its queue.

An outcome is settled on the link while it lives, otherwise by lock token. On a link the queue confirms each outcome,
and neighbours with equal outcomes share a frame. A `$management` request settles many lock tokens, all or none; a
refused one is halved until the lost locks are known. The pump's machine decides what a result means.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

from paired_servicebus.core.errors import WireError, WireRequestError
from paired_servicebus.core.pump.pump_events import MessagesSettled, Outcome, PumpEvent, PumpMessage
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver
from paired_servicebus.pairing.amqp_client.reconnecting import Status, receive_deferred, renew_locks, update_disposition
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.pump_worker import MANAGED
from servicebus_amqp import ACCEPTED, Error, Modified, Rejected
from servicebus_amqp.encoding import messaging_types
from servicebus_amqp.encoding.codec import decode
from servicebus_amqp.encoding.message_sections import find_in_map, split
from servicebus_amqp.encoding.messaging_types import DeliveryState
from servicebus_amqp.protocol.link_sender import Payload
from servicebus_amqp.protocol.protocol_events import DispositionReceived
from servicebus_amqp.protocol_errors import DecodeError

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
            messages.sort(key=_by_delivery)  # neighbours share a frame
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
            receiver.settle(message.delivery_id, messaging_types.RELEASED)
        else:
            self._settle(message, RELEASED, messaging_types.RELEASED)

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


def _by_delivery(message: BacklogMessage) -> int:
    return message.delivery_id


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
    for at in range(0, len(messages), TOKENS_PER_REQUEST):
        portion = messages[at : at + TOKENS_PER_REQUEST]

        async def act(part: Sequence[BacklogMessage]) -> list[int]:
            return await renew_locks(wire, path, [message.token for message in part], timeout=MANAGED)

        async for part, is_done, ends in _in_parts(portion, act, strict=True):
            if is_done and ends is not None:
                for message, until in zip(part, ends, strict=False):
                    yield message, until


Item = TypeVar("Item")


async def _in_parts(
    items: list[Item], act: Callable[[Sequence[Item]], Awaitable[T]], *, strict: bool = False, least: int = 1
) -> AsyncIterator[tuple[list[Item], bool, T | None]]:
    """Apply `act` to all items together, or to halves and so on if one of them fails the request.

    Yields each part, whether it succeeded, and its result. strict: raise failures that do not concern single items.
    least: smaller parts are not tried.
    """
    parts = [items]
    while parts:
        part = parts.pop()
        if not part:
            continue
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

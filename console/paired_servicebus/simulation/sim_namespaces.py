"""The targets of requests: destinations in the primary, backlog queues in the secondary. Without any rule of core.

A deleted destination accepts nothing; its messages were received before. A backlog queue that its owner deletes takes
its messages with it, and the numbers of the new one begin again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from paired_servicebus.core.model.envelope import RESERVED, EnvelopeProperties, wrap
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_plan import (
    LOCK,
    MAX_HIDDEN,
    EntityPlan,
    InjectedCondition,
    InjectedFault,
    QueuePlan,
)
from paired_servicebus.simulation.virtual_clock import VirtualClock

# The World's messages. A message is a value; every change on its way makes a copy.
#
# The envelope is core's. `park` and `unpark` move its four properties between fields and application properties.

BEGAN: Final = 1_700_000_000.0
"""Start of every run, seconds since the epoch."""


@dataclass(slots=True)
class SimMessage:
    """One message. `body` is the World's own number for the balance, since message ids are under test."""

    body: str
    message_id: str
    path: str
    """The entity it was sent to."""
    stream: str
    """The unit of order: the entity, or one of its sessions."""
    number: int
    session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled: datetime | None = None
    poison: bool = False
    """Whether every entity rejects it: as a bad argument, or as too large."""
    properties: dict[object, object] = field(default_factory=dict)
    parked_at: tuple[int, int, float] | None = None
    """The backlog queue that it came from, with its number there, and the time of its arrival there."""

    @property
    def refusal(self) -> FailureKind:
        """Return why every entity rejects it. The link is lost with a message that is too large."""
        return FailureKind.TOO_LARGE if self.number % 2 else FailureKind.ARGUMENT


def park(message: SimMessage, path: str) -> SimMessage:
    properties = dict(message.properties)
    properties.update(
        wrap(
            EnvelopeProperties(
                path=path,
                session_id=message.session_id,
                time_to_live=message.time_to_live,
                scheduled=message.scheduled,
            )
        )
    )
    return _copy(message, EnvelopeProperties(path=path), properties, message.parked_at)


def unpark(message: SimMessage, content: EnvelopeProperties, parked_at: tuple[int, int, float]) -> SimMessage:
    kept = {name: value for name, value in message.properties.items() if name not in RESERVED}
    return _copy(message, content, kept, parked_at)


def _copy(
    message: SimMessage,
    content: EnvelopeProperties,
    properties: dict[object, object],
    parked_at: tuple[int, int, float] | None,
) -> SimMessage:
    """Copy field by field: dataclasses.replace is several times slower, and every message is copied."""
    return SimMessage(
        message.body,
        message.message_id,
        message.path,
        message.stream,
        message.number,
        content.session_id,
        content.time_to_live,
        content.scheduled,
        message.poison,
        properties,
        parked_at,
    )


class RequestTarget:
    """A target of requests, with its faults."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.healed_at = 0.0
        """End of the latest fault."""
        self.faults: list[InjectedFault] = []
        self.fault: InjectedFault | None = None

    def begin(self, fault: InjectedFault) -> None:
        self.faults.append(fault)
        self.fault = fault

    def end(self, fault: InjectedFault, at: float) -> None:
        self.healed_at = at
        self.faults.remove(fault)
        self.fault = self.faults[-1] if self.faults else None

    def met(self, random: Random) -> InjectedCondition | None:
        """Return the condition that one request meets."""
        fault = self.fault
        if fault is None or (fault.share < 1.0 and random.random() >= fault.share):
            return None
        return fault.condition


class SimDestination(RequestTarget):
    """An entity of the primary, with its receivers.

    Args:
        landed: called with each accepted message, without detected duplicates.
        received: called with each message that a receiver got.
        expired: called with each message that expired before it was received.
    """

    def __init__(
        self,
        plan: EntityPlan,
        clock: VirtualClock,
        *,
        landed: Callable[[SimDestination, SimMessage], None],
        received: Callable[[SimMessage], None],
        expired: Callable[[SimMessage], None],
    ) -> None:
        super().__init__(plan.path)
        self.plan = plan
        self.depth = 0
        self.full_at = 0.0
        """Time of the last refusal for lack of space, which scheduled and hidden messages also use."""
        self._clock = clock
        self._landed, self._received, self._expired = landed, received, expired
        self._seen: set[str] = set()
        self._waiting: list[tuple[SimMessage, float | None]] = []

    @property
    def away(self) -> bool:
        return any(fault.condition is InjectedCondition.AWAY for fault in self.faults)

    def end(self, fault: InjectedFault, at: float) -> None:
        """End a fault; returning receivers read the waiting messages."""
        super().end(fault, at)
        if not self.away:
            waiting, self._waiting = self._waiting, []
            for message, expires in waiting:
                self._read(message, expires)

    def take(self, messages: Sequence[SimMessage], hidden: float = 0.0) -> FailureKind | None:
        """Accept all or none; they are visible after `hidden` seconds."""
        for message in messages:
            if message.poison:
                return message.refusal
        if self.depth + len(messages) > self.plan.capacity:
            self.full_at = self._clock.now
            return FailureKind.FULL
        for message in messages:
            if self.plan.detects_duplicates:
                if message.message_id in self._seen:
                    continue
                self._seen.add(message.message_id)
            self._landed(self, message)
            self._enqueue(message, hidden)
        return None

    def take_each(self, messages: Sequence[SimMessage]) -> list[FailureKind | None]:
        """Accept or refuse each message. One that is too large takes the link with it, so none is answered."""
        for message in messages:
            if message.poison and message.refusal is FailureKind.TOO_LARGE:
                return [FailureKind.TOO_LARGE] * len(messages)
        return [self.take([message]) for message in messages]

    def ping(self) -> FailureKind | None:
        if self.depth < self.plan.capacity:
            return None
        self.full_at = self._clock.now
        return FailureKind.FULL

    def _enqueue(self, message: SimMessage, hidden: float) -> None:
        self.depth += 1
        visible = self._clock.now
        if message.scheduled is not None:
            visible = max(visible, message.scheduled.timestamp())
        expires = None if message.time_to_live is None else visible + message.time_to_live.total_seconds()
        self._clock.at(visible + hidden + 0.1, self._read, message, expires)

    def _read(self, message: SimMessage, expires: float | None) -> None:
        if expires is not None and expires <= self._clock.now:
            self._expired(message)
        elif self.away:
            self._waiting.append((message, expires))
            return
        else:
            self._received(message)
        self.depth -= 1


@dataclass(slots=True)
class HeldMessage:
    """A message in a backlog queue."""

    number: int
    letter: SimMessage
    enqueued_at: float
    lock: int = 0
    """Zero: not locked; otherwise the lock's number."""
    locked_until: float = 0.0
    deferred: bool = False
    deliveries: int = 0
    since: float | None = None
    """Time since which it is visible, locked, or deferred as it is now; None: hidden."""
    holder: object = None
    """The pump that received it last."""
    opened: Any = None
    """The contents of its envelope, once a pump has opened it."""


EVERY_DELIVERY_LIMIT: Final = "the delivery limit"


class SimBacklogQueue(RequestTarget):
    """A backlog queue: peek-lock, deferral, dead messages, a quota, perhaps a delivery limit.

    `expired_lock` is called for every lock that ended unsettled.
    """

    def __init__(
        self, index: int, plan: QueuePlan, clock: VirtualClock, expired_lock: Callable[[HeldMessage], None]
    ) -> None:
        super().__init__(f"backlog/{index}")
        self.index = index
        self.plan = plan
        self.held: dict[int, HeldMessage] = {}
        self.dead: list[tuple[SimMessage, str]] = []
        self.deleted: list[SimMessage] = []
        """Messages that were deleted with the queue."""
        self.waiters: dict[Callable[[], None], None] = {}
        """Called once when a message can be received."""
        self._clock = clock
        self._expired_lock = expired_lock
        self._ready: list[int] = []
        self._numbers = 0
        self._locks = 0

    def take(self, messages: Sequence[SimMessage], hidden: float = 0.0) -> FailureKind | None:
        """Accept all or none; they are visible after `hidden` seconds."""
        if len(self.held) + len(messages) > self.plan.capacity:
            self.healed_at = self._clock.now  # a full queue has not healed
            return FailureKind.FULL
        for message in messages:
            self._numbers += 1
            held = self.held[self._numbers] = HeldMessage(self._numbers, message, self._clock.now)
            if hidden:
                self._clock.at(self._clock.now + hidden, self._show, held)
            else:
                self._show(held)
        return None

    def _show(self, held: HeldMessage) -> None:
        if self.held.get(held.number) is not held:
            return  # hidden, and deleted meanwhile
        held.since = self._clock.now
        heapq.heappush(self._ready, held.number)
        if not self.waiters:
            return
        waiters, self.waiters = self.waiters, {}
        for wake in waiters:
            wake()

    @property
    def readable(self) -> bool:
        """Return whether a receive would return a message."""
        return bool(self._ready)

    def receive(self, most: int) -> list[tuple[HeldMessage, int]]:
        """Lock the oldest messages; return each with its lock."""
        ready = self._ready
        found: list[HeldMessage] = []
        while ready and len(found) < most:
            found.append(self.held[heapq.heappop(ready)])
        return self._lock(found)

    def _lock(self, found: list[HeldMessage]) -> list[tuple[HeldMessage, int]]:
        if not found:
            return []
        self._locks += 1
        until = self._clock.now + LOCK
        for held in found:
            held.lock, held.locked_until, held.since = self._locks, until, self._clock.now
        self._clock.at(until, self._unlock, found, self._locks)
        return [(held, self._locks) for held in found]

    def _unlock(self, locked: list[HeldMessage], lock: int) -> None:
        renewed: list[HeldMessage] = []
        for held in locked:
            if held.lock != lock or self.held.get(held.number) is not held:
                continue
            if held.locked_until > self._clock.now:
                renewed.append(held)
                continue
            self._expired_lock(held)
            self._give_back(held)
        if renewed:
            self._clock.at(min(held.locked_until for held in renewed), self._unlock, renewed, lock)

    def _give_back(self, held: HeldMessage) -> None:
        held.lock, held.since = 0, self._clock.now
        held.deliveries += 1
        if held.deliveries >= self.plan.delivery_limit:
            self._bury(held, EVERY_DELIVERY_LIMIT)
        elif not held.deferred:
            self._show(held)

    def _bury(self, held: HeldMessage, reason: str) -> None:
        del self.held[held.number]
        self.dead.append((held.letter, reason))

    # -- settlements -----------------------------------------------------------------------------------------------

    def complete(self, locked: Sequence[tuple[HeldMessage, int]]) -> list[bool]:
        return [self._settle(held, lock, lambda one: self.held.pop(one.number)) for held, lock in locked]

    def dead_letter(self, locked: Sequence[tuple[HeldMessage, int]], reason: str) -> list[bool]:
        """Move the messages to the dead-message queue."""
        return [self._settle(held, lock, lambda one: self._bury(one, reason)) for held, lock in locked]

    def defer(self, locked: Sequence[tuple[HeldMessage, int]]) -> list[bool]:
        """Defer the messages: they are received by number from now on."""
        return [self._settle(held, lock, _defer) for held, lock in locked]

    def release(self, locked: Sequence[tuple[HeldMessage, int]]) -> list[bool]:
        """Release the locks, which does not count as a delivery."""
        return [self._settle(held, lock, self._release) for held, lock in locked]

    def renew(self, locked: Sequence[tuple[HeldMessage, int]]) -> list[bool]:
        """Renew the locks; return for each whether it was still valid."""
        until = self._clock.now + LOCK
        valid = [held.lock == lock and self.held.get(held.number) is held for held, lock in locked]
        for (held, _), is_valid in zip(locked, valid, strict=True):
            if is_valid:
                held.locked_until = until
        return valid

    def _release(self, held: HeldMessage) -> None:
        if not held.deferred:
            self._show(held)

    def _settle(self, held: HeldMessage, lock: int, act: Callable[[HeldMessage], object]) -> bool:
        if held.lock != lock or self.held.get(held.number) is not held:
            return False
        held.lock, held.since = 0, self._clock.now
        act(held)
        return True

    # -- deferred messages ----------------------------------------------------------------------------------------

    def receive_deferred(self, numbers: Sequence[int]) -> list[tuple[HeldMessage, int]] | None:
        """Lock deferred messages: all of them, or none if one is gone or locked."""
        found = [held for held in map(self.held.get, numbers) if held is not None and held.deferred and not held.lock]
        return self._lock(found) if len(found) == len(numbers) else None

    def peek_deferred(self) -> list[HeldMessage]:
        return [held for held in self.held.values() if held.deferred]


def _defer(held: HeldMessage) -> None:
    held.deferred = True


def hidden_for(random: Random, condition: InjectedCondition | None) -> float:
    """Return the seconds until a message accepted now is visible; mostly short, at most 15 minutes."""
    return random.random() ** 3 * MAX_HIDDEN if condition is InjectedCondition.HIDDEN else 0.0

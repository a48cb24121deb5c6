"""The shared part of a namespace's queues: clock, lock tokens, deadlines, pending work and credits.

The broker starts nothing by itself. Its owner calls `run_due` at `next_deadline`, and `dispatch` after any input. Both
run only the queues that registered.

A deadline that was moved or cancelled stays in its heap and is skipped when it comes up. That costs little, as a
million locked messages need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import Throttled
from servicebus_sandbox.broker.entity_settings import AS_SEEN, Behavior, Expiry

# Throttling by credits, as the page "Throttling operations on Azure Service Bus" describes the standard tier.
#
# At the start of each second the namespace gets its credits. Sends, receives and peeks cost one for each message,
# operations on entities ten, and each filter that a send is compared with one. Without credits an operation is refused
# until the next second.
#
# The page lists nothing else, so settlements, renewals, session states and tokens are free here. It does not say what
# an operation above the balance does. Here it is accepted, and the debt is paid by the next seconds.

MESSAGE_COST: Final = 1
MANAGEMENT_COST: Final = 10
FILTER_COST: Final = 1


class CreditBucket:
    """The credits of one namespace; times are seconds of any clock that does not go back."""

    __slots__ = ("_period", "_started_at", "balance", "per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self.balance = per_second
        self._started_at = now
        self._period = 0

    def spend(self, cost: int, now: float) -> bool:
        """Take the cost if credits are left; return False if none are."""
        period = int(now - self._started_at)
        if period > self._period:
            gained = (period - self._period) * self.per_second
            self.balance = min(self.per_second, self.balance + gained)
            self._period = period
        if self.balance <= 0:
            return False
        self.balance -= cost
        return True


Key = TypeVar("Key", bound=int | str)

_COMPACT_FROM = 4096


class Deadlines(Generic[Key]):
    """Deadlines in epoch seconds, one for each key; `current(key)` returns the valid one, or None."""

    __slots__ = ("_compact_at", "_current", "_heap")

    def __init__(self, current: Callable[[Key], float | None]) -> None:
        self._current = current
        self._heap: list[tuple[float, Key]] = []
        self._compact_at = _COMPACT_FROM

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, key: Key) -> None:
        heappush(self._heap, (when, key))
        if len(self._heap) > self._compact_at:
            self._compact()

    def due(self, now: float) -> Iterator[Key]:
        """Remove and yield the keys whose deadline is at or before `now`; the loop may add new ones."""
        while self._heap and self._heap[0][0] <= now:
            when, key = heappop(self._heap)
            if self._current(key) == when:
                yield key

    def next(self) -> float | None:
        """Return the earliest valid deadline."""
        while self._heap:
            when, key = self._heap[0]
            if self._current(key) == when:
                return when
            heappop(self._heap)
        return None

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._current(entry[1]) == entry[0]]
        heapify(self._heap)
        self._compact_at = max(_COMPACT_FROM, 2 * len(self._heap))


def earliest(*deadlines: float | None) -> float | None:
    """Return the smallest value that is not None."""
    return min((when for when in deadlines if when is not None), default=None)


Clock = Callable[[], float]


class DeadlineOwner(Protocol):
    """An object with deadlines. `alarm` belongs to the agenda: the earliest scheduled call, or None."""

    alarm: float | None

    def run_due(self, now: float) -> float | None:
        """Do the work that is due at `now` (epoch seconds); return the next deadline."""


class Dispatcher(Protocol):
    """An object that matches messages and receivers."""

    def dispatch(self, now: float) -> None: ...


class Agenda:
    """The schedule of a namespace. `salt` (8 bytes) makes lock tokens of one run differ from those of another.

    `namespace`, `expiry`, `credits` and `behaves` are the namespace's; without credits nothing is throttled.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        namespace: str = "",
        salt: bytes = bytes(8),
        expiry: Expiry = Expiry.ON_TIME,
        credits_per_second: int | None = None,
        behaves: Behavior = AS_SEEN,
    ) -> None:
        if len(salt) != 8:
            raise ValueError(f"salt has {len(salt)} bytes; it takes 8")
        self.clock = clock
        self.namespace = namespace
        self.expires_lazily = expiry is Expiry.LAZY
        self.behaves = behaves
        self.full: dict[str, Callable[[], bool]] = {}
        """Entities that refused a message for lack of space, with checks whether they still lack it."""
        self.credits = None if credits_per_second is None else CreditBucket(credits_per_second, clock())
        self._salt = salt
        self._tokens = 0
        self._alarms: list[tuple[float, int, DeadlineOwner]] = []
        self._alarms_set = 0
        self._busy: dict[Dispatcher, None] = {}

    def charge(self, cost: int) -> None:
        """Take credits from the namespace, if it has a limit. Raises Throttled."""
        if self.credits is not None and not self.credits.spend(cost, self.clock()):
            raise Throttled(self.namespace)

    def full_entity(self) -> str | None:
        """Return an entity that is full, if that blocks the namespace."""
        if not self.behaves.full_entity_blocks_namespace:
            return None
        self.full = {path: is_full for path, is_full in self.full.items() if is_full()}
        return next(iter(self.full), None)

    def new_token(self) -> bytes:
        """Return a unique lock token of 16 bytes."""
        self._tokens += 1
        return self._salt + self._tokens.to_bytes(8, "big")

    def new_id(self) -> UUID:
        """Return a unique id."""
        return UUID(bytes=self.new_token())

    def call_at(self, when: float, owner: DeadlineOwner) -> None:
        """Call `owner` at `when`, or earlier if it requested that before."""
        if owner.alarm is None or when < owner.alarm:
            owner.alarm = when
            self._alarms_set += 1
            heappush(self._alarms, (when, self._alarms_set, owner))

    def want_dispatch(self, queue: Dispatcher) -> None:
        self._busy[queue] = None

    def next_deadline(self) -> float | None:
        """Return the time of the next `run_due` in epoch seconds; None if nothing is pending."""
        return self._alarms[0][0] if self._alarms else None

    def run_due(self) -> None:
        """Run everything that is due: expiries, scheduled messages, time-outs."""
        now = self.clock()
        while self._alarms and self._alarms[0][0] <= now:
            when, _, owner = heappop(self._alarms)
            if owner.alarm != when:
                continue  # replaced by an earlier call
            owner.alarm = None
            following = owner.run_due(now)
            if following is not None:
                self.call_at(following, owner)

    def dispatch(self) -> None:
        """Deliver ready messages to receivers with credit, in every registered queue."""
        while self._busy:
            busy, self._busy = self._busy, {}
            now = self.clock()
            for queue in busy:
                queue.dispatch(now)

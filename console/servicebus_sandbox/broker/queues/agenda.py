"""What the queues of one namespace share: the clock, lock tokens, who wants to be called when, who has work to do.

The broker never starts anything by itself. Whoever drives it calls `run_due` when the time of `next_deadline` has
come, and `dispatch` after any input; both only touch the queues that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol
from uuid import UUID

Clock = Callable[[], float]


class DeadlineOwner(Protocol):
    """Something with deadlines. `alarm` belongs to the agenda: the earliest call that is arranged, or None."""

    alarm: float | None

    def run_due(self, now: float) -> float | None:
        """Do what is due at `now` (epoch seconds); return the next deadline."""


class Dispatcher(Protocol):
    """Something that has messages and receivers to bring together."""

    def dispatch(self, now: float) -> None: ...


class Agenda:
    """`salt` (8 bytes) makes the lock tokens of one run differ from those of another."""

    def __init__(self, clock: Clock, *, salt: bytes = bytes(8)) -> None:
        if len(salt) != 8:
            raise ValueError(f"salt has {len(salt)} bytes; it takes 8")
        self.clock = clock
        self._salt = salt
        self._tokens = 0
        self._alarms: list[tuple[float, int, DeadlineOwner]] = []
        self._alarms_set = 0
        self._busy: dict[Dispatcher, None] = {}

    def new_token(self) -> bytes:
        """A lock token that was never given before: 16 bytes."""
        self._tokens += 1
        return self._salt + self._tokens.to_bytes(8, "big")

    def new_id(self) -> UUID:
        """An id that was never given before."""
        return UUID(bytes=self.new_token())

    def call_at(self, when: float, who: DeadlineOwner) -> None:
        """Have `who` called at `when`, or earlier if it asked for that before."""
        if who.alarm is None or when < who.alarm:
            who.alarm = when
            self._alarms_set += 1
            heappush(self._alarms, (when, self._alarms_set, who))

    def want_dispatch(self, who: Dispatcher) -> None:
        self._busy[who] = None

    def next_deadline(self) -> float | None:
        """When `run_due` has something to do, in epoch seconds; None while nothing is pending."""
        return self._alarms[0][0] if self._alarms else None

    def run_due(self) -> None:
        """Let everything happen whose time has come: expiries, scheduled messages, time-outs."""
        now = self.clock()
        while self._alarms and self._alarms[0][0] <= now:
            when, _, who = heappop(self._alarms)
            if who.alarm != when:
                continue  # it asked for an earlier call since, and got it
            who.alarm = None
            following = who.run_due(now)
            if following is not None:
                self.call_at(following, who)

    def dispatch(self) -> None:
        """Hand ready messages to receivers with credit, in every queue that has both."""
        while self._busy:
            busy, self._busy = self._busy, {}
            now = self.clock()
            for who in busy:
                who.dispatch(now)

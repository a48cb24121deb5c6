"""The sandbox's clock: the time of day, until a client sets it forward.

Locks, expiries, schedules, duplicate windows, idle time and token lifetimes use it. Network times, such as latency and
the patience with a silent peer, use the event loop's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FURTHEST_JUMP = 10 * 366 * 86_400.0
"""In seconds; far beyond every limited duration of an entity."""


class SandboxClock:
    """A callable that returns epoch seconds. It never goes back while a namespace runs, whatever the time of day does.

    The time of day is asked for by its name at each call: a test may freeze or set it.
    """

    def __init__(self, time_of_day: Callable[[], float] | None = None) -> None:
        self.time_of_day = time_of_day or (lambda: time.time())
        self.ahead = 0.0
        self._latest = 0.0

    def __call__(self) -> float:
        now = self.time_of_day() + self.ahead
        if now < self._latest:  # the time of day was set back
            self.ahead += self._latest - now
            return self._latest
        self._latest = now
        return now

    def advance(self, seconds: float) -> None:
        """Set the clock forward. Raises ValueError unless `seconds` is above 0 and at most FURTHEST_JUMP."""
        if not 0 < seconds <= FURTHEST_JUMP or self.ahead + seconds > FURTHEST_JUMP:
            raise ValueError(
                f"a jump of {seconds:g} seconds cannot be made; allowed is more than 0, and at most "
                f"{FURTHEST_JUMP - self.ahead:g} from here"
            )
        self()  # a time of day that was set back is made up for first
        self.ahead += seconds

    def restart(self) -> None:
        """Return to the time of day. No namespace may run, because times already handed out would lie ahead."""
        self.ahead = self._latest = 0.0

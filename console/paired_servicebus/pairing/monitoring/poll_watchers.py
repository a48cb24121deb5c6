"""The watchers of the backlog's depths, and the time of the next reading (SPEC.md section 12).

An attached console watches until it detaches. A single request gets one reading. A scraper watches until it stays away.
Rules add their `reasons`; core/backlog/poll_schedule.py has the periods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final

from paired_servicebus.core.backlog.poll_schedule import PollReason, every

MIN_READ_SECONDS: Final = 2.0
"""Minimum seconds between two readings; a younger one answers a request."""
SCRAPER_SECONDS: Final = 330.0
"""Seconds in which the next scrape is expected: Prometheus forgets a sample after five minutes."""
SINGLE_READ_SECONDS: Final = 5.0
"""The assumed period after a single reading: it counts as old after twice this time."""
MAX_WAIT_SECONDS: Final = 3600.0

Reasons = Callable[[], frozenset[PollReason]]
Until = Callable[[float], Awaitable[None]]


class PollWatchers:
    """The schedule of readings.

    Args:
        clock: seconds since the epoch, never set back.
        wake: wakes tasks that wait in `until`.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], object]) -> None:
        self.pending = False
        """Whether a request has no answer yet."""
        self.wanted = False
        """Whether a request came after the last reading."""
        self.period = SINGLE_READ_SECONDS
        """Seconds between two readings now, for judging their age."""
        self.when_read: Callable[[], object] = lambda: None
        """Called after each reading, and after the peeks that follow it."""
        self._clock = clock
        self._wake = wake
        self._watchers = 0
        self._scraped_at = -inf
        self._read_at = -inf
        """When the last reading ended, also a failed one."""
        self._has_reader = False
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- who looks ----------------------------------------------------------------------------------------------------

    @property
    def attended(self) -> bool:
        """Whether there are watchers, or a request without an answer."""
        return self._watchers > 0 or self._is_scraped() or self.pending

    def watch(self, watchers: int) -> None:
        """Set the number of attached consoles. A new one gets a reading of now."""
        came, self._watchers = watchers > self._watchers, watchers
        if came:
            self.ask()
            self._wake()  # the period has changed

    def ask(self) -> None:
        """Request one reading soon; a very recent one is answer enough."""
        if not self.wanted and self._clock() >= self._read_at + MIN_READ_SECONDS:
            self.wanted, self.pending = True, self._has_reader
            self._wake()

    def scrape(self) -> None:
        """Count a scrape. Any thread may call it, also after the end."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and reading has ended
                self._loop.call_soon_threadsafe(self._scraped)

    def _scraped(self) -> None:
        is_new, self._scraped_at = not self._is_scraped(), self._clock()
        if is_new:
            self.ask()
            self._wake()

    def _is_scraped(self) -> bool:
        return self._clock() < self._scraped_at + SCRAPER_SECONDS

    # -- when it is read ----------------------------------------------------------------------------------------------

    async def due(self, more: Reasons, until: Until) -> None:
        """Wait until the next reading is due.

        Args:
            more: returns the rules' reasons.
            until: waits until a time, or less.
        """
        self._loop, self._has_reader = asyncio.get_running_loop(), True
        self.pending = self.pending or self.wanted
        while True:
            now = self._clock()
            at = self._due_at(more())
            if at <= now:
                return
            await until(min(at, now + MAX_WAIT_SECONDS))

    def _due_at(self, more: frozenset[PollReason]) -> float:
        found = every(more | self._reasons())
        self.period = found if found is not None else SINGLE_READ_SECONDS
        if self.wanted:
            return self._read_at + MIN_READ_SECONDS
        return self._read_at + found if found is not None else inf

    def _reasons(self) -> frozenset[PollReason]:
        held = ((PollReason.WATCHED, self._watchers > 0), (PollReason.SCRAPED, self._is_scraped()))
        return frozenset(reason for reason, holds in held if holds)

    def read(self) -> None:
        """Note the end of a reading."""
        self._read_at, self.wanted = self._clock(), False
        self.when_read()

    def answered(self) -> None:
        """Note the end of the peeks after a reading: requests have their answer."""
        self.pending = self.wanted
        self.when_read()

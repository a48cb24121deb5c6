"""Who looks at the depths of the backlog, and so when they are read next (SPEC.md section 12).

A console that is attached looks for as long as it is; a question is answered by one reading; a scraper looks until it
has stayed away. What else needs the depths is a rule's: `reasons` adds it. How often is core/backlog/poll_schedule.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final

from paired_servicebus.core.backlog.poll_schedule import PollReason, every

SOONEST: Final = 2.0
"""Seconds between two readings at least, whoever asks: a younger one is the answer."""
SCRAPER_STAYS: Final = 330.0
"""Seconds after a scrape in which the next one is expected: Prometheus forgets a sample after five minutes."""
ONE_LOOK: Final = 5.0
"""Seconds after which a reading that nobody has repeated is double this old at most, and so is not taken for news."""
LONGEST_WAIT: Final = 3600.0

Reasons = Callable[[], frozenset[PollReason]]
Until = Callable[[float], Awaitable[None]]


class PollWatchers:
    """Decides when the next reading is due.

    Args:
        clock: seconds since the epoch, never set back.
        wake: wakes whoever waits in `until`.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], object]) -> None:
        self.pending = False
        """Whether somebody asked and has no answer yet."""
        self.wanted = False
        """Whether somebody asked and no reading has ended since."""
        self.period = ONE_LOOK
        """Seconds between two readings just now, for whoever judges their age."""
        self.when_read: Callable[[], object] = lambda: None
        """Called after each reading, and once what it leads to was looked at."""
        self._clock = clock
        self._wake = wake
        self._watchers = 0
        self._scraped_at = -inf
        self._read_at = -inf
        """When the last reading ended, well or not."""
        self._has_reader = False
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- who looks ----------------------------------------------------------------------------------------------------

    @property
    def attended(self) -> bool:
        """Whether somebody looks now, or asked and has no answer yet."""
        return self._watchers > 0 or self._is_scraped() or self.pending

    def watch(self, watchers: int) -> None:
        """So many consoles are attached and look. One that came is shown a reading of now."""
        came, self._watchers = watchers > self._watchers, watchers
        if came:
            self.ask()
            self._wake()  # the period is another one

    def ask(self) -> None:
        """Have the depths read soon, once; a reading of just now is answer enough."""
        if not self.wanted and self._clock() >= self._read_at + SOONEST:
            self.wanted, self.pending = True, self._has_reader
            self._wake()

    def scrape(self) -> None:
        """Figures were scraped. May be called by any thread, and after the end."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                self._loop.call_soon_threadsafe(self._scraped)

    def _scraped(self) -> None:
        is_new, self._scraped_at = not self._is_scraped(), self._clock()
        if is_new:
            self.ask()
            self._wake()

    def _is_scraped(self) -> bool:
        return self._clock() < self._scraped_at + SCRAPER_STAYS

    # -- when it is read ----------------------------------------------------------------------------------------------

    async def due(self, more: Reasons, until: Until) -> None:
        """Wait until the next reading is due.

        Args:
            more: the reasons that rules have.
            until: waits until a time, or less.
        """
        self._loop, self._has_reader = asyncio.get_running_loop(), True
        self.pending = self.pending or self.wanted
        while True:
            now = self._clock()
            at = self._due_at(more())
            if at <= now:
                return
            await until(min(at, now + LONGEST_WAIT))

    def _due_at(self, more: frozenset[PollReason]) -> float:
        found = every(more | self._reasons())
        self.period = found if found is not None else ONE_LOOK
        if self.wanted:
            return self._read_at + SOONEST
        return self._read_at + found if found is not None else inf

    def _reasons(self) -> frozenset[PollReason]:
        held = ((PollReason.WATCHED, self._watchers > 0), (PollReason.SCRAPED, self._is_scraped()))
        return frozenset(reason for reason, holds in held if holds)

    def read(self) -> None:
        """A reading has ended."""
        self._read_at, self.wanted = self._clock(), False
        self.when_read()

    def answered(self) -> None:
        """All that a reading leads to was looked at: who asked has an answer."""
        self.pending = self.wanted
        self.when_read()

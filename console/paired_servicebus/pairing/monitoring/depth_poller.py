"""The depth of the backlog queues, read for watchers and rules; each number has the time of its reading.

If the namespace is unreachable the count is None, never 0.

The figure of parked messages adds this engine's work on each queue since the reading. All screens show the same one.

A console watches until it detaches, a scraper until it stays away; a single request gets one reading. Rules add their
`reasons`; core/backlog/depth_readings.py has the periods (SPEC.md section 12).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final

from paired_servicebus.core.backlog.backlog_totals import (
    NOTHING,
    DepthRead,
    DrainRate,
    QueueCounters,
    QueueDepthEstimate,
    parked_view,
)
from paired_servicebus.core.backlog.depth_readings import DepthReading, PollReason, every
from paired_servicebus.core.model.pairing_events import QueueRead
from paired_servicebus.core.model.snapshot import ParkedView
from paired_servicebus.pairing.management.backlog_queues import CountReader, DepthSample
from paired_servicebus.pairing.management.management_port import Depth, Management
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.pump_worker import Pump

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


JOURNAL_SECONDS: Final = 300.0
"""Seconds after which an unchanged reading is journalled again."""
MAX_READINGS: Final = 12
"""Readings of a queue for its trend: one minute's, while a console watches and messages are parked."""


class DepthPoller:
    """The periodic reader of the queues' counts; `found` has the latest by index."""

    def __init__(
        self, steering: PairingRuntime, admin: Management, queues: Mapping[int, str], looks: PollWatchers
    ) -> None:
        self.found: dict[int, DepthSample | None] = dict.fromkeys(queues)
        self.readings: dict[int, deque[DepthReading]] = {index: deque(maxlen=MAX_READINGS) for index in queues}
        """The latest readings of each queue, oldest first."""
        self.ended = asyncio.Event()
        """Set after a try to read all queues; replaced for each reading."""
        self.when_read: Callable[[], object] = lambda: None
        """Called after each reading, before waiting tasks resume."""
        self.counts: Callable[[int], QueueCounters] = lambda _: NOTHING
        """Returns this engine's work on a queue so far."""
        self._troubles: dict[int, str] = {}
        """Why the last reading failed, by queue."""
        self._written: dict[int, tuple[tuple[int, ...] | None, float]] = {}
        self._steering = steering
        self._looks = looks
        self._reader = CountReader(admin, queues)
        self._parked_before = 0

    @property
    def trouble(self) -> str:
        """The first failure of the last reading; empty if all queues were read."""
        return self._troubles[min(self._troubles)] if self._troubles else ""

    @property
    def every(self) -> float:
        """Seconds between two readings now."""
        return self._looks.period

    @property
    def messages(self) -> int:
        """The messages in all queues when last read."""
        return sum(one.depth.messages for one in self.found.values() if one is not None)

    @property
    def parked_since(self) -> int:
        """Messages that this engine has parked since the last reading began."""
        return self._steering.meter.parked - self._parked_before

    def reasons(self, *, aside: int) -> frozenset[PollReason]:
        """Return the reasons for a newer reading. `aside`: messages that this engine holds."""
        diverting = any(entity.diverting for entity in self._steering.machine.entities())
        held = (
            (PollReason.DIVERTING, diverting),
            (PollReason.PARKED, self.messages > 0 or self.parked_since > 0),
            (PollReason.LYING, self.messages > aside or self.parked_since > 0),
        )
        return frozenset(reason for reason, holds in held if holds)

    async def run(self, more: Reasons) -> None:
        """Read all queues for watchers and for the reasons `more`, until cancelled."""
        while True:
            await self._looks.due(more, self._steering.change)
            await self.read()

    async def settled(self) -> None:
        """Wait for a requested reading, if one is pending."""
        while self._looks.wanted:
            await self.ended.wait()

    async def read(self) -> None:
        parked, before = self._steering.meter.parked, {index: self.counts(index) for index in self.found}
        told = await self._reader.read()
        self._parked_before = parked
        for index, one in told.items():
            if isinstance(one, Exception):
                self._troubles[index] = self._steering.judge(one).reason
                continue
            self._troubles.pop(index, None)
            now = self._steering.clock()
            self._write_down(index, one, now)
            self.found[index] = DepthSample(one, now, before[index], self.counts(index))
            self.readings[index].append(DepthReading(now, one.messages, one.size_bytes))
        self.when_read()
        ended, self.ended = self.ended, asyncio.Event()
        ended.set()
        self._looks.read()

    def _write_down(self, index: int, found: Depth, now: float) -> None:
        """Journal a changed reading, and now and then an unchanged one."""
        counts = (found.messages, found.size_bytes, found.dead_lettered, found.scheduled)
        before, at = self._written.get(index, (None, 0.0))
        if counts == before and now < at + JOURNAL_SECONDS:
            return
        self._written[index] = counts, now
        depth_, size, dead, scheduled = counts
        self._steering.announce(
            QueueRead(at=now, queue=index, depth=depth_, size_bytes=size, dead_lettered=dead, scheduled=scheduled)
        )


class ParkedFigures:
    """The number of parked messages, by backlog queue and in total."""

    def __init__(self, steering: PairingRuntime, poller: DepthPoller) -> None:
        self.queues = {index: QueueDepthEstimate() for index in poller.found}
        self.view: ParkedView | None = None
        """The total; None: unknown."""
        self._drained = DrainRate()
        self._steering = steering
        self._poller = poller
        self.pumps: Mapping[int, Pump[Any]] = {}
        """By queue; empty if this engine runs no syphon."""
        self.is_held_up: Callable[[], bool] = lambda: any(one.diverting for one in steering.machine.entities())
        """Returns whether messages wait for an unavailable destination; with a syphon, its report knows."""
        poller.counts = self.counts

    def counts(self, index: int) -> QueueCounters:
        """Return this engine's work on a queue since it started."""
        return self._counts(index, self._added().get(index, 0))

    def look(self) -> None:
        """Update the figures by what was parked and moved until now."""
        now, added, removed = self._steering.clock(), self._added(), 0
        for index, figure in self.queues.items():
            counts = self._counts(index, added.get(index, 0))
            figure.look(self._read(index), counts)
            removed += counts.removed
        messages = sum(figure.messages for figure in self.queues.values())
        read_at = min((one.read.at for one in self.queues.values() if one.read is not None), default=0.0)
        every = self._poller.every
        self._drained.look(now, messages, removed=removed, read_at=read_at, every=every, held_up=self.is_held_up())
        self.view = parked_view(self.queues.values(), self._drained, at=now, oldest=2 * every)

    def parked(self, index: int) -> int | None:
        """Return the messages parked in one queue now; None: unknown."""
        figure = self.queues[index]
        return figure.messages if figure.is_known else None

    def _counts(self, index: int, added: int) -> QueueCounters:
        pump = self.pumps.get(index)
        if pump is None:
            return QueueCounters(added=added)
        progress = pump.progress
        removed = progress.moved + progress.dead_lettered
        return QueueCounters(added=added, removed=removed, leaving=progress.unconfirmed(), aside=progress.set_aside)

    def _added(self) -> dict[int, int]:
        added: dict[int, int] = {}
        for tally in self._steering.tallies.values():
            for route, sends in tally.routes.items():
                if route.queue is not None:
                    added[route.queue] = added.get(route.queue, 0) + sends.accepted
        return added

    def _read(self, index: int) -> DepthRead | None:
        found = self._poller.found[index]
        return DepthRead(found.read_at, found.depth.messages, found.before, found.after) if found is not None else None

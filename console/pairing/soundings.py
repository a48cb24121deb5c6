"""The depth of the backlog queues, read now and then: every number with the time it was read.

Polling costs operations and, on a small namespace, credits; so it is slow while nothing happens, and quicker while
messages are parked. A count read while the namespace cannot be reached is not there, and nobody takes it for zero.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from azure.core.exceptions import AzureError

from console.core.events import QueueRead
from console.core.parked import NOTHING, Counts
from console.core.trend import Reading
from console.pairing.backlog import depth
from console.pairing.management import Depth, Management
from console.pairing.steering import Steering

QUICK: Final = 5.0
SLOW: Final = 15.0
WRITTEN_EVERY: Final = 300.0
"""Seconds after which a reading is written down that found nothing new."""
REMEMBERED: Final = 12
"""Readings of a queue that its trend is made from: a minute's, while messages are parked."""


@dataclass(frozen=True, slots=True)
class Sounding:
    """One queue's counts and when they were read."""

    depth: Depth
    read_at: float
    before: Counts = NOTHING
    """What this engine had done with the queue when it was asked for; `after`: when the answer came."""
    after: Counts = NOTHING


class Soundings:
    """Reads the queues' counts until cancelled; `found` holds the latest by index."""

    def __init__(self, steering: Steering, admin: Management, queues: Mapping[int, str]) -> None:
        self.found: dict[int, Sounding | None] = dict.fromkeys(queues)
        self.readings: dict[int, deque[Reading]] = {index: deque(maxlen=REMEMBERED) for index in queues}
        """The latest readings of each queue, oldest first."""
        self.every = SLOW
        """Seconds until the queues are read again."""
        self.once = asyncio.Event()
        """Set when all queues were read, or tried, for the first time."""
        self.counts: Callable[[int], Counts] = lambda _: NOTHING
        """What this engine did with a queue so far."""
        self._troubles: dict[int, str] = {}
        """Why the last reading failed, by queue."""
        self._written: dict[int, tuple[tuple[int, ...] | None, float]] = {}
        self._steering = steering
        self._admin = admin
        self._queues = queues

    @property
    def trouble(self) -> str:
        """Why a queue could not be read the last time, the first such queue's; empty where all could."""
        return self._troubles[min(self._troubles)] if self._troubles else ""

    async def run(self) -> None:
        """Read all queues, one after the other; quicker while something is parked or an entity is failed over."""
        while True:
            for index, path in self._queues.items():
                await self._read(index, path)
            self.once.set()
            parked = any(one is not None and one.depth.messages for one in self.found.values())
            diverting = any(entity.diverting for entity in self._steering.machine.entities())
            self.every = QUICK if parked or diverting else SLOW
            await self._wait()

    async def _wait(self) -> None:
        """Until the next reading; something that happens makes it come soon, but not sooner than QUICK."""
        await asyncio.sleep(QUICK)
        if self.every > QUICK:
            await self._steering.change(self._steering.clock() + self.every - QUICK)

    async def _read(self, index: int, path: str) -> None:
        before = self.counts(index)
        try:
            found = await depth(self._admin, path)
        except (AzureError, OSError, TimeoutError) as error:
            self._troubles[index] = self._steering.judge(error).reason
        else:
            self._troubles.pop(index, None)
            now = self._steering.clock()
            self._write_down(index, found, now)
            self.found[index] = Sounding(found, now, before, self.counts(index))
            self.readings[index].append(Reading(now, found.messages, found.size_bytes))

    def _write_down(self, index: int, found: Depth, now: float) -> None:
        """What changed, for whoever looks back; and now and then that nothing did."""
        counts = (found.messages, found.size_bytes, found.dead_lettered, found.scheduled)
        before, at = self._written.get(index, (None, 0.0))
        if counts == before and now < at + WRITTEN_EVERY:
            return
        self._written[index] = counts, now
        depth_, size, dead, scheduled = counts
        self._steering.announce(
            QueueRead(at=now, queue=index, depth=depth_, size_bytes=size, dead_lettered=dead, scheduled=scheduled)
        )

"""Would a failover work now? Looked at again and again while the engine runs, slowly, and soon after something changed.

One look opens a link to each backlog queue (ten at most) and closes it: 10 × 23 ms of CPU a minute with the SDK, and
no billed message. Consoles see the latest answer in each snapshot; turning from ready to not ready, and back, is an
event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from paired_servicebus.core import events as e
from paired_servicebus.core.readiness import Evidence, alarm, judge
from paired_servicebus.core.snapshot import Readiness
from paired_servicebus.engine.steered import Steered

EVERY: Final = 60.0
"""Seconds between two looks while nothing happens."""
SOONEST: Final = 10.0
"""Seconds between two looks, whatever happens."""
LOOK: Final = 120.0
"""Seconds one look may take: each of its waits ends sooner by itself."""
CHANGES: Final = (
    e.StateChanged,
    e.QueuePulled,
    e.QueueRestored,
    e.PumpStopped,
    e.SyphonPaused,
    e.SyphonResumed,
)
"""After these the answer may be another one."""

Surroundings = Callable[[Evidence], Awaitable[Evidence]]
"""Adds what only the engine's process can see."""

log = logging.getLogger(__name__)


async def nothing_more(evidence: Evidence) -> Evidence:
    """For an engine whose process sees no more than the pairing does."""
    return evidence


class ReadinessWatch:
    """Keeps `latest` up to date while `run` runs.

    Args:
        surroundings: asked in each look.
        record: told when the answer turns.
    """

    def __init__(self, surroundings: Surroundings, record: Callable[[e.Event], object]) -> None:
        self.latest: Readiness | None = None
        """None: not looked yet."""
        self._surroundings = surroundings
        self._record = record
        self._nudged = asyncio.Event()
        self._evidence: Evidence | None = None

    @property
    def alarm(self) -> str:
        """What stands in the way of a failover; empty where nothing does."""
        return alarm(self.latest) if self.latest is not None else ""

    def note(self, event: e.Event) -> None:
        """Looks soon if the event may change the answer."""
        if isinstance(event, CHANGES):
            self._nudged.set()

    def recount(self, paired: Steered) -> None:
        """Judges the latest evidence again, with the queues' counts of now; what was not looked at is, soon."""
        if self._evidence is None:
            return
        if paired.looks.attended and not self._evidence.asked:
            self._nudged.set()
        self._turn(paired.recounted(self._evidence))

    async def run(self, paired: Steered) -> None:
        """Looks until cancelled; a look that fails is logged, and the next one comes."""
        while True:
            self._nudged.clear()
            try:
                async with asyncio.timeout(LOOK):
                    await self._look(paired)
            except Exception:
                log.exception("nobody knows whether a failover would work: looking failed")
            await asyncio.sleep(SOONEST)
            try:
                async with asyncio.timeout(EVERY - SOONEST):
                    await self._nudged.wait()
            except TimeoutError:
                pass

    async def _look(self, paired: Steered) -> None:
        evidence = await self._surrounded(await paired.inspect())
        paired.know_syphons(evidence.syphons_elsewhere)
        self._turn(evidence)

    def _turn(self, evidence: Evidence) -> None:
        self._evidence, found = evidence, judge(evidence)
        before, self.latest = self.alarm, found
        if bool(self.alarm) != bool(before):
            self._record(e.Warned(at=found.at, about="readiness", text=self.alarm or "a failover would work again"))

    async def _surrounded(self, evidence: Evidence) -> Evidence:
        try:
            return await self._surroundings(evidence)
        except Exception:  # what the pairing saw itself is worth more
            log.exception("the engine's surroundings could not be looked at")
            return evidence

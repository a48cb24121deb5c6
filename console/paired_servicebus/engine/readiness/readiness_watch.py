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

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.snapshot import Readiness
from paired_servicebus.core.operator.failover_readiness import Evidence, alarm, judge
from paired_servicebus.engine.pairing_port import ControllablePairing

CHECK_INTERVAL: Final = 60.0
"""Seconds between two looks while nothing happens."""
MIN_CHECK_INTERVAL: Final = 10.0
"""Seconds between two looks, whatever happens."""
CHECK_TIMEOUT: Final = 120.0
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

EvidenceSource = Callable[[Evidence], Awaitable[Evidence]]
"""Adds what only the engine's process can see."""

log = logging.getLogger(__name__)


async def no_local_evidence(evidence: Evidence) -> Evidence:
    """For an engine whose process sees no more than the pairing does."""
    return evidence


class ReadinessWatch:
    """Keeps `latest` up to date while `run` runs.

    Args:
        surroundings: asked in each look.
        record: told when the answer turns.
    """

    def __init__(self, surroundings: EvidenceSource, record: Callable[[e.Event], object]) -> None:
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

    def recount(self, paired: ControllablePairing) -> None:
        """Judges the latest evidence again, with the queues' counts of now; what was not looked at is, soon."""
        if self._evidence is None:
            return
        if paired.looks.attended and not self._evidence.asked:
            self._nudged.set()
        self._turn(paired.recounted(self._evidence))

    async def run(self, paired: ControllablePairing) -> None:
        """Looks until cancelled; a look that fails is logged, and the next one comes."""
        while True:
            self._nudged.clear()
            try:
                async with asyncio.timeout(CHECK_TIMEOUT):
                    await self._look(paired)
            except Exception:
                log.exception("nobody knows whether a failover would work: looking failed")
            await asyncio.sleep(MIN_CHECK_INTERVAL)
            try:
                async with asyncio.timeout(CHECK_INTERVAL - MIN_CHECK_INTERVAL):
                    await self._nudged.wait()
            except TimeoutError:
                pass

    async def _look(self, paired: ControllablePairing) -> None:
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

"""Would a failover work now? Checked periodically while the engine runs, and soon after a relevant change.

One check opens a link to each backlog queue (ten at most) and closes it: 10 × 23 ms of CPU a minute with the SDK, and
no billed message. Each snapshot has the latest answer; a change between ready and not ready is an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.snapshot import Readiness
from paired_servicebus.core.operator.failover_readiness import Evidence, alarm, judge
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

CHECK_INTERVAL: Final = 60.0
"""Seconds between two checks without changes."""
MIN_CHECK_INTERVAL: Final = 10.0
"""Minimum seconds between two checks."""
CHECK_TIMEOUT: Final = 120.0
"""Seconds that one check may last; each of its waits ends sooner by itself."""
CHANGES: Final = (
    e.StateChanged,
    e.QueuePulled,
    e.QueueRestored,
    e.PumpStopped,
    e.SyphonPaused,
    e.SyphonResumed,
)
"""Events that may change the answer."""

EvidenceSource = Callable[[Evidence], Awaitable[Evidence]]
"""Adds evidence that only the engine's process has."""

log = logging.getLogger(__name__)


async def no_local_evidence(evidence: Evidence) -> Evidence:
    """Return the evidence unchanged: for a process without further evidence."""
    return evidence


class ReadinessWatch:
    """Keeps `latest` up to date while `run` runs.

    Args:
        surroundings: adds evidence in each check.
        record: receives an event when the answer changes.
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
        """The obstacles to a failover; empty if there are none."""
        return alarm(self.latest) if self.latest is not None else ""

    def note(self, event: e.Event) -> None:
        """Check soon if the event may change the answer."""
        if isinstance(event, CHANGES):
            self._nudged.set()

    def recount(self, paired: PairedServiceBusClient) -> None:
        """Judge the latest evidence again with the queues' current counts; check soon if some was not read."""
        if self._evidence is None:
            return
        if paired.looks.attended and not self._evidence.asked:
            self._nudged.set()
        self._update(paired.recounted(self._evidence))

    async def run(self, paired: PairedServiceBusClient) -> None:
        """Check until cancelled; a failed check is logged."""
        while True:
            self._nudged.clear()
            try:
                async with asyncio.timeout(CHECK_TIMEOUT):
                    await self._check(paired)
            except Exception:
                log.exception("whether a failover would work is unknown: the check failed")
            await asyncio.sleep(MIN_CHECK_INTERVAL)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL - MIN_CHECK_INTERVAL):
                    await self._nudged.wait()

    async def _check(self, paired: PairedServiceBusClient) -> None:
        evidence = await self._add_local_evidence(await paired.inspect())
        paired.know_syphons(evidence.syphons_elsewhere)
        self._update(evidence)

    def _update(self, evidence: Evidence) -> None:
        self._evidence, found = evidence, judge(evidence)
        before, self.latest = self.alarm, found
        if bool(self.alarm) != bool(before):
            self._record(e.Warned(at=found.at, about="readiness", text=self.alarm or "a failover would work again"))

    async def _add_local_evidence(self, evidence: Evidence) -> Evidence:
        try:
            return await self._surroundings(evidence)
        except Exception:  # the pairing's own evidence is still valid
            log.exception("the engine's surroundings could not be looked at")
            return evidence

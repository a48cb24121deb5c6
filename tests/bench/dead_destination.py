"""What a dead destination at the head of a backlog queue costs the others behind it (SPEC.md section 8).

In one run through the syphon as it is: many messages moved; a few alone; many for a destination that is disabled with
the few behind them, and the few once more while the many are set aside; last the many, after their destination healed.
Run by `python -m tests.bench.dead_destination [MANY [FEW]]`; the namespaces are sandboxes, since
no real entity may be broken.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.syphon_bench import fill
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import Event, Moved
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.syphon import Syphon

DEAD: Final = "bench-dead"
LIVE: Final = "bench-live"
SOURCE: Final = "bench-source"
LONGEST: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadHeadFigures:
    """Seconds. many and few: how many messages. plain, behind: from the start of the syphon; healed: from the healing;
    alone, later: the few from their sender through a syphon that runs."""

    many: int
    few: int
    plain: float
    alone: float
    behind: float
    """Until the few behind the many arrived: what setting the many aside takes, too."""
    later: float
    """As alone, while the many lie aside."""
    healed: float


class _Counts:
    def __init__(self) -> None:
        self.moved = {DEAD: 0, LIVE: 0}

    def on_event(self, event: Event) -> None:
        if isinstance(event, Moved):
            self.moved[event.entity] += 1

    async def until(self, path: str, count: int) -> float:
        """Seconds until so many have arrived there."""
        began = time.perf_counter()
        async with asyncio.timeout(LONGEST):
            while self.moved[path] < count:
                await asyncio.sleep(0.002)
        return time.perf_counter() - began


async def measure_dead_head(many: int = 100_000, few: int = 1_000) -> DeadHeadFigures:
    """One run. Raises BenchError, TimeoutError."""
    async with open_namespaces(None, primary=(DEAD, LIVE), secondary=(SOURCE,), latency_ms=0) as where:
        assert where.sandbox is not None
        dead, live = SampleMessages(1024, DEAD), SampleMessages(1024, LIVE)
        await fill(where, SOURCE, live, many)
        async with _syphon(where) as counts:
            plain = await counts.until(LIVE, many)
            alone = await _through(where, counts, live, few)
        fault = await where.sandbox.add_fault("disabled", namespace="primary", entity=DEAD)
        await fill(where, SOURCE, dead, many)
        await fill(where, SOURCE, live, few)
        async with _syphon(where) as counts:
            behind = await counts.until(LIVE, few)
            later = await _through(where, counts, live, few)
            await where.sandbox.remove_fault(fault)
            healed = await counts.until(DEAD, many)
    return DeadHeadFigures(many=many, few=few, plain=plain, alone=alone, behind=behind, later=later, healed=healed)


async def _through(where: BenchNamespaces, counts: _Counts, letters: SampleMessages, few: int) -> float:
    """Seconds that a few take from their sender through a syphon that runs."""
    before, began = counts.moved[LIVE], time.perf_counter()
    await fill(where, SOURCE, letters, few)
    await counts.until(LIVE, before + few)
    return time.perf_counter() - began


@asynccontextmanager
async def _syphon(where: BenchNamespaces) -> AsyncIterator[_Counts]:
    counts, tasks = _Counts(), TaskOwner()
    await tasks.open()
    steering = PairingRuntime(PairingMachine(Policy(enable_syphon=True), queues=(0,)), tasks, judge, counts.on_event)
    syphon = Syphon(steering, where.primary, where.secondary, {0: SOURCE})
    try:
        syphon.start()
        yield counts
    finally:
        await tasks.close()
        await syphon.close()


def main(*counts: int) -> None:
    """Print the figures of one run. counts: MANY and FEW."""
    found = asyncio.run(measure_dead_head(*counts))
    sys.stdout.write(
        f"{found.many:,} moved in {found.plain:.2f} s, {found.few:,} alone in {found.alone:.2f} s; behind as many for "
        f"a dead destination in {found.behind:.2f} s ({found.plain / found.behind:.2f} of the plain rate), once those "
        f"are set aside in {found.later:.2f} s; healed, the {found.many:,} arrived in {found.healed:.2f} s\n"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

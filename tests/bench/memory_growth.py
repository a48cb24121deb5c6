"""`python -m tests.bench memory`: growth of the syphon's memory while it moves many messages.

It must not depend on their number. The backlog is filled while it is moved, so that the namespace holds only some
portions of it. Messages at the destination expire by their time to live. The same process fills the backlog, with
constant memory.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.rounds import Figures, Lap, Targets
from paired_servicebus.bench.syphon_bench import SyphonMover, fill, ours
from paired_servicebus.pairing.runtime.deadlines import end_all
from tests.bench.process_usage import resident_bytes

SOURCE: Final = "bench-memory-source"
TARGET: Final = "bench-memory-target"
PORTION: Final = 20_000
AHEAD: Final = 40_000
"""Messages in the backlog, at most."""
WARM: Final = 0.1
"""Share of all messages that fills every window, cache and buffer once."""
LIVES: Final = timedelta(seconds=2)
MB: Final = 1e6
TARGET_MB: Final = 30.0
LOOK: Final = 0.05
STOP: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth(Figures):
    """warm_mb: the most memory until a tenth of the messages was moved. most_mb: until all were."""

    messages: int
    warm_mb: float
    most_mb: float
    growth_mb: float

    @property
    def targets(self) -> Targets:
        """At most."""
        return {"growth_mb": (TARGET_MB, self.growth_mb <= TARGET_MB)}


async def measure_memory(messages: int, size: int) -> MemoryGrowth:
    """Run one syphon and return its growth. Raises BenchError."""
    async with open_namespaces(None, primary=(TARGET,), secondary=(SOURCE,), latency_ms=0.0) as where:
        with tempfile.TemporaryDirectory(prefix="paired-bench-") as folder:
            async with ours(where, SOURCE, Path(folder)) as way:
                letters = SampleMessages(size, TARGET, lives=LIVES)
                feeding = asyncio.create_task(_feed(where, way, letters, messages))
                moving = asyncio.create_task(way.lap(messages))
                try:
                    memory = await _watch(way, messages, feeding, moving)
                    await asyncio.gather(feeding, moving)
                finally:
                    await end_all((feeding, moving), STOP)
    return memory


async def _feed(where: BenchNamespaces, way: SyphonMover, letters: SampleMessages, messages: int) -> None:
    for done in range(0, messages, PORTION):
        while done - way.moved > AHEAD:
            await asyncio.sleep(LOOK)
        await fill(where, SOURCE, letters, min(PORTION, messages - done))


async def _watch(
    way: SyphonMover, messages: int, feeding: asyncio.Task[None], moving: asyncio.Task[Lap]
) -> MemoryGrowth:
    """Watch the memory until both tasks ended, or one failed."""
    warm = most = 0
    while not moving.done() and not (feeding.done() and feeding.exception()):
        most = max(most, resident_bytes(os.getpid()))
        if way.moved < WARM * messages:
            warm = most
        await asyncio.sleep(LOOK)
    warm_mb, most_mb = round(warm / MB, 1), round(most / MB, 1)
    return MemoryGrowth(messages=messages, warm_mb=warm_mb, most_mb=most_mb, growth_mb=round(most_mb - warm_mb, 1))

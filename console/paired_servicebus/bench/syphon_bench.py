"""`paired bench syphon`: the speed of moving a backlog, beside loops on the SDK and beside a plain copy.

Five ways take turns in each round: the syphon with receipts, the naive loop and the best loop on the SDK, and twice
the plain copy on our own AMQP, which is the limit and gives the A/A band. On request, a peer moves the same messages,
and the syphon moves them for many destinations.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.bench.amqp_loads import WINDOW
from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.bench_plans import SyphonPlan
from paired_servicebus.bench.movers import (
    AHEAD,
    BATCH,
    BatchedLoop,
    CopyMover,
    Mover,
    NaiveLoop,
    fill,
    ours,
    sdk_links,
    wires,
)
from paired_servicebus.bench.rounds import Band, Lap, Throughput, in_turn, ratio
from paired_servicebus.bench.sample_messages import MessageSource, MixedMessages, SampleMessages
from paired_servicebus.config import PairingConfig

Peer = Callable[[int], AbstractAsyncContextManager[Mover]]
"""Opens another mover of messages; its argument is the size of a body in bytes."""
SOURCES: Final = {name: f"bench-{name}-source" for name in ("ours", "naive", "best-0", "best-1", "raw")}
MIXED: Final = "bench-mixed-source"
TARGET: Final = "bench-target"
HELD: Final = 3 * 1024**3
"""Bytes moved to the destination in all; the sandbox holds them in memory."""
PATIENCE: Final = 3.0
"""Seconds for a lap of a loop on the SDK."""
MOST_RATE: Final = {"naive": 1500, "best": 4000}
"""Messages a second of a loop at most; limits the messages of its lap."""
SETTINGS: Final = ((400, 0.01), (0, 0.005))
"""Prefetch and socket_timeout of the best loop. The better pair depends on the latency, so both are tried."""
SAMPLE: Final = 600
NAIVE_TARGET: Final = 20.0
NAIVE_TARGET_LATE: Final = 300.0
RAW_TARGET: Final = 0.5
RAW_TARGET_LATE: Final = 0.75
RAW_TARGET_LARGE: Final = 0.8
PEER_TARGET: Final = 1.5
MIXED_TARGET: Final = 0.7
CPU_TARGET_US: Final = 30.0
LATE: Final = 10.0
"""Milliseconds of latency from which the targets …_LATE apply."""
LARGE: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonFigures:
    """ratio_…: ours to theirs, in messages a second; ratio_mixed: many destinations to one.

    aa_…: the band of two equal copies.
    """

    size: int
    latency_ms: float
    rounds: int
    ours: Throughput
    naive: Throughput
    best_sdk: Throughput
    raw: Throughput
    peer: Throughput | None
    ratio_vs_naive: float
    ratio_vs_best_sdk: float
    ratio_vs_raw: float
    ratio_vs_peer: float | None
    aa_low: float
    aa_high: float
    destinations: int = 1
    mixed: Throughput | None = None
    ratio_mixed: float | None = None

    @property
    def targets(self) -> dict[str, tuple[float, bool]]:
        """Target of each ratio, at least, and whether it is reached.

        Some targets do not apply to large messages.
        """
        is_late, is_large = self.latency_ms >= LATE, self.size >= LARGE
        wanted = {
            "ratio_vs_naive": None if is_large else NAIVE_TARGET_LATE if is_late else NAIVE_TARGET,
            "ratio_vs_raw": RAW_TARGET_LARGE if is_large else RAW_TARGET_LATE if is_late else RAW_TARGET,
            "ratio_vs_peer": None if self.peer is None else PEER_TARGET,
            "ratio_mixed": None if self.mixed is None else MIXED_TARGET,
        }
        return {name: (target, getattr(self, name) >= target) for name, target in wanted.items() if target is not None}

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""
        is_cheap = self.size >= LARGE or self.ours.cpu_us <= CPU_TARGET_US  # the CPU target is not for copying bytes
        return is_cheap and all(reached for _, reached in self.targets.values())


async def measure_syphon(
    plan: SyphonPlan, config: PairingConfig | None = None, *, peer: Peer | None = None
) -> SyphonFigures:
    """Return all figures. config: the namespaces; None: sandboxes. peer: another mover. Raises BenchError."""
    laps: dict[str, list[Lap]] = {name: [] for name in ("ours", "mixed", "naive", "best", "raw", "again", "peer")}
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(
            open_namespaces(
                config,
                primary=(TARGET, *_mixed_targets(plan)),
                secondary=(*SOURCES.values(), MIXED),
                latency_ms=plan.latency_ms,
            )
        )
        course = _Course(where, plan)
        ways = await course.ways(stack)
        if peer is not None:
            ways["peer"] = await stack.enter_async_context(peer(plan.size))
        names = list(ways)
        for number in range(plan.rounds):
            for name in in_turn(names, number):
                laps[name].append(await course.lap(name, ways[name]))
    return _figures(plan, laps)


def most_messages(size: int, rounds: int) -> int:
    """Return the messages of `size` bytes of one lap at most, so that the destination holds those of all ways."""
    return max(2, HELD // (size * rounds * (len(SOURCES) + 1)))  # raw goes twice


def _mixed_targets(plan: SyphonPlan) -> list[str]:
    return [f"bench-target-{number}" for number in range(plan.destinations)] if plan.destinations > 1 else []


class _Course:
    """The queues, and the number of messages of each way in a lap."""

    def __init__(self, where: BenchNamespaces, plan: SyphonPlan) -> None:
        self._where = where
        self._plan = plan
        self._letters = SampleMessages(plan.size, destination=TARGET)
        self._mixed = MixedMessages(
            [SampleMessages(plan.size, destination=path) for path in _mixed_targets(plan) or (TARGET,)]
        )
        self._left_over: dict[str, int] = {}

    async def ways(self, stack: AsyncExitStack) -> dict[str, Mover]:
        """Open the links of all ways."""
        where, window = self._where, max(8, min(WINDOW, AHEAD // self._letters.size))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paired-bench-")))
        links = await stack.enter_async_context(wires(where))
        receiver, sender = await stack.enter_async_context(sdk_links(where, SOURCES["naive"], TARGET))
        copies = [CopyMover(SOURCES["raw"], TARGET, links, window) for _ in range(2)]
        mixed: dict[str, Mover] = {}
        if self._plan.destinations > 1:
            mixed["mixed"] = await stack.enter_async_context(ours(where, MIXED, folder / "mixed"))
        return {
            "ours": await stack.enter_async_context(ours(where, SOURCES["ours"], folder)),
            **mixed,
            "naive": NaiveLoop(SOURCES["naive"], receiver, sender, PATIENCE),
            "best": await self._careful(stack),
            "raw": copies[0],
            "again": copies[1],
        }

    async def lap(self, name: str, way: Mover) -> Lap:
        """Fill the queue of a way and run one lap."""
        count = self._count(name)
        if name == "peer":
            return await way.lap(count)
        left_over = self._left_over.get(way.source, 0)
        letters: MessageSource = self._mixed if name == "mixed" else self._letters
        await fill(self._where, way.source, letters, max(1, count - left_over))
        lap = await way.lap(count)
        self._left_over[way.source] = max(count, left_over + 1) - way.moved  # some are left for lack of time
        return lap

    def _count(self, name: str) -> int:
        count = min(self._plan.messages, most_messages(self._letters.size, self._plan.rounds))
        return min(count, int(PATIENCE * MOST_RATE[name])) if name in MOST_RATE else count

    async def _careful(self, stack: AsyncExitStack) -> BatchedLoop:
        """Return the faster of the best loops."""
        batch = max(1, BATCH * 1024 // max(1024, self._letters.size))
        sample = min(self._plan.messages, 3 * batch if self._letters.size > LARGE else SAMPLE)
        tried: list[tuple[float, BatchedLoop]] = []
        for number, (prefetch, timeout) in enumerate(SETTINGS):
            source = SOURCES[f"best-{number}"]
            links = await stack.enter_async_context(
                sdk_links(self._where, source, TARGET, prefetch_count=prefetch, socket_timeout=timeout)
            )
            way = BatchedLoop(source, *links, batch, PATIENCE)
            await fill(self._where, way.source, self._letters, sample)
            lap = await way.lap(sample)
            self._left_over[source] = sample - way.moved
            tried.append((lap.per_second, way))
        return max(tried, key=lambda one: one[0])[1]


def _figures(plan: SyphonPlan, laps: Mapping[str, Sequence[Lap]]) -> SyphonFigures:
    mine, mixed = laps["ours"], laps["mixed"]
    band = Band.of(laps["raw"], laps["again"])
    return SyphonFigures(
        size=plan.size,
        latency_ms=plan.latency_ms,
        rounds=plan.rounds,
        ours=Throughput.of(mine),
        naive=Throughput.of(laps["naive"]),
        best_sdk=Throughput.of(laps["best"]),
        raw=Throughput.of(laps["raw"]),
        peer=Throughput.of(laps["peer"]) if laps["peer"] else None,
        ratio_vs_naive=ratio(mine, laps["naive"]),
        ratio_vs_best_sdk=ratio(mine, laps["best"]),
        ratio_vs_raw=ratio(mine, laps["raw"]),
        ratio_vs_peer=ratio(mine, laps["peer"]) if laps["peer"] else None,
        aa_low=band.low,
        aa_high=band.high,
        destinations=plan.destinations,
        mixed=Throughput.of(mixed) if mixed else None,
        ratio_mixed=ratio(mixed, mine) if mixed else None,
    )

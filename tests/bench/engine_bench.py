"""`python -m tests.bench engine`: do consoles cost the engine anything? Pings' lateness and send times with none, with
one, and with five of which one reads nothing.

The engine is one as an application has it: pairing, journal and control socket in this process, consoles and namespaces
in others. Some entities are failed over by hand, so that there are pings; another one is sent to at a steady pace. Laps
take turns; a lap without consoles comes twice a round, and the ratio of the two, window by window, is the band.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from azure.servicebus import ServiceBusMessage

from paired_servicebus.bench.bench_namespaces import BenchNamespaces, open_namespaces
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Figures, Targets, in_turn
from paired_servicebus.core.model.pairing_events import Event, PingAccepted, PingFailed
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedSender, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from tests.bench.console_processes import consoles
from tests.bench.developer_plans import EnginePlan

ENTITY: Final = "bench-entity"
SOCKET: Final = "s"
PING_INTERVAL: Final = 1.0
PACE: Final = 0.02
"""Seconds from the start of a send to that of the next."""
WINDOW: Final = 5.0
LATENESS_TARGET_MS: Final = 100.0
SETTLE: Final = 2.0
"""Seconds from attaching to the start of a lap: what a console missed is told to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLoad:
    """A lap's consoles."""

    name: str
    consoles: int
    stalled: bool = False


WAYS: Final = (
    ConsoleLoad(name="0", consoles=0),
    ConsoleLoad(name="again", consoles=0),
    ConsoleLoad(name="1", consoles=1),
    ConsoleLoad(name="5", consoles=5, stalled=True),
)


@dataclass(slots=True)
class EngineLap:
    """What was seen: how late pings left, and how long sends took, window by window. Milliseconds."""

    lateness: list[float] = field(default_factory=list)
    windows: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures(Figures):
    """By number of consoles, as text. send_ratio: how many times longer a send took than without any; aa_…: between
    what that ratio lay, window by window, for laps that both had none."""

    entities: int
    seconds: float
    rounds: int
    pings: Mapping[str, int]
    lateness_p95_ms: Mapping[str, float]
    lateness_max_ms: Mapping[str, float]
    send_p50_ms: Mapping[str, float]
    send_p95_ms: Mapping[str, float]
    send_ratio: Mapping[str, float]
    aa_low: float
    aa_high: float

    @property
    def targets(self) -> Targets:
        """What each figure should be at most, and whether it is."""
        worst = max(self.lateness_p95_ms.values())
        return {
            "lateness_p95_ms": (LATENESS_TARGET_MS, worst <= LATENESS_TARGET_MS),
            "send_ratio": (self.aa_high, max(self.send_ratio.values()) <= self.aa_high),
        }


class _Pings:
    """How late each ping began, against the one before."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self.late: list[float] = []

    def on_event(self, event: Event) -> None:
        """Takes note of a ping's answer."""
        if isinstance(event, PingAccepted | PingFailed):
            began, before = event.at - event.took, self._began.get(event.entity)
            self._began[event.entity] = began
            if before is not None:
                self.late.append(1000 * max(0.0, began - before - PING_INTERVAL))


async def measure_engine(plan: EnginePlan) -> EngineFigures:
    """All figures. Raises BenchError."""
    if plan.seconds < 2 * WINDOW or plan.rounds < 1 or plan.entities < 1:
        raise BenchError(f"a lap has {2 * WINDOW:g} s at least, and there is one round and one entity at least")
    names = [f"bench-ping-{number}" for number in range(plan.entities)]
    laps: dict[str, list[EngineLap]] = defaultdict(list)
    pings = _Pings()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pb-")))
        where = await stack.enter_async_context(
            open_namespaces(None, primary=[ENTITY, *names], secondary=[], latency_ms=0.0)
        )
        sender = await stack.enter_async_context(_engine(where, folder, pings, names))
        await _lap(sender, pings, WINDOW)  # links open, caches fill
        for number in range(plan.rounds):
            for way in in_turn(WAYS, number):
                async with consoles(folder / SOCKET, way.consoles, stalled=way.stalled):
                    await asyncio.sleep(SETTLE)
                    laps[way.name].append(await _lap(sender, pings, plan.seconds))
    return _figures(plan, laps)


@asynccontextmanager
async def _engine(
    where: BenchNamespaces, folder: Path, pings: _Pings, names: Sequence[str]
) -> AsyncIterator[PairedSender]:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=where.secondary_admin, secondary_client=where.secondary, primary_name="bench",
        backlog_queue_count=1, ping_primary_interval=PING_INTERVAL, enable_syphon=True,
    )  # fmt: skip
    identity = EngineIdentity.of("bench")
    async with EngineHost(identity, spool=folder / "spool", socket=folder / SOCKET, policy=options.policy()) as host:

        def record(event: Event) -> None:
            pings.on_event(event)
            host.record(event)

        async with await pair_namespaces(where.primary, options, on_event=record) as paired:
            await host.adopt(paired)
            for name in names:
                paired.watch(name)
                paired.force(name, by="bench")
            async with paired.get_queue_sender(ENTITY) as sender:
                yield sender


async def _lap(sender: PairedSender, pings: _Pings, seconds: float) -> EngineLap:
    lap = EngineLap()
    pings.late = lap.lateness
    for _ in range(int(seconds / WINDOW)):
        took: list[float] = []
        end = time.perf_counter() + WINDOW
        while (began := time.perf_counter()) < end:
            await sender.send_messages(ServiceBusMessage(bytes(1024)))
            took.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(max(0.0, began + PACE - time.perf_counter()))
        lap.windows.append(took)
    return lap


def _figures(plan: EnginePlan, laps: Mapping[str, Sequence[EngineLap]]) -> EngineFigures:
    late = {way: sorted(each for lap in laps[way] for each in lap.lateness) for way in ("0", "1", "5")}
    took = {way: sorted(each for lap in laps[way] for window in lap.windows for each in window) for way in late}
    band = _ratios(laps["again"], laps["0"])
    return EngineFigures(
        entities=plan.entities,
        seconds=plan.seconds,
        rounds=plan.rounds,
        pings={way: len(each) for way, each in late.items()},
        lateness_p95_ms={way: _at(each, 0.95) for way, each in late.items()},
        lateness_max_ms={way: _at(each, 1.0) for way, each in late.items()},
        send_p50_ms={way: _at(each, 0.5) for way, each in took.items()},
        send_p95_ms={way: _at(each, 0.95) for way, each in took.items()},
        send_ratio={way: round(median(_ratios(laps[way], laps["0"])), 3) for way in ("1", "5")},
        aa_low=round(min(band), 3),
        aa_high=round(max(band), 3),
    )


def _ratios(ours: Sequence[EngineLap], theirs: Sequence[EngineLap]) -> list[float]:
    """Of the windows' medians."""
    pairs = [
        (first, second)
        for one, other in zip(ours, theirs, strict=True)
        for first, second in zip(one.windows, other.windows, strict=True)
    ]
    return [median(first) / median(second) for first, second in pairs]


def _at(ordered: Sequence[float], share: float) -> float:
    """The value that so much of them does not exceed."""
    if not ordered:
        raise BenchError("a lap saw no ping: it was too short")
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

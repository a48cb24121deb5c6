"""`python -m tests.bench console-bytes`: what dashboards write on their terminals, over one running engine.

Three dashboards look at the same engine: full, slow and plain, each at 140x40 with 256 colours. Their first paints are
counted, then the bytes a second of four situations, one after the other: no traffic, a healthy pairing with traffic, a
tenth of the entities failed over, all of them failed over.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Figures, Targets
from paired_servicebus.ui.display.profile import ProfileName
from tests.bench.developer_plans import BytesPlan
from tests.bench.screen.screen_terminal import START, EngineProcess, Terminal, open_dashboard, open_engine

QUIET, HEALTHY, TENTH, ALL = "only the clock", "healthy, traffic", "a tenth failed over", "all failed over"
FIRST_BYTES: Final = {ProfileName.FULL: 18_000, ProfileName.PLAIN: 6_000}
PER_SECOND: Final = {
    (QUIET, ProfileName.FULL): 60.0,
    (TENTH, ProfileName.FULL): 500.0,
    (TENTH, ProfileName.SLOW): 150.0,
    (ALL, ProfileName.FULL): 1_500.0,
}
Terminals = Mapping[ProfileName, Terminal]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteFigures(Figures):
    """first_bytes: of the first paint, by profile. per_second: bytes a second, by situation and profile."""

    entities: int
    seconds: float
    first_bytes: Mapping[str, int]
    per_second: Mapping[str, Mapping[str, float]]

    @property
    def targets(self) -> Targets:
        """What each figure should be at most, and whether it is."""
        firsts = {
            f"first paint, {profile}": (float(most), self.first_bytes[profile] <= most)
            for profile, most in FIRST_BYTES.items()
        }
        rates = {
            f"{situation}, {profile}": (most, self.per_second[situation][profile] <= most)
            for (situation, profile), most in PER_SECOND.items()
        }
        return firsts | rates


async def measure_bytes(plan: BytesPlan) -> ByteFigures:
    """All figures. Raises BenchError."""
    if plan.entities < 10 or plan.seconds <= 0:
        raise BenchError("there are ten entities at least, and a time to count bytes")
    with tempfile.TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        async with open_engine(folder, plan.entities) as engine, contextlib.AsyncExitStack() as stack:
            engine.tell("quiet")
            terminals, firsts = {}, {}
            for profile in ProfileName:
                terminals[profile] = await stack.enter_async_context(open_dashboard(folder, profile))
                await terminals[profile].shows(f"{plan.entities} entities".encode(), within=START)
                await terminals[profile].rests()
                firsts[profile.value] = len(terminals[profile].written)
            rates = await _rates(plan, engine, terminals)
            for terminal in terminals.values():
                await terminal.leave()
    return ByteFigures(entities=plan.entities, seconds=plan.seconds, first_bytes=firsts, per_second=rates)


async def _rates(plan: BytesPlan, engine: EngineProcess, terminals: Terminals) -> dict[str, Mapping[str, float]]:
    """Return the bytes a second of each situation."""
    found: dict[str, Mapping[str, float]] = {}
    for situation, line in (
        (QUIET, "quiet"),
        (HEALTHY, "busy"),
        (TENTH, f"away {plan.entities // 10}"),
        (ALL, f"away {plan.entities}"),
    ):
        engine.tell(line)
        await asyncio.sleep(plan.settle_seconds)
        found[situation] = await _counted(plan.seconds, terminals)
    return found


async def _counted(seconds: float, terminals: Terminals) -> dict[str, float]:
    before = {profile: len(terminal.written) for profile, terminal in terminals.items()}
    await asyncio.sleep(seconds)
    return {
        profile.value: round((len(terminal.written) - before[profile]) / seconds, 1)
        for profile, terminal in terminals.items()
    }

"""`python -m tests.bench console`: how fast the dashboard is over an engine with many entities.

Engine, dashboard and a person are three processes here: the engine is the shipped one on stubs
(screen_processes.py), the dashboard runs on a pseudo-terminal, and this one types and reads. A key is answered when
what it was to show stands in what was written; the loop is watched from inside. What is opened for the first time is
measured apart, each page and dialog once a run.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Figures, Targets
from tests.bench.developer_plans import ScreenPlan
from tests.bench.process_usage import cpu_seconds
from tests.bench.screen.screen_processes import LOOP_TARGET_MS, Lags
from tests.bench.screen.screen_terminal import START, Terminal, open_dashboard, open_engine

SETTLE: Final = 0.3
KEY_TARGET_MS: Final = 100.0
FIRST_TARGET_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class KeyStroke:
    """What is typed, and what has to be written then. before, undo: the same, to begin with, and afterwards so that it
    can be typed again; not measured."""

    name: str
    typed: str
    shown: bytes
    undo: tuple[tuple[str, bytes], ...] = ()
    before: tuple[tuple[str, bytes], ...] = ()


CURSOR: Final = "▸".encode()
HOME: Final = (("\x1b[H", CURSOR),)
SORTS: Final = ("busiest", "latest", "as listed", "worst first")
KEYS: Final = (
    KeyStroke("down", "j", CURSOR, (("k", CURSOR),)),
    KeyStroke("page down", "\x1b[6~", CURSOR, HOME),
    KeyStroke("last", "G", CURSOR, HOME),
    KeyStroke("mark", " ", b"*", ((" ", CURSOR), *HOME)),
    KeyStroke("sort", "s", b"name", tuple(("s", title.encode()) for title in SORTS)),
    KeyStroke("filter", "1", "“1”".encode(), (("\x1b", b"entit"),), before=(("/", b"filter"),)),
    KeyStroke("page of cost", "5", b"fixed costs", (("1", b"by destination"),)),
)
COST: Final = KeyStroke("page of cost", "5", b"fixed costs", (("1", b""),))
BACK: Final = (("\x1b", b""),)
FIRSTS: Final = (
    KeyStroke("page of an entity", "2", b"since the engine st", COST.undo),
    KeyStroke("page of the backlog", "3", b"accepts", COST.undo),
    KeyStroke("timeline", "4", b"live", COST.undo),
    COST,
    KeyStroke("page of history", "6", b"tables", COST.undo),
    KeyStroke("page of engines", "7", b"commands go", COST.undo),
    KeyStroke("help", "?", b"Keys (arr", BACK),
    KeyStroke("palette", ":", b"force fail", BACK),
    KeyStroke("line to type in", "/", b"filter", BACK),
    KeyStroke("question", "W", b"read-only?", BACK),
)
"""Opened once a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFigures(Figures):
    """keys_…_ms: from the key to the bytes that show it. first_s: from the start of the program to the first screen
    with all entities counted, the best of the runs. …_cpu…: the CPU time that the dashboard used meanwhile, which says
    more on a machine that is busy with something else. firsts_ms: each page and dialog opened for the first time, the
    worst of the runs. loop_…: see Lags; of the worst run."""

    entities: int
    first_s: float
    first_cpu_s: float
    first_bytes: int
    keys_p50_ms: Mapping[str, float]
    keys_p95_ms: Mapping[str, float]
    keys_cpu_p95_ms: Mapping[str, float]
    firsts_ms: Mapping[str, float]
    firsts_cpu_ms: Mapping[str, float]
    loop_own_ms: float
    loop_wall_ms: float
    loop_step: str
    loop_step_ms: float
    bytes_per_second: float

    @property
    def targets(self) -> Targets:
        """What each figure should be at most, and whether it is."""
        return {
            "key_p95_ms": (KEY_TARGET_MS, max(self.keys_p95_ms.values()) <= KEY_TARGET_MS),
            "first_opening_ms": (KEY_TARGET_MS, max(self.firsts_ms.values()) <= KEY_TARGET_MS),
            "loop_own_ms": (LOOP_TARGET_MS, self.loop_own_ms <= LOOP_TARGET_MS),
            "first_s": (FIRST_TARGET_S, self.first_s <= FIRST_TARGET_S),
        }


async def measure_screen(plan: ScreenPlan) -> ScreenFigures:
    """All figures. Raises BenchError."""
    if plan.entities < 2 or plan.keys < 1 or plan.runs < 1:
        raise BenchError("there are two entities, one key and one run at least")
    with tempfile.TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        async with open_engine(folder, plan.entities):
            runs = [await _run(plan, folder) for _ in range(plan.runs)]
    return _figures(plan, runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Took:
    """Seconds until something was shown: by the clock, and of the dashboard's CPU."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    first: _Took
    first_bytes: int
    opened: Mapping[str, _Took]
    took: Mapping[str, Sequence[_Took]]
    per_second: float
    lags: Lags


async def _run(plan: ScreenPlan, folder: Path) -> _Run:
    began = time.perf_counter()
    async with open_dashboard(folder) as terminal:
        at = await terminal.shows(f"{plan.entities:,} entities".encode(), within=START)
        first = _Took(wall=at - began, cpu=cpu_seconds(terminal.process.pid))
        await terminal.rests()
        painted = len(terminal.written)
        opened = {key.name: await _opened(terminal, key) for key in FIRSTS}
        took = {key.name: [await _answered(terminal, key) for _ in range(plan.keys)] for key in KEYS}
        before = len(terminal.written)
        await asyncio.sleep(plan.seconds)
        spent = len(terminal.written) - before
        await terminal.leave()
    lags = msgspec.json.decode((folder / "lags-full").read_bytes(), type=Lags)
    per_second = spent / plan.seconds
    return _Run(first=first, first_bytes=painted, opened=opened, took=took, per_second=per_second, lags=lags)


async def _opened(terminal: Terminal, key: KeyStroke) -> _Took:
    """And closed again."""
    took = await _typed(terminal, key.typed, key.shown, f"{key.name}, for the first time")
    await terminal.rests()
    for typed, _ in key.undo:
        before = len(terminal.written)
        terminal.type(typed)
        await terminal.redraws(after=before)  # an escape read together with the next key would be another key
        await asyncio.sleep(SETTLE)
    return took


async def _answered(terminal: Terminal, key: KeyStroke) -> _Took:
    for typed, shown in key.before:
        await _typed(terminal, typed, shown, f"before {key.name}")
    took = await _typed(terminal, key.typed, key.shown, key.name)
    for typed, shown in key.undo:
        await _typed(terminal, typed, shown, f"{key.name}, undone")
    return took


async def _typed(terminal: Terminal, typed: str, shown: bytes, name: str) -> _Took:
    await terminal.rests()
    before, began, cpu = len(terminal.written), time.perf_counter(), cpu_seconds(terminal.process.pid)
    terminal.type(typed)
    try:
        at = await terminal.shows(shown, after=before)
    except BenchError as error:
        raise BenchError(f"{name}: {error}") from error
    return _Took(wall=at - began, cpu=cpu_seconds(terminal.process.pid) - cpu)


def _figures(plan: ScreenPlan, runs: Sequence[_Run]) -> ScreenFigures:
    took = {key.name: [each for run in runs for each in run.took[key.name]] for key in KEYS}
    step_ms, step = max((run.lags.step_ms, run.lags.step) for run in runs)
    best = min(runs, key=lambda run: run.first.wall)
    return ScreenFigures(
        entities=plan.entities,
        first_s=round(best.first.wall, 3),
        first_cpu_s=round(best.first.cpu, 3),
        first_bytes=best.first_bytes,
        keys_p50_ms={name: _at([one.wall for one in each], 0.5) for name, each in took.items()},
        keys_p95_ms={name: _at([one.wall for one in each], 0.95) for name, each in took.items()},
        keys_cpu_p95_ms={name: _at([one.cpu for one in each], 0.95) for name, each in took.items()},
        firsts_ms={key.name: _at([run.opened[key.name].wall for run in runs], 1.0) for key in FIRSTS},
        firsts_cpu_ms={key.name: _at([run.opened[key.name].cpu for run in runs], 1.0) for key in FIRSTS},
        loop_own_ms=round(max(run.lags.own for run in runs), 1),
        loop_wall_ms=round(max(run.lags.wall for run in runs), 1),
        loop_step=step,
        loop_step_ms=round(step_ms, 1),
        bytes_per_second=round(max(run.per_second for run in runs), 1),
    )


def _at(seconds: Sequence[float], share: float) -> float:
    """Milliseconds that so much of them does not exceed."""
    ordered = sorted(seconds)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)

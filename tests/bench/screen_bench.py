"""`python -m tests.bench console`: how fast the dashboard is over an engine with many entities.

Engine, dashboard and a person are three processes here: the engine is the shipped one on stubs
(screen_processes.py), the dashboard runs on a pseudo-terminal, and this one types and reads. A key is answered when
what it was to show stands in what was written; the loop is watched from inside. What is opened for the first time is
measured apart, each page and dialog once a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import tempfile
import termios
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.process_usage import cpu_seconds
from paired_servicebus.interpreter import python_command
from tests.bench.child_environment import child_environment
from tests.bench.developer_plans import ScreenPlan
from tests.bench.screen_processes import DASHBOARD, ENGINE, LOOP_TARGET_MS, SOCKET, Lags

SIZE: Final = (140, 40)
START: Final = 60.0
ANSWER: Final = 10.0
QUIET: Final = 0.05
"""Seconds without a byte until the next key is typed: a person waits for the screen."""
SETTLE: Final = 0.3
REDRAWN: Final = 80
"""Bytes of a page or dialog that closes, at least; a clock's tick has half as many."""
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
    KeyStroke("page of cost", "5", b"fixed costs", (("1", b"backlog on"),)),
)
COST: Final = KeyStroke("page of cost", "5", b"fixed costs", (("1", b""),))
BACK: Final = (("\x1b", b""),)
FIRSTS: Final = (
    KeyStroke("page of an entity", "2", b"since the engine st", COST.undo),
    KeyStroke("page of the backlog", "3", b"accepts", COST.undo),
    KeyStroke("timeline", "4", b"live", COST.undo),
    COST,
    KeyStroke("page of history", "6", b"tables", COST.undo),
    KeyStroke("page of engines", "7", b"commands are", COST.undo),
    KeyStroke("help", "?", b"Keys (arr", BACK),
    KeyStroke("palette", ":", b"force fail", BACK),
    KeyStroke("line to type in", "/", b"filter", BACK),
    KeyStroke("question", "W", b"read-only?", BACK),
)
"""Opened once a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFigures:
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
    def targets(self) -> dict[str, tuple[float, bool]]:
        """What each figure should be at most, and whether it is."""
        return {
            "key_p95_ms": (KEY_TARGET_MS, max(self.keys_p95_ms.values()) <= KEY_TARGET_MS),
            "first_opening_ms": (KEY_TARGET_MS, max(self.firsts_ms.values()) <= KEY_TARGET_MS),
            "loop_own_ms": (LOOP_TARGET_MS, self.loop_own_ms <= LOOP_TARGET_MS),
            "first_s": (FIRST_TARGET_S, self.first_s <= FIRST_TARGET_S),
        }

    @property
    def reached(self) -> bool:
        """Whether every target was."""
        return all(reached for _, reached in self.targets.values())


@dataclass(slots=True)
class _Terminal:
    """A dashboard's terminal: what is written on it is read at once."""

    master: int
    process: Process
    written: bytearray = field(default_factory=bytearray)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    newest: float = 0.0

    def read(self) -> None:
        """Called when there is something."""
        with contextlib.suppress(OSError):  # the other end is closed
            self.written += os.read(self.master, 65536)
            self.newest = time.perf_counter()
            self.came.set()

    async def shows(self, text: bytes, *, after: int = 0, within: float = ANSWER) -> float:
        """When that stood in what was written after so many bytes. Raises BenchError: it does not."""
        try:
            async with asyncio.timeout(within):
                while text not in self.written[after:]:
                    self.came.clear()
                    await self.came.wait()
        except TimeoutError as error:
            raise BenchError(
                f"the dashboard did not write {text.decode()!r} within {within:g} s, but {bytes(self.written[-300:])!r}"
            ) from error
        return self.newest

    async def rests(self) -> None:
        """Until nothing was written for a moment."""
        with contextlib.suppress(TimeoutError):
            while True:
                self.came.clear()
                async with asyncio.timeout(QUIET):
                    await self.came.wait()

    async def redraws(self, *, after: int) -> None:
        """Until more than clock and figures was written after that byte: the last key has been read."""
        with contextlib.suppress(TimeoutError):  # the next key tells what is wrong
            async with asyncio.timeout(ANSWER):
                while len(self.written) < after + REDRAWN:
                    self.came.clear()
                    await self.came.wait()

    def type(self, keys: str) -> None:
        """As a person does."""
        os.write(self.master, keys.encode())

    async def leave(self) -> None:
        """The engine stays."""
        self.type("q")
        async with asyncio.timeout(ANSWER):
            await self.process.wait()


async def measure_screen(plan: ScreenPlan) -> ScreenFigures:
    """All figures. Raises BenchError."""
    if plan.entities < 2 or plan.keys < 1 or plan.runs < 1:
        raise BenchError("there are two entities, one key and one run at least")
    with tempfile.TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        async with _engine(folder, plan.entities):
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
    async with _dashboard(folder) as terminal:
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
    lags = msgspec.json.decode((folder / "lags").read_bytes(), type=Lags)
    per_second = spent / plan.seconds
    return _Run(first=first, first_bytes=painted, opened=opened, took=took, per_second=per_second, lags=lags)


async def _opened(terminal: _Terminal, key: KeyStroke) -> _Took:
    """And closed again."""
    took = await _typed(terminal, key.typed, key.shown, f"{key.name}, for the first time")
    await terminal.rests()
    for typed, _ in key.undo:
        before = len(terminal.written)
        terminal.type(typed)
        await terminal.redraws(after=before)  # an escape read together with the next key would be another key
        await asyncio.sleep(SETTLE)
    return took


async def _answered(terminal: _Terminal, key: KeyStroke) -> _Took:
    for typed, shown in key.before:
        await _typed(terminal, typed, shown, f"before {key.name}")
    took = await _typed(terminal, key.typed, key.shown, key.name)
    for typed, shown in key.undo:
        await _typed(terminal, typed, shown, f"{key.name}, undone")
    return took


async def _typed(terminal: _Terminal, typed: str, shown: bytes, name: str) -> _Took:
    await terminal.rests()
    before, began, cpu = len(terminal.written), time.perf_counter(), cpu_seconds(terminal.process.pid)
    terminal.type(typed)
    try:
        at = await terminal.shows(shown, after=before)
    except BenchError as error:
        raise BenchError(f"{name}: {error}") from error
    return _Took(wall=at - began, cpu=cpu_seconds(terminal.process.pid) - cpu)


@contextlib.asynccontextmanager
async def _engine(folder: Path, entities: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        *python_command("tests.bench.screen_processes", ENGINE, str(folder), str(entities)),
        stdin=PIPE,
        stdout=PIPE,
        env=child_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START):
            if not await process.stdout.readline():
                raise BenchError("the engine to look at did not start")
        yield
    finally:
        process.stdin.close()
        await _ended(process)


@contextlib.asynccontextmanager
async def _dashboard(folder: Path) -> AsyncIterator[_Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", SIZE[1], SIZE[0], 0, 0))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TEXTUAL", "COLORTERM"))}
    environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        *python_command("tests.bench.screen_processes", DASHBOARD, str(folder / SOCKET), str(folder / "lags")),
        stdin=slave, stdout=slave, stderr=slave, env=child_environment(environ), start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    terminal = _Terminal(master, process)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, terminal.read)
    try:
        yield terminal
    finally:
        loop.remove_reader(master)
        await _ended(process)
        os.close(master)


async def _ended(process: Process) -> None:
    if process.returncode is not None:
        return
    try:
        await asyncio.wait_for(process.wait(), ANSWER)
    except TimeoutError:
        process.kill()
        await process.wait()


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

"""The processes of a bench of the dashboard, as its parent sees them: an engine, and a terminal with a dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import termios
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.interpreter import python_command
from paired_servicebus.ui.display.profile import ProfileName
from tests.bench.child_process import child, child_environment
from tests.bench.screen.screen_processes import DASHBOARD, ENGINE, SOCKET

SIZE: Final = (140, 40)
START: Final = 60.0
ANSWER: Final = 10.0
QUIET: Final = 0.05
"""Seconds without a byte until the next key is typed: a person waits for the screen."""
REDRAWN: Final = 80
"""Bytes of a page or dialog that closes, at least; a clock's tick has half as many."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """An engine that obeys: see screen_processes.py."""

    stdin: asyncio.StreamWriter

    def tell(self, line: str) -> None:
        """Send one line to its standard input."""
        self.stdin.write(f"{line}\n".encode())


@dataclass(slots=True)
class Terminal:
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


@contextlib.asynccontextmanager
async def open_engine(folder: Path, entities: int) -> AsyncIterator[EngineProcess]:
    """Start an engine with that many entities; end it afterwards. Raises BenchError."""
    async with child("tests.bench.screen.screen_processes", ENGINE, str(folder), str(entities)) as engine:
        yield EngineProcess(engine.orders)


@contextlib.asynccontextmanager
async def open_dashboard(folder: Path, profile: ProfileName = ProfileName.FULL) -> AsyncIterator[Terminal]:
    """Start a dashboard on a terminal of 256 colours; wait for its end afterwards."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", SIZE[1], SIZE[0], 0, 0))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TEXTUAL", "COLORTERM"))}
    environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    words = (str(folder / SOCKET), str(folder / f"lags-{profile}"), profile)
    process = await asyncio.create_subprocess_exec(
        *python_command("tests.bench.screen.screen_processes", DASHBOARD, *words),
        stdin=slave, stdout=slave, stderr=slave, env=child_environment(environ), start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(master, process)
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

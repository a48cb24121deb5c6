"""The real thing: `run_dashboard` on a pseudo-terminal, in its own process, over a real control socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import console
from console.engine.control import ControlServer
from console.engine.protocol import Arm, Armed, Command, CommandDone, Welcome

ROOT = Path(console.__file__).parents[1]
PROGRAM = """
import sys
from pathlib import Path
from console.ui import run_dashboard
sys.exit(run_dashboard(Path(sys.argv[1]), config_name="orders"))
"""
FIRST_PAINT_BUDGET = 35_000
"""Bytes of the first paint with its first snapshot, 80x24, 256 colours."""
ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=$]*[ -/]*[@-~]|\][^\x07]*\x07|[PX^_].*?\x1b\\|[()][A-Z0-9]|[=>78])")


@dataclass
class Terminal:
    """A dashboard's process and what it wrote."""

    process: asyncio.subprocess.Process
    master: int
    written: bytearray = field(default_factory=bytearray)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        return ESCAPES.sub(b"", bytes(self.written)).decode(errors="replace")

    def read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            self.written += os.read(self.master, 65536)
            self.came.set()

    async def until(self, shown: Callable[[str], bool]) -> None:
        async with asyncio.timeout(20):
            while not shown(self.text):
                self.came.clear()
                await self.came.wait()

    async def quiet(self) -> None:
        """Until nothing was written for half a second."""
        with contextlib.suppress(TimeoutError):
            while True:
                self.came.clear()
                async with asyncio.timeout(0.5):
                    await self.came.wait()

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@pytest.fixture
async def orders_taken() -> list[Command]:
    return []


@pytest.fixture
async def server(tmp_path: Path, orders_taken: list[Command]) -> AsyncIterator[ControlServer]:
    async def execute(order: Any, viewer: bool) -> Armed | CommandDone:
        if isinstance(order, Arm):
            return Armed(id=order.id, token="t", to_type=order.targets[0], seconds=30.0, until=0.0)
        orders_taken.append(order)
        return CommandDone(id=order.id, ok=True, text=f"{' '.join(order.targets)} is told")

    welcome = Welcome(engine="e", boot="b1", pid=1, pairing="orders", environment="", read_only=False)
    async with ControlServer(tmp_path / "s", welcome=welcome, execute=execute) as serving:
        yield serving


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TEXTUAL", "COLORTERM"))}
    environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(tmp_path / "s"),
        stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(process, master)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, terminal.read)
    yield terminal
    loop.remove_reader(master)
    if process.returncode is None:
        process.kill()
    await process.wait()
    with contextlib.suppress(OSError):
        os.close(master)


async def test_shown_steered_and_left(server: ControlServer, terminal: Terminal, orders_taken: Any, made: Any) -> None:
    server.tell_snapshot(made.outage())
    await terminal.until(lambda text: "payments failed over" in text and "9/10 in" in text)
    await terminal.quiet()
    assert len(terminal.written) < FIRST_PAINT_BUDGET
    painted = len(terminal.written)
    server.tell_snapshot(made.outage())
    await terminal.quiet()
    assert len(terminal.written) == painted, "nothing changed, so nothing is written"
    terminal.type("p")
    await terminal.until(lambda text: "pause syphon:  is told" in text)
    assert [order.verb for order in orders_taken] == ["pause-syphon"]
    terminal.type("q")
    async with asyncio.timeout(10):
        assert await terminal.process.wait() == 0
    assert "Traceback" not in terminal.text


async def test_an_engine_that_is_not_there_is_said_and_found_later(
    terminal: Terminal, tmp_path: Path, made: Any
) -> None:
    await terminal.until(lambda text: "no engine of orders yet" in text and "trying again: no engine answers" in text)
    welcome = Welcome(engine="e", boot="b1", pid=1, pairing="orders", environment="", read_only=False)
    async with ControlServer(tmp_path / "s", welcome=welcome, execute=None) as late:  # type: ignore[arg-type]
        late.tell_snapshot(made.snapshot())
        await terminal.until(lambda text: "all 3 entities healthy" in text)


async def test_a_closed_terminal_ends_the_dashboard_alone(server: ControlServer, terminal: Terminal, made: Any) -> None:
    server.tell_snapshot(made.outage())
    await terminal.until(lambda text: "payments failed over" in text)
    terminal.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(10):
        assert await terminal.process.wait() != 0
    server.tell_snapshot(made.snapshot())

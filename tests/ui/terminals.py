"""Dashboards on pseudo-terminals, each in its own process, over a real control socket; and a terminal's modes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import tty
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import paired_servicebus
from paired_servicebus.engine.control.control_server import ControlServer
from paired_servicebus.engine.control.protocol import Arm, Armed, CommandDone, Execute, Welcome

ROOT = Path(paired_servicebus.__file__).parents[2]
PROGRAM = """
import os, sys, time
from pathlib import Path
from paired_servicebus.ui import run_dashboard
from paired_servicebus.ui.display.profile import ProfileName, ScreenOptions

def fail(app, key):
    if key == "Z":
        raise RuntimeError("something unforeseen")
    if key == "X":
        time.sleep(3600)
    press(app, key)

if "FAILS" in os.environ:  # at the key Z; at X it hangs
    from paired_servicebus.ui.shell import app
    press, app.PairedApp.press = app.PairedApp.press, fail
    known = app.action_table.actions_of_key
    app.action_table.actions_of_key = lambda key, view: key in ("X", "Z") or known(key, view)
wishes = ScreenOptions(profile=ProfileName(sys.argv[2]) if sys.argv[2] else None)
sys.exit(run_dashboard(Path(sys.argv[1]), config_name="orders", wishes=wishes))
"""
ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=$]*[ -/]*[@-~]|\][^\x07]*\x07|[PX^_].*?\x1b\\|[()][A-Z0-9]|[=>78])")


MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])|\x1b\[(>[0-9]+|<)u|\x1b\[(22|23);2t")


@dataclass(frozen=True, slots=True)
class Modes:
    """A terminal's modes that are on, the depth of kitty's keys on each screen, and of kept titles."""

    on: frozenset[int] = frozenset({7, 25})
    keys: tuple[int, int] = (0, 0)
    titles: int = 0

    def after(self, written: bytes) -> Modes:
        """Return the modes after a program wrote that."""
        on, keys, titles = set(self.on), list(self.keys), self.titles
        for numbers, turned, pushed, title in MODE.findall(written):
            if numbers:
                named = {int(number) for number in numbers.split(b";")}
                on = on | named if turned == b"h" else on - named
            elif pushed:
                screen = 1 if 1049 in on else 0
                keys[screen] = max(0, keys[screen] - 1) if pushed == b"<" else keys[screen] + 1
            else:
                titles += 1 if title == b"22" else -1
        return Modes(frozenset(on), (keys[0], keys[1]), titles)


@dataclass
class Terminal:
    """A dashboard's process and what it wrote."""

    process: asyncio.subprocess.Process
    master: int
    slave: int
    late: bytes = b""
    """What the terminal sends before its answer to a last question: reports that were under way."""
    written: bytearray = field(default_factory=bytearray)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        return ESCAPES.sub(b"", bytes(self.written)).decode(errors="replace")

    def read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            read = os.read(self.master, 65536)
            self.written += read
            if b"\x1b[5n" in read:
                os.write(self.master, self.late + b"\x1b[0n")
            self.came.set()

    @property
    def modes(self) -> Modes:
        return Modes().after(bytes(self.written))

    def attributes(self) -> tuple[list[Any], int]:
        """Termios' attributes and the flags of the terminal."""
        return termios.tcgetattr(self.slave), fcntl.fcntl(self.slave, fcntl.F_GETFL)

    def unread(self) -> bytes:
        """What the shell would read now."""
        attributes = termios.tcgetattr(self.slave)
        tty.setraw(self.slave, termios.TCSANOW)
        number = struct.unpack("i", fcntl.ioctl(self.slave, termios.FIONREAD, struct.pack("i", 0)))[0]
        read = os.read(self.slave, number) if number else b""
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)
        return read

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does."""
        self.stall()
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = -1

    async def ended(self) -> int:
        async with asyncio.timeout(60):
            return await self.process.wait()

    async def until(self, shown: Callable[[str], bool]) -> None:
        async with asyncio.timeout(60):
            while not shown(self.text):
                await self.more()

    async def quiet(self) -> None:
        """Until nothing was written for half a second."""
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.5):
                    await self.more()

    async def more(self) -> None:
        """Until something more is written."""
        self.came.clear()
        await self.came.wait()

    def listen(self) -> None:
        asyncio.get_running_loop().add_reader(self.master, self.read)

    def stall(self) -> None:
        """Read nothing more, as a link does that is down."""
        asyncio.get_running_loop().remove_reader(self.master)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@pytest.fixture
async def orders_taken() -> list[Execute]:
    return []


@pytest.fixture
async def server(tmp_path: Path, orders_taken: list[Execute]) -> AsyncIterator[ControlServer]:
    async def execute(order: Any, viewer: bool) -> Armed | CommandDone:
        if isinstance(order, Arm):
            return Armed(id=order.id, token="t", to_type=order.command.targets[0], seconds=30.0, until=0.0)
        orders_taken.append(order)
        return CommandDone(id=order.id, ok=True, text=f"{' '.join(order.command.targets)} is told")

    welcome = Welcome(engine="e", boot="b1", pid=1, pairing="orders", environment="", read_only=False)
    async with ControlServer(tmp_path / "s", welcome=welcome, execute=execute) as serving:
        yield serving


Open = Callable[..., Awaitable[Terminal]]


@pytest.fixture
async def open_terminal(tmp_path: Path) -> AsyncIterator[Open]:
    """Starts dashboards, each on a terminal of its own."""
    async with contextlib.AsyncExitStack() as stack:

        async def opened(*, size: tuple[int, int] = (80, 24), profile: str = "full", **environ: str) -> Terminal:
            return await stack.enter_async_context(_dashboard(tmp_path, size, profile, environ))

        yield opened


@pytest.fixture
async def terminal(open_terminal: Open) -> Terminal:
    return await open_terminal()


@contextlib.asynccontextmanager
async def _dashboard(
    folder: Path, size: tuple[int, int], profile: str, more: Mapping[str, str]
) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", size[1], size[0], 0, 0))
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TEXTUAL", "COLORTERM", "NO_COLOR", "COLUMNS", "LINES"))
    }
    environ |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    environ |= {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"), **more}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(folder / "s"), profile,
        stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    terminal = Terminal(process, master, slave)
    terminal.listen()
    yield terminal
    if process.returncode is None:
        process.kill()
    await process.wait()
    if terminal.master >= 0:
        terminal.hang_up()

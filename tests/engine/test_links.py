"""The links between a person and an engine break: a tmux that is left, come back to and killed, a terminal that nobody
reads. Engine and timeline are whole after each; everything here is a real process.
"""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.lock import running
from tests.journal_files import read_records

from .test_engine_process import ROOT, WAIT, Site, sandbox, site, state_of, watch  # noqa: F401 - two are fixtures

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")


class Tmux:
    """A tmux server of its own, with one session."""

    def __init__(self, site: Site) -> None:  # noqa: F811
        self._socket = site.folder / "tmux"
        self._environ = {**site.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self._environ |= {"COLUMNS": "80", "LINES": "24"}  # as some shells export them: stale from the first change on
        self._environ.pop("TMUX", None)

    def __call__(self, *arguments: str) -> str:
        words = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments]
        done = subprocess.run(words, env=self._environ, cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
        return done.stdout

    def attach(self, columns: int, rows: int) -> tuple[int, subprocess.Popen[bytes]]:
        """A client on a terminal of that size, which is to be read from."""
        master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        client = subprocess.Popen(
            ["tmux", "-S", str(self._socket), "attach"], env=self._environ,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(master, False)
        return master, client

    def screen(self) -> list[str]:
        return self("capture-pane", "-p").rstrip("\n").split("\n")


@pytest.fixture
def tmux(site: Site) -> Iterator[Tmux]:  # noqa: F811
    made = Tmux(site)
    yield made
    made("kill-server")


def until(condition: Callable[[], bool], *read: int, shown: Callable[[], object] = str) -> None:
    """Waits for a condition, and reads these terminals meanwhile."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about; on the screen: {shown()}"
        for master in read:
            drained(master)
        time.sleep(0.05)


def drained(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except OSError:  # nothing more, or closed
        return


def without_gaps(site: Site) -> bool:  # noqa: F811
    """Whether the timeline of the last boot has every event, once."""
    found = list(read_records(site.places.spool))
    seqs = [record.seq for record in found if record.boot == found[-1].boot]
    return seqs == list(range(1, len(seqs) + 1))


def whole(screen: list[str], columns: int, rows: int) -> bool:
    """Whether a screen of that size shows the dashboard from its first line to its last."""
    return (
        len(screen) == rows
        and screen[0].startswith(" paired orders")
        and "? help" in screen[-1]
        and max(map(len, screen)) in (columns - 1, columns)
    )


@pytest.mark.slow
@needs_tmux
def test_tmux_is_left_and_come_back_to_and_killed(site: Site, tmux: Tmux) -> None:  # noqa: F811
    words = site.command("up")
    tmux("new-session", "-d", "-x", "120", "-y", "40", *words)
    tmux("set-option", "-g", "status", "off")
    tmux("set-option", "-g", "set-clipboard", "on")
    first, client = tmux.attach(120, 40)
    until(
        lambda: whole(tmux.screen(), 120, 40) and "all 3 entities unknown" in tmux.screen()[1], first, shown=tmux.screen
    )
    holder = site.holder()

    tmux("send-keys", "y")
    until(lambda: "row of orders" in "\n".join(tmux.screen()), first)
    tmux("send-keys", "-l", "name of orders")
    until(
        lambda: "payments" not in tmux.screen()[5] and "name of orders" in "\n".join(tmux.screen()[:6]),
        first,
        shown=tmux.screen,
    )
    tmux("send-keys", "Enter")
    until(lambda: tmux("show-buffer") == "orders", first)

    tmux("detach-client")
    until(lambda: client.poll() is not None, first)
    os.close(first)
    assert site.paired("failover", "orders", "--yes", "orders", "--why", "while nobody looked").returncode == 0

    second, client = tmux.attach(90, 30)
    until(lambda: whole(tmux.screen(), 90, 30) and "1 of 3 forced" in tmux.screen()[1], second, shown=tmux.screen)
    assert "while nobody looked" in "\n".join(tmux.screen()), "what happened meanwhile is in the timeline"

    tmux("kill-server")
    until(lambda: client.poll() is not None, second)
    os.close(second)
    until(lambda: site.processes() == [holder.pid])
    now = running(site.places.lock)
    assert now is not None
    assert now.pid == holder.pid
    assert site.paired("release", "orders", "--yes", "orders").returncode == 0
    assert site.paired("down").returncode == 0
    assert without_gaps(site)


@pytest.mark.slow
async def test_a_terminal_that_nobody_reads_holds_up_neither_engine_nor_timeline(site: Site) -> None:  # noqa: F811
    holder = await asyncio.to_thread(site.up)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, site.command("attach"), {**site.environ, "TERM": "xterm-256color"})
    os.set_blocking(terminal, False)
    seen = b""

    async def shown(text: bytes) -> None:
        nonlocal seen
        async with asyncio.timeout(WAIT):
            while text not in seen:
                try:
                    seen += os.read(terminal, 65536)
                except BlockingIOError:
                    await asyncio.sleep(0.05)

    await shown(b"unknown")
    client = await ControlClient.connect(Path(holder.socket))
    began = asyncio.get_running_loop().time()
    orders = 0
    while asyncio.get_running_loop().time() - began < 10:  # as long as a link may be down, with nobody reading
        for verb, state in (("force", State.FORCED), ("pin", State.PINNED)):
            await client.order(Command(action_id=verb, targets=("orders",), by="ada", why="x" * 200), typed="orders")
            await watch(client, lambda update, state=state: state_of(update, "orders") is state)  # type: ignore[misc]
            orders += 1
    assert orders >= 2, "the engine did what it was told all the time"
    await client.execute(Command(action_id="pause-syphon", by="ada", why="the last one"))
    await client.close()
    await shown(b"the last one")
    os.write(terminal, b"q")
    async with asyncio.timeout(WAIT):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            drained(terminal)
            await asyncio.sleep(0.05)
    os.close(terminal)
    assert site.processes() == [holder.pid]
    assert (await asyncio.to_thread(site.paired, "down")).returncode == 0
    assert without_gaps(site)

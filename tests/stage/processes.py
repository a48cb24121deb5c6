"""The processes of a play: modules of the stage, the engine of `paired up`, and verbs; each dies with the director."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.config import load_config
from paired_servicebus.engine.gateway.gateway_keys import LocalKey, keys_of
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.engine.service.launcher import Launch, Ready, wait_until_gone
from tests.stage.gate import Gate
from tests.stage.runbook_page import write_toml

ROOT: Final = Path(__file__).parents[2]
START: Final = 120.0
"""Seconds in which a process has to pair, on any machine."""
STOP: Final = 90.0
"""Seconds that an ordered end may take, the last messages included."""
LOG_TAIL: Final = 600
SIDES: Final = ("primary", "secondary")


def environ(home: Path) -> dict[str, str]:
    """Return the environment of a process whose state is in a folder, as on a host of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    return kept | {"XDG_STATE_HOME": str(home)}


def resident_megabytes(pid: int) -> int:
    """Return what a process has resident; 0 if it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 2**20
    return 0


class CoreWaits:
    """The time that the main threads of processes, and of this one, wait for a core from now on; 0 where it is not
    counted. A bound on seconds that they need is that much longer on a busy machine."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._before = {pid: _waited(pid) for pid in pids}
        self._own = _waited(os.getpid())

    @property
    def longest(self) -> float:
        """The seconds of the process that waited longest, and those of this one."""
        others = max((_waited(pid) - before for pid, before in self._before.items()), default=0.0)
        return others + _waited(os.getpid()) - self._own


def _waited(pid: int) -> float:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


class Actor:
    """A module of the stage as a child process, through all its lives. It ends when its input ends.

    Args:
        make_task: its first line of input, for a life's name.
        home: the folder of its state, as on a host of its own.
        gates: what it is cut off from the namespaces by.
        prefix: the command that runs its command.
    """

    def __init__(
        self,
        name: str,
        module: str,
        folder: Path,
        make_task: Callable[[str], msgspec.Struct],
        *,
        home: Path | None = None,
        gates: dict[str, Gate] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.boot = 0
        self.gates = gates or {}
        self.prefix = prefix
        self.home = home or folder
        self._module = module
        self._folder = folder
        self._make_task = make_task
        self._process: Process | None = None
        self._is_killed = False

    @property
    def life(self) -> str:
        """The name of its present life, and of its list."""
        return f"{self.name}.{self.boot}"

    @property
    def paths(self) -> EnginePaths:
        """The files of the engine in it."""
        state = self.home / "paired" / self.name
        return EnginePaths(state=state, socket=state / "control.sock")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def has_fallen(self) -> bool:
        """Whether it has ended, and nobody killed it."""
        return self._process is not None and not self.is_running and not self._is_killed

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    async def begin(self) -> None:
        """Start its next life, and do not wait for it."""
        self.boot += 1
        self._is_killed = False
        self.home.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.prefix, sys.executable, "-m", self._module, str(self._folder),
                cwd=ROOT, env=environ(self.home), stdin=PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.tell(msgspec.json.encode(self._make_task(self.life)).decode())

    def tell(self, line: str) -> None:
        """Write one line to its input; a process that has ended reads none."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def kill(self) -> None:
        """Kill it as `kill -9` does."""
        self._is_killed = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def stall(self, *, on: bool) -> None:
        """Freeze it, or let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    async def end(self) -> str:
        """Close its input and wait; return what is wrong with its end, or ""."""
        process = self._process
        if process is None or self._is_killed:
            return ""
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP):
                status = await process.wait()
        except TimeoutError:
            await self.kill()
            return f"{self.name} did not end in time"
        return f"{self.name} ended with status {status}" if status else ""

    def cut(self, *, resets: bool = False) -> None:
        """Cut it off from both namespaces: by silence, or by resets."""
        for gate in self.gates.values():
            gate.refuse() if resets else gate.stall()

    def heal(self) -> None:
        for gate in self.gates.values():
            gate.open()

    def slow(self, seconds: float) -> None:
        """Delay each chunk of bytes between it and the secondary namespace."""
        self.gates["secondary"].delay = seconds

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL:] if self.log.exists() else ""


class Engine:
    """The engine of `paired up` with a syphon, started as that does it.

    Args:
        strings: the connection strings of both sides.
        options: of the section `pairing`; with `gateway_port` it has a gateway, with the options `gateway`.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        strings: dict[str, str],
        ca_file: Path,
        options: dict[str, Any],
        gateway_port: int = 0,
        gateway: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.gateway_port = gateway_port
        self.config = folder / f"{name}.toml"
        self._strings = strings
        self._ca_file = ca_file
        self._options = options
        self._gateway = gateway or {}
        self._ready: Ready | None = None
        self._is_killed = False

    async def start(self, **options: Any) -> None:
        """Start it with further options, and wait until it serves."""
        self._write({"enable_syphon": True, "journal": "all"} | self._options | options)
        self._is_killed = False
        self._ready = await asyncio.to_thread(self._launch)

    def _launch(self) -> Ready:
        with Launch.begin(load_config(self.config), self.paths) as launch:
            return launch.wait(START)

    def _write(self, options: dict[str, Any]) -> None:
        document: dict[str, dict[str, Any]] = {"pairing": {"name": self.name} | options}
        for side in SIDES:
            variable = f"STAGE_{side.upper()}"
            os.environ[variable] = self._strings[side]
            secret = {"connection_string": {"env": variable}}
            document[side] = {"name": side, "ca_file": str(self._ca_file)} | secret
        if self.gateway_port:
            document["gateway"] = {"port": self.gateway_port} | self._gateway
        self.config.write_text(write_toml(document))

    @property
    def paths(self) -> EnginePaths:
        return engine_paths(self.name)

    @property
    def key(self) -> LocalKey:
        """The gateway's key, which outlives an engine."""
        (key,) = keys_of(self.paths.gateway_keys).keys
        return key

    @property
    def pid(self) -> int:
        assert self._ready is not None
        return self._ready.pid

    @property
    def is_running(self) -> bool:
        return self._ready is not None and running(self.paths.lock) is not None

    @property
    def has_fallen(self) -> bool:
        """Whether it has ended, and nobody killed it."""
        return self._ready is not None and not self.is_running and not self._is_killed

    async def kill(self) -> None:
        """Kill it as `kill -9` does."""
        await self._signal(signal.SIGKILL)

    def stall(self, *, on: bool) -> None:
        """Freeze it, or let it go on."""
        os.kill(self.pid, signal.SIGSTOP if on else signal.SIGCONT)

    async def end(self) -> str:
        """End it in order; return what is wrong with its end, or ""."""
        return "" if await self._signal(signal.SIGTERM) else f"the engine {self.name} did not end in time"

    async def _signal(self, number: signal.Signals) -> bool:
        self._is_killed = True
        if self._ready is None or running(self.paths.lock) is None:
            return True
        os.kill(self._ready.pid, number)
        if await asyncio.to_thread(wait_until_gone, self.paths, STOP):
            return True
        os.kill(self._ready.pid, signal.SIGKILL)
        return False


async def run_paired(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a verb of `paired` to its end; return its exit status and its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "paired_servicebus", *arguments,
        cwd=ROOT, env=env, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
    )  # fmt: skip
    return await ended(process)


async def ended(process: Process, within: float = START) -> tuple[int, str]:
    """Wait for a process to end; return its exit status and its output."""
    try:
        async with asyncio.timeout(within):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace")

"""The processes of a run: senders, receivers and the engine; each can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.config import load_config
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.engine.service.launcher import Launch, Ready, wait_until_gone
from tests.chaos.plan import ENTITIES, PRIMARY, SECONDARY
from tests.chaos.sandbox import Sandbox

START: Final = 60.0
STOP: Final = 90.0
"""Seconds that an ordered end may take, the last messages included."""
PAIRING: Final = "chaos"


class Actor:
    """A process with a module of ours: it ends when its standard input does."""

    def __init__(self, module: str, folder: Path) -> None:
        self._module = module
        self._folder = folder
        self._process: Process | None = None
        self._killed = False
        self.name = ""
        self.has_syphon = False

    async def start(self, order: msgspec.Struct, name: str) -> None:
        """Start it, and wait until it works."""
        self.name, self._killed = name, False
        with (self._folder / f"{name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self._module, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
            )
        await self.tell(msgspec.json.encode(order).decode())
        await self.hear("ready", START)

    async def tell(self, line: str) -> None:
        """One line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def hear(self, word: str, seconds: float) -> None:
        """Wait until it says this.

        Raises:
            RuntimeError: it says something else, or nothing in time, or has ended.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                said = (await self._process.stdout.readline()).decode().strip()
        except TimeoutError:
            said = ""
        if said != word:
            raise RuntimeError(f"{self.name} said {said!r} and not {word!r}; its log is {self._folder}/{self.name}.log")

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._killed = True
        self._process.kill()
        await self._process.wait()

    async def control(self) -> ControlClient:
        """Its control socket, where it is an engine."""
        return await ControlClient.connect(self._folder / f"{self.name}.sock")

    def stall(self, *, on: bool) -> None:
        """Let it stand still, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.returncode is None

    @property
    def has_fallen(self) -> bool:
        """Whether it has ended, and nobody killed it."""
        return not self.is_running and not self._killed

    async def end(self) -> int:
        """Close its standard input and wait; its exit status, negative if it had to be killed."""
        process = self._process
        if process is None:
            return 0
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(STOP):
                return await process.wait()
        except TimeoutError:
            process.kill()
            return await process.wait()


class Engine:
    """The engine of `paired up`, with a syphon, started as that does it."""

    def __init__(self, folder: Path, sandbox: Sandbox, options: Mapping[str, Any]) -> None:
        self._config = folder / "pairing.toml"
        self._sandbox = sandbox
        self._options = options
        self._ready: Ready | None = None

    async def start(self, pump: str) -> None:
        """Start it with this kind of pump, and wait until it serves."""
        self._write(pump)
        self._ready = await asyncio.to_thread(self._launch)

    def _launch(self) -> Ready:
        config = load_config(self._config)
        with Launch.begin(config, engine_paths(PAIRING)) as launch:
            return launch.wait(START)

    def _write(self, pump: str) -> None:
        options = {"enable_syphon": True, "pump": pump, "journal": "all", **self._options}
        lines = ["[pairing]", f'name = "{PAIRING}"', f"entities = {list(ENTITIES)}"]
        lines += [f"{name} = {_toml(value)}" for name, value in options.items()]
        for name in (PRIMARY, SECONDARY):
            os.environ[f"CHAOS_{name.upper()}"] = self._sandbox.connection_string[name]
            lines += [f"[{name}]", f'name = "{name}"', f'ca_file = "{self._sandbox.ca_file}"']
            lines.append(f'connection_string = {{ env = "CHAOS_{name.upper()}" }}')
        self._config.write_text("\n".join(lines) + "\n")

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return running(engine_paths(PAIRING).lock) is not None

    async def control(self) -> ControlClient:
        """Its control socket."""
        return await ControlClient.connect(engine_paths(PAIRING).socket)

    async def kill(self) -> None:
        """SIGKILL."""
        await self._signalled(signal.SIGKILL)

    def stall(self, *, on: bool) -> None:
        """Let it stand still, or go on."""
        assert self._ready is not None
        os.kill(self._ready.pid, signal.SIGSTOP if on else signal.SIGCONT)

    async def end(self) -> bool:
        """In order; whether it ended in time."""
        return await self._signalled(signal.SIGTERM)

    async def _signalled(self, number: signal.Signals) -> bool:
        if self._ready is None or not self.is_running:
            return True
        os.kill(self._ready.pid, number)
        if await asyncio.to_thread(wait_until_gone, engine_paths(PAIRING), STOP):
            return True
        os.kill(self._ready.pid, signal.SIGKILL)
        return False


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f'"{value:g}s"' if isinstance(value, float) else str(value)

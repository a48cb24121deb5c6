"""One engine as a process, with folders of its own as on another host, behind a gate to each namespace."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from servicebus_sandbox import Sandbox
from tests.fleet_processes.engine import Line, Task, greeting
from tests.fleet_processes.gate import Gate
from tests.fleet_processes.setting import ROOT, SIDES, START, Broken

STOP: Final = 15.0
_LINES: Final = msgspec.json.Decoder(Line)


class Host:
    """An engine of one name through all its boots. `states` are those of `payments` in the present boot."""

    def __init__(self, name: str, folder: Path, sandbox: Sandbox, gates: dict[str, Gate], operators: str) -> None:
        self.name = name
        self.boot = 0
        self.states: list[Line] = []
        self.takes_up = False
        """Whether the present boot has begun to take up what stands."""
        self.each = 1.0
        self._folder = folder
        self._sandbox = sandbox
        self.gates = gates
        self._operators = operators
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._greeted = ""

    @property
    def environ(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        return kept | {"XDG_STATE_HOME": str(self._folder)}

    @property
    def socket(self) -> Path:
        return self._folder / "paired" / self.name / "control.sock"

    @property
    def standing_file(self) -> Path:
        return next(iter(self._folder.rglob("fleet-standing.json")), self._folder / "none")

    @property
    def greeting(self) -> str:
        return greeting(self.name, self.boot)

    @property
    def state(self) -> str:
        return self.states[-1].state if self.states else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def has_greeted(self) -> bool:
        return bool(self._greeted)

    async def begin(self) -> None:
        """Start the next boot, and do not wait for it."""
        self.boot += 1
        self.states, self._greeted, self.takes_up = [], "", False
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command(), cwd=ROOT, env=self.environ, stdin=PIPE, stdout=PIPE, stderr=log
            )
        task = Task(
            name=self.name, boot=self.boot, ca_file=str(self._sandbox.ca_file), operators=self._operators,
            each=self.each, **{side: self._string(side) for side in SIDES},
        )  # fmt: skip
        self.tell(msgspec.json.encode(task).decode())
        self._reading = asyncio.create_task(self._read(self._process))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.fleet_processes.engine"]

    def _string(self, side: str) -> str:
        namespace = self._sandbox[side]
        return namespace.connection_string.replace(f":{namespace.amqp_port};", f":{self.gates[side].port};")

    async def start(self) -> None:
        """Start the next boot; return after its first send. Raises Broken: that was not accepted."""
        await self.begin()
        await self.until(lambda: bool(self._greeted), START, "has paired")
        if self._greeted != "accepted":
            raise Broken(f"the first send of {self.name} failed: {self._greeted}")

    def tell(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition of this host's lines. Raises Broken."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
                    if not self.is_running and not condition():
                        raise Broken(f"{self.name} ended before it {what}: {self.log_tail()}")
        except TimeoutError:
            raise Broken(f"after {seconds:.0f} s not: {self.name} {what} (state {self.state!r})") from None

    async def kill(self) -> None:
        """Kill it as `kill -9` does."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def stop(self) -> None:
        """End it as an application ends."""
        if self._process is None or self._process.returncode is not None:
            return
        self.tell("stop")
        try:
            async with asyncio.timeout(STOP):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    def cut(self, how: Literal["stall", "refuse"] = "stall") -> None:
        """Cut it off from both namespaces."""
        for gate in self.gates.values():
            gate.stall() if how == "stall" else gate.refuse()

    def heal(self) -> None:
        """Let it reach both namespaces again."""
        for gate in self.gates.values():
            gate.open()

    def slow(self, seconds: float) -> None:
        """Delay each chunk of bytes between it and the secondary namespace."""
        self.gates["secondary"].delay = seconds

    def log_tail(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-600:]

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            said = _LINES.decode(line)
            self._greeted = said.greeted or self._greeted
            self.takes_up |= said.takes_up
            if said.state:
                self.states.append(said)
            self._news.set()
        await process.wait()
        self._news.set()

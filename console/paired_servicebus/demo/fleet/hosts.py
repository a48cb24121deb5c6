"""The hosts of the fleet as the demo sees them: processes that it starts, asks to stop, and ends."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.demo.result import HostAccount
from paired_servicebus.interpreter import python_command, python_environment
from paired_servicebus.sandbox_process import AnnouncedNamespace

# The protocol of the demo and a host's process: an order in, lines out; JSON, one line each.
#
# A second line of input, whatever its text, ends the host's sends. The end of the input ends the process.


class HostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order: which host to be."""

    name: str
    folder: str
    operators: str
    """The file of signers."""
    namespaces: list[AnnouncedNamespace]
    """The namespaces as this host reaches them."""
    ca_file: str
    seed: int
    read_only: bool = False


class HostReady(msgspec.Struct, frozen=True, tag="ready"):
    """The engine runs, and its application sends."""


class HostForced(msgspec.Struct, frozen=True, tag="forced"):
    """Whether `orders` is forced in the engine has changed."""

    is_forced: bool


class HostFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The host cannot be; one sentence."""

    text: str


class HostEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The application stopped, with its account."""

    account: HostAccount


HostLine = HostReady | HostForced | HostFailed | HostEnded


STOP_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.1
MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of a line; an account has every message id."""


async def met(condition: Callable[[], object], within: float) -> bool:
    """Wait until a condition holds; return whether it did in time."""
    end = asyncio.get_running_loop().time() + within
    while not condition():
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


class HostProcess:
    """A host in a process of its own. Made by `host_processes`."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.is_ready = False
        self.is_forced = False
        self._account: HostAccount | None = None
        self._trouble = ""
        self._process = process
        self._log = log
        self._listening = asyncio.create_task(self._listen(), name=f"the lines of {name}")

    def begin(self, request: HostRequest) -> None:
        """Tell it which host to be."""
        self._write(msgspec.json.encode(request) + b"\n")

    def check(self) -> None:
        """Raise PairedError if the process failed."""
        if self._trouble:
            raise PairedError(f"the host {self.name} failed: {self._trouble}")

    async def stop_sending(self, within: float) -> HostAccount:
        """Return its account after its last send has an answer. Raises PairedError."""
        self._write(b"stop\n")
        await met(lambda: self._account or self._trouble, within)
        self.check()
        if self._account is None:
            raise PairedError(f"the host {self.name} gave no account within {within:.0f} s")
        return self._account

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None, "it was started with a pipe"
        with suppress(ConnectionError):  # it has ended: the end of its output tells why
            self._process.stdin.write(line)

    async def end(self) -> None:
        """End the process, and kill it if it does not end."""
        assert self._process.stdin is not None, "it was started with a pipe"
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        """Read its lines until they end."""
        assert self._process.stdout is not None, "it was started with a pipe"
        async for raw in self._process.stdout:
            match msgspec.json.decode(raw, type=HostLine):
                case HostReady():
                    self.is_ready = True
                case HostForced(is_forced):
                    self.is_forced = is_forced
                case HostFailed(text):
                    self._trouble = text
                case HostEnded(account):
                    self._account = account
        self._trouble = self._trouble or f"it ended; {_last_line(self._log)}"


@asynccontextmanager
async def host_processes(names: Sequence[str], folder: Path) -> AsyncIterator[dict[str, HostProcess]]:
    """Yield new processes by name, which wait for `begin`; at the end all of them are ended together."""
    hosts: dict[str, HostProcess] = {}
    try:
        for name in names:
            hosts[name] = await _start(name, folder / f"{name}.log")
        yield hosts
    finally:
        await asyncio.gather(*(host.end() for host in hosts.values()))


async def _start(name: str, log: Path) -> HostProcess:
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *python_command("paired_servicebus.demo.fleet.host_process"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors,
            env=python_environment(),
            limit=MAX_LINE,
        )
    return HostProcess(name, process, log)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"

"""The sandbox as a child process, with its CPU time and memory (Linux only)."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, Final

import aiohttp
import msgspec
from azure.core.exceptions import AzureError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import PairedError
from paired_servicebus.interpreter import python_command, python_environment

START: Final = 30.0
CREATE: Final = 30.0
EACH: Final = 0.1
"""Seconds more for each queue."""
STOP: Final = 10.0
MOST_MEGABYTES: Final = 5120
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_CPU_CLOCK: Final = 2
"""The clock of a process's CPU time in Linux's clock ids."""


class BenchError(PairedError):
    """A measurement that is not possible."""


class AnnouncedNamespace(msgspec.Struct, frozen=True):
    """A namespace in the sandbox's announcement."""

    name: str
    connection_string: str
    amqp_port: int
    key_name: str
    key: str


class _Announced(msgspec.Struct, frozen=True):
    namespaces: list[AnnouncedNamespace]
    ca_file: str
    control_url: str


class SandboxProcess:
    """A running sandbox with a primary and a secondary namespace."""

    def __init__(self, pid: int, announced: _Announced) -> None:
        self.pid = pid
        self.namespace, self.secondary = announced.namespaces
        self.ca_file = announced.ca_file
        self._control_url = announced.control_url

    async def delay(self, milliseconds: float) -> None:
        """Delay every answer of both namespaces, and so every round trip. Raises BenchError."""
        for namespace in (self.namespace, self.secondary):
            order = {"fault": "latency", "namespace": namespace.name, "direction": "out"}
            await self._break({**order, "delay_s": milliseconds / 1000})

    async def disable(self, entity: str) -> str:
        """Disable an entity of the primary namespace; return the fault's id for `mend`. Raises BenchError."""
        return await self._break({"fault": "disabled", "namespace": self.namespace.name, "entity": entity})

    async def mend(self, fault: str) -> None:
        """Remove a fault that `disable` set. Raises BenchError."""
        async with _session() as session, session.delete(f"{self._control_url}/faults/{fault}") as answer:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise BenchError(f"the sandbox does not mend a fault: {await answer.text()}")

    async def _break(self, order: dict[str, str | float]) -> str:
        async with _session() as session, session.post(f"{self._control_url}/faults", json=order) as answer:
            if answer.status != HTTPStatus.CREATED:
                raise BenchError(f"the sandbox refuses the fault {order['fault']}: {await answer.text()}")
            return str((await answer.json())["id"])

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the process so far."""
        return cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process so far."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CREATE))


@asynccontextmanager
async def sandbox_process(
    queues: Sequence[str], log: Path, *, primary: Sequence[str] = ()
) -> AsyncIterator[SandboxProcess]:
    """Run a sandbox with `queues` in both namespaces; write its standard error to `log`.

    primary: queues of only the first namespace.

    Raises:
        BenchError: the sandbox did not start, or this is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise BenchError(f"paired bench reads CPU and memory of the sandbox from Linux; this is {sys.platform}")
    with log.open("ab") as errors:
        process = await _start(errors)
    try:
        announced = await _announced(process, log)
        for namespace, also in zip(announced.namespaces, (primary, ()), strict=True):
            await _create(namespace, announced.ca_file, [*queues, *also])
        yield SandboxProcess(process.pid, announced)
    finally:
        await _end(process)


def allow_connections(count: int) -> None:
    """Allow `count` open connections for this process and its children. Raises BenchError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(f"{count} connections need {wanted} open files; the hard limit here is {hard} (ulimit -Hn)")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _start(errors: IO[bytes]) -> Process:
    return await asyncio.create_subprocess_exec(
        *python_command("servicebus_sandbox", "--json"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=errors,
        env=python_environment(),
    )


async def _announced(process: Process, log: Path) -> _Announced:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START)
        return msgspec.json.decode(line, type=_Announced)
    except (TimeoutError, msgspec.DecodeError) as error:
        raise BenchError(f"the sandbox did not start within {START:g} s; its log: {_log_text(log)}") from error


def _log_text(log: Path) -> str:
    return log.read_text(errors="replace").strip() or "empty"


async def _create(namespace: AnnouncedNamespace, ca_file: str, queues: Sequence[str]) -> None:
    async with ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=ca_file
    ) as admin:
        try:
            async with asyncio.timeout(CREATE + EACH * len(queues)):
                for queue in queues:
                    await admin.create_queue(queue, max_size_in_megabytes=MOST_MEGABYTES)
        except (AzureError, TimeoutError) as error:
            raise BenchError(f"the sandbox did not create the queue {queue}: {error}") from error


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP)
    except TimeoutError:
        process.kill()
        await process.wait()

"""A sandbox in a process of its own, for the demo and the benches: its addresses, clients and faults."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import PairedError, UnreadableError
from paired_servicebus.foreign_json import read_json
from paired_servicebus.interpreter import python_command, python_environment

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 10.0
SWITCH_TIMEOUT: Final = 30.0


class AnnouncedNamespace(msgspec.Struct, frozen=True):
    """A namespace as the sandbox announces it."""

    name: str
    connection_string: str


class SandboxProcess(msgspec.Struct, frozen=True):
    """A running sandbox, by its first line."""

    namespaces: list[AnnouncedNamespace]
    ca_file: str
    control_url: str
    pid: int = 0

    def connection_string(self, name: str) -> str:
        """Return the connection string of the namespace called `name`."""
        return next(one.connection_string for one in self.namespaces if one.name == name)

    def client(self, name: str) -> ServiceBusClient:
        """Return a client of a namespace, without retries of its own."""
        return ServiceBusClient.from_connection_string(
            self.connection_string(name), retry_total=0, ssl_context=_shared_context()
        )

    def admin(self, name: str) -> ServiceBusAdministrationClient:
        """Return a management client of a namespace."""
        return ServiceBusAdministrationClient.from_connection_string(
            self.connection_string(name), connection_verify=self.ca_file
        )

    async def add_fault(self, fault: str, **terms: Any) -> str:
        """Switch a fault on; return its id. Raises PairedError."""
        async with _session() as session, session.post(self._faults, json={"fault": fault, **terms}) as answer:
            if answer.status != HTTPStatus.CREATED:
                raise PairedError(f"the sandbox refuses the fault {fault}: {await answer.text()}")
            return str((await answer.json())["id"])

    async def remove_fault(self, fault_id: str) -> None:
        """Switch a fault off. Raises PairedError."""
        async with _session() as session, session.delete(f"{self._faults}/{fault_id}") as answer:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise PairedError(f"the sandbox does not remove a fault: {await answer.text()}")

    @property
    def _faults(self) -> str:
        return self.control_url.rstrip("/") + "/faults"


_ANNOUNCED: Final = msgspec.json.Decoder(SandboxProcess)


@cache
def _shared_context() -> ssl.SSLContext:
    """Return one for all links of a process: the SDK makes one for each, which takes longer than opening it."""
    return ssl.create_default_context()


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SWITCH_TIMEOUT))


@asynccontextmanager
async def sandbox_process(log: Path, *, config: Path | None = None) -> AsyncIterator[SandboxProcess]:
    """Yield a running sandbox and end it. Raises PairedError if it does not start.

    Args:
        log: gets its standard error.
        config: the file with its namespaces; None: a primary and a secondary one.
    """
    declared = () if config is None else ("--config", str(config))
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *python_command("servicebus_sandbox", "--json", *declared),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            env=python_environment(),
        )
    try:
        yield msgspec.structs.replace(await _announced(process, log), pid=process.pid)
    finally:
        await _end(process)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


async def _announced(process: Process, log: Path) -> SandboxProcess:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT):
            line = await process.stdout.readline()
        return read_json(_ANNOUNCED, line)
    except (TimeoutError, UnreadableError) as error:
        raise PairedError(f"the sandbox did not start: {_last_line(log)}") from error


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()

"""The namespaces of a demo: a sandbox in a process of its own, and the switches of its faults."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.errors import PairedError, UnreadableError
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.demo.scenario_model import PRIMARY, SECONDARY, FaultWindow
from paired_servicebus.foreign_json import read_json
from paired_servicebus.interpreter import python_command, python_environment
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces

START_TIMEOUT: Final = 20.0
STOP_TIMEOUT: Final = 5.0
SWITCH_TIMEOUT: Final = 5.0


class StageNamespace(msgspec.Struct, frozen=True):
    """A namespace as the sandbox announces it."""

    name: str
    connection_string: str


class SandboxStage(msgspec.Struct, frozen=True):
    """The sandbox's first line."""

    namespaces: list[StageNamespace]
    ca_file: str
    control_url: str

    def connection_string(self, name: str) -> str:
        """How to connect to the namespace called `name`."""
        return next(one.connection_string for one in self.namespaces if one.name == name)


_STAGE: Final = msgspec.json.Decoder(SandboxStage)


class _Switched(msgspec.Struct, frozen=True):
    id: str | int


@asynccontextmanager
async def stage(log: Path) -> AsyncIterator[SandboxStage]:
    """Yield a running sandbox and end it; its standard error goes to `log`.

    Raises:
        PairedError: it did not start.
    """
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *python_command("paired_servicebus", "sandbox", "--json"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=errors,
            env=python_environment(),
        )
    try:
        yield await _announced(process, log)
    finally:
        await _ended(process)


async def _announced(process: Process, log: Path) -> SandboxStage:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT):
            line = await process.stdout.readline()
        return read_json(_STAGE, line)
    except (TimeoutError, UnreadableError) as error:
        raise PairedError(f"the sandbox did not start: {_last_line(log)}") from error


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


async def _ended(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def pair_on(
    standing: SandboxStage, policy: Policy, *, on_event: Callable[[Event], object]
) -> PairedServiceBusClient:
    """Return the pairing of the stage's two namespaces.

    Raises:
        PairedError: they could not be paired.
    """
    secondary = standing.connection_string(SECONDARY)
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=ServiceBusAdministrationClient.from_connection_string(
            secondary, connection_verify=standing.ca_file
        ),
        secondary_client=ServiceBusClient.from_connection_string(secondary, retry_total=0),
        primary_name=PRIMARY,
        **{name: getattr(policy, name) for name in policy.__dataclass_fields__},
    )
    primary = ServiceBusClient.from_connection_string(standing.connection_string(PRIMARY), retry_total=0)
    return await pair_namespaces(primary, options, on_event=on_event)


class Faults:
    """Switches faults of the sandbox on and off while it runs."""

    def __init__(self, control_url: str) -> None:
        self._url = control_url.rstrip("/") + "/faults"
        self._timeout = aiohttp.ClientTimeout(total=SWITCH_TIMEOUT)

    async def on(self, broken: FaultWindow, *, entities: Sequence[str]) -> str:
        """Add a fault for `entities`, or for the namespace if there are none; return its handle."""
        order = {
            "namespace": broken.namespace,
            "fault": broken.fault,
            "entities": list(entities),
            "operations": list(broken.operations),
            "delay_s": broken.delay,
        }
        async with (
            aiohttp.ClientSession(timeout=self._timeout) as session,
            session.post(self._url, json=order) as answer,
        ):
            answer.raise_for_status()
            return str(msgspec.json.decode(await answer.read(), type=_Switched).id)

    async def off(self, name: str) -> None:
        """Switch a fault off."""
        async with (
            aiohttp.ClientSession(timeout=self._timeout) as session,
            session.delete(f"{self._url}/{name}") as answer,
        ):
            answer.raise_for_status()

"""The namespaces of a measurement: two sandboxes in a child process, or those of a pairing.toml.

In the namespaces of a pairing.toml, queues are made for the measurement and deleted after it. An existing queue is
never touched.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.bench.sandbox_process import BenchError, SandboxProcess, sandbox_process
from paired_servicebus.config import PairingConfig
from paired_servicebus.engine.clients.client_factory import open_admin, open_clients
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.management_port import Management

MANAGING: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchNamespaces:
    """The clients of both namespaces. sandbox: the process; None for those of a pairing.toml."""

    primary: ServiceBusClient
    secondary: ServiceBusClient
    secondary_admin: Management
    sandbox: SandboxProcess | None


@asynccontextmanager
async def open_namespaces(
    config: PairingConfig | None, *, primary: Sequence[str], secondary: Sequence[str], latency_ms: float
) -> AsyncIterator[BenchNamespaces]:
    """Open both namespaces and create these queues in them.

    Args:
        config: the namespaces; None: sandboxes.
        latency_ms: added to a round trip of a sandbox; 0 with `config`.

    Raises:
        BenchError: a namespace is not usable, or has one of the queues already.
    """
    async with AsyncExitStack() as stack:
        if config is None:
            yield await _sandboxes(stack, primary, secondary, latency_ms)
        elif latency_ms:
            raise BenchError("--latency-ms goes with the sandbox: the namespaces of a pairing.toml have their own")
        else:
            yield await _namespaces(stack, config, primary, secondary)


async def _sandboxes(
    stack: AsyncExitStack, primary: Sequence[str], secondary: Sequence[str], latency_ms: float
) -> BenchNamespaces:
    log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paired-bench-")), "sandbox.log")
    sandbox = await stack.enter_async_context(sandbox_process(secondary, log, primary=primary))
    if latency_ms:
        await sandbox.delay(latency_ms)
    clients = [
        ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0)
        for namespace in (sandbox.namespace, sandbox.secondary)
    ]
    for client in clients:
        await stack.enter_async_context(client)
    admin = ServiceBusAdministrationClient.from_connection_string(
        sandbox.secondary.connection_string, connection_verify=sandbox.ca_file
    )
    await stack.enter_async_context(admin)
    return BenchNamespaces(
        primary=clients[0], secondary=clients[1], secondary_admin=management_of(admin), sandbox=sandbox
    )


async def _namespaces(
    stack: AsyncExitStack, config: PairingConfig, primary: Sequence[str], secondary: Sequence[str]
) -> BenchNamespaces:
    clients = await stack.enter_async_context(open_clients(config))
    admin = await stack.enter_async_context(open_admin(config.primary))
    for management, queues in ((admin, primary), (clients.secondary_admin, secondary)):
        for queue in queues:
            await _create(management, queue)
            stack.push_async_callback(_delete, management, queue)
    return BenchNamespaces(
        primary=clients.primary, secondary=clients.secondary, secondary_admin=clients.secondary_admin, sandbox=None
    )


async def _create(management: Management, queue: str) -> None:
    try:
        async with asyncio.timeout(MANAGING):
            await management.create_backlog_queue(queue)
    except (AzureError, TimeoutError) as error:
        raise BenchError(f"the queue {queue} could not be made for the measurement: {error}") from error


async def _delete(management: Management, queue: str) -> None:
    try:
        async with asyncio.timeout(MANAGING):
            await management.delete_queue(queue)
    except (AzureError, TimeoutError) as error:
        raise BenchError(f"the queue {queue} was made for the measurement; delete it by hand: {error}") from error

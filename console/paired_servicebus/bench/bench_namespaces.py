"""The namespaces of a measurement: two sandboxes in a child process, or those of a pairing.toml.

In the namespaces of a pairing.toml, queues are made for the measurement and deleted after it. An existing queue is
never touched.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.config import PairingConfig
from paired_servicebus.core.backlog.queue_settings import BACKLOG_QUEUE
from paired_servicebus.engine.clients.client_factory import open_admin, open_clients
from paired_servicebus.pairing.management.management_port import Management, management_of
from paired_servicebus.sandbox_process import SandboxProcess, sandbox_process

MANAGING: Final = 30.0
PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"


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
    sandbox = await stack.enter_async_context(open_sandbox([*secondary, *primary], secondary))
    if latency_ms:
        await delay_answers(sandbox, latency_ms)
    return BenchNamespaces(
        primary=await stack.enter_async_context(sandbox.client(PRIMARY)),
        secondary=await stack.enter_async_context(sandbox.client(SECONDARY)),
        secondary_admin=management_of(await stack.enter_async_context(sandbox.admin(SECONDARY))),
        sandbox=sandbox,
    )


async def delay_answers(sandbox: SandboxProcess, milliseconds: float) -> None:
    """Delay every answer of both namespaces, and so every round trip. Raises PairedError."""
    for name in (PRIMARY, SECONDARY):
        await sandbox.add_fault("latency", namespace=name, direction="out", delay_s=milliseconds / 1000)


@asynccontextmanager
async def open_sandbox(primary: Sequence[str], secondary: Sequence[str] = ()) -> AsyncIterator[SandboxProcess]:
    """Run a sandbox with these queues. Raises BenchError: it could not make them, or this is not Linux."""
    if not sys.platform.startswith("linux"):
        raise BenchError(f"a bench reads CPU and memory of the sandbox from Linux; this is {sys.platform}")
    with tempfile.TemporaryDirectory(prefix="paired-bench-") as folder:
        async with sandbox_process(Path(folder, "sandbox.log")) as sandbox:
            for name, queues in ((PRIMARY, primary), (SECONDARY, secondary)):
                async with sandbox.admin(name) as admin:
                    for queue in queues:
                        await _create(management_of(admin), queue)
            yield sandbox


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
            await management.create_queue(queue, BACKLOG_QUEUE)
    except (AzureError, TimeoutError) as error:
        raise BenchError(f"the queue {queue} could not be made for the measurement: {error}") from error


async def _delete(management: Management, queue: str) -> None:
    try:
        async with asyncio.timeout(MANAGING):
            await management.delete_queue(queue)
    except (AzureError, TimeoutError) as error:
        raise BenchError(f"the queue {queue} was made for the measurement; delete it by hand: {error}") from error

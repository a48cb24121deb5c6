"""The raw copy loop moves what it is asked to, and says when it cannot; how fast it was is not judged here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.bench.amqp_loads import copy
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox

SPECS = [NamespaceSpec("a", queues=(QueueSpec("source"),)), NamespaceSpec("b", queues=(QueueSpec("target"),))]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.start(SPECS) as sandbox:
        client = ServiceBusClient.from_connection_string(sandbox["a"].connection_string)
        async with client, client.get_queue_sender("source") as sender:
            await sender.send_messages([ServiceBusMessage(b"x" * 100) for _ in range(120)])
        yield sandbox


@pytest.fixture
async def wires(sandbox: Sandbox) -> AsyncIterator[list[ReconnectingConnection]]:
    async with AsyncExitStack() as stack:
        found = []
        for name in ("a", "b"):
            client = ServiceBusClient.from_connection_string(sandbox[name].connection_string)
            found.append(ReconnectingConnection(Endpoint.of(client)))
            stack.push_async_callback(found[-1].close)
        yield found


async def test_every_message_is_copied_and_completed(sandbox: Sandbox, wires: list[ReconnectingConnection]) -> None:
    copied = await copy(wires[0], "source", wires[1], "target", count=120, window=50)
    assert copied.messages == 120
    assert copied.cpu_us > 0
    assert sandbox["a"].node.namespace.queue("source").counts().active == 0
    assert sandbox["b"].node.namespace.queue("target").counts().active == 120
    assert wires[1].after_read == []


async def test_a_copy_that_cannot_go_on_says_why(sandbox: Sandbox, wires: list[ReconnectingConnection]) -> None:
    copying = asyncio.create_task(copy(wires[0], "source", wires[1], "target", count=121, window=50))
    while sandbox["b"].node.namespace.queue("target").counts().active < 120:
        await asyncio.sleep(0.01)
    sandbox["b"].node.faults.add("reset")
    with pytest.raises(BenchError, match="source was not copied to target"):
        await copying

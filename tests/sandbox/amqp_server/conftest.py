"""A namespace on a loopback port, in this process, and the SDK's clients on it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from azure.servicebus.aio import ServiceBusClient

from console.sandbox.broker.settings import QueueSettings
from console.sandbox.node import Node

KEY_NAME, KEY = "Root", "a key"


class Clock:
    """The time of day, set forward by `ahead` seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Port:
    """A node that listens."""

    def __init__(self, node: Node, clock: Clock, port: int) -> None:
        self.node = node
        self.clock = clock
        self.number = port

    def jump(self, duration: timedelta) -> None:
        """Set the namespace's clock forward; clients keep theirs."""
        self.clock.ahead += duration.total_seconds()
        self.node.wake()

    @property
    def namespace(self):
        return self.node.namespace

    @property
    def connection_string(self) -> str:
        return self.connection_string_for(KEY_NAME, KEY)

    def connection_string_for(self, name: str, key: str) -> str:
        return (
            f"Endpoint=sb://127.0.0.1:{self.number};SharedAccessKeyName={name};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true"
        )

    def client(self, **options) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, **{"retry_total": 0, **options})

    def counts(self, path: str):
        return self.namespace.entity(path).counts()

    async def until(self, condition, seconds: float = 5.0) -> None:
        """Wait until a condition holds; fails by name when it does not."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def open_port(node: Node, clock: Clock) -> AsyncIterator[Port]:
    server = await asyncio.get_running_loop().create_server(node.protocol, "127.0.0.1", 0)
    try:
        yield Port(node, clock, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        node.close()


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    """A namespace with two queues, a session queue, and a topic with two subscriptions."""
    clock = Clock()
    node = Node("contoso", keys={KEY_NAME: KEY}, clock=clock)
    namespace = node.namespace
    namespace.create_queue("orders")
    namespace.create_queue("copies")
    namespace.create_queue("payments", QueueSettings(requires_session=True))
    namespace.create_topic("audit")
    namespace.create_subscription("audit", "all")
    namespace.create_subscription("audit", "more")
    async with open_port(node, clock) as opened, asyncio.timeout(60):
        yield opened


@pytest.fixture
async def client(port):
    async with port.client() as opened:
        yield opened

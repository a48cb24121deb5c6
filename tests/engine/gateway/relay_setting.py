"""A gateway over a pairing of two sandboxed namespaces, for receivers, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from azure.servicebus import (
    ServiceBusMessage,
)
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, LocalKey, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from servicebus_sandbox import Sandbox
from servicebus_sandbox.specs import NamespaceSpec
from tests.pairing.conftest import TRUST, World

SEND, LISTEN = new_key("web", [GatewayRight.SEND]), new_key("reader", [GatewayRight.LISTEN])
BOTH = new_key("both", [GatewayRight.SEND, GatewayRight.LISTEN])
ROOT = new_key("root", list(GatewayRight))


def ignore(_: object) -> None:
    """For links whose end is not looked at."""


class Setting:
    """A gateway over a pairing of two sandboxed namespaces, and a client of it."""

    def __init__(self, world: World, paired: PairedServiceBusClient, gateway: Gateway) -> None:
        self.world = world
        self.paired = paired
        self.gateway = gateway

    async def client(self, key: LocalKey = BOTH, **options: Any) -> ServiceBusClient:
        given = self.gateway.connection_string(key)
        options = {"retry_total": 0, "ssl_context": TRUST} | options
        client = ServiceBusClient.from_connection_string(given, **options)
        return await self.world.stack.enter_async_context(client)

    def wire(self, connection_string: str = "") -> ReconnectingConnection:
        """A client of our own AMQP, which shows what the SDK hides."""
        given = ServiceBusClient.from_connection_string(connection_string or self.gateway.connection_string(BOTH))
        line = ReconnectingConnection(Endpoint.of(given))
        self.world.stack.push_async_callback(line.close)
        return line

    async def put(self, *ids: str, queue: str = "orders", **options: Any) -> None:
        """Send to the primary, around the gateway."""
        async with self.world.client("primary") as client, client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(b"x", message_id=name, **options) for name in ids])


@asynccontextmanager
async def relay_setting(*specs: NamespaceSpec, **options: Any) -> AsyncIterator[Setting]:
    async with Sandbox.start(specs or None) as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        chosen = {"backlog_queue_count": 1, "send_timeout": 1.0, "failover_interval": 0.5} | options
        paired = await world.pair(**chosen)
        gateway = Gateway(paired, KeyRing([SEND, LISTEN, BOTH, ROOT]))
        gateway.holding = 0.5
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        yield Setting(world, paired, gateway)

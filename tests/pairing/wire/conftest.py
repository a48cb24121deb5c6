"""A sandbox with two queues and a topic in this event loop, and a wire to its namespace with whatever a test lacks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import Backoff, Endpoint, ReconnectingConnection, WireReceiver, WireSender
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_properties,
    split,
    write_data,
    write_properties,
)
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox, SubscriptionSpec, TopicSpec

from ..conftest import until

__all__ = ["until"]


def message(number: int = 0, size: int = 20) -> bytes:
    """An encoded message whose id is its number."""
    properties = write_properties(Properties(message_id=str(number)))
    return Sections(properties=properties, body=write_data(b"x" * size)).join()


def id_of(payload: bytes) -> str:
    return str(read_properties(split(payload).properties).message_id)


@dataclass
class Told:
    """What the callbacks of a link were told."""

    outcomes: list[DispositionReceived] = field(default_factory=list)
    deliveries: list[DeliveryReceived] = field(default_factory=list)
    settled: list[DispositionReceived] = field(default_factory=list)
    lost: list[WireError] = field(default_factory=list)
    rooms: int = 0

    def room(self) -> None:
        self.rooms += 1

    async def sender(self, wire: ReconnectingConnection, path: str = "orders", **options: Any) -> WireSender:
        return await wire.sender(
            path, on_outcome=self.outcomes.append, on_lost=self.lost.append, on_room=self.room, **options
        )

    async def receiver(self, wire: ReconnectingConnection, path: str = "orders", **options: Any) -> WireReceiver:
        return await wire.receiver(
            path,
            on_delivery=self.deliveries.append,
            on_lost=self.lost.append,
            on_settled=self.settled.append,
            **options,
        )


@dataclass
class World:
    """The sandbox, and what is closed at the end of a test."""

    sandbox: Sandbox
    stack: AsyncExitStack

    @property
    def node(self) -> Any:
        return self.sandbox["contoso"].node

    def client(self) -> ServiceBusClient:
        """One that is never opened; its settings are all that is wanted."""
        return ServiceBusClient.from_connection_string(self.sandbox["contoso"].connection_string)

    def wire(self, **options: Any) -> ReconnectingConnection:
        return self.wire_to(Endpoint.of(self.client()), **options)

    def wire_to(self, endpoint: Endpoint, **options: Any) -> ReconnectingConnection:
        wire = ReconnectingConnection(endpoint, backoff=Backoff(lambda: 0.9), **options)
        self.stack.push_async_callback(wire.close)
        return wire

    def fault(self, kind: str, *, entity: str | None = None) -> Callable[[], None]:
        """Switch a fault on; what switches it off."""
        begun = self.node.faults.add(kind, entity=entity)
        return lambda: self.node.faults.remove(begun.id)

    def jump(self, seconds: float) -> None:
        """Set the sandbox's clock forward."""
        self.node.clock.advance(seconds)
        self.node.clock_jumped()

    def depth(self, path: str) -> int:
        return int(self.node.namespace.queue(path).counts().active)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    queues, topics = (QueueSpec("orders"), QueueSpec("audit")), (TopicSpec("news", (SubscriptionSpec("all"),)),)
    async with (
        Sandbox.start([NamespaceSpec("contoso", queues=queues, topics=topics)]) as sandbox,
        AsyncExitStack() as stack,
    ):
        yield World(sandbox, stack)


@pytest.fixture
def told() -> Told:
    return Told()

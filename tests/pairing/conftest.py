"""A sandbox of two namespaces in this event loop, and a pairing over them with times short enough for a test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.pairing import (
    PairedServiceBusClient,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
    tls_context,
)
from paired_servicebus.pairing.syphon import sdk_pump
from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import FaultTerms, Operation
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps

PATIENCE = 60.0
IMPATIENT = {"send_timeout": 1.0, "ping_timeout": 1.0}
"""Options for a test in which something gets no answer; where all is answered, no test depends on how soon."""
BOTH_PUMPS = pytest.mark.parametrize("world", ["amqp", "sdk"], indirect=True)
EACH_PUMP = pytest.mark.parametrize("world", ["amqp", pytest.param("sdk", marks=pytest.mark.slow)], indirect=True)
"""Both pumps follow one machine: what is proven of its adapters on the SDK beyond their own ways is slow."""
TRUST = tls_context()
"""Shared: the SDK would make one for each link, which is most of what a test here would cost."""


class KeptAlive(AioHttpTransport):
    """Keeps its connections: with the file of an authority, the SDK opens one for each request."""

    def __init__(self, ca_file: str) -> None:
        super().__init__()
        self._ca_file = ca_file

    async def open(self) -> None:
        if self.session is None and not self._has_been_opened:
            trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self._ca_file))
            self.session = aiohttp.ClientSession(connector=trusting, auto_decompress=False)
        await super().open()


async def until(what: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(patience):
        while not what():
            await asyncio.sleep(0.02)


@dataclass
class World:
    """Two namespaces, and whatever a test pairs over them."""

    sandbox: Sandbox
    stack: AsyncExitStack
    events: list[Event] = field(default_factory=list)
    also: Callable[[Event], object] | None = None
    """Told every event as well."""
    pump: str = "auto"

    def client(self, namespace: str, *, retry_total: int = 0) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self.sandbox[namespace].connection_string, retry_total=retry_total, ssl_context=TRUST
        )

    def admin(self, namespace: str, connection_string: str = "") -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(
            connection_string or self.sandbox[namespace].connection_string,
            transport=KeptAlive(str(self.sandbox.ca_file)),
        )

    async def pair(self, **options: Any) -> PairedServiceBusClient:
        chosen: dict[str, Any] = {
            "backlog_queue_count": 2,
            "send_timeout": 60.0,
            "failover_interval": 0.5,
            "ping_primary_interval": 1.0,
            "ping_timeout": 60.0,
            "primary_name": "primary",
            "pump": self.pump,
        } | options
        admin = chosen.pop("secondary_admin", None) or self.admin("secondary")
        client = chosen.pop("secondary_client", None) or self.client("secondary")
        primary = chosen.pop("primary_client", None) or self.client("primary")
        paired = await pair_namespaces(
            primary,
            SendAvailabilityPairedNamespaceOptions(secondary_admin=admin, secondary_client=client, **chosen),
            on_event=self._told,
        )
        return await self.stack.enter_async_context(paired)

    async def forced(self, **options: Any) -> PairedServiceBusClient:
        """A pairing whose sends of orders go to the backlog."""
        paired = await self.pair(**options)
        paired.watch("orders")
        paired.force("orders", by="kim")
        return paired

    def _told(self, event: Event) -> None:
        self.events.append(event)
        if self.also is not None:
            self.also(event)

    def fault(
        self, kind: str, *only: Operation, namespace: str = "primary", entity: str | None = None, **terms: Any
    ) -> Callable[[], None]:
        """Switch a fault on that goes as far as its terms say; what switches it off."""
        board = self.sandbox[namespace].node.faults
        begun = board.add(kind, entity=entity, terms=FaultTerms(operations=frozenset(only), **terms))
        return lambda: board.remove(begun.id)

    def depth(self, path: str, *, namespace: str = "primary") -> int:
        return self.sandbox[namespace].node.namespace.queue(path).counts().active

    def ids_in(self, path: str, *, namespace: str = "primary") -> list[str]:
        """The ids of what lies in a queue, in its order."""
        queue = self.sandbox[namespace].node.namespace.queue(path)
        found = queue.messages.peek(0, 1_000_000)
        return [_text(stored.message.message_id) for stored in found]

    def parked(self, count: int = 2) -> int:
        return sum(
            self.depth(f"primary/x-servicebus-transfer/{index}", namespace="secondary") for index in range(count)
        )

    @asynccontextmanager
    async def to_backlog(self, index: int = 0) -> AsyncIterator[ServiceBusSender]:
        """A plain sender to one of the backlog queues."""
        path = f"primary/x-servicebus-transfer/{index}"
        async with self.client("secondary") as client, client.get_queue_sender(path) as sender:
            yield sender

    async def received(
        self, path: str, count: int, *, namespace: str = "primary", **options: Any
    ) -> list[ServiceBusReceivedMessage]:
        """`count` messages of a queue, by a plain client, completed."""
        found: list[ServiceBusReceivedMessage] = []
        async with self.client(namespace) as client, client.get_queue_receiver(path, **options) as receiver:
            async with asyncio.timeout(PATIENCE):
                while len(found) < count:
                    for message in await receiver.receive_messages(count - len(found), max_wait_time=1):
                        found.append(message)
                        await receiver.complete_message(message)
        return found

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def _text(name: object) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pump on the SDK notices sooner that a destination takes messages again, and the SDK's own sleeps are short."""
    monkeypatch.setattr(sdk_pump, "SLICE", 0.25)
    with shorten_sleeps():
        yield


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Two namespaces; a parameter is the kind of the pumps."""
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack, pump=getattr(request, "param", "auto"))

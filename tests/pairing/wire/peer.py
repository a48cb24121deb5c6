"""A namespace of our own making: servicebus_amqp in the server's role, doing what a test tells it and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential

from paired_servicebus.pairing.amqp_client import Endpoint
from paired_servicebus.pairing.amqp_client.endpoint import Transport
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_properties,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_amqp.protocol.connection import Connection
from servicebus_amqp.protocol.connection_settings import ConnectionRole, ConnectionSettings
from servicebus_amqp.protocol.links import (
    AttachRequested,
    DeliveryReceived,
    DispositionReceived,
    Link,
    ReceiverLink,
    SenderLink,
)


def reply_to(request: bytes, status: int = 200, body: Any = None, **more: Any) -> bytes:
    """An answer to a request, as `$cbs` and `$management` give it; `more` are further application properties."""
    said: dict[str, Any] = {"status-code": status, "statusCode": status, "statusDescription": "said"} | more
    asked = read_properties(split(request).properties).message_id
    return Sections(
        properties=write_properties(Properties(correlation_id=asked)),
        application_properties=write_application_properties(said),
        body=write_value(body),
    ).join()


class Peer(asyncio.Protocol):
    """One connection. Accepts links and tokens; messages and dispositions are only noted."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.amqp = Connection(role=ConnectionRole.SERVER, settings=script.settings)
        self.links: list[Link] = []
        self.received: list[DeliveryReceived] = []
        self.said: list[DispositionReceived] = []
        self.requests: list[bytes] = []
        self.reads: list[bytes] = []
        self.is_over = False
        self._replies: dict[str, SenderLink] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.script.peers.append(self)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_over = True

    def data_received(self, data: bytes) -> None:
        self.reads.append(data)
        if self.script.first_answer is not None:
            self.transport.write(self.script.first_answer)
            return
        for event in self.amqp.receive_data(data):
            if isinstance(event, AttachRequested):
                self._attach(event)
            elif isinstance(event, DeliveryReceived):
                self._receive(event)
            elif isinstance(event, DispositionReceived) and event.link not in self._replies.values():
                self.said.append(event)
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.amqp.data_to_send())
        if self.amqp.is_finished:
            self.transport.close()

    def link(self, path: str, kind: type[SenderLink] | type[ReceiverLink]) -> Any:
        """Our end of the latest link of an entity."""
        found = [link for link in self.links if type(link) is kind and self._address(link) == path]
        return found[-1]

    def _attach(self, event: AttachRequested) -> None:
        self.links.append(event.link)
        path = self._address(event.link)
        if self.script.on_attach is not None and self.script.on_attach(self, event):
            return
        event.link.accept_attach(properties=self.script.properties, max_message_size=self.script.max_message_size)
        if isinstance(event.link, ReceiverLink):
            event.link.flow(self.script.credit)
        elif path.startswith("$") or path.endswith("$management"):
            self._replies[path] = event.link

    def _receive(self, event: DeliveryReceived) -> None:
        path = self._address(event.link)
        if path not in self._replies:
            self.received.append(event)
            return
        self.requests.append(event.payload)
        event.link.settle(event.delivery_id, ACCEPTED)
        answer = self.script.on_request(path, event.payload)
        if answer is not None:
            self._replies[path].send(answer, tag=len(self.requests).to_bytes(4, "big"))

    @staticmethod
    def _address(link: Link) -> str:
        assert link.remote is not None
        terminus = link.remote.source if isinstance(link, SenderLink) else link.remote.target
        return str(getattr(terminus, "address", None))


class Script:
    """What peers do."""

    def __init__(self) -> None:
        self.settings = ConnectionSettings(container_id="peer")
        self.peers: list[Peer] = []
        self.first_answer: bytes | None = None
        self.on_attach: Callable[[Peer, AttachRequested], bool] | None = None
        self.on_request: Callable[[str, bytes], bytes | None] = lambda _, request: reply_to(request)
        self.properties: dict[Any, Any] | None = None
        self.max_message_size: int | None = None
        self.credit = 1000
        self.port = 0

    @property
    def peer(self) -> Peer:
        """The latest connection."""
        return self.peers[-1]

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(
            host="127.0.0.1",
            port=self.port,
            namespace="peer.servicebus.windows.net",
            hostname="peer.servicebus.windows.net",
            transport=Transport.AMQP,
            tls=False,
            credential=AzureNamedKeyCredential("Root", "key"),
        )


@asynccontextmanager
async def listening() -> AsyncIterator[Script]:
    """A port where each connection is a peer."""
    script = Script()
    server = await asyncio.get_running_loop().create_server(lambda: Peer(script), "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    async with server:
        yield script
        for peer in script.peers:
            peer.transport.abort()

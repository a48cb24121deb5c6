"""Every way to a namespace: plain, TLS, WebSocket, through a proxy; and what is said where there is none."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireConnectionError, WireUnavailableError
from paired_servicebus.pairing.amqp_client import Endpoint
from servicebus_amqp import ACCEPTED
from tests.pairing.wire.conftest import Told, World, message, until
from tests.pairing.wire.peer import listening

LARGE = 200_000


def endpoint(world: World, transport: TransportType, **options: Any) -> Endpoint:
    """Of the namespace by its real name, over TLS."""
    found = world.sandbox["contoso"]
    chosen = {"connection_verify": str(world.sandbox.ca_file), "custom_endpoint_address": found.endpoint} | options
    credential = AzureNamedKeyCredential(found.key_name, found.key)
    return Endpoint.of(ServiceBusClient(found.fully_qualified_name, credential, transport_type=transport, **chosen))


async def there_and_back(world: World, where: Endpoint) -> list[int]:
    """The sizes of what came back, of messages as large as this."""
    told, wire = Told(), world.wire_to(where)
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    for number in range(20):
        sender.send(message(number, LARGE), number.to_bytes(8, "big"))
    receiver.grant(20)
    await until(lambda: len(told.outcomes) == 20 and len(told.deliveries) == 20)
    for event in told.deliveries:
        receiver.settle(event.delivery_id, ACCEPTED, settled=False)
    await until(lambda: len(told.settled) == 20)
    assert all(event.state == ACCEPTED for event in told.outcomes + told.settled)
    return [len(event.payload) for event in told.deliveries]


@pytest.mark.parametrize("transport", TransportType)
async def test_there_and_back_over_tls_by_the_real_name(world: World, transport: TransportType) -> None:
    assert min(await there_and_back(world, endpoint(world, transport))) > LARGE


@pytest.mark.parametrize("transport", TransportType)
async def test_a_certificate_that_is_not_trusted_is_no_connection(world: World, transport: TransportType) -> None:
    wire = world.wire_to(endpoint(world, transport, connection_verify=None))
    with pytest.raises(WireConnectionError, match=r"(?i)certificate"):
        await Told().sender(wire)


async def test_a_port_that_refuses_is_no_connection(world: World) -> None:
    async with listening() as script:
        where = script.endpoint
    wire = world.wire_to(where)
    with pytest.raises(WireConnectionError, match="cannot be connected") as raised:
        await Told().sender(wire)
    assert raised.value.condition == "amqp:socket-error"


async def test_a_web_server_without_websockets_is_unavailable_to_us(world: World) -> None:
    where = endpoint(world, TransportType.AmqpOverWebsocket, custom_endpoint_address=world.sandbox.arm_url)
    with pytest.raises(WireUnavailableError, match="takes no WebSocket: 4"):
        await Told().sender(world.wire_to(where))


@dataclass
class Proxy:
    """An HTTP proxy that knows CONNECT alone, and wants a password if it was given one."""

    authorization: str | None = None
    port: int = 0
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        _, target, _ = head[0].split(" ")
        self.asked.append((target, headers.get("Proxy-Authorization")))
        if self.authorization is not None and headers.get("Proxy-Authorization") != self.authorization:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        host, port = target.rsplit(":", 1)
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes from one to the other until either ends."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def proxying(**options: Any) -> AsyncIterator[Proxy]:
    proxy = Proxy(**options)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy


async def test_a_proxy_is_gone_through_with_its_password(world: World) -> None:
    wanted = "Basic " + base64.b64encode(b"ann:canary").decode()
    async with proxying(authorization=wanted) as proxy:
        settings = {"proxy_hostname": "127.0.0.1", "proxy_port": proxy.port, "username": "ann", "password": "canary"}
        where = endpoint(world, TransportType.AmqpOverWebsocket, http_proxy=settings)
        await there_and_back(world, where)
        assert proxy.asked == [(world.sandbox["contoso"].endpoint.removeprefix("sb://"), wanted)]


async def test_a_proxy_that_says_no_is_named_and_its_password_is_not(world: World) -> None:
    async with proxying(authorization="Basic another") as proxy:
        settings = {"proxy_hostname": "127.0.0.1", "proxy_port": proxy.port, "username": "ann", "password": "canary"}
        where = endpoint(world, TransportType.AmqpOverWebsocket, http_proxy=settings)
        with pytest.raises(WireConnectionError, match="the proxy answered 407") as raised:
            await Told().sender(world.wire_to(where))
        assert "canary" not in f"{raised.value}"
        assert base64.b64encode(b"ann:canary").decode() not in f"{raised.value}"


@pytest.mark.parametrize("transport", TransportType)
async def test_a_connection_that_is_reset_is_lost_on_every_transport(world: World, transport: TransportType) -> None:
    told, wire = Told(), world.wire_to(endpoint(world, transport))
    await told.sender(wire)
    world.fault("reset")
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireConnectionError)
    assert not wire.is_up

"""One port, every way there: AMQP over TLS and over WebSocket, by address and by the namespace's real name."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from servicebus_sandbox import Sandbox

SOON = 60.0
BIG = b"x" * 200_000


def options(sandbox: Sandbox, transport: TransportType) -> dict[str, Any]:
    return {
        "custom_endpoint_address": sandbox["primary"].endpoint,
        "connection_verify": str(sandbox.ca_file),
        "transport_type": transport,
        "retry_total": 0,
    }


def named_client(sandbox: Sandbox, transport: TransportType) -> ServiceBusClient:
    primary = sandbox["primary"]
    credential = AzureNamedKeyCredential(primary.key_name, primary.key)
    return ServiceBusClient(primary.fully_qualified_name, credential, **options(sandbox, transport))


@pytest.mark.parametrize("transport", TransportType)
async def test_there_and_back_by_the_real_name(sandbox: Sandbox, transport: TransportType) -> None:
    async with asyncio.timeout(SOON), named_client(sandbox, transport) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage(b"small"), ServiceBusMessage(b"second")])
            await sender.send_messages(ServiceBusMessage(BIG))
        async with client.get_queue_receiver("orders") as receiver:
            received = await receiver.receive_messages(3, max_wait_time=5)
            while len(received) < 3:
                received += await receiver.receive_messages(3, max_wait_time=5)
            assert [b"".join(message.body) for message in received] == [b"small", b"second", BIG]
            for message in received:
                await receiver.complete_message(message)
    assert sandbox["primary"].node.namespace.queue("orders").counts().total == 0


@pytest.mark.parametrize("transport", TransportType)
async def test_by_connection_string(sandbox: Sandbox, transport: TransportType) -> None:
    text = sandbox["primary"].connection_string.replace(";UseDevelopmentEmulator=true", "")
    client = ServiceBusClient.from_connection_string(text, **options(sandbox, transport))
    async with asyncio.timeout(SOON), client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert sandbox["primary"].node.namespace.queue("orders").counts().active == 1


@pytest.mark.parametrize("transport", TransportType)
async def test_a_synchronous_client_there_and_back(sandbox: Sandbox, transport: TransportType) -> None:
    text = sandbox["primary"].connection_string.replace(";UseDevelopmentEmulator=true", "")

    def exchange() -> list[bytes]:
        with SyncClient.from_connection_string(text, **options(sandbox, transport)) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages([ServiceBusMessage(b"small"), ServiceBusMessage(BIG)])
            with client.get_queue_receiver("orders") as receiver:
                received: list[bytes] = []
                while len(received) < 2:
                    for message in receiver.receive_messages(2, max_wait_time=5):
                        received.append(b"".join(message.body))
                        receiver.complete_message(message)
        return received

    async with asyncio.timeout(SOON):
        assert await asyncio.to_thread(exchange) == [b"small", BIG]
    assert sandbox["primary"].node.namespace.queue("orders").counts().total == 0


@pytest.mark.parametrize("transport", TransportType)
async def test_a_half_open_connection_is_dead_and_a_new_one_served(sandbox: Sandbox, transport: TransportType) -> None:
    primary = sandbox["primary"]
    client = named_client(sandbox, transport)
    async with asyncio.timeout(SOON), client:
        old = client.get_queue_sender("orders")
        await old.send_messages(ServiceBusMessage("before"))
        fault = primary.node.faults.add("half-open")
        with pytest.raises(OperationTimeoutError):
            await old.send_messages(ServiceBusMessage("into the void"), timeout=0.5)
        async with client.get_queue_sender("orders") as new:
            await new.send_messages(ServiceBusMessage("after"))
        primary.node.faults.remove(fault.id)
        await old.close()
    assert primary.node.namespace.queue("orders").counts().active == 2


@pytest.mark.parametrize("transport", TransportType)
async def test_who_does_not_trust_the_authority_gets_nowhere(sandbox: Sandbox, transport: TransportType) -> None:
    strange = options(sandbox, transport) | {"connection_verify": None}
    text = sandbox["primary"].connection_string.replace(";UseDevelopmentEmulator=true", "")
    client = ServiceBusClient.from_connection_string(text, **strange)
    async with asyncio.timeout(SOON), client:
        with pytest.raises(ServiceBusError):
            async with client.get_queue_sender("orders"):
                pass
    assert not sandbox["primary"].node.connections


async def test_faults_reach_websockets(sandbox: Sandbox) -> None:
    primary = sandbox["primary"]
    client = named_client(sandbox, TransportType.AmqpOverWebsocket)
    async with asyncio.timeout(SOON), client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        fault = primary.node.faults.add("refused")
        for _ in range(2):  # the connection that was open, and a new one
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("y"))
        primary.node.faults.remove(fault.id)
        await sender.send_messages(ServiceBusMessage("z"))
    assert primary.node.namespace.queue("orders").counts().active == 2


async def test_the_certificate_is_good_for_the_real_name(sandbox: Sandbox) -> None:
    primary, tls = sandbox["primary"], ssl.create_default_context(cafile=sandbox.ca_file)
    async with asyncio.timeout(SOON):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", primary.amqp_port, ssl=tls, server_hostname=primary.fully_qualified_name
        )
        writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", primary.amqp_port, ssl=tls, server_hostname="other.invalid")


# ---------------------------------------------------------------------- a WebSocket without the SDK


class Door:
    """Opens WebSockets to a sandbox's primary namespace."""

    def __init__(self, sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
        self.url = f"{sandbox['primary'].admin_url}/$servicebus/websocket"
        self.tls = ssl.create_default_context(cafile=sandbox.ca_file)
        self.session = session

    async def open(self, *protocols: str) -> aiohttp.ClientWebSocketResponse:
        return await self.session.ws_connect(self.url, protocols=protocols, ssl=self.tls)


@pytest.fixture
async def door(sandbox: Sandbox) -> Any:
    async with asyncio.timeout(SOON), aiohttp.ClientSession() as session:
        yield Door(sandbox, session)


@pytest.mark.parametrize("name", ["AMQPWSB10", "amqp"])
async def test_bytes_may_be_cut_anywhere(door: Door, name: str) -> None:
    async with await door.open("other", name) as socket:
        assert socket.protocol == name
        for byte in b"AMQP\x03\x01\x00\x00":
            await socket.send_bytes(bytes([byte]))
        assert (await socket.receive_bytes()).startswith(b"AMQP\x03\x01\x00\x00")


async def test_another_subprotocol_is_refused(door: Door) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await door.open("mqtt")
    assert caught.value.status == 400


async def test_a_request_that_is_no_handshake(door: Door) -> None:
    headers = {"Sec-WebSocket-Protocol": "amqp"}
    async with door.session.get(door.url, ssl=door.tls, headers=headers) as answer:
        assert answer.status == 400


async def test_text_is_not_amqp(door: Door) -> None:
    async with await door.open("amqp") as socket:
        await socket.send_str("AMQP")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.UNSUPPORTED_DATA


async def test_a_message_too_large_ends_its_connection_alone(door: Door, sandbox: Sandbox) -> None:
    async with await door.open("amqp") as socket, await door.open("amqp") as other:
        await socket.send_bytes(bytes(4 * 1024 * 1024 + 1))
        assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        await other.send_bytes(b"AMQP\x00\x01\x00\x00")
        assert (await other.receive_bytes()).startswith(b"AMQP")
    assert sandbox["primary"].node.namespace.queue("orders").counts().total == 0


async def test_garbage_in_a_websocket_ends_it(door: Door, sandbox: Sandbox) -> None:
    async with await door.open("amqp") as socket:
        await socket.send_bytes(b"\x00" * 64)
        types = [message.type async for message in socket]
        assert aiohttp.WSMsgType.TEXT not in types
    while sandbox["primary"].node.connections:
        await asyncio.sleep(0.01)
    assert not sandbox["primary"].node.connections


async def test_an_open_websocket_does_not_keep_the_sandbox(tmp_path: Any) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(SOON):
        async with Sandbox.start() as sandbox:
            socket = await Door(sandbox, session).open("amqp")
            started = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - started < 1.5
        assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)

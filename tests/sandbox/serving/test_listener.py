"""One port: what speaks AMQP, TLS or HTTP gets its protocol, and whatever else comes harms nobody."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.conftest import IMPATIENT, Echo
from yarl import URL

from servicebus_amqp.server import admission
from servicebus_amqp.server.admission import Admission, PeerProtocol, detect_protocol, is_scarce, log_once
from servicebus_amqp.server.listener import Listener, ListenError
from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import FaultBoard
from servicebus_sandbox.serving import http_server

if TYPE_CHECKING:
    from tests.sandbox.conftest import Port

    from servicebus_amqp.server.certificates import Certificates

HEADER = b"AMQP\x03\x01\x00\x00"
SOON = 60.0


async def connect(port: Port, tls: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = "127.0.0.1" if tls else None
    return await asyncio.open_connection("127.0.0.1", port.number, ssl=tls, server_hostname=name)


async def answer_to(port: Port, data: bytes, *, tls: ssl.SSLContext | None = None, size: int) -> bytes:
    async with asyncio.timeout(SOON):
        reader, writer = await connect(port, tls)
        writer.write(data)
        answer = await reader.readexactly(size)
        writer.close()
        return answer


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came before the end of the connection, clean or by reset."""
    async with asyncio.timeout(SOON):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("encrypted", [False, True])
async def test_amqp_reaches_its_protocol_with_every_byte(port: Port, encrypted: bool) -> None:
    tls = port.client_tls() if encrypted else None
    assert await answer_to(port, HEADER, tls=tls, size=13) == b"echo:" + HEADER


@pytest.mark.parametrize("encrypted", [False, True])
async def test_short_answers_are_not_held_back_for_longer_ones(certificates: Certificates, encrypted: bool) -> None:
    made: list[Echo] = []

    def amqp() -> Echo:
        made.append(Echo())
        return made[-1]

    listener = Listener(
        who="namespace 'contoso'",
        amqp=amqp,
        http=Echo,
        tls=certificates.server_context(),
        faults=FaultBoard("contoso", list),
        admission=Admission(print),
    )
    try:
        number, tls = await listener.open(), ssl.create_default_context(cafile=certificates.ca_file)
        async with asyncio.timeout(SOON):
            name = "127.0.0.1" if encrypted else None
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", number, ssl=tls if encrypted else None, server_hostname=name
            )
            writer.write(HEADER)
            await reader.readexactly(5)
        connection = made[0].transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
    finally:
        await listener.close()


async def test_a_header_that_comes_byte_by_byte(port: Port) -> None:
    async with asyncio.timeout(SOON):
        reader, writer = await connect(port)
        for byte in HEADER:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.readexactly(13) == b"echo:" + HEADER
        writer.close()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_http_reaches_management(port: Port, encrypted: bool) -> None:
    """One port serves AMQP, HTTP and WebSockets by the first bytes, plain and inside TLS."""
    request = b"GET /$namespaceinfo HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    tls = port.client_tls() if encrypted else None
    assert await answer_to(port, request, tls=tls, size=12) == b"HTTP/1.1 401"


async def test_tls_inside_tls_is_cut_and_counted(port: Port) -> None:
    reader, writer = await connect(port, port.client_tls())
    writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
    assert await ended(reader) == b""
    assert port.listener.rejected == {"TLS": 1}
    writer.close()


async def test_a_tls_hello_inside_a_request_is_a_bad_request(port: Port) -> None:
    reader, writer = await connect(port)
    writer.write(b"GET / HTTP/1.1\r\nHost: \x16\x03\x01\x02\x00\x01\r\n\r\n")
    assert b" 400 Bad Request\r\n" in await ended(reader)
    writer.close()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("garbage", [b"\x00\xff" * 4, b"AMQX\x00\x01\x00\x00", b"GETX/ HTTP", b"SSH-2.0-x"])
async def test_garbage_is_cut_and_counted(port: Port, garbage: bytes, encrypted: bool) -> None:
    reader, writer = await connect(port, port.client_tls() if encrypted else None)
    writer.write(garbage)
    assert await ended(reader) == b""
    assert port.listener.rejected == {"neither AMQP nor HTTP": 1}
    writer.close()


@IMPATIENT
@pytest.mark.parametrize("start", [b"", b"AM", b"G", b"\x16\x03\x01"])
async def test_silence_ends_by_a_time_out(port: Port, start: bytes) -> None:
    reader, writer = await connect(port)
    writer.write(start)
    assert await ended(reader) == b""
    assert port.listener.rejected.total() == 1
    writer.close()


@IMPATIENT
async def test_silence_inside_tls_ends_by_a_time_out(port: Port) -> None:
    reader, writer = await connect(port, port.client_tls())
    assert await ended(reader) == b""
    assert port.listener.rejected == {"nothing": 1}
    writer.close()


async def test_a_flood_is_counted_and_logged_once(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "servicebus_amqp"):
        for _ in range(20):
            reader, writer = await connect(port)
            writer.write(b"\x00" * 8)
            await ended(reader)
            writer.close()
    assert port.listener.rejected == {"neither AMQP nor HTTP": 20}
    assert len(caplog.records) == 1


async def test_others_are_served_beside_silent_and_broken_ones(port: Port) -> None:
    silent = [await connect(port) for _ in range(50)]
    assert await answer_to(port, HEADER, size=13) == b"echo:" + HEADER
    for _, writer in silent:
        writer.close()


async def test_a_client_that_does_not_trust_the_authority_harms_nobody(port: Port) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(port, ssl.create_default_context())
    assert await answer_to(port, HEADER, size=13) == b"echo:" + HEADER


async def test_refused_connections_are_refused_and_the_port_is_kept(port: Port) -> None:
    assert await answer_to(port, HEADER, size=13) == b"echo:" + HEADER
    for _ in range(2):
        fault = port.board.add("refused")
        with pytest.raises(ConnectionRefusedError):
            await connect(port)
        port.board.remove(fault.id)
        port.board.remove(port.board.add("refused").id)  # over before anybody noticed
        await until_answered(port)


async def until_answered(port: Port) -> None:
    """The port opens in the next turn of the loop."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                assert await answer_to(port, HEADER, size=13) == b"echo:" + HEADER
            except ConnectionRefusedError:
                await asyncio.sleep(0)
            else:
                return


async def test_connections_are_reset(port: Port) -> None:
    port.board.add("reset")
    reader, writer = await connect(port)
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(SOON):
            await reader.read()
    writer.close()


@IMPATIENT
@pytest.mark.parametrize("opening", [HEADER, b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", b""])
async def test_black_holed_connections_hang_until_it_ends(port: Port, opening: bytes) -> None:
    fault = port.board.add("black-holed")
    reader, writer = await connect(port)
    writer.write(opening)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.6):  # longer than the patience with a silent peer
            await reader.read()
    port.board.remove(fault.id)
    assert await ended(reader) == b""
    assert await answer_to(port, HEADER, size=13) == b"echo:" + HEADER
    writer.close()


async def test_connections_that_have_not_shown_themselves_are_cut_when_refusing_begins(port: Port) -> None:
    reader, writer = await connect(port)
    writer.write(b"A")
    await asyncio.sleep(0)
    port.board.add("refused")
    assert await ended(reader) == b""
    writer.close()


async def test_a_taken_port_is_one_sentence(port: Port, certificates: Certificates) -> None:
    tls = certificates.server_context()
    echo, lobby = asyncio.Protocol, Admission(print)
    other = Listener(who="namespace 'other'", amqp=echo, http=echo, tls=tls, faults=port.board, admission=lobby)
    with pytest.raises(ListenError, match=rf"'other' cannot listen on 127.0.0.1:{port.number} \(Address already"):
        await other.open(port=port.number)
    await other.close()


async def test_after_closing_nobody_listens(port: Port) -> None:
    await port.listener.close()
    with pytest.raises(ConnectionRefusedError):
        await connect(port)


@pytest.mark.parametrize("refused", [False, True])
async def test_the_port_is_free_after_closing(certificates: Certificates, refused: bool) -> None:
    """Also directly after opening, before the first turn of the loop, and while connections are refused."""
    board = FaultBoard("contoso", list)
    listener = Listener(
        who="namespace 'contoso'",
        amqp=Echo,
        http=Echo,
        tls=certificates.server_context(),
        faults=board,
        admission=Admission(print),
    )
    board.watch(listener.faults_changed)
    number = await listener.open()
    if refused:
        board.add("refused")
        await asyncio.sleep(0.05)
    await listener.close()
    with socket.socket() as another:  # without SO_REUSEADDR: a socket that only keeps the port is in its way too
        another.bind(("127.0.0.1", number))


async def test_no_other_address_is_bound(port: Port) -> None:
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.2", port.number)


def test_the_key_is_closed_to_others(certificates: Certificates) -> None:
    assert stat.S_IMODE(certificates.key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(certificates.key_file.parent.stat().st_mode) == 0o700
    assert not [path for path in certificates.key_file.parent.iterdir() if "ca" in path.name and path.suffix == ".key"]


@given(st.binary(min_size=8))
def test_eight_bytes_always_decide(data: bytes) -> None:
    assert detect_protocol(data) is not PeerProtocol.UNDECIDED


@given(st.sampled_from([HEADER, b"DELETE /q HTTP/1.1\r\n", b"\x00\x00"]), st.integers(1, 8))
def test_more_bytes_never_change_a_decision(data: bytes, size: int) -> None:
    early = detect_protocol(data[:size])
    assert early in (PeerProtocol.UNDECIDED, detect_protocol(data))


# Connections that prove nothing: few on each port, for a short time, and nobody else is kept out by them.


MOST = 10
WAIT = 60.0


@pytest.fixture
async def crowded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """A sandbox that bears few unproven connections on each port."""
    monkeypatch.setattr(admission, "MAX_STRANGERS", MOST)
    async with asyncio.timeout(2 * WAIT), Sandbox.start() as sandbox:
        yield sandbox


async def silent(
    port: int | None, count: int, opening: bytes = b""
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    made = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(opening)
        made.append((reader, writer))
    return made


async def has_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the connection has_ended without a word; fails by a time-out if it did not end."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT) == b""
    except ConnectionResetError:
        return True


def amqp_port(sandbox: Sandbox) -> int | None:
    return sandbox["primary"].amqp_port


def arm_port(sandbox: Sandbox) -> int | None:
    return URL(sandbox.arm_url).port


def control_port(sandbox: Sandbox) -> int | None:
    return URL(sandbox.control_url).port


@pytest.mark.parametrize("opening", [b"", b"AMQP\x03\x01\x00\x00", b"\x16\x03\x01\x02\x00"])
@pytest.mark.parametrize("port", [amqp_port, arm_port, control_port])
async def test_idle_connections_keep_no_client_out(
    crowded: Sandbox, port: Callable[[Sandbox], int | None], opening: bytes
) -> None:
    """The bug: each idle connection was kept, as many as there were descriptors."""
    idle = await silent(port(crowded), 3 * MOST, opening)
    tls = ssl.create_default_context(cafile=crowded.ca_file)
    async with aiohttp.ClientSession() as session:
        for url in (crowded.control_url + "/state", crowded["primary"].admin_url, crowded.arm_url):
            async with session.get(url, ssl=tls) as answer:
                assert answer.status in (200, 401)
    await asyncio.gather(*(has_ended(reader) for reader, _ in idle[:MOST]))
    for _, writer in idle:
        writer.transport.abort()


async def test_idle_connections_keep_no_sender_out(crowded: Sandbox) -> None:
    idle = await silent(amqp_port(crowded), 3 * MOST, b"AMQP\x03\x01\x00\x00")
    text = crowded["primary"].connection_string
    async with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        idle += await silent(amqp_port(crowded), 3 * MOST)
        await sender.send_messages(ServiceBusMessage("y"))
    assert crowded["primary"].node.namespace.queue("orders").counts().active == 2
    for _, writer in idle:
        writer.transport.abort()


async def test_the_memory_of_a_crowd_goes_back_once_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = asyncio.Event()
    monkeypatch.setattr(admission, "SCARCE_SECONDS", 0.0)
    monkeypatch.setattr(admission, "return_free_memory", returned.set)
    lobby = admission.Admission(print)
    stays = [lobby.enter(lambda: None) for _ in range(admission.CROWD)]
    for stay in stays[: 3 * admission.CROWD // 4]:
        stay.leave()
    await asyncio.sleep(0)
    assert not returned.is_set()
    stays[-1].leave()
    async with asyncio.timeout(WAIT):
        await returned.wait()


@pytest.mark.parametrize("opening", [b"", b"GET /state HTTP/1.1\r\nHost: x\r\n"])
async def test_a_request_that_trickles_is_given_up(
    opening: bytes,
) -> None:
    port = NeverAnswering("a port", log=logging.getLogger(__name__), patience=0.15)
    number = await port.listen("127.0.0.1")
    try:
        ((reader, writer),) = await silent(number, 1, opening)
        waiting = asyncio.ensure_future(has_ended(reader))
        while opening and not waiting.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert await waiting
        writer.close()
    finally:
        await port.close()


class NeverAnswering(http_server.HttpPort):
    async def _serve(self, request: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        raise AssertionError("no request was whole")


async def test_without_descriptors_nothing_spins_and_the_log_has_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admission, "SCARCE_SECONDS", 0.05)
    loop, tried = asyncio.get_running_loop(), []

    async def refused(server: socket.socket) -> object:
        tried.append(loop.time())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(loop, "sock_accept", refused)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await Admission(log_once("a port", logging.getLogger("x"))).accept(server)
    assert 2 <= len(tried) <= 7
    assert [record.message for record in caplog.records] == [
        "a port cannot accept a connection: Too many open files (logged once)"
    ]


async def test_the_last_descriptors_are_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unproven connection gives way; where there is none, the new one is not kept."""
    monkeypatch.setattr(admission, "RESERVED_DESCRIPTORS", 10**9)
    assert is_scarce(3)
    waiting, dropped = Admission(log_once("a port", logging.getLogger("x"))), []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        waiting.enter(lambda: dropped.append(1))
        first, _ = await asyncio.open_connection(*server.getsockname())
        (await waiting.accept(server)).close()
        assert dropped == [1]
        second, writer = await asyncio.open_connection(*server.getsockname())
        accepting = asyncio.ensure_future(waiting.accept(server))
        assert await has_ended(second)
        accepting.cancel()
        writer.close()
    assert await has_ended(first)


# One port, every way there: AMQP over TLS and over WebSocket, by address and by the namespace's real name.


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("primary.servicebus.windows.net", ssl.TLSVersion.TLSv1_2, None),
        ("", ssl.TLSVersion.TLSv1_3, None),
        ("other.invalid", ssl.TLSVersion.TLSv1_3, "SSLCertVerificationError"),
        ("primary.servicebus.windows.net", ssl.TLSVersion.TLSv1_1, "SSLError ConnectionResetError"),
    ],
    ids=["the real name", "no name", "a foreign name", "an old version"],
)
async def test_tls_by_name_without_one_and_of_old_versions(
    sandbox: Sandbox, name: str, version: ssl.TLSVersion, error: str | None
) -> None:
    port, tls = sandbox["primary"].amqp_port, ssl.create_default_context(cafile=sandbox.ca_file)
    tls.check_hostname = bool(name)
    tls.minimum_version = tls.maximum_version = version
    tls.set_ciphers("ALL:@SECLEVEL=0")
    found = None
    async with asyncio.timeout(SOON):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
            writer.close()
        except (ssl.SSLError, ConnectionResetError) as raised:
            found = type(raised).__name__
        assert found == error or (found or "-") in (error or "")
        connection = sandbox["primary"].connection_string
        async with ServiceBusClient.from_connection_string(connection) as client:
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("others are served"))


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

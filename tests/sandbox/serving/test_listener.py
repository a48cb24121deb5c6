"""One port: what speaks AMQP, TLS or HTTP gets its protocol, and whatever else comes harms nobody."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.conftest import IMPATIENT, Echo

from servicebus_amqp.server.admission import Admission
from servicebus_amqp.server.client_protocol import PeerProtocol, detect_protocol
from servicebus_sandbox.faults import FaultBoard
from servicebus_sandbox.serving.listener import Listener, ListenError

if TYPE_CHECKING:
    from tests.sandbox.conftest import Port

    from servicebus_sandbox.serving.certificates import Certificates

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
        namespace="contoso",
        amqp=amqp,
        https=Echo,
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


async def test_https_reaches_management(port: Port) -> None:
    request = b"GET /$namespaceinfo HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert await answer_to(port, request, tls=port.client_tls(), size=12) == b"HTTP/1.1 401"


async def test_plain_http_is_told_to_use_https(port: Port) -> None:
    reader, writer = await connect(port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await ended(reader)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"https://" in answer
    writer.close()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("garbage", [b"\x00\xff\x00\xff", b"AMQX\x00\x01\x00\x00", b"GETX", b"SSH-2.0-x\r\n"])
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
    with caplog.at_level(logging.WARNING, "servicebus_sandbox"):
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
    other = Listener(namespace="other", amqp=echo, https=echo, tls=tls, faults=port.board, admission=lobby)
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
        namespace="contoso",
        amqp=Echo,
        https=Echo,
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

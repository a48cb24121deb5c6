"""Connections that prove nothing: few on each port, for a short time, and nobody else is kept out by them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from yarl import URL

from servicebus_amqp.server import admission
from servicebus_amqp.server.admission import Admission, is_scarce, log_once
from servicebus_sandbox import Sandbox
from servicebus_sandbox.serving import http_server

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


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the connection ended without a word; fails by a time-out if it did not end."""
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
    await asyncio.gather(*(ended(reader) for reader, _ in idle[:MOST]))
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


@pytest.mark.parametrize("opening", [b"", b"GET /state HTTP/1.1\r\nHost: x\r\n"])
async def test_a_request_that_trickles_is_given_up(
    opening: bytes,
) -> None:
    port = http_server.HttpPort("a port", never, log=logging.getLogger(__name__), patience=0.15)
    number = port.open("127.0.0.1")
    try:
        ((reader, writer),) = await silent(number, 1, opening)
        waiting = asyncio.ensure_future(ended(reader))
        while opening and not waiting.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert await waiting
        writer.close()
    finally:
        await port.close()


async def never(_: object) -> aiohttp.web.StreamResponse:
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
        assert await ended(second)
        accepting.cancel()
        writer.close()
    assert await ended(first)

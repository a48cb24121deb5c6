"""A long read beside clients: handled in turns, in order, and whole when the connection ends; and WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from servicebus_amqp.transport import PIECE, Pieces, WebSocketTransport, count_clients

LONG = bytes(range(256)) * (5 * PIECE // 512)
"""Two pieces and a half."""


class Reader:
    """Notes what happens to it, in order."""

    def __init__(self) -> None:
        self.notes: list[bytes | str] = []
        self.pieces = Pieces(
            self.notes.append, pause=lambda: self.notes.append("pause"), resume=lambda: self.notes.append("resume")
        )

    @property
    def handled(self) -> list[bytes]:
        return [note for note in self.notes if isinstance(note, bytes)]


@pytest.fixture
async def client() -> AsyncIterator[None]:
    count_clients(1)
    yield
    count_clients(-1)


async def test_a_loop_without_clients_handles_a_read_together() -> None:
    count_clients(1)
    count_clients(-1)
    reader = Reader()
    reader.pieces.feed(LONG)
    assert reader.notes == [LONG]


@pytest.mark.usefixtures("client")
async def test_a_reader_that_is_held_is_not_read_when_its_pieces_end() -> None:
    reader = Reader()
    reader.pieces.hold(True)
    reader.pieces.feed(LONG)
    while len(reader.handled) < 3:
        await asyncio.sleep(0)
    assert "resume" not in reader.notes
    reader.pieces.hold(False)
    assert reader.notes[-1] == "resume"


@pytest.mark.usefixtures("client")
async def test_others_have_a_turn_between_two_pieces_and_nothing_is_read_meanwhile() -> None:
    reader = Reader()
    reader.pieces.feed(LONG)
    asyncio.get_running_loop().call_soon(reader.notes.append, "another")
    while len(reader.handled) < 3:
        await asyncio.sleep(0)
    assert [note if isinstance(note, str) else len(note) for note in reader.notes] == [
        "pause", PIECE, PIECE, "another", "resume", PIECE // 2,
    ]  # fmt: skip
    assert b"".join(reader.handled) == LONG


@pytest.mark.usefixtures("client")
async def test_a_short_read_is_handled_now_and_one_after_a_long_one_after_it() -> None:
    reader = Reader()
    reader.pieces.feed(b"short")
    assert reader.notes == [b"short"]
    reader.pieces.feed(LONG)
    reader.pieces.feed(b"late")
    while reader.notes[-1] != "resume" and "resume" not in reader.notes:
        await asyncio.sleep(0)
    assert b"".join(reader.handled) == b"short" + LONG + b"late"


@pytest.mark.usefixtures("client")
async def test_what_a_lost_connection_brought_is_handled_once() -> None:
    """A message that a client handed over before it vanished is still sent."""
    reader = Reader()
    reader.pieces.feed(LONG)
    reader.pieces.finish()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"".join(reader.handled) == LONG


class Messages:
    """A WebSocket as far as it is read: `received` counts the messages that were taken."""

    def __init__(self) -> None:
        self.received = 0

    async def receive(self) -> aiohttp.WSMessage:
        await asyncio.sleep(0)
        self.received += 1
        kind = aiohttp.WSMsgType.BINARY if self.received <= 3 else aiohttp.WSMsgType.CLOSED
        return aiohttp.WSMessage(kind, b"x", None)


async def test_a_websocket_is_not_read_while_reading_is_paused() -> None:
    socket: Any = Messages()
    taken: list[bytes] = []
    protocol: Any = SimpleNamespace()
    transport = WebSocketTransport(socket, protocol, lambda: None)

    def take(data: bytes) -> None:
        taken.append(data)
        transport.pause_reading()

    protocol.data_received = take
    reading = asyncio.ensure_future(transport._read_all())
    for number in (1, 2, 3):
        for _ in range(10):
            await asyncio.sleep(0)
        assert (len(taken), socket.received) == (number, number)
        transport.resume_reading()
    await reading


class Broken:
    """A WebSocket that ends with an error, and notes what is sent and closed."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.ended = asyncio.Event()

    async def receive(self) -> aiohttp.WSMessage:
        await self.ended.wait()
        raise OSError("reset")

    async def send_bytes(self, data: bytes) -> None:
        self.notes.append(data)
        if len(self.notes) == 3:
            raise OSError("reset")

    async def close(self, *, code: int = 1000, message: bytes = b"") -> None:
        self.notes.append(code)


class Protocol(asyncio.Protocol):
    """Notes what its transport tells it."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def pause_writing(self) -> None:
        self.notes.append("pause")

    def resume_writing(self) -> None:
        self.notes.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.notes.append("lost")
        self.lost.set_result(exc)


async def test_a_broken_websocket_is_released_before_its_protocol_hears_of_the_loss_once() -> None:
    socket = Broken()
    protocol = Protocol(socket.notes)

    async def release() -> None:
        socket.notes.append("released")

    transport = WebSocketTransport(socket, protocol, lambda: None, release=release)
    running = asyncio.create_task(transport.run())
    transport.set_write_buffer_limits(high=2, low=1)
    transport.write(b"one")
    await asyncio.sleep(0)
    socket.ended.set()
    assert isinstance(await protocol.lost, OSError)
    await running
    transport.abort()
    assert socket.notes == ["pause", b"one", "resume", "released", "lost"]


async def test_a_websocket_that_cannot_be_written_is_cut_once() -> None:
    socket = Broken()
    protocol = Protocol(socket.notes)
    cuts: list[int] = []

    def cut() -> None:
        cuts.append(1)
        socket.ended.set()

    transport = WebSocketTransport(socket, protocol, cut)
    running = asyncio.create_task(transport.run())
    for number in range(3):
        transport.write(bytes((number,)))
        while len(socket.notes) <= number:
            await asyncio.sleep(0)
    await running
    transport.abort()
    assert cuts == [1]
    assert transport.is_closing()


async def test_a_closed_websocket_writes_the_rest_and_says_goodbye() -> None:
    socket = Broken()
    transport = WebSocketTransport(socket, Protocol(socket.notes), socket.ended.set)
    running = asyncio.create_task(transport.run())
    transport.write(b"last")
    transport.close()
    while 1000 not in socket.notes:
        await asyncio.sleep(0)
    transport.write(b"never")
    transport.abort()
    await running
    assert socket.notes[:2] == [b"last", 1000]

"""The door of the engine's servers: strangers are few, and a process that is short of descriptors stays calm."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paired_servicebus.engine.control import acceptor
from paired_servicebus.engine.control.acceptor import AcceptedConnection, ConnectionAcceptor

WAIT = 60.0
REFUSAL = b"too many\n"


async def echo_a_line(caller: AcceptedConnection) -> None:
    line = await caller.reader.readuntil(b"\n")
    caller.known()
    caller.writer.write(line)
    await caller.reader.read()


@asynccontextmanager
async def opened() -> AsyncIterator[int]:
    """A door on a port."""
    made = ConnectionAcceptor("a server", echo_a_line, limit=1000, refusal=REFUSAL)
    listening = socket.create_server(("127.0.0.1", 0), backlog=acceptor.BACKLOG)
    port = listening.getsockname()[1]
    made.open(listening)
    try:
        async with asyncio.timeout(WAIT):
            yield port
    finally:
        await made.close()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def test_strangers_are_few_and_who_speaks_gets_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "MAX_PENDING_CONNECTIONS", 5)
    async with opened() as port:
        silent = [await connected(port) for _ in range(12)]
        for reader, _ in silent[:7]:
            assert await reader.read() == REFUSAL
        reader, writer = await connected(port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        silent += [await connected(port) for _ in range(12)]
        await silent[-6][0].read()
        writer.write_eof()
        assert await reader.read() == b"", "who has spoken stays, however many more come"
        for _, other in (*silent, (reader, writer)):
            other.transport.abort()
    assert [record.message for record in caplog.records] == [
        "a server turns connections away: more than 5 have asked for nothing"
    ]


async def test_a_process_without_descriptors_neither_spins_nor_fills_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bug: each attempt that failed was followed by the next at once, and by a line of the log."""
    monkeypatch.setattr(acceptor, "NO_DESCRIPTOR_PAUSE", 0.05)
    loop, tried = asyncio.get_running_loop(), []
    accept = loop.sock_accept

    async def refused(listening: socket.socket) -> tuple[socket.socket, object]:
        tried.append(loop.time())
        if len(tried) <= 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", refused)
    with caplog.at_level(logging.WARNING):
        async with opened() as port:
            reader, writer = await connected(port)
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            writer.transport.abort()
    assert tried[4] - tried[0] >= 4 * 0.05 * 0.9
    assert [record.message for record in caplog.records] == ["a server cannot accept a connection: Too many open files"]


async def test_without_descriptors_strangers_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "NO_DESCRIPTOR_PAUSE", 2 * WAIT)
    loop, failing = asyncio.get_running_loop(), asyncio.Event()
    accept = loop.sock_accept

    async def refused(listening: socket.socket) -> tuple[socket.socket, object]:
        if failing.is_set():
            failing.clear()
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", refused)
    async with opened() as port:
        silent, _ = await connected(port)
        failing.set()
        reader, writer = await connected(port)  # the accept under way takes this one, the next one fails
        assert await silent.read() == REFUSAL
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.transport.abort()

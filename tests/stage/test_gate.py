"""The gate cuts off and forwards again; without it, the plays with cut-off engines would prove nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.stage.gate import Gate

SOON = 60.0


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_stalled_bytes_arrive_when_it_opens(echo: int) -> None:
    async with asyncio.timeout(SOON), Gate(echo) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        gate.stall()
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(1), 0.2)
        gate.open()
        assert await reader.readexactly(1) == b"b"
        writer.close()


async def test_a_refusing_gate_resets_connections_old_and_new(echo: int) -> None:
    async with asyncio.timeout(SOON), Gate(echo) as gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        gate.refuse()
        assert await _ends(reader)
        again, _ = await asyncio.open_connection("127.0.0.1", gate.port)
        assert await _ends(again)
        gate.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
        writer.write(b"c")
        assert await reader.readexactly(1) == b"c"
        writer.close()


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def test_connections_are_counted_as_clients_open_and_close_them(echo: int) -> None:
    async with asyncio.timeout(SOON), Gate(echo) as gate:
        writers = [(await asyncio.open_connection("127.0.0.1", gate.port))[1] for _ in range(2)]
        while gate.opened < 2:
            await asyncio.sleep(0.01)
        assert gate.closed == 0
        writers[0].close()
        while not gate.closed:
            await asyncio.sleep(0.01)
        assert (gate.opened, gate.closed) == (2, 1)
        writers[1].close()

"""The network between one host and the namespaces: a TCP forwarder that can be cut and mended.

While it is cut, no byte passes in either direction and no connection is closed, as in a partition. Bytes that were
under way arrive after it is mended, as TCP's retransmissions do.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

CHUNK: Final = 64 * 1024
CONNECT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 5.0
LOOPBACK: Final = "127.0.0.1"


class NetworkLink:
    """An asynchronous context manager; `forward` opens a way to a port of this machine."""

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._whole.set()
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        for task in self._tasks:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forward(self, port: int) -> int:
        """Return a new port that leads to `port`. Raises OSError."""
        server = await asyncio.start_server(partial(self._accept, port), LOOPBACK, 0)
        self._stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Hold back every byte, also of new connections."""
        self._whole.clear()

    def mend(self) -> None:
        """Let the bytes pass again."""
        self._whole.set()

    def _accept(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(port, reader, writer), name=f"a connection to port {port}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._connect(port, reader, writer)
        finally:
            writer.transport.abort()

    async def _connect(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
        except (OSError, TimeoutError):
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, far_writer))
                group.create_task(self._copy(far_reader, writer))
        finally:
            far_writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
            await self._whole.wait()
        with suppress(OSError, RuntimeError):  # RuntimeError: it is closed already
            writer.write_eof()

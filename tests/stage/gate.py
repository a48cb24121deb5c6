"""A TCP proxy in front of a namespace, one for each engine, so that any engine can be cut off alone.

As a process, it forwards a port of a network namespace to a socket of the file system, which all of them share.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Final, Self

CHUNK: Final = 65536


class Gate:
    """Forwards connections to a port of this machine.

    `stall` holds back all bytes and ends no connection, as a lost route does. `refuse` resets every connection. `open`
    ends both: held bytes are forwarded.

    delay: seconds that each chunk takes. opened, closed: connections of clients.
    """

    def __init__(self, target: int) -> None:
        self.delay = 0.0
        self.opened = self.closed = 0
        self._target = target
        self._passes = asyncio.Event()
        self._passes.set()
        self._refuses = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *reason: object) -> None:
        assert self._server is not None
        self._server.close()
        self._abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stall(self) -> None:
        """Hold back all bytes."""
        self._passes.clear()

    def refuse(self) -> None:
        """Reset all connections, also new ones."""
        self._refuses = True
        self._abort()

    def open(self) -> None:
        """Forward again."""
        self._refuses = False
        self._passes.set()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            await self._forward(reader, writer)
        finally:
            self.closed += 1

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            await self._passes.wait()
            upstream, sink = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(sink)
        try:
            await asyncio.gather(self._copy(reader, sink), self._copy(upstream, writer))
        finally:
            self._writers -= {writer, sink}

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._passes.wait()
                sink.write(data)
                await sink.drain()
        if not sink.transport.is_closing():
            with suppress(OSError):
                sink.write_eof()


async def join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: asyncio.StreamReader, sink: asyncio.StreamWriter
) -> None:
    """Forward between two connections until both have ended."""
    await asyncio.gather(_copy(reader, sink), _copy(other, writer))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    sink.close()


async def main(port: int, socket: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await join(reader, writer, *await asyncio.open_unix_connection(socket))

    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        print("ready", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))

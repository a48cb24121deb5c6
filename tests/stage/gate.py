"""A TCP proxy in front of a namespace, one for each engine, so that any engine can be cut off alone.

As a process, it forwards a port of a network namespace to a socket of the file system, which all of them share.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Final, Self

from paired_servicebus.demo.fleet_player import NetworkLink

CHUNK: Final = 65536


class Gate(NetworkLink):
    """Forwards connections to a port of this machine.

    `stall` holds back all bytes and ends no connection, as a lost route does. `refuse` resets every connection. `open`
    ends both: held bytes are forwarded.

    delay: seconds that each chunk takes. opened, closed: connections of clients.
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.delay = 0.0
        self.opened = self.closed = 0
        self.port = 0
        self._target = target
        self._refuses = False
        self._clients: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self.port = await self.forward(self._target)
        return self

    stall = NetworkLink.cut

    def refuse(self) -> None:
        """Reset all connections, also new ones."""
        self._refuses = True
        for client in self._clients:
            client.transport.abort()

    def open(self) -> None:
        """Forward again."""
        self._refuses = False
        self.mend()

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._clients.add(writer)
        try:
            if self._refuses:
                writer.transport.abort()
            else:
                await super()._serve(port, reader, writer)
        finally:
            self.closed += 1
            self._clients.discard(writer)

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await super()._pass(writer, data)


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

"""Consoles that hang on an engine while it is measured, in a process of their own: all read, or all but one.

    python -m tests.bench.console_processes SOCKET COUNT [stalled]

Says a line when all of them are attached, and leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from tests.bench.child_process import child

STALLED: Final = "stalled"


@contextlib.asynccontextmanager
async def consoles(socket: Path, count: int, *, stalled: bool) -> AsyncIterator[None]:
    """So many are attached; `stalled`: one of them reads nothing.

    Raises:
        BenchError: they could not be attached.
    """
    if not count:
        yield
        return
    words = [str(socket), str(count), *([STALLED] if stalled else [])]
    async with child("tests.bench.console_processes", *words):
        yield


async def _attached(socket: Path, count: int, *, stalled: bool) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if stalled:
            _, writer = await asyncio.open_unix_connection(socket, limit=1)  # its buffer is full after two bytes
            stack.callback(writer.transport.abort)
            writer.write(protocol.encode(protocol.Hello()))
        for _ in range(count - stalled):
            client = await ControlClient.connect(socket)
            stack.push_async_callback(client.close)
            reading = asyncio.create_task(_read(client))
            stack.callback(reading.cancel)
        sys.stdout.write("attached\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


async def _read(client: ControlClient) -> None:
    async for _ in client.updates():
        pass


if __name__ == "__main__":
    asyncio.run(_attached(Path(sys.argv[1]), int(sys.argv[2]), stalled=STALLED in sys.argv[3:]))

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

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.interpreter import python_command
from tests.bench.child_environment import child_environment

START: Final = 30.0
STOP: Final = 10.0
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
    process = await asyncio.create_subprocess_exec(
        *python_command("tests.bench.console_processes", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START):
            if not await process.stdout.readline():
                raise BenchError(f"{count} consoles could not be attached to {socket}")
        yield
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP)
        except TimeoutError:
            process.kill()
            await process.wait()


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

"""A client in a child process that floods a queue until its standard input ends, and reports its count.

It has a process of its own so that its loop does not delay the measured round trips.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.bench.amqp_loads import SampleMessages, flooding, open_wire
from paired_servicebus.bench.bench_plans import BenchError
from tests.bench.child_process import STOP, child

_FLOODS = b"floods\n"
_BYTES_AT_ONCE: Final = 5_000_000
"""Bytes sent between two looks at standard input."""


class _Order(msgspec.Struct, frozen=True):
    connection_string: str
    queue: str
    size: int


class Flooded(msgspec.Struct, frozen=True):
    """Result of a flood: accepted messages and their seconds."""

    messages: int
    seconds: float


class Flooder:
    """Handle of the child process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def stop(self) -> Flooded:
        """End the flood. Raises BenchError if it failed."""
        output, _ = await asyncio.wait_for(self._process.communicate(b""), STOP)
        try:
            return msgspec.json.decode(output, type=Flooded)
        except msgspec.DecodeError as error:
            raise BenchError("the flood beside the round trips failed; its reason is above") from error


@asynccontextmanager
async def flooder(connection_string: str, queue: str, size: int) -> AsyncIterator[Flooder]:
    """Start a flood of messages with bodies of `size` bytes. Raises BenchError."""
    order = msgspec.json.encode(_Order(connection_string, queue, size)) + b"\n"
    async with child(__name__, order=order) as flooding_child:
        yield Flooder(flooding_child.process)


async def _flood(order: _Order, stop: asyncio.StreamReader) -> Flooded:
    letters = SampleMessages(order.size)
    count = max(1, _BYTES_AT_ONCE // letters.size)
    client = ServiceBusClient.from_connection_string(order.connection_string)
    async with open_wire(client) as wire, flooding(wire, order.queue, letters) as flood:
        end = asyncio.create_task(stop.read())
        sent, began = 0, time.perf_counter()
        try:
            while not end.done():
                await flood.run(count)
                sent += count
                if sent == count:
                    sys.stdout.buffer.write(_FLOODS)
                    sys.stdout.buffer.flush()
            return Flooded(sent, time.perf_counter() - began)
        finally:
            end.cancel()


async def _main() -> None:
    stop = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stop), sys.stdin)
    order = msgspec.json.decode(await stop.readline(), type=_Order)
    sys.stdout.buffer.write(msgspec.json.encode(await _flood(order, stop)))


if __name__ == "__main__":
    asyncio.run(_main())

"""An application with an engine, as a process of its own: `python -m tests.fleet_processes.engine`.

The first line of its input is its task. Its very first act after pairing is a send to `payments`, named after its boot.
It writes a line for each change of the state of `payments`. The word `park` has it send until `rest`; `stop` and the
input's end end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
from azure.servicebus import ServiceBusMessage

from paired_servicebus import Fleet, Namespace, PairedServiceBusClient, pair_namespaces
from paired_servicebus.engine.fleet.fleet_part import FleetPart
from tests.fleet_processes.setting import ENTITY

BATCH: Final = 50
"""Messages that are sent together while it parks: many credits, and little work for this machine."""
POLL: Final = 0.03
"""Seconds between two looks at the own states."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is. operators: empty: it takes no part in the fleet."""

    name: str
    boot: int
    primary: str
    secondary: str
    ca_file: str
    operators: str = ""
    each: float = 1.0
    """Seconds between two batches while it parks."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the process writes: one of the fields, and the time."""

    at: float
    takes_up: bool = False
    """The pairing is made, and the engine begins to take up what stands."""
    greeted: str = ""
    """The outcome of the first send."""
    state: str = ""


def greeting(name: str, boot: int) -> str:
    """Return the message id of a boot's first send."""
    return f"<{name}.{boot}>"  # the end keeps boot 1 apart from boot 10


def write(**fields: bool | str) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(Line(at=time.time(), **fields)) + b"\n")  # type: ignore[arg-type]
    sys.stdout.buffer.flush()


async def live(task: Task, words: AsyncIterator[str]) -> None:
    def namespace(connection_string: str) -> Namespace:
        return Namespace.from_connection_string(connection_string, options={"connection_verify": task.ca_file})

    fleet = Fleet(name=task.name, operators=Path(task.operators)) if task.operators else None
    opening = pair_namespaces(
        namespace(task.primary), namespace(task.secondary), control=task.name, primary_name="primary",
        backlog_queue_count=1, fleet=fleet,
    )  # fmt: skip
    async with opening as paired, asyncio.TaskGroup() as group:
        watching = group.create_task(watch(paired))
        await greet(paired, task)
        sending: list[asyncio.Task[None]] = []
        async for word in words:
            if word == "park":
                sending = [group.create_task(park(paired, task.each))]
            elif word == "stop":
                break
            else:
                for one in sending:
                    one.cancel()
        for one in (*sending, watching):
            one.cancel()


def tell_take_up() -> None:
    """Write a line when the engine begins to take up what stands."""
    take_up = FleetPart.take_up

    async def told(self: FleetPart) -> None:
        write(takes_up=True)
        await take_up(self)

    FleetPart.take_up = told  # type: ignore[method-assign]


async def greet(paired: PairedServiceBusClient, task: Task) -> None:
    async with paired.get_queue_sender(ENTITY) as sender:
        try:
            await sender.send_messages(ServiceBusMessage(b"x", message_id=greeting(task.name, task.boot)))
        except Exception as error:
            write(greeted=f"{type(error).__name__}: {error}"[:200])
        else:
            write(greeted="accepted")


async def watch(paired: PairedServiceBusClient) -> None:
    written = ""
    while True:
        state = next((str(view.state) for view in paired.entity_views() if view.path == ENTITY), "")
        if state and state != written:
            written = state
            write(state=state)
        await asyncio.sleep(POLL)


async def park(paired: PairedServiceBusClient, each: float) -> None:
    """Send one batch after the other; refused ones are given up."""
    loop = asyncio.get_running_loop()
    batch = [ServiceBusMessage(b"x") for _ in range(BATCH)]
    async with paired.get_queue_sender(ENTITY) as sender:
        while True:
            end = loop.time() + each
            with contextlib.suppress(Exception):
                await sender.send_messages(batch)
            await asyncio.sleep(max(0.0, end - loop.time()))


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    task = msgspec.json.decode(await reader.readline(), type=Task)

    async def words() -> AsyncIterator[str]:
        while line := await reader.readline():
            yield line.decode().strip()

    tell_take_up()
    await live(task, words())


if __name__ == "__main__":
    asyncio.run(main())

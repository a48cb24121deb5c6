"""A process that receives from the primary namespace as any application does, and keeps its list.

It lists a message before it completes it. After any error it opens a new receiver. The first line of its input is its
task; the input's end ends it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from tests.stage.course import SESSIONS, TOPIC
from tests.stage.ledger import Arrived, FactFile, Mark, now
from tests.stage.letters import SESSION_IDS, changes

SUBSCRIPTION: Final = "all"
PATIENCE: Final = 5.0
"""Seconds for a receiver to open, to get messages, to settle one, to close."""
QUIET: Final = 6
"""Rounds without a message after which a new receiver is opened: a silent connection looks like an empty queue."""
AGAIN: Final = 0.25
RENEW_BEFORE: Final = timedelta(seconds=5)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Where it receives."""

    life: str
    folder: str
    primary: str
    entities: tuple[str, ...]


async def main() -> None:
    """Receive until standard input ends."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    client = ServiceBusClient.from_connection_string(task.primary, retry_total=0)
    arrivals = FactFile(Path(task.folder), task.life)
    working = [
        asyncio.create_task(_receive(entity, of, arrivals))
        for entity in task.entities
        for of in _receivers(client, entity)
    ]
    arrivals.write(Mark(at=now(), who=task.life, text="ready"))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    assert not any(task.done() for task in working), "receivers go on until here"
    os._exit(0)  # all is listed, and the SDK needs long to close broken links


def _receivers(client: ServiceBusClient, entity: str) -> list[Callable[[], ServiceBusReceiver]]:
    if entity == TOPIC:
        return [lambda: client.get_subscription_receiver(TOPIC, SUBSCRIPTION)]
    if entity == SESSIONS:
        return [partial(client.get_queue_receiver, SESSIONS, session_id=session) for session in SESSION_IDS]
    return [lambda: client.get_queue_receiver(entity)]


async def _receive(entity: str, of: Callable[[], ServiceBusReceiver], arrivals: FactFile) -> None:
    while True:
        receiver = of()
        with suppress(Exception):  # a namespace in chaos: whatever it was, the next receiver starts afresh
            async with asyncio.timeout(PATIENCE):
                await receiver.__aenter__()
            await _receive_with(receiver, entity, arrivals)
        with suppress(Exception):
            async with asyncio.timeout(PATIENCE):
                await receiver.close()
        await asyncio.sleep(AGAIN)


async def _receive_with(receiver: ServiceBusReceiver, entity: str, arrivals: FactFile) -> None:
    quiet = 0
    while quiet < QUIET:
        async with asyncio.timeout(PATIENCE):
            await _keep_session(receiver)
            received = await receiver.receive_messages(50, max_wait_time=0.5)
        for message in received:
            number = message.sequence_number or 0
            changed = changes(entity, message)
            arrivals.write(Arrived(at=now(), entity=entity, id=str(message.message_id), number=number, changed=changed))
        for message in received:
            async with asyncio.timeout(PATIENCE):
                await receiver.complete_message(message)
        quiet = 0 if received else quiet + 1


async def _keep_session(receiver: ServiceBusReceiver) -> None:
    until = receiver.session.locked_until_utc if receiver.session is not None else None
    if until is not None and until - datetime.now(UTC) < RENEW_BEFORE:
        await receiver.session.renew_lock()


if __name__ == "__main__":
    asyncio.run(main())

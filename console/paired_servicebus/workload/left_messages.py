"""The messages that remain in backlog queues at the end of a run, read without the pairing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

PEEK_TIMEOUT: Final = 10.0


async def peek_ids(client: ServiceBusClient, queues: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the ids of the messages in queues, and in their dead-letter queues. Raises the SDK's errors."""
    dead_letters = ServiceBusSubQueue.DEAD_LETTER
    found = await asyncio.gather(
        *(_peeked(client.get_queue_receiver(path)) for path in queues),
        *(_peeked(client.get_queue_receiver(path, sub_queue=dead_letters)) for path in queues),
    )
    return set().union(*found[: len(queues)]), set().union(*found[len(queues) :])


async def _peeked(receiver: ServiceBusReceiver) -> set[str]:
    """Return the ids of every message in a queue, in any state."""
    ids: set[str] = set()
    number = 1
    async with asyncio.timeout(PEEK_TIMEOUT), receiver:
        while True:
            messages = await receiver.peek_messages(250, sequence_number=number)
            for message in messages:
                ids.add(str(message.message_id))
                number = max(number, (message.sequence_number or 0) + 1)
            if not messages:
                return ids

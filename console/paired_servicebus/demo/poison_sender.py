"""A foreign program: it sends messages to backlog queues that no sender of a pairing would send."""

from __future__ import annotations

from collections.abc import Sequence

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.demo.scenario_model import MALFORMED
from paired_servicebus.pairing.management.backlog_queues import queue_path


async def poison(connection_string: str, primary: str, *, queues: Sequence[int], round_: int) -> list[str]:
    """Send one message of each kind, to one backlog queue after another (by index); the ids, all accepted.

    Raises:
        ServiceBusError: a queue does not take it; the demo's scripts leave the secondary alone then.
    """
    ids: list[str] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        for number, (name, properties) in enumerate(MALFORMED.items()):
            ids.append(f"stranger-{round_}-{name}")
            message = ServiceBusMessage(b"?", message_id=ids[-1], application_properties={**properties})
            async with client.get_queue_sender(queue_path(primary, queues[number % len(queues)])) as sender:
                await sender.send_messages(message)
    return ids

"""Real entities beside a drill, some called like its own, and everything in them, to be compared one by one."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from tests.stage.director import Director

RUN = "0123456789ab"
QUEUES = {
    "primary": (
        "web-shop", "x-paired-drill-orders", f"x-paired-drill-{RUN}", f"x-paired-drill-{RUN}/disabled",
        f"x-paired-drill-{RUN}/orders",
    ),
    "secondary": (
        "primary/x-servicebus-transfer/0", "x-paired-drill-orders/x-servicebus-transfer/0",
        f"x-paired-drill-{RUN}/x-servicebus-transfer/0", f"x-paired-drill-{RUN}/marker",
    ),
}  # fmt: skip
TOPIC, SUBSCRIPTION = f"x-paired-drill-{RUN}/untouched", "audit"
MESSAGES = 5


async def make_real(director: Director) -> None:
    """Make the entities, each with messages."""
    for side, paths in QUEUES.items():
        async with director.clients(side) as (client, admin):
            for path in paths:
                await admin.create_queue(path, user_metadata=f"{path} of the web shop")
                async with client.get_queue_sender(path) as sender:
                    await sender.send_messages([message(path, number) for number in range(MESSAGES)])
            if side == "primary":
                await admin.create_topic(TOPIC)
                await admin.create_subscription(TOPIC, SUBSCRIPTION)
                async with client.get_topic_sender(TOPIC) as sender:
                    await sender.send_messages([message(TOPIC, number) for number in range(MESSAGES)])


def message(path: str, number: int) -> ServiceBusMessage:
    return ServiceBusMessage(f"{path} {number}", message_id=f"{path}-{number}", application_properties={"n": number})


async def picture(director: Director) -> dict[str, Any]:
    """Every property of every real entity, and every message in it with its state and number of deliveries."""
    found: dict[str, Any] = {}
    for side, paths in QUEUES.items():
        async with director.clients(side) as (client, admin):
            for path in paths:
                found[f"{side} {path}"] = await _queue(admin, path)
                async with client.get_queue_receiver(path) as receiver:
                    found[f"{side} {path} messages"] = await _messages(receiver)
            if side == "primary":
                found[TOPIC] = _properties(await admin.get_topic(TOPIC))
                found[SUBSCRIPTION] = _properties(await admin.get_subscription(TOPIC, SUBSCRIPTION))
                async with client.get_subscription_receiver(TOPIC, SUBSCRIPTION) as receiver:
                    found[f"{SUBSCRIPTION} messages"] = await _messages(receiver)
    return found


async def _queue(admin: ServiceBusAdministrationClient, path: str) -> dict[str, Any]:
    counts = await admin.get_queue_runtime_properties(path)
    times = {"created": counts.created_at_utc, "updated": counts.updated_at_utc, "count": counts.total_message_count}
    return _properties(await admin.get_queue(path)) | times


def _properties(described: Any) -> dict[str, Any]:
    return {name: repr(value) for name, value in vars(described).items() if not name.startswith("_")}


async def _messages(receiver: Any) -> list[tuple[Any, ...]]:
    found = await receiver.peek_messages(100, sequence_number=1)
    return [
        (one.message_id, str(one), one.sequence_number, one.delivery_count, one.state, one.enqueued_time_utc)
        for one in found
    ]

"""Several callers on one paired sender, over real AMQP: nothing lost, doubled, or reordered within a caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from paired_servicebus.core.model.pairing_events import Diverted
from paired_servicebus.pairing import PairedSender

from .conftest import World

CALLERS, SENDS = 16, 50


def one(name: str) -> ServiceBusMessage:
    return ServiceBusMessage(b"x", message_id=name)


async def as_batch(sender: PairedSender, names: list[str]) -> ServiceBusMessageBatch:
    batch = await sender.create_message_batch()
    for name in names:
        batch.add_message(one(name))
    return batch


async def shaped(sender: PairedSender, caller: int, number: int) -> tuple[Any, list[str]]:
    """What the SDK's sender takes, one kind after the other, and the ids in it."""
    names = [f"{caller}-{number}-{index}" for index in range(3)]
    shapes: list[tuple[Any, list[str]]] = [
        (one(names[0]), names[:1]),
        ([one(name) for name in names], names),
        ({"body": b"x", "message_id": names[0]}, names[:1]),
        (AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": names[0]}), names[:1]),
        (await as_batch(sender, names), names),
    ]
    return shapes[number % len(shapes)]


@pytest.mark.parametrize("forced", [False, True], ids=["primary", "backlog"])
async def test_sixteen_callers_share_one_sender(world: World, forced: bool) -> None:
    """Several callers may share it: sustained concurrency breaks an SDK sender, not a paired one."""
    paired = await world.pair(backlog_queue_count=1, send_timeout=60.0)
    async with paired.get_queue_sender("orders") as sender:
        if forced:
            paired.force("orders", by="kim")
        sent: list[list[str]] = []

        async def caller(number: int) -> None:
            mine: list[str] = []
            sent.append(mine)
            for index in range(SENDS):
                shape, names = await shaped(sender, number, index)
                await sender.send_messages(shape)
                mine += names

        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    path = "primary/x-servicebus-transfer/0" if forced else "orders"
    found = world.ids_in(path, namespace="secondary" if forced else "primary")
    assert sorted(found) == sorted(name for mine in sent for name in mine)
    for mine in sent:
        prefix = mine[0].split("-", 1)[0] + "-"
        assert [name for name in found if name.startswith(prefix)] == mine
    if forced:
        assert sorted(event.message_id for event in world.told(Diverted)) == sorted(found)


async def test_a_cancelled_caller_leaves_the_others_alone(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1, send_timeout=30.0)
    paired.watch("orders")
    paired.force("orders", by="kim")
    async with paired.get_queue_sender("orders") as sender:
        tasks = [asyncio.create_task(sender.send_messages(one(str(number)))) for number in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::5]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    told = {str(number) for number, result in enumerate(found) if result is None}
    ids = world.ids_in("primary/x-servicebus-transfer/0", namespace="secondary")
    assert len(told) == 40
    assert told <= set(ids)
    assert len(ids) == len(set(ids))

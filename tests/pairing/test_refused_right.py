"""A backlog queue that refuses the right to send (SPEC.md section 7.1), beside queues that do not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import BacklogUnavailableError
from paired_servicebus.core.model.pairing_events import Diverted, QueuePulled, QueueRestored
from paired_servicebus.pairing import PairedServiceBusClient

from .backlogs import queue_path
from .conftest import World, until


async def diverted(world: World, count: int, **options: Any) -> PairedServiceBusClient:
    """A pairing whose sends of orders go to the first backlog queue in the rotation."""
    paired = await world.pair(failover_interval=0, backlog_queue_count=count, **options)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first one is picked
    paired.watch("orders")
    paired.force("orders", by="ada")
    return paired


async def test_it_is_pulled_another_is_tried_in_the_same_call_and_it_returns_after_a_probe(world: World) -> None:
    """Section 7.1: "A failed send takes that queue out of the rotation for every sender of the pairing, and a new one
    is selected. The same call goes on with it"; "a pulled queue returns after a probe succeeded"."""
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(0))
    heal = world.fault("unauthorized", namespace="secondary", entity=queue_path(0))
    paired = await diverted(world, 3)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        await sender.schedule_messages(ServiceBusMessage(b"x"), datetime.now(UTC))
    assert [event.queue for event in world.told(Diverted)] == [1, 1]
    assert [(event.queue, event.reason) for event in world.told(QueuePulled)] == [(0, "not authorized")]
    view = paired.queue_views()[0]
    assert (view.in_rotation, view.pulled_reason) == (False, "not authorized")
    heal()
    await until(lambda: world.told(QueueRestored))
    assert all(queue.in_rotation for queue in paired.queue_views())


async def test_where_all_refuse_the_caller_is_told_why_and_owns_the_message(world: World) -> None:
    """Section 7.1: "None left: BacklogUnavailableError, and the caller still owns the message"."""
    paired = await diverted(world, 2)
    world.fault("unauthorized", namespace="secondary")
    for queue in paired._standby.queues.values():
        queue.link.discard()  # else the fault cuts a link that is open, which is another failure
    async with paired.get_queue_sender("orders") as sender:
        with pytest.raises(BacklogUnavailableError, match=r"last: not authorized\. You still own it"):
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert {event.queue for event in world.told(QueuePulled)} == {0, 1}

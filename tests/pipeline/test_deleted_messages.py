"""Messages that are deleted from a namespace are found and named, by the receipts of a real pairing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import replace

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from paired_servicebus.core.model.pairing_events import EngineStopped, Event, QueueRead, Record
from paired_servicebus.pairing import PairedServiceBusClient
from servicebus_sandbox import Sandbox
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.pairing.conftest import World, until
from tests.pipeline.judged import judge, records_of
from tests.pipeline.test_audit import started

DAY = 24 * 3600.0
SLOWER = 20_000
"""A second of the test is more than five hours of the audit, whose limits are in minutes."""


def slowly(events: Iterable[Event], *, later: str = "") -> list[Record]:
    """The events as a slower world would have them, between an engine's start and its end.

    The message `later`, and all after it, comes two days later.
    """
    first, shift, found = None, 0.0, []
    for event in events:
        first = event.at if first is None else first
        shift = shift or (2 * DAY if later and getattr(event, "message_id", None) == later else 0.0)
        found.append(replace(event, at=first + (event.at - first) * SLOWER + shift))
    end = EngineStopped(at=found[-1].at + 3600, reason="done")
    return records_of([started(found[0].at), *found, end])


async def deleted(world: World, namespace: str, path: str, count: int) -> set[str]:
    """Take messages out of a queue behind the pairing's back; their ids."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with world.client(namespace) as client, client.get_queue_receiver(path, receive_mode=mode) as receiver:
        found = await receiver.receive_messages(count, max_wait_time=2)
    return {str(message.message_id) for message in found}


async def received(paired: PairedServiceBusClient, count: int) -> None:
    """Receive and complete as many messages, through the pairing."""
    async with paired.get_queue_receiver("orders") as receiver:
        while count > 0:
            for message in await receiver.receive_messages(count, max_wait_time=2):
                await receiver.complete_message(message)
                count -= 1


async def test_messages_deleted_from_the_primary_are_lost_and_named() -> None:
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            world = World(sandbox, stack)
            paired = await world.pair(journal="all", record_received=True)
            async with paired.get_queue_sender("orders") as sender:
                for number in range(10):
                    await sender.send_messages(ServiceBusMessage(b"x", message_id=f"m{number}"))
                gone = await deleted(world, "primary", "orders", 3)
                await received(paired, 7)
                await sender.send_messages(ServiceBusMessage(b"x", message_id="later"))
                await received(paired, 1)
    assert len(gone) == 3
    records = slowly(world.events, later="later")
    found = judge(records)
    assert {name for name, status in found.statuses().items() if status == "lost"} == gone
    assert (found.verdict()["lost"], found.verdict()["delivered"], found.verdict()["unknown"]) == (3, 8, 0)


async def test_messages_deleted_from_the_backlog_are_missing_and_named() -> None:
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            world = World(sandbox, stack)
            paired = await world.pair(journal="all", backlog_queue_count=1, enable_syphon=True)
            paired.pause_syphon(by="kim")
            paired.watch("orders")
            paired.force("orders", by="kim")
            async with paired.get_queue_sender("orders") as sender:
                for number in range(5):
                    await sender.send_messages(ServiceBusMessage(b"x", message_id=f"m{number}"))
            queue = "primary/x-servicebus-transfer/0"
            paired.looks.watch(1)
            await until(lambda: any(event.depth == 5 for event in world.told(QueueRead)))
            gone = await deleted(world, "secondary", queue, 5)
            await until(lambda: world.told(QueueRead)[-1].depth == 0)
    assert len(gone) == 5
    records = slowly(world.events)
    found = judge(records)
    assert {name for name, status in found.statuses().items() if status == "missing"} == gone
    assert found.reasons()["m0"].startswith("queue 0 held none of its 5 at ")

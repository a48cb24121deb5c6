"""`record_received`: a receipt for each message that a receiver of the pairing gets (SPEC.md section 11)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus import pair_namespaces
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.pairing_events import Delivered, Diverted, MessageReceived
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.sending.sdk_messages import ping
from tests.pairing.conftest import World


async def put(world: World, *messages: ServiceBusMessage, to: str = "orders") -> None:
    async with world.client("primary") as client, client.get_queue_sender(to) as sender:
        for message in messages:
            await sender.send_messages(message)


def of_ids(world: World) -> list[str]:
    return [receipt.message_id for receipt in world.told(MessageReceived)]


async def test_each_way_of_receiving_records_each_delivery_before_the_application_has_it(world: World) -> None:
    paired = await world.pair(record_received=True)
    await put(world, *(ServiceBusMessage(b"x", message_id=name) for name in "abcd"))
    async with paired.get_queue_receiver("orders", max_wait_time=1) as receiver:
        got = await receiver.receive_messages(2, max_wait_time=2)
        assert of_ids(world) == [str(message.message_id) for message in got]
        (one,) = world.told(MessageReceived)[:1]
        assert (one.entity, one.subscription, one.stream, one.session) == ("orders", None, "", None)
        assert (one.sequence_number, one.delivery_count) == (got[0].sequence_number, 0)
        for message in got:
            await receiver.complete_message(message)
        message = await anext(receiver)
        assert of_ids(world)[-1] == message.message_id
        await receiver.abandon_message(message)
        async for again in receiver:
            assert of_ids(world)[-1] == again.message_id
            await receiver.complete_message(again)
    assert sorted(of_ids(world)) == ["a", "b", "c", "c", "d"]
    assert [each.delivery_count for each in world.told(MessageReceived) if each.message_id == "c"] == [0, 1]


async def test_pings_dead_letters_and_looks_have_no_receipt(world: World) -> None:
    paired = await world.pair(record_received=True)
    await put(world, ServiceBusMessage(b"x", message_id="dead"), ping())
    async with paired.get_queue_receiver("orders", receive_mode=ServiceBusReceiveMode.PEEK_LOCK) as receiver:
        await receiver.peek_messages(5)
        assert of_ids(world) == []
        for message in await receiver.receive_messages(5, max_wait_time=1):
            await receiver.dead_letter_message(message)
    async with paired.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        assert len(await dead.receive_messages(5, max_wait_time=1)) == 1
    assert of_ids(world) == ["dead"]


async def test_a_session_is_the_stream_and_a_subscription_is_named(world: World) -> None:
    async with world.admin("primary") as admin:
        await admin.create_queue("by-session", requires_session=True)
        await _make_topic(admin)
    paired = await world.pair(record_received=True)
    await put(world, ServiceBusMessage(b"x", message_id="s1", session_id="kim"), to="by-session")
    async with world.client("primary") as client, client.get_topic_sender("news") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="t1"))
    async with paired.get_queue_receiver("by-session", session_id="kim") as receiver:
        await receiver.receive_messages(1, max_wait_time=2)
    async with paired.get_subscription_receiver("news", "all") as receiver:
        await receiver.receive_messages(1, max_wait_time=2)
    first, second = world.told(MessageReceived)
    assert (first.entity, first.session, first.stream) == ("by-session", "kim", "kim")
    assert (second.entity, second.subscription, second.session) == ("news", "all", None)


async def _make_topic(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_topic("news")
    await admin.create_subscription("news", "all")


async def test_nothing_is_recorded_by_default(world: World) -> None:
    paired = await world.pair()
    await put(world, ServiceBusMessage(b"x", message_id="a"))
    async with paired.get_queue_receiver("orders") as receiver:
        assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
    assert world.told(MessageReceived) == []
    assert paired.delivery_receipts("orders") is None


async def test_a_scheduled_message_is_marked_in_its_senders_receipt(world: World) -> None:
    """Its receivers get it later: that is no reason to call it lost."""
    paired = await world.pair(journal="all", backlog_queue_count=1)
    later = datetime.now(UTC) + timedelta(hours=1)

    async def send(paired: PairedServiceBusClient, where: str) -> None:
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id=f"now {where}"))
            await sender.send_messages(
                ServiceBusMessage(b"x", message_id=f"later {where}", scheduled_enqueue_time_utc=later)
            )
            await sender.schedule_messages(ServiceBusMessage(b"x", message_id=f"scheduled {where}"), later)

    await send(paired, "direct")
    paired.force("orders", by="kim")
    await send(paired, "parked")
    receipts: list[Any] = [*world.told(Delivered), *world.told(Diverted)]
    assert {receipt.message_id: receipt.is_scheduled for receipt in receipts} == {
        f"{kind} {where}": (None if kind == "now" else True)
        for kind in ("now", "later", "scheduled")
        for where in ("direct", "parked")
    }


async def test_a_receipt_has_the_message_s_own_time_to_live(world: World) -> None:
    """Section 11: "Receipts carry the message's time to live"."""
    paired = await world.pair(journal="all", backlog_queue_count=1)

    async def send(where: str) -> None:
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(
                ServiceBusMessage(b"x", message_id=f"own {where}", time_to_live=timedelta(hours=1))
            )
            await sender.send_messages(ServiceBusMessage(b"x", message_id=f"none {where}"))

    await send("direct")
    paired.force("orders", by="kim")
    await send("parked")
    receipts: list[Any] = [*world.told(Delivered), *world.told(Diverted)]
    assert {receipt.message_id: receipt.time_to_live for receipt in receipts} == {
        "own direct": 3600.0, "none direct": None, "own parked": 3600.0, "none parked": None,
    }  # fmt: skip


async def test_it_is_refused_where_there_is_no_journal(world: World) -> None:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=world.admin("secondary"), secondary_client=world.client("secondary"), record_received=True
    )
    with pytest.raises(ConfigurationError, match="record_received needs a journal"):
        await pair_namespaces(world.client("primary"), options)

"""`record_received` on a gateway: a receipt for each message that it relays to a client's receiver."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from paired_servicebus.core.model.pairing_events import MessageReceived
from paired_servicebus.pairing.delivery_receipts import DeliveryReceipts
from tests.engine.gateway.relay_setting import LISTEN, relay_setting


async def test_each_relayed_delivery_has_a_receipt_and_looks_have_none() -> None:
    async with relay_setting(record_received=True) as setting:
        async with setting.world.admin("primary") as admin:
            await admin.create_topic("news")
            await admin.create_subscription("news", "all")
            await admin.create_queue("by-session", requires_session=True)
        await setting.put("a")
        await setting.put("s", queue="by-session", session_id="kim")
        async with setting.world.client("primary") as own, own.get_topic_sender("news") as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="t"))
        client = await setting.client(LISTEN)
        async with client.get_queue_receiver("orders") as receiver:
            await receiver.peek_messages(5)
            (message,) = await receiver.receive_messages(1, max_wait_time=2)
            await receiver.abandon_message(message)
            (message,) = await receiver.receive_messages(1, max_wait_time=2)
            await receiver.dead_letter_message(message)
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
        async with client.get_queue_receiver("by-session", session_id="kim") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
        async with client.get_subscription_receiver("news", "all") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
    told: list[MessageReceived] = setting.world.told(MessageReceived)
    assert [(each.message_id, each.entity, each.subscription, each.session, each.delivery_count) for each in told] == [
        ("a", "orders", None, None, 0),
        ("a", "orders", None, None, 1),
        ("s", "by-session", None, "kim", 0),
        ("t", "news", "all", None, 0),
    ]
    assert all(each.sequence_number is not None for each in told)


async def test_without_the_option_nothing_is_read_nor_recorded() -> None:
    async with relay_setting() as setting:
        await setting.put("a")
        client = await setting.client(LISTEN)
        async with client.get_queue_receiver("orders") as receiver:
            assert len(await receiver.receive_messages(1, max_wait_time=2)) == 1
    assert setting.world.told(MessageReceived) == []


async def test_bytes_that_are_no_message_are_relayed_without_a_receipt() -> None:
    async with relay_setting(record_received=True) as setting:
        receipts = setting.paired.delivery_receipts("orders")
        assert isinstance(receipts, DeliveryReceipts)
        for strange in (b"", b"\x00", b"\x00Ss\xc0\xff\xff", b"\x00Sr\xc1\x01", bytes(range(256))):
            receipts.write_encoded(strange)
    assert setting.world.told(MessageReceived) == []

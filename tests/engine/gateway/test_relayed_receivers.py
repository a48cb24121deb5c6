"""Receivers of Microsoft's SDK read the primary through the gateway, one to one (GATEWAY.md section 3, 6 to 9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import AutoLockRenewer
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from paired_servicebus.core.model.pairing_events import MessageReceived
from paired_servicebus.pairing.paired_receiver import DeliveryReceipts
from tests.engine.gateway.relay_setting import BOTH, LISTEN, SEND, Setting, relay_setting


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with relay_setting() as found:
        yield found


async def test_a_message_arrives_as_it_is_and_each_settlement_reaches_the_primary(setting: Setting) -> None:
    await setting.put("complete", "abandon", "dead", "defer")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver:
        got = {m.message_id: m for m in await receiver.receive_messages(4, max_wait_time=2)}
        await receiver.complete_message(got["complete"])
        await receiver.abandon_message(got["abandon"])
        await receiver.dead_letter_message(got["dead"], reason="r", error_description="d")
        await receiver.defer_message(got["defer"])
        (again,) = await receiver.receive_messages(1, max_wait_time=2)
        assert (again.message_id, again.delivery_count) == ("abandon", 1)
        await receiver.complete_message(again)
        assert got["defer"].sequence_number is not None
        (deferred,) = await receiver.receive_deferred_messages(got["defer"].sequence_number)
        await receiver.complete_message(deferred)
    async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = await receiver.receive_messages(1, max_wait_time=2)
        assert (dead.message_id, dead.dead_letter_reason, dead.dead_letter_error_description) == ("dead", "r", "d")
        await receiver.complete_message(dead)
    assert setting.world.ids_in("orders") == []


async def test_peeks_and_lock_renewals_are_passed_on(setting: Setting) -> None:
    await setting.put("a", "b")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver, AutoLockRenewer() as renewer:
        assert [m.message_id for m in await receiver.peek_messages(5)] == ["a", "b"]
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        before = message.locked_until_utc
        assert before is not None
        assert await receiver.renew_message_lock(message) > before
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        await receiver.complete_message(message)


async def test_receive_and_delete_and_an_empty_queue(setting: Setting) -> None:
    """A drain is answered when the primary has answered it."""
    await setting.put("a", "b")
    client = await setting.client(LISTEN)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver("orders", receive_mode=mode) as receiver:
        assert [m.message_id for m in await receiver.receive_messages(2, max_wait_time=2)] == ["a", "b"]
        assert await receiver.receive_messages(5, max_wait_time=0.2) == []
    assert setting.world.ids_in("orders") == []
    await setting.put("c")
    assert setting.world.ids_in("orders") == ["c"]


async def test_a_session_its_state_and_its_lock(setting: Setting) -> None:
    """The attach is answered when the primary's answer is in: it has the session's id and the end of its lock."""
    await setting.put("a", "b", queue="payments", session_id="s1")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("payments", session_id=NEXT_AVAILABLE_SESSION) as receiver:
        session = receiver.session
        assert session is not None
        assert session.session_id == "s1"
        assert session.locked_until_utc is not None
        assert session.locked_until_utc > datetime.now(UTC)
        await session.set_state(b"half")
        assert await session.get_state() == b"half"
        assert await session.renew_lock() >= session.locked_until_utc
        for message in await receiver.receive_messages(2, max_wait_time=2):
            await receiver.complete_message(message)
    assert setting.world.ids_in("payments") == []
    async with client.get_queue_receiver("payments", session_id="s1") as receiver:
        assert receiver.session is not None
        assert await receiver.session.get_state() == b"half"


async def test_no_session_is_refused_with_the_primarys_own_words(setting: Setting) -> None:
    client = await setting.client(LISTEN)
    with pytest.raises(OperationTimeoutError):
        await client.get_queue_receiver("payments", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.2).__aenter__()
    with pytest.raises(ServiceBusError, match="ession"):
        await client.get_queue_receiver("payments").__aenter__()


async def test_a_subscription(setting: Setting) -> None:
    client = await setting.client(LISTEN)
    async with setting.world.client("primary") as own, own.get_topic_sender("audit") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="a"))
    async with client.get_subscription_receiver("audit", "all") as receiver:
        assert [m.message_id for m in await receiver.peek_messages(5)] == ["a"]
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(message)


async def test_an_entity_in_failover_is_still_read_from_the_primary(setting: Setting) -> None:
    """Upstream is the primary."""
    await setting.put("a")
    setting.paired.watch("orders")
    setting.paired.force("orders", by="kim")
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        assert message.message_id == "a"
        await receiver.complete_message(message)


async def test_rights_of_local_keys_are_enforced(setting: Setting) -> None:
    """Upstream everybody is the gateway."""
    await setting.put("a")
    sender = await setting.client(SEND)
    with pytest.raises(ServiceBusAuthorizationError, match="Listen"):
        await sender.get_queue_receiver("orders").__aenter__()
    reader = await setting.client(LISTEN)
    with pytest.raises(ServiceBusAuthorizationError, match="Send"):
        await reader.get_queue_sender("orders").__aenter__()
    with pytest.raises(MessagingEntityNotFoundError):
        await reader.get_queue_receiver("nowhere").__aenter__()


async def test_an_outage_ends_receivers_and_no_connection(setting: Setting) -> None:
    """Receivers are detached with amqp:link:detach-forced; they are back within 10 s of the primary."""
    await setting.put("a")
    client = await setting.client(BOTH, retry_total=50, retry_backoff_factor=0.05, retry_backoff_max=0.2)
    async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=2)
        await receiver.complete_message(message)
        await sender.send_messages(ServiceBusMessage(b"x", message_id="b"))
        connections = set(setting.gateway.connections)
        ended = setting.world.fault("refused")
        waiting = asyncio.create_task(receiver.receive_messages(1, max_wait_time=10))
        with pytest.raises(OperationTimeoutError):
            await (await setting.client(LISTEN)).get_queue_receiver("orders").__aenter__()
        assert connections & setting.gateway.connections
        ended()
        await setting.put("c")
        assert [m.message_id for m in await waiting] in (["b"], ["c"])


async def test_a_request_to_a_primary_that_is_away_is_answered_with_408(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """management answers 408 within 10 s"""
    monkeypatch.setattr("paired_servicebus.engine.gateway.relayed_links.REPLY_SECONDS", 0.3)
    client = await setting.client(LISTEN)
    async with client.get_queue_receiver("orders") as receiver:
        assert await receiver.peek_messages(1) == []
        setting.world.fault("black-holed")
        with pytest.raises(OperationTimeoutError, match="408"):
            await receiver.peek_messages(1)


# -- `record_received` on a gateway: a receipt for each message that it relays to a client's receiver.


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

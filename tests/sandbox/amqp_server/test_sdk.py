"""The real SDK against the server: sending, receiving, settling, sessions, topics, management requests."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    SessionLockLostError,
)

from servicebus_sandbox.broker.entity_settings import EntityStatus, QueueSettings


async def send(client, name, *messages, **options):
    async with client.get_queue_sender(name) as sender:
        await sender.send_messages(list(messages) if len(messages) > 1 else messages[0], **options)


def bodies(messages):
    return [b"".join(message.body).decode() for message in messages]


# ---------------------------------------------------------------- sending


async def test_a_message_arrives_as_it_was_sent(client):
    sent = ServiceBusMessage(
        b"body",
        application_properties={"count": 3, "name": "n", "flag": True, "ratio": 1.5},
        message_id="m-1",
        session_id="s-1",
        subject="subject",
        content_type="text/plain",
        correlation_id="c-1",
        to="to",
        reply_to="reply",
        reply_to_session_id="r-1",
        partition_key="s-1",
        time_to_live=timedelta(hours=1),
    )
    await send(client, "orders", sent)
    async with client.get_queue_receiver("orders") as receiver:
        (got,) = await receiver.receive_messages(1)
        assert (got.message_id, got.session_id, got.subject, got.content_type) == (
            "m-1",
            "s-1",
            "subject",
            "text/plain",
        )
        assert (got.correlation_id, got.to, got.reply_to, got.reply_to_session_id) == ("c-1", "to", "reply", "r-1")
        assert got.application_properties == {b"count": 3, b"name": b"n", b"flag": True, b"ratio": 1.5}
        assert (got.partition_key, got.time_to_live) == ("s-1", timedelta(hours=1))
        assert (got.sequence_number, got.delivery_count) == (1, 0)
        assert abs(got.enqueued_time_utc - datetime.now(UTC)) < timedelta(seconds=10)
        assert timedelta(seconds=50) < got.locked_until_utc - datetime.now(UTC) <= timedelta(seconds=60)
        assert isinstance(got.lock_token, uuid.UUID)


async def test_lists_and_batches_are_unpacked(port, client):
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(f"list {index}") for index in range(20)])
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 256 * 1024
        for index in range(30):
            batch.add_message(ServiceBusMessage(f"batch {index}"))
        await sender.send_messages(batch)
    assert port.counts("orders").active == 50
    async with client.get_queue_receiver("orders") as receiver:
        got = await receiver.receive_messages(50)
    assert bodies(got) == [f"list {index}" for index in range(20)] + [f"batch {index}" for index in range(30)]


async def test_a_message_beyond_the_limit_is_refused_and_the_link_lives(port, client):
    async with client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 300_000))
        await sender.send_messages(ServiceBusMessage(b"small"))
    assert port.counts("orders").active == 1


async def test_a_received_message_can_be_sent_again(port, client):
    await send(client, "orders", ServiceBusMessage("again", application_properties={"a": "b"}))
    async with client.get_queue_receiver("orders") as receiver:
        (got,) = await receiver.receive_messages(1)
        await send(client, "copies", got)
    async with client.get_queue_receiver("copies") as receiver:
        (again,) = await receiver.receive_messages(1)
        assert (again.sequence_number, again.application_properties) == (1, {b"a": b"b"})
        annotations = [bytes(key) for key in again.raw_amqp_message.annotations]
        assert len(annotations) == len(set(annotations))


async def test_send_disabled_and_back(port, client):
    """The sender's link is detached; the SDK loses the condition of that, and is told it anew when it attaches."""
    queue = port.namespace.queue("orders")
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("1"))
        port.namespace.update(port.namespace.queue("orders"), QueueSettings(status=EntityStatus.SEND_DISABLED))
        for expected in (ServiceBusConnectionError, MessagingEntityDisabledError):
            with pytest.raises(expected):
                await sender.send_messages(ServiceBusMessage("2"))
        port.namespace.update(port.namespace.queue("orders"), QueueSettings())
        await sender.send_messages(ServiceBusMessage("3"))
    assert queue.counts().active == 2


async def test_what_is_not_there_gets_no_token(client):
    """As in the service, where the SDK calls that an authentication error and keeps the reason inside."""
    with pytest.raises(ServiceBusAuthenticationError) as caught:
        await send(client, "nowhere", ServiceBusMessage("x"))
    assert "/nowhere' could not be found" in str(caught.value.inner_exception)
    with pytest.raises(ServiceBusAuthenticationError):
        async with client.get_subscription_receiver("audit", "nowhere") as receiver:
            await receiver.receive_messages(1, max_wait_time=1)


# ---------------------------------------------------------------- receiving and settling


async def test_complete_abandon_dead_letter(port, client):
    await send(client, "orders", *(ServiceBusMessage(name) for name in "abc"))
    async with client.get_queue_receiver("orders") as receiver:
        first, second, third = await receiver.receive_messages(3)
        await receiver.complete_message(first)
        await receiver.abandon_message(second)
        await receiver.dead_letter_message(third, reason="unreadable", error_description="line 3")
        (again,) = await receiver.receive_messages(1)
        assert (bodies([again]), again.delivery_count) == (["b"], 1)
    assert (port.counts("orders").active, port.counts("orders").dead_letter) == (1, 1)
    async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = await receiver.receive_messages(1)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("unreadable", "line 3")
        await receiver.complete_message(dead)
    assert port.counts("orders").dead_letter == 0


async def test_deferred_messages_come_by_number(port, client):
    await send(client, "orders", ServiceBusMessage("a"), ServiceBusMessage("b"))
    async with client.get_queue_receiver("orders") as receiver:
        messages = await receiver.receive_messages(2)
        for message in messages:
            await receiver.defer_message(message)
        assert await receiver.receive_messages(1, max_wait_time=0.3) == []
        numbers = [message.sequence_number for message in messages]
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([*numbers, 99])
        deferred = await receiver.receive_deferred_messages(numbers)
        assert bodies(deferred) == ["a", "b"]
        await receiver.complete_message(deferred[0])
        await receiver.dead_letter_message(deferred[1], reason="late")
    assert (port.counts("orders").active, port.counts("orders").dead_letter) == (0, 1)


async def test_what_a_closing_receiver_had_buffered_comes_back_uncounted(client):
    await send(client, "orders", *(ServiceBusMessage(str(index)) for index in range(10)))
    async with client.get_queue_receiver("orders", prefetch_count=10) as receiver:
        assert len(await receiver.receive_messages(1)) == 1
    async with client.get_queue_receiver("orders") as receiver:
        rest = await receiver.receive_messages(9, max_wait_time=2)
    assert [message.delivery_count for message in rest] == [0] * 9


async def test_renewing_a_lock(port, client):
    await send(client, "orders", ServiceBusMessage("x"))
    async with client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1)
        before = message.locked_until_utc
        for _ in range(3):
            port.jump(timedelta(seconds=40))
            await receiver.renew_message_lock(message)
        assert message.locked_until_utc - before > timedelta(seconds=119)
        await receiver.complete_message(message)
    assert port.counts("orders").total == 0


async def test_peek_changes_nothing(port, client):
    await send(client, "orders", *(ServiceBusMessage(str(index)) for index in range(5)))
    async with client.get_queue_receiver("orders") as receiver:
        assert bodies(await receiver.peek_messages(3)) == ["0", "1", "2"]
        assert bodies(await receiver.peek_messages(3)) == ["3", "4"]
        assert bodies(await receiver.peek_messages(5, sequence_number=4)) == ["3", "4"]
        assert await receiver.peek_messages(5, sequence_number=9) == []
    assert port.counts("orders").active == 5


# ---------------------------------------------------------------- schedules


async def test_scheduled_messages_come_in_time_and_can_be_cancelled(port, client):
    soon = datetime.now(UTC) + timedelta(minutes=9)
    async with client.get_queue_sender("orders") as sender:
        numbers = await sender.schedule_messages(
            [ServiceBusMessage("soon"), ServiceBusMessage("never", message_id="n")], soon
        )
        await sender.cancel_scheduled_messages(numbers[1])
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers[1])
    assert port.counts("orders").scheduled == 1
    async with client.get_queue_receiver("orders") as receiver:
        (peeked,) = await receiver.peek_messages(1)
        assert peeked.state.name == "SCHEDULED"
        waiting = asyncio.create_task(receiver.receive_messages(2, max_wait_time=3))
        port.jump(timedelta(minutes=9))  # no more, or the link is cut for being idle
        got = await waiting
        assert bodies(got) == ["soon"]
        assert got[0].enqueued_time_utc >= soon - timedelta(milliseconds=5)


# ---------------------------------------------------------------- topics


async def test_every_subscription_gets_its_copy(port, client):
    async with client.get_topic_sender("audit") as sender:
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
    for name in ("all", "more"):
        async with client.get_subscription_receiver("audit", name) as receiver:
            got = await receiver.receive_messages(2)
            assert bodies(got) == ["a", "b"]
            await receiver.dead_letter_message(got[0], reason="no")
            assert bodies(await receiver.peek_messages(5, sequence_number=1)) == ["b"]
    async with client.get_subscription_receiver("audit", "all", sub_queue="deadletter") as receiver:
        assert bodies(await receiver.receive_messages(1)) == ["a"]


# ---------------------------------------------------------------- sessions


async def test_a_session_in_order_with_state(client):
    await send(client, "payments", *(ServiceBusMessage(f"{i}", session_id="a") for i in range(3)))
    async with client.get_queue_receiver("payments", session_id="a") as receiver:
        assert receiver.session.session_id == "a"
        assert timedelta(seconds=50) < receiver.session.locked_until_utc - datetime.now(UTC) <= timedelta(seconds=60)
        assert await receiver.session.get_state() is None
        await receiver.session.set_state(b"step 1")
        before = receiver.session.locked_until_utc
        assert await receiver.session.renew_lock() >= before
        for message in await receiver.receive_messages(3):
            await receiver.complete_message(message)
        assert await receiver.session.get_state() == b"step 1"
        await receiver.session.set_state(None)
        assert await receiver.session.get_state() is None


async def test_a_session_lock_that_ends_ends_the_receiver(port, client):
    await send(client, "payments", ServiceBusMessage("x", session_id="a"))
    async with client.get_queue_receiver("payments", session_id="a") as receiver:
        (message,) = await receiver.receive_messages(1)
        port.jump(timedelta(seconds=61))
        assert port.namespace.queue("payments").messages.consumers == 0
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(message)
    async with client.get_queue_receiver("payments", session_id="a") as receiver:
        (again,) = await receiver.receive_messages(1)
        assert again.delivery_count == 1


async def test_sessions_are_listed(client):
    for name in ("b", "a"):
        await send(client, "payments", ServiceBusMessage(name, session_id=name))
    assert [name async for name in client.list_queue_sessions("payments")] == ["a", "b"]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert [name async for name in client.list_queue_sessions("payments", state_updated_after=later)] == []

"""Batches deleted on the management node, as the SDKs' previews ask for it (Go, Java, JavaScript)."""

import time

import pytest

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Int, Timestamp
from servicebus_amqp.encoding.message_sections import Sections, write_value
from servicebus_amqp.encoding.performatives import Source
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, QueueSettings, Right, Tier, TopicSettings
from servicebus_sandbox.broker.message import Message

ARGUMENT = "com.microsoft:argument-error"


def now(later: float = 1.0) -> Timestamp:
    return Timestamp(round(1000 * (time.time() + later)))


@pytest.fixture
async def delete(peer):
    """Asks for a deletion: status, condition, number."""

    async def delete(body, path="orders"):
        await peer.authorize(path)
        asked = {"operation": "com.microsoft:batch-delete-messages"}
        answer, value = await peer.request(f"{path}/$management", asked, body)
        assert answer["statusDescription"]
        return answer["statusCode"], answer.get("errorCondition"), value and value["message-count"]

    return delete


def put(port, path, *messages, **fields):
    payload = Sections(body=write_value("x"))
    sent = [Message(payload, 10, message_id=name, **fields) for name in messages]
    port.namespace.send_target(path).intake.send(sent)


def names(port, path="orders"):
    return [stored.message.message_id for stored in port.namespace.message_queue(path).peek(0, 100)]


async def test_the_oldest_leave_first_and_the_answer_has_their_number(port, delete):
    put(port, "orders", "a", "b", "c")
    assert await delete({"message-count": Int(2), "enqueued-time-utc": now()}) == (200, None, 2)
    assert names(port) == ["c"]
    assert await delete({"message-count": Int(2), "enqueued-time-utc": now()}) == (200, None, 1)
    assert await delete({"message-count": Int(2), "enqueued-time-utc": now()}) == (200, None, 0)


async def test_what_came_later_is_left(port, delete):
    put(port, "orders", "a")
    assert await delete({"message-count": Int(2), "enqueued-time-utc": now(-60)}) == (200, None, 0)
    assert names(port) == ["a"]


async def test_locked_and_scheduled_messages_are_left(port, peer, delete):
    put(port, "orders", "locked", "free")
    put(port, "orders", "scheduled", scheduled_at=time.time() + 60)
    await peer.authorize("orders")
    link = await peer.attached(peer.receiver("orders"))
    link.flow(1)
    peer.flush()
    await port.until(lambda: not port.namespace.message_queue("orders")._lane.ready - 1)
    assert await delete({"message-count": Int(9), "enqueued-time-utc": now()}) == (200, None, 1)
    assert names(port) == ["locked", "scheduled"]


async def test_dead_letters_and_subscriptions_are_emptied_too(port, delete):
    put(port, "audit", "a")
    path = "audit/Subscriptions/all"
    assert await delete({"message-count": Int(9), "enqueued-time-utc": now()}, path) == (200, None, 1)
    assert names(port, "audit/Subscriptions/more") == ["a"]
    put(port, "orders", "b")
    queue = port.namespace.queue("orders")
    (stored,) = queue.messages.waiting()
    queue.messages._bury(stored, "", "")
    path = "orders/$DeadLetterQueue"
    assert await delete({"message-count": Int(9), "enqueued-time-utc": now()}, path) == (200, None, 1)


async def test_a_session_is_emptied_by_its_holder(port, peer, delete):
    put(port, "payments", "a", session_id="s")
    put(port, "payments", "b", session_id="t")
    body = {"message-count": Int(9), "enqueued-time-utc": now(), "session-id": "s"}
    assert await delete(body, "payments") == (410, "com.microsoft:session-lock-lost", None)
    source = Source(address="payments", filter={"com.microsoft:session-filter": "s"})
    await peer.attached(peer.receiver("payments", source))
    assert await delete(body, "payments") == (200, None, 1)
    assert names(port, "payments") == ["b"]
    del body["session-id"]
    assert await delete(body, "payments") == (400, ARGUMENT, None)


GOOD = {"message-count": Int(1), "enqueued-time-utc": Timestamp(0)}


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        [1],
        {"message-count": Int(1)},
        {"enqueued-time-utc": Timestamp(0)},
        *({**GOOD, "message-count": each} for each in (Int(0), Int(-1), Int(501), 2**62, "many", True, None, 1.5)),
        *({**GOOD, "enqueued-time-utc": each} for each in (Int(0), "now", None, 0.5)),
        {**GOOD, "session-id": 3},
    ],
)
async def test_a_request_that_cannot_be_read_deletes_nothing(port, delete, body):
    put(port, "orders", "a")
    assert await delete(body) == (400, ARGUMENT, None)
    assert names(port) == ["a"]


async def test_any_time_of_the_wire_is_a_time(port, delete):
    put(port, "orders", "a")
    assert await delete({**GOOD, "enqueued-time-utc": Timestamp(-(2**63))}) == (200, None, 0)
    assert await delete({**GOOD, "enqueued-time-utc": Timestamp(2**63 - 1)}) == (200, None, 1)


async def test_premium_deletes_more_at_once(port, delete):
    port.namespace.tier = Tier.PREMIUM
    assert await delete({**GOOD, "message-count": Int(4000)}) == (200, None, 0)
    assert await delete({**GOOD, "message-count": Int(4001)}) == (400, ARGUMENT, None)


async def test_neither_partitions_nor_topics_nor_sessions_of_plain_queues(port, delete):
    port.namespace.create_queue("parted", QueueSettings(enable_partitioning=True))
    port.namespace.create_topic("split", TopicSettings(enable_partitioning=True))
    port.namespace.create_subscription("split", "s")
    for path in ("parted", "split/Subscriptions/s", "audit"):
        assert await delete(GOOD, path) == (400, "amqp:not-allowed", None)
    assert await delete({**GOOD, "session-id": "s"}) == (400, "amqp:not-allowed", None)


@pytest.mark.parametrize(("right", "status"), [(Right.SEND, 401), (Right.LISTEN, 200)])
async def test_it_needs_listen(port, peer, right, status):
    node: NamespaceServer = port.node
    rule = AuthorizationRule(name="one", rights=frozenset({right}), primary_key="k", secondary_key="l")
    node.authorization.rules = (*node.authorization.rules, rule)
    audience = "sb://127.0.0.1/orders"
    assert (await peer.put_token(audience, sign(audience, "one", "k", time.time() + 60)))[0] == 202
    asked = {"operation": "com.microsoft:batch-delete-messages"}
    assert (await peer.request("orders/$management", asked, GOOD))[0]["statusCode"] == status

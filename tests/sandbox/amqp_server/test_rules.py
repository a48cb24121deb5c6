"""Rules over AMQP: what a rule manager asks for, in the maps and described lists of the service."""

import time

import pytest

from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Described, Int, Symbol, Timestamp
from servicebus_amqp.encoding.message_sections import Sections, write_value
from servicebus_amqp.encoding.performatives import Source
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.entity_settings import AuthorizationRule, QueueSettings, Right, Tier, TopicSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.subscription_rules.rules import (
    CorrelationFilter,
    FalseFilter,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

NODE = "audit/Subscriptions/all/$management"
RULE, NO_ACTION, SQL_ACTION = 0x0000013700000004, 0x0000013700000005, 0x0000013700000006
SQL, TRUE, FALSE, CORRELATION = 0x000001370000006, 0x000001370000007, 0x000001370000008, 0x000001370000009


@pytest.fixture
async def ask(peer):
    await peer.authorize("audit/Subscriptions/all")
    await peer.authorize("orders")

    async def ask(operation, body, node=NODE):
        return await peer.request(node, {"operation": f"com.microsoft:{operation}"}, body)

    return ask


@pytest.fixture
def rules(port):
    return port.namespace.subscription("audit", "all").rules


@pytest.mark.parametrize(
    ("description", "expected", "action"),
    [
        ({"sql-filter": {"expression": "a = 1"}}, SqlFilter("a = 1"), None),
        ({"sql-filter": {"expression": "1=1"}}, TrueFilter(), None),
        (
            {"sql-filter": {"expression": "1=0"}, "sql-rule-action": {"expression": "SET b = 2"}},
            FalseFilter(),
            SqlAction("SET b = 2"),
        ),
        (
            {"correlation-filter": {"label": "l", "to": None, "properties": {"n": Int(3), "s": "x"}}},
            CorrelationFilter(label="l", properties={"n": 3, "s": "x"}),
            None,
        ),
        ({"correlation-filter": {"message-id": "m", "properties": None}}, CorrelationFilter(message_id="m"), None),
    ],
)
async def test_a_rule_is_added_and_removed(ask, rules, description, expected, action):
    answer, body = await ask("add-rule", {"rule-name": "mine", "rule-description": description})
    assert (answer["statusCode"], body) == (200, None)
    assert rules["mine"].filter == expected
    assert rules["mine"].action == action
    assert (await ask("remove-rule", {"rule-name": "MINE"}))[0]["statusCode"] == 200
    assert [rule.name for rule in rules] == ["$Default"]


async def test_rules_are_enumerated_as_described_lists(ask, rules):
    for name, description in {
        "a": {"sql-filter": {"expression": "x > 1"}, "sql-rule-action": {"expression": "REMOVE x"}},
        "b": {"correlation-filter": {"label": "l", "content-type": "c", "properties": {"at": Timestamp(86_400_000)}}},
        "c": {"sql-filter": {"expression": "1=0"}},
    }.items():
        await ask("add-rule", {"rule-name": name, "rule-description": description})
    created = {rule.name: Timestamp(round(rule.created_at * 1000)) for rule in rules}
    answer, body = await ask("enumerate-rules", {"top": Int(100), "skip": Int(0)})
    assert answer["statusCode"] == 200
    wanted = {
        "$Default": (Described(TRUE, []), Described(NO_ACTION, [])),
        "a": (Described(SQL, ["x > 1", 20]), Described(SQL_ACTION, ["REMOVE x", 20])),
        "b": (
            Described(CORRELATION, [*[None] * 4, "l", None, None, "c", {"at": Timestamp(86_400_000)}]),
            Described(NO_ACTION, []),
        ),
        "c": (Described(FALSE, []), Described(NO_ACTION, [])),
    }
    assert body == {
        "rules": [
            {"rule-description": Described(RULE, [*parts, name, created[name]])} for name, parts in wanted.items()
        ]
    }


async def test_rules_come_in_pages_and_then_no_more(ask):
    await ask("add-rule", {"rule-name": "z", "rule-description": {"sql-filter": {"expression": "1=1"}}})
    names = []
    for skip in range(2):
        _, body = await ask("enumerate-rules", {"top": Int(1), "skip": Int(skip)})
        names += [rule["rule-description"].value[2] for rule in body["rules"]]
    assert names == ["$Default", "z"]
    answer, body = await ask("enumerate-rules", {"top": Int(1), "skip": Int(2)})
    assert (answer["statusCode"], body) == (204, None)


GOOD = {"sql-filter": {"expression": "1=1"}}


@pytest.mark.parametrize(
    ("operation", "body", "status", "condition"),
    [
        ("add-rule", {"rule-description": GOOD}, 400, "com.microsoft:argument-error"),
        ("add-rule", {"rule-name": "a", "rule-description": "sql"}, 400, "com.microsoft:argument-error"),
        ("add-rule", {"rule-name": "a", "rule-description": {}}, 400, "com.microsoft:argument-error"),
        (
            "add-rule",
            {"rule-name": "a", "rule-description": GOOD | {"correlation-filter": {"to": "t"}}},
            400,
            "com.microsoft:argument-error",
        ),
        (
            "add-rule",
            {"rule-name": "a", "rule-description": {"sql-filter": {"expression": "a ="}}},
            400,
            "com.microsoft:argument-error",
        ),
        (
            "add-rule",
            {"rule-name": "a", "rule-description": {"correlation-filter": {}}},
            400,
            "com.microsoft:argument-error",
        ),
        (
            "add-rule",
            {"rule-name": "a", "rule-description": {"correlation-filter": {"properties": {"p": [1]}}}},
            400,
            "com.microsoft:argument-error",
        ),
        ("add-rule", {"rule-name": "a b", "rule-description": GOOD}, 400, "com.microsoft:argument-error"),
        (
            "add-rule",
            {"rule-name": "$default", "rule-description": GOOD},
            409,
            "com.microsoft:entity-already-exists",
        ),
        ("remove-rule", {"rule-name": "other"}, 404, "amqp:not-found"),
    ],
)
async def test_what_is_no_rule_is_refused_with_its_condition(ask, rules, operation, body, status, condition):
    answer, _ = await ask(operation, body)
    assert (answer["statusCode"], answer["errorCondition"]) == (status, Symbol(condition))
    assert [rule.name for rule in rules] == ["$Default"]


@pytest.mark.parametrize("operation", ["add-rule", "remove-rule", "enumerate-rules"])
async def test_only_subscriptions_have_rules(ask, operation):
    answer, _ = await ask(operation, {"rule-name": "a", "rule-description": GOOD}, node="orders/$management")
    assert (answer["statusCode"], answer["errorCondition"]) == (400, "amqp:not-allowed")


# Batches deleted on the management node, as the SDKs' previews ask for it (Go, Java, JavaScript).


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


DELETION = {"message-count": Int(1), "enqueued-time-utc": Timestamp(0)}


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        [1],
        {"message-count": Int(1)},
        {"enqueued-time-utc": Timestamp(0)},
        *({**DELETION, "message-count": each} for each in (Int(0), Int(-1), Int(501), 2**62, "many", True, None, 1.5)),
        *({**DELETION, "enqueued-time-utc": each} for each in (Int(0), "now", None, 0.5)),
        {**DELETION, "session-id": 3},
    ],
)
async def test_a_request_that_cannot_be_read_deletes_nothing(port, delete, body):
    put(port, "orders", "a")
    assert await delete(body) == (400, ARGUMENT, None)
    assert names(port) == ["a"]


async def test_any_time_of_the_wire_is_a_time(port, delete):
    put(port, "orders", "a")
    assert await delete({**DELETION, "enqueued-time-utc": Timestamp(-(2**63))}) == (200, None, 0)
    assert await delete({**DELETION, "enqueued-time-utc": Timestamp(2**63 - 1)}) == (200, None, 1)


async def test_premium_deletes_more_at_once(port, delete):
    port.namespace.tier = Tier.PREMIUM
    assert await delete({**DELETION, "message-count": Int(4000)}) == (200, None, 0)
    assert await delete({**DELETION, "message-count": Int(4001)}) == (400, ARGUMENT, None)


async def test_neither_partitions_nor_topics_nor_sessions_of_plain_queues(port, delete):
    port.namespace.create_queue("parted", QueueSettings(enable_partitioning=True))
    port.namespace.create_topic("split", TopicSettings(enable_partitioning=True))
    port.namespace.create_subscription("split", "s")
    for path in ("parted", "split/Subscriptions/s", "audit"):
        assert await delete(DELETION, path) == (400, "amqp:not-allowed", None)
    assert await delete({**DELETION, "session-id": "s"}) == (400, "amqp:not-allowed", None)


@pytest.mark.parametrize(("right", "status"), [(Right.SEND, 401), (Right.LISTEN, 200)])
async def test_it_needs_listen(port, peer, right, status):
    node: NamespaceServer = port.node
    rule = AuthorizationRule(name="one", rights=frozenset({right}), primary_key="k", secondary_key="l")
    node.authorization.rules = (*node.authorization.rules, rule)
    audience = "sb://127.0.0.1/orders"
    assert (await peer.put_token(audience, sign(audience, "one", "k", time.time() + 60)))[0] == 202
    asked = {"operation": "com.microsoft:batch-delete-messages"}
    assert (await peer.request("orders/$management", asked, DELETION))[0]["statusCode"] == status

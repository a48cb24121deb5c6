"""Rules over AMQP: what a rule manager asks for, in the maps and described lists of the service."""

import pytest

from servicebus_amqp.encoding.codec import Described, Int, Symbol, Timestamp
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

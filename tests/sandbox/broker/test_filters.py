"""Filters and actions: the grammar, three truth values, conversions, what is refused and when."""

from __future__ import annotations

import operator
import re
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import fmod
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servicebus_sandbox.broker.broker_errors import (
    EntityExists,
    EntityNotFound,
    EvaluationError,
    FilterSyntaxError,
    InvalidSettings,
)
from servicebus_sandbox.broker.entity_settings import SubscriptionSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.subscription_rules.message_properties import (
    MessageProperties,
    Value,
    system_fields,
    with_fields,
)
from servicebus_sandbox.broker.subscription_rules.parser import EvaluationContext, matches_pattern, parse_filter
from servicebus_sandbox.broker.subscription_rules.rules import (
    DEFAULT_RULE,
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

ID = UUID(int=7)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def new_id() -> UUID:
    return ID


def properties(user: dict[str, Value] | None = None, **system: Value) -> MessageProperties:
    return MessageProperties(dict(system), dict(user or {}))


SAMPLE: dict[str, Value] = {
    "color": "red",
    "Quantity": 10,
    "price": 2.5,
    "urgent": True,
    "nothing": None,
    "due": NOON,
    "age": timedelta(hours=1),
    "two words": "x",
    "we[]ird": 1,
    "100%": "a%b_c",
}


def holds(text: str, user: dict[str, Value] | None = None, **parameters: Value) -> bool | None:
    predicate, _ = parse_filter(text)
    scene = EvaluationContext(
        properties(SAMPLE if user is None else user, label="bus", timetolive=None), parameters, new_id
    )
    return predicate.holds(scene)


@pytest.mark.parametrize(
    "text",
    [
        "color = 'red'",
        "COLOR='red'",
        "user.color = 'red' and sys.Label = 'bus'",
        "sys.label LIKE '%us'",
        "sys.Subject = 'bus'",
        "quantity = 10 AND quantity = 10.0 AND 1e1 = quantity",
        "color <> 'Red' AND color != 'blue'",
        "color >= 'red' AND color < 'ree' AND price > 2",
        "quantity / 4 = 2 AND quantity % 4 = 2 AND -quantity / 4 = -2 AND -quantity % 4 = -2",
        "quantity / 4.0 = 2.5",
        "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9 AND 10 - 3 - 2 = 5 AND 2 - -3 = 5 AND +1 = 1",
        "9223372036854775807 + 1 = -9223372036854775807 - 1",
        "color + '/' + quantity = 'red/10'",
        "color IN ('blue', 'red')",
        "color NOT IN ('blue', 'green')",
        "quantity IN (1, 5 + 5)",
        "color LIKE 'r_d' AND color NOT LIKE 'R%' AND color LIKE '%'",
        r"[100%] LIKE '%\%%\_c' ESCAPE '\'",
        "nothing IS NULL AND absent IS NULL AND color IS NOT NULL AND sys.To IS NULL",
        "EXISTS(color) AND NOT EXISTS(absent) AND EXISTS(nothing) AND EXISTS(sys.label) AND NOT EXISTS(sys.to)",
        "urgent = TRUE AND urgent <> false",
        "[two words] = 'x' AND \"two words\" = 'x' AND [we[]]ird] = 1",
        "'it''s' = 'it''s'",
        "NOT color = 'blue' AND NOT (color = 'blue' OR quantity = 1)",
        "color = 'blue' OR color = 'red' AND quantity = 10",
        "property('co' + 'lor') = 'red' AND p('QUANTITY') = 10",
        "newid() <> color",
        "age + age > age AND due - age < due",
        "quantity <> 'ten' AND NOT quantity = 'ten'",
    ],
)
def test_what_matches(text: str) -> None:
    assert holds(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "absent = 1",
        "absent <> 1",
        "NULL = NULL",
        "NOT absent = 1",
        "absent + 1 > 0",
        "-absent = 1",
        "absent IN (1, 2)",
        "absent NOT IN (1, 2)",
        "color NOT IN ('blue', absent)",
        "absent LIKE '%'",
        "color LIKE absent",
        "p(absent) = 1",
        "color = 'red' AND absent = 1",
        "color = 'blue' OR absent = 1",
        "sys.TimeToLive = @span",
    ],
)
def test_what_is_unknown(text: str) -> None:
    assert holds(text, span=timedelta(1)) is None


def test_parameters() -> None:
    found = SqlFilter("due <= @when AND Quantity >= @Least", {"@when": NOON, "least": 10})
    assert found.matches(properties(SAMPLE), new_id)
    with pytest.raises(FilterSyntaxError, match="'@least' is used and not given"):
        SqlFilter("quantity > @least")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "was expected at character 0, not the end"),
        ("color", "a condition such as"),
        ("TRUE", "a condition such as"),
        ("1 + 1", "a condition such as"),
        ("color = 'red", "at character 8 has no place"),
        ("color = ", "at character 8, not the end"),
        ("color == 'red'", "a value or a condition was expected at character 7"),
        ("color = 'red' AND", "not the end"),
        ("color = 'red' color", "the end of the expression was expected at character 14"),
        ("color = 'red' AND quantity", "a condition such as color = 'red' was expected at character 18"),
        ("(a = 1) + 2 = 3", "a value was expected at character 0"),
        ("(a = 1) = TRUE", "a value was expected"),
        ("a NOT = 1", "IN or LIKE"),
        ("a IN ()", "a value or a condition"),
        ("a IN 1", "'[(]' was expected"),
        ("'a' IS NULL", "a property before IS"),
        ("a IS 1", "'NULL' was expected"),
        ("EXISTS(1)", "the name of a property"),
        ("my.color = 1", "sys or user before the dot"),
        ("floor(1) = 1", "newid, property or p"),
        ("12abc = 1", "runs into"),
        ("a = 9223372036854775808", "beyond a 64-bit"),
        ("a & b", "'&' at character 2"),
        ("AND = 1", "a value or a condition"),
        ("(" * 40 + "a = 1" + ")" * 40, "nested more than 32"),
        ("NOT " * 40 + "a = 1", "nested more than 32"),
        ("a = " + "-" * 40 + "b", "nested more than 32"),
        ("a = '" + "x" * 1024 + "'", "at most 1024"),
    ],
)
def test_what_is_no_filter(text: str, complaint: str) -> None:
    with pytest.raises(FilterSyntaxError, match=complaint):
        SqlFilter(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sys.Nonsense = 1", "no system property 'sys.Nonsense'"),
        ("color > 1", "'>' does not compare str and int"),
        ("urgent < TRUE", "does not compare bool and bool"),
        ("color - 1 = 2", "'-' does not apply to str and int"),
        ("quantity / 0 = 1", "divided by zero"),
        ("quantity % 0 = 1", "divided by zero"),
        ("quantity LIKE '1%'", "LIKE compares text"),
        ("color LIKE 'a' ESCAPE 'bc'", "single character"),
        ("color LIKE 'ab' ESCAPE 'b'", "ends with its escape"),
        ("p(1) = 1", "the name has to be text"),
        ("due + @long > due", "beyond the calendar"),
    ],
)
def test_what_cannot_be_evaluated(text: str, complaint: str) -> None:
    with pytest.raises(EvaluationError, match=complaint):
        holds(text, long=timedelta.max)


def test_floating_point_divides_by_zero_as_it_does_everywhere() -> None:
    assert holds("1.0 / 0 > 1e300 AND -1.0 / 0 < -1e300")
    assert holds("0.0 / 0 = 0.0 / 0") is False


# ---------------------------------------------------------------------- properties of the language

TRUTHS = {True: "1 = 1", False: "1 > 1", None: "absent = 1"}


@given(
    st.recursive(
        st.sampled_from([True, False, None]), lambda part: st.tuples(st.sampled_from("&|!"), part, part), max_leaves=12
    )
)
def test_three_valued_logic(tree: object) -> None:
    """Against the tables of Kleene's logic: AND is the least, OR the greatest of false < unknown < true."""
    rank: dict[object, int] = {False: 0, None: 1, True: 2}

    def expected(node: object) -> object:
        if not isinstance(node, tuple):
            return node
        sign, left, right = node[0], expected(node[1]), expected(node[2])
        if sign == "!":
            return None if left is None else not left
        return (min if sign == "&" else max)(left, right, key=rank.__getitem__)

    def text(node: object) -> str:
        if not isinstance(node, tuple):
            return TRUTHS[node]  # type: ignore[index]
        sign, left, right = node[0], text(node[1]), text(node[2])
        return f"NOT ({left})" if sign == "!" else f"({left}) {'AND' if sign == '&' else 'OR'} ({right})"

    written = text(tree)
    assume(len(written) <= 1024)
    assert holds(written, {}) is expected(tree)


@given(st.integers(-(2**31), 2**31), st.sampled_from("+-*/%"), st.integers(-(2**31), 2**31))
def test_whole_numbers_behave_as_in_csharp(left: int, sign: str, right: int) -> None:
    assume(right or sign not in "/%")
    truncated = abs(left) // abs(right) * (1 if left * right >= 0 else -1) if right else 0
    wanted = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": lambda a, b: truncated,
        "%": lambda a, b: int(fmod(a, b)),
    }[sign](left, right)
    assert holds(f"a {sign} b = @wanted", {"a": left, "b": right}, wanted=wanted) is True


@given(st.text("ab%_\\", max_size=12), st.text("ab%_", max_size=12))
def test_patterns_match_like_the_regular_expressions_they_stand_for(text: str, pattern: str) -> None:
    written = "".join({"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern)
    assert matches_pattern(text, pattern) is (re.fullmatch(written, text, re.DOTALL) is not None)


@given(st.text(max_size=20))
def test_an_escaped_text_matches_itself_alone(text: str) -> None:
    pattern = "".join(f"!{character}" for character in text)
    assert matches_pattern(text, pattern, escape="!")
    assert not matches_pattern(text + "x", pattern, escape="!")


def test_patterns_take_no_exponential_time() -> None:
    assert not matches_pattern("a" * 5000, "%a" * 50 + "b")


@given(st.text("ab'\"[]%", min_size=1, max_size=9), st.text(max_size=20))
def test_names_and_texts_survive_quoting(name: str, value: str) -> None:
    bracketed, quoted = name.replace("]", "]]"), name.replace('"', '""')
    text = value.replace("'", "''")
    assert holds(f"[{bracketed}] = '{text}' AND \"{quoted}\" = '{text}'", {name: value}) is True


@given(st.text(max_size=60) | st.text("ab=<>()'[]@.+-*/% ANDORNOTINLIKEIS19", max_size=60))
def test_any_text_is_a_filter_or_refused_with_a_reason(text: str) -> None:
    with suppress(FilterSyntaxError, EvaluationError):
        assert SqlFilter(text, {"a": 1, "b": 2}).matches(properties(SAMPLE), new_id) in (True, False)


# ---------------------------------------------------------------------- correlation


def test_correlation_wants_all_and_minds_case() -> None:
    message = properties({"Tier": "gold", "level": 3}, correlationid="c", label="bus")
    assert CorrelationFilter(correlation_id="c", properties={"tier": "gold", "level": 3}).matches(message, new_id)
    assert not CorrelationFilter(correlation_id="C").matches(message, new_id)
    assert not CorrelationFilter(label="bus", properties={"tier": "Gold"}).matches(message, new_id)
    assert not CorrelationFilter(properties={"level": "3"}).matches(message, new_id)
    assert not CorrelationFilter(to="somewhere").matches(message, new_id)
    with pytest.raises(FilterSyntaxError, match="names no property"):
        CorrelationFilter()


# ---------------------------------------------------------------------- actions


def changed(action: str, user: dict[str, Value], **parameters: Value) -> MessageProperties:
    found = properties(user, label="bus", messageid="m")
    SqlAction(action, parameters).apply(found, new_id)
    return found


@pytest.mark.parametrize(
    ("action", "user"),
    [
        ("SET color = 'blue'", {"color": "blue", "n": 4}),
        ("set COLOR = 'blue';", {"color": "blue", "n": 4}),
        ("SET n = n / 2; SET m = n + 1", {"color": "red", "n": 2, "m": 3}),
        ("REMOVE color SET n = NULL", {"n": None}),
        ("REMOVE absent;", {"color": "red", "n": 4}),
        ("SET n = '7'", {"color": "red", "n": 7}),
        ("SET n = 'seven'", {"color": "red", "n": "seven"}),
        ("SET color = 5", {"color": "5", "n": 4}),
        ("SET n = 2.9", {"color": "red", "n": 2}),
        ("SET [a b] = @p", {"color": "red", "n": 4, "a b": NOON}),
        ("SET id = newid()", {"color": "red", "n": 4, "id": ID}),
        ("SET n = absent + 1", {"color": "red", "n": None}),
    ],
)
def test_actions(action: str, user: dict[str, Value]) -> None:
    assert changed(action, {"color": "red", "n": 4}, p=NOON).user == user


def test_actions_on_system_properties() -> None:
    found = changed("SET sys.Label = 'train'; SET sys.To = 5; REMOVE sys.MessageId", {})
    assert (found.system["label"], found.system["to"], found.system["messageid"]) == ("train", "5", None)


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        ("SET sys.Nonsense = 1", "no system property"),
        ("SET sys.SequenceNumber = 1", "set by the service alone"),
        ("SET sys.TimeToLive = 5", "takes a timedelta"),
    ],
)
def test_actions_that_cannot_be_done(action: str, complaint: str) -> None:
    with pytest.raises(EvaluationError, match=complaint):
        changed(action, {})


@pytest.mark.parametrize(
    "action", ["", "color = 'red'", "SET color", "SET 'color' = 1", "REMOVE", "SET a = 1 AND b = 2", "SET a = b = 1"]
)
def test_what_is_no_action(action: str) -> None:
    with pytest.raises(FilterSyntaxError):
        SqlAction(action)


def test_an_action_has_at_most_32_statements() -> None:
    SqlAction("SET a=1;" * 32)
    with pytest.raises(FilterSyntaxError, match="33 statements"):
        SqlAction("SET a=1;" * 33)


# -- Rules of a subscription: copies, actions, failing rules, and how rules are made, changed and removed.


class DictCodec:
    """Payloads are dicts of user properties; counts how often one is opened."""

    def __init__(self) -> None:
        self.opened = 0

    def read(self, message: Message) -> MessageProperties:
        self.opened += 1
        assert isinstance(message.payload, dict)
        return MessageProperties(system_fields(message), dict(message.payload))

    def identify(self, message: Message, message_id: str) -> Message:
        return replace(message, message_id=message_id)

    def write(self, message: Message, properties: MessageProperties) -> Message:
        return replace(with_fields(message, properties), payload=properties.user)


class Fixture:
    def __init__(self, world) -> None:
        self.codec = DictCodec()
        self.namespace = BrokerNamespace("contoso", clock=world.clock, codec=self.codec)
        self.topic = self.namespace.create_topic("t")
        self.clock = world.clock

    def subscription(self, *rules: Rule, **settings: bool):
        made = self.namespace.create_subscription("t", "s", SubscriptionSettings(**settings), first_rule=rules[0])
        for rule in rules[1:]:
            self.namespace.create_rule("t", "s", rule)
        return made

    def send(self, payload: dict | None = None, **fields) -> None:
        self.topic.intake.send([Message(payload or {}, 10, **fields)])


def held(queue) -> list:
    return [stored.message.payload for stored in queue.peek(0, 100)]


@pytest.fixture
def topic(world):
    return Fixture(world)


def rule(name: str, sql: str | None = None, action: str | None = None) -> Rule:
    return Rule(name=name, filter=SqlFilter(sql) if sql else TrueFilter(), action=SqlAction(action) if action else None)


def test_only_what_matches_is_taken(topic):
    subscription = topic.subscription(rule("red", "color = 'red'"))
    for color in ("red", "blue", "red"):
        topic.send({"color": color})
    assert held(subscription.messages) == [{"color": "red"}] * 2


def test_rules_without_actions_give_one_copy_and_each_action_another(topic):
    """Two rules with actions and three without, all matching: three messages."""
    subscription = topic.subscription(
        rule("a", "n = 1"),
        rule("b", "n > 0"),
        rule("c"),
        rule("d", "n = 1", "SET n = 2"),
        rule("e", "n = 1", "REMOVE n"),
    )
    topic.send({"n": 1})
    assert held(subscription.messages) == [{"n": 1}, {"n": 2, "RuleName": "d"}, {"RuleName": "e"}]


def test_copies_are_private_to_their_subscription(topic):
    changing = topic.subscription(rule("double", action="SET n = n * 2; SET sys.SessionId = 'x'"))
    plain = topic.namespace.create_subscription("t", "plain")
    topic.send({"n": 3})
    assert (held(changing.messages), held(plain.messages)) == ([{"n": 6, "RuleName": "double"}], [{"n": 3}])
    assert changing.messages.peek(0, 1)[0].message.session_id == "x"


def test_a_message_is_opened_only_if_a_rule_asks_and_then_once(topic):
    topic.namespace.create_subscription("t", "plain")
    topic.send()
    assert topic.codec.opened == 0
    topic.subscription(rule("a", "n = 1"), rule("b", "n = 2"))
    topic.send()
    assert topic.codec.opened == 1


def test_without_rules_nothing_is_taken(topic):
    subscription = topic.subscription(Rule())
    topic.namespace.delete_rule("t", "s", "$DEFAULT")
    topic.send()
    assert held(subscription.messages) == []
    topic.namespace.create_rule("t", "s", Rule(name="never", filter=FalseFilter()))
    topic.send()
    assert held(subscription.messages) == []


def test_a_failing_rule_dead_letters_where_that_is_asked_for(topic):
    subscription = topic.subscription(rule("bad", "n > 1"), rule("good", "n = 'x'"))
    topic.send({"n": "x"})
    (dead,) = subscription.dead_letters.peek(0, 9)
    assert dead.added["DeadLetterReason"] == "FilterException"
    assert "rule 'bad': '>' does not compare str and int" in dead.added["DeadLetterErrorDescription"]
    assert held(subscription.messages) == []


def test_a_failing_rule_matches_nothing_otherwise(topic):
    subscription = topic.subscription(
        rule("bad", "n > 1"),
        rule("worse", "n = 'x'", "SET sys.No = 1"),
        rule("good", "n = 'x'"),
        dead_letter_on_filter_errors=False,
    )
    topic.send({"n": "x"})
    assert held(subscription.messages) == [{"n": "x"}]
    assert held(subscription.dead_letters) == []


def test_correlation_and_session_ids(topic):
    subscription = topic.subscription(
        Rule(name="s1", filter=CorrelationFilter(session_id="one")), requires_session=True
    )
    topic.send(session_id="one")
    topic.send(session_id="two")
    topic.send()
    assert (subscription.counts().active, subscription.counts().dead_letter) == (1, 0)


def test_scheduled_messages_meet_the_rules_when_their_time_comes(topic):
    topic.send({"n": 1}, scheduled_at=topic.clock.now + 5)
    subscription = topic.subscription(rule("one", "n = 1"))
    topic.clock.now += 5
    topic.namespace.run()
    assert held(subscription.messages) == [{"n": 1}]


def test_making_changing_and_removing(topic):
    subscription = topic.subscription(Rule())
    made = topic.namespace.create_rule("t", "s", rule("Mine", "n = 1"))
    assert made.created_at == topic.clock.now
    topic.clock.now += 9
    changed = topic.namespace.update_rule("t", "s", rule("mine", "n = 2"))
    assert (changed.filter.expression, changed.created_at) == ("n = 2", made.created_at)
    assert [each.name for each in subscription.rules] == [DEFAULT_RULE, "mine"]
    topic.namespace.create_rule("t", "s", Rule(name="c", filter=CorrelationFilter(to="x")))
    assert subscription.rules.counts() == (2, 1)
    topic.namespace.delete_rule("t", "s", "MINE")
    assert [each.name for each in subscription.rules] == [DEFAULT_RULE, "c"]


def test_what_is_refused_of_rules(topic):
    topic.subscription(Rule())
    with pytest.raises(EntityExists, match="rules/\\$default"):
        topic.namespace.create_rule("t", "s", Rule(name="$default"))
    for act in (topic.namespace.update_rule, topic.namespace.create_rule):
        with pytest.raises(EntityNotFound):
            act("t", "none", rule("x"))
    with pytest.raises(EntityNotFound, match="t/Subscriptions/s/rules/x"):
        topic.namespace.update_rule("t", "s", rule("x"))
    with pytest.raises(EntityNotFound):
        topic.namespace.delete_rule("t", "s", "x")
    for name in ("", "a/b", "a b", "x" * 51):
        with pytest.raises(InvalidSettings, match="no name for an entity"):
            topic.namespace.create_rule("t", "s", rule(name))

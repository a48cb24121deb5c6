"""Rules of a subscription: copies, actions, failing rules, and how rules are made, changed and removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servicebus_sandbox.broker.broker_errors import EntityExists, EntityNotFound, InvalidSettings
from servicebus_sandbox.broker.entity_settings import SubscriptionSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.subscription_rules.filters import (
    CorrelationFilter,
    FalseFilter,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from servicebus_sandbox.broker.subscription_rules.message_properties import (
    MessageProperties,
    system_fields,
    with_fields,
)
from servicebus_sandbox.broker.subscription_rules.rules import DEFAULT_RULE, Rule
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace


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

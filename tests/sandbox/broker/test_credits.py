"""Throttling by credits, in seconds that the test counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_sandbox.broker.broker_errors import InvalidSettings, Throttled
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.queues.credits import CreditBucket
from servicebus_sandbox.broker.subscription_rules.filters import SqlFilter
from servicebus_sandbox.broker.subscription_rules.rules import Rule
from servicebus_sandbox.specs import NamespaceSpec

STEP = st.tuples(st.floats(0, 3), st.integers(1, 30))


def test_credits_come_back_at_the_start_of_each_second():
    bucket = CreditBucket(10, now=100.0)
    assert [bucket.spend(1, 100.0 + at / 100) for at in range(20)] == [True] * 10 + [False] * 10
    assert not bucket.spend(1, 100.99)
    assert bucket.spend(1, 101.0)
    assert bucket.balance == 9


def test_unused_credits_are_lost():
    bucket = CreditBucket(10, now=0.0)
    assert bucket.spend(1, 50.0)
    assert bucket.balance == 9


def test_a_debt_is_paid_first():
    bucket = CreditBucket(10, now=0.0)
    assert bucket.spend(35, 0.0)
    assert [bucket.spend(1, float(at)) for at in range(4)] == [False, False, False, True]
    assert bucket.balance == 4


def test_a_refusal_costs_nothing():
    bucket = CreditBucket(5, now=0.0)
    bucket.charge(5, 0.0)
    for _ in range(100):
        with pytest.raises(Throttled, match=r"Error code: 50009\. Please wait 2 seconds and try again"):
            bucket.charge(10, 0.5)
    assert bucket.spend(5, 1.0)


@given(st.integers(1, 100), st.lists(STEP))
def test_no_more_is_spent_than_given(rate, steps):
    now, spent, bucket = 0.0, 0, CreditBucket(rate, now=0.0)
    for wait, cost in steps:
        now += wait
        spent += cost * bucket.spend(cost, now)
        last = max((cost for _, cost in steps), default=0)
        assert spent <= rate * (int(now) + 1) + last
        assert bucket.balance <= rate


def test_sends_cost_one_a_message_and_one_a_filter(make_world, message):
    world = make_world(credits_per_second=100)
    bucket = world.namespace._agenda.credits
    queue, topic = world.namespace.create_queue("q"), world.namespace.create_topic("t")
    for name in ("all", "none"):
        world.namespace.create_subscription("t", name)
    world.namespace.create_rule("t", "none", Rule(name="big", filter=SqlFilter("size > 10")))
    queue.intake.send([message(), message()])
    assert bucket.balance == 98
    topic.intake.send([message(), message()])
    assert bucket.balance == 90


def test_a_send_that_is_refused_stores_nothing(make_world, message):
    world = make_world(credits_per_second=3)
    queue = world.namespace.create_queue("q")
    queue.intake.send([message() for _ in range(3)])
    with pytest.raises(Throttled):
        queue.intake.send([message()])
    assert len(queue.messages) == 3
    world.pass_time(1)
    queue.intake.send([message()])


@pytest.mark.parametrize("deletes", [True, False])
def test_a_receiver_gets_what_the_credits_allow_and_no_message_is_lost(make_world, message, deletes):
    world = make_world(credits_per_second=10)
    queue = world.namespace.create_queue("q")
    queue.intake.send([message(str(number)) for number in range(40)])  # a debt of 30
    got = []
    for _ in range(8):
        receiver = world.receiver(queue.messages, settles_on_delivery=deletes)
        got.append([stored.message.payload for stored in receiver.receive()])
        assert [type(error) for error in receiver.ended] == [Throttled] * bool(queue.messages.waiting())
        world.pass_time(1)
    assert [len(each) for each in got] == [0, 0, 0, 0, 10, 10, 10, 10]
    assert [name for each in got for name in each] == [str(number) for number in range(40)]


def test_a_session_is_free_again_after_its_receiver_was_throttled(make_world, message):
    world = make_world(credits_per_second=2)
    queue = world.namespace.create_queue("q", QueueSettings(requires_session=True))
    queue.intake.send([message(name, session_id="s") for name in "ab"])
    throttled = world.receiver(queue.messages, session="s")
    assert throttled.receive() == []
    assert [type(error) for error in throttled.ended] == [Throttled]
    world.pass_time(1)
    assert [stored.message.payload for stored in world.receiver(queue.messages, session="s").receive()] == ["a", "b"]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "many", 10**12])
def test_what_is_no_limit(limit):
    with pytest.raises(InvalidSettings, match=r"credits_per_second is .*; allowed is 1 to 1000000000"):
        NamespaceSpec("contoso", credits_per_second=limit)

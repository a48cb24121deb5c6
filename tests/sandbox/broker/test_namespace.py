"""Entities by path, topics and their copies, what may be changed."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_sandbox.broker.broker_errors import (
    EntityExists,
    EntityNotFound,
    InvalidOperation,
    InvalidSettings,
    MessageTooLarge,
    QuotaExceeded,
    Throttled,
)
from servicebus_sandbox.broker.entity_settings import QueueSettings, SubscriptionSettings, Tier, TopicSettings
from servicebus_sandbox.broker.queues.agenda import CreditBucket
from servicebus_sandbox.broker.queues.message_queue import COMPLETE
from servicebus_sandbox.broker.subscription_rules.rules import Rule, SqlFilter
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.specs import NamespaceSpec


def test_paths_compare_without_case_and_keep_their_spelling(world):
    world.namespace.create_queue("Contoso/x-servicebus-transfer/0")
    assert world.namespace.queue("contoso/X-ServiceBus-Transfer/0").path == "Contoso/x-servicebus-transfer/0"


def test_queues_and_topics_share_names(world):
    world.namespace.create_queue("orders")
    with pytest.raises(EntityExists, match="ORDERS"):
        world.namespace.create_topic("ORDERS")
    with pytest.raises(EntityNotFound, match="orders"):
        world.namespace.topic("orders")


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "a b", "$cbs", "x" * 261])
def test_bad_names_are_refused(world, path):
    with pytest.raises(InvalidSettings, match="no name for an entity"):
        world.namespace.create_queue(path)


def test_listing_is_sorted(world):
    for path in ("b", "C", "a"):
        world.namespace.create_queue(path)
    assert [queue.path for queue in world.namespace.queues()] == ["a", "b", "C"]


def test_sub_queues_are_found_by_path(world):
    queue = world.namespace.create_queue("orders")
    assert world.namespace.message_queue("orders") is queue.messages
    assert world.namespace.message_queue("Orders/$deadletterqueue") is queue.dead_letters
    assert world.namespace.message_queue("orders/$Transfer/$DeadLetterQueue") is queue.transfer_dead_letters


def test_subscriptions_are_found_by_path(world):
    world.namespace.create_topic("audit/log")
    subscription = world.namespace.create_subscription("audit/log", "all")
    assert world.namespace.entity("Audit/Log/subscriptions/ALL") is subscription
    assert world.namespace.message_queue("audit/log/Subscriptions/all/$DeadLetterQueue") is subscription.dead_letters
    with pytest.raises(EntityNotFound, match="audit/log/Subscriptions/none"):
        world.namespace.entity("audit/log/Subscriptions/none")


def test_one_sends_to_queues_and_topics_and_receives_from_queues_and_subscriptions(world):
    world.namespace.create_queue("q")
    world.namespace.create_topic("t")
    world.namespace.create_subscription("t", "s")
    for path in ("q/$DeadLetterQueue", "t/Subscriptions/s"):
        with pytest.raises(InvalidOperation):
            world.namespace.send_target(path)
    with pytest.raises(InvalidOperation, match="subscriptions"):
        world.namespace.message_queue("t")
    with pytest.raises(EntityNotFound):
        world.namespace.send_target("nowhere")


def test_a_topic_copies_to_every_subscription(world, message, token):
    topic = world.namespace.create_topic("t")
    subscriptions = [world.namespace.create_subscription("t", name) for name in ("one", "two")]
    topic.intake.send([message("x")])
    received = [world.receiver(each.messages).receive_one() for each in subscriptions]
    assert [stored.message.payload for stored in received] == ["x", "x"]
    assert [stored.enqueued_sequence_number for stored in received] == [1, 1]
    subscriptions[0].messages.settle(token(received[0]), COMPLETE)
    assert [each.counts().active for each in subscriptions] == [0, 1]


def test_a_message_to_a_topic_without_subscriptions_is_gone(world, message):
    topic = world.namespace.create_topic("t")
    topic.intake.send([message()])
    assert topic.size_bytes == 0


def test_a_topic_keeps_scheduled_messages_until_their_time(world, message):
    topic = world.namespace.create_topic("t")
    first, _ = topic.intake.send([message(scheduled_at=world.clock.now + 5) for _ in range(2)])
    assert topic.counts().scheduled == 2
    topic.intake.schedule.cancel([first])
    late = world.namespace.create_subscription("t", "late")
    world.pass_time(5)
    assert late.counts().active == 1


def test_the_shortest_time_to_live_counts_among_topic_subscription_and_message(world, message):
    world.namespace.create_topic("t", TopicSettings(default_ttl=timedelta(seconds=3)))
    short = world.namespace.create_subscription("t", "short", SubscriptionSettings(default_ttl=timedelta(seconds=2)))
    plain = world.namespace.create_subscription("t", "plain")
    world.namespace.topic("t").intake.send([message(ttl=10)])
    world.pass_time(2)
    assert (short.counts().active, plain.counts().active) == (0, 1)
    world.pass_time(1)
    assert plain.counts().active == 0


def test_a_session_subscription_dead_letters_what_has_no_session(world, message):
    topic = world.namespace.create_topic("t")
    subscription = world.namespace.create_subscription("t", "s", SubscriptionSettings(requires_session=True))
    topic.intake.send([message(), message(session_id="a")])
    assert (subscription.counts().active, subscription.counts().dead_letter) == (1, 1)


def test_a_topic_detects_duplicates_and_has_a_quota(world, message):
    settings = TopicSettings(requires_duplicate_detection=True, max_size_mb=1)
    topic = world.namespace.create_topic("t", settings)
    subscription = world.namespace.create_subscription("t", "s")
    topic.intake.send([message(message_id="1"), message(message_id="1")])
    assert subscription.counts().active == 1
    with pytest.raises(QuotaExceeded):
        topic.intake.send([message(size=250_000) for _ in range(5)])


def test_deleting_a_topic_deletes_its_subscriptions(world):
    world.namespace.create_topic("t")
    receiver = world.receiver(world.namespace.create_subscription("t", "s").messages)
    gone = []
    world.namespace.on_removal(lambda entity: gone.append(entity.path))
    world.namespace.delete("t")
    assert [type(error) for error in receiver.ended] == [EntityNotFound]
    assert gone == ["t/Subscriptions/s", "t"]
    with pytest.raises(EntityNotFound):
        world.namespace.entity("t/Subscriptions/s")


def test_deleting_what_is_not_there(world):
    with pytest.raises(EntityNotFound, match="nothing"):
        world.namespace.delete("nothing")
    world.namespace.create_topic("t")
    with pytest.raises(EntityNotFound, match="nothing"):
        world.namespace.delete_subscription("t", "nothing")


def test_what_is_fixed_at_creation_cannot_be_updated(world):
    queue = world.namespace.create_queue("q")
    with pytest.raises(InvalidSettings, match="requires_session"):
        world.namespace.update(world.namespace.queue("q"), replace(queue.settings, requires_session=True))
    world.clock.now += 10
    world.namespace.update(world.namespace.queue("q"), replace(queue.settings, max_delivery_count=2))
    assert (queue.settings.max_delivery_count, queue.updated_at - queue.created_at) == (2, 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"lock_duration": timedelta(minutes=6)},
        {"lock_duration": timedelta(0)},
        {"max_delivery_count": 0},
        {"max_delivery_count": 2**31},
        {"max_size_mb": 0},
        {"default_ttl": timedelta(0)},
        {"duplicate_window": timedelta(days=8)},
        {"auto_delete_on_idle": timedelta(seconds=-1)},
        {"max_message_size_kb": 0},
        {"user_metadata": "x" * 1025},
    ],
)
def test_settings_out_of_range_name_themselves(settings):
    (name,) = settings
    with pytest.raises(InvalidSettings, match=name):
        QueueSettings(**settings)


def test_premium_takes_larger_messages(world, message):
    premium = BrokerNamespace("p", clock=world.clock, tier=Tier.PREMIUM)
    premium.create_queue("q").intake.send([message(size=1024 * 1024)])
    large = premium.create_queue("large", QueueSettings(max_message_size_kb=2048))
    assert large.intake.send([message(size=2048 * 1024)]) == [1]
    with pytest.raises(MessageTooLarge):
        large.intake.send([message(size=2048 * 1024 + 1)])


# -- Entities that delete themselves, and what keeps them.


IDLE = {"auto_delete_on_idle": timedelta(minutes=5)}


def exists(world, path):
    try:
        world.namespace.entity(path)
    except EntityNotFound:
        return False
    return True


@pytest.fixture
def queue(world):
    return world.namespace.create_queue("q", QueueSettings(**IDLE))


def test_an_idle_queue_is_gone_and_others_are_told(world, queue):
    gone = []
    world.namespace.on_removal(gone.append)
    world.pass_time(299)
    assert exists(world, "q")
    world.pass_time(1)
    assert (exists(world, "q"), gone) == (False, [queue])


@pytest.mark.parametrize("use", ["send", "receive", "update"])
def test_use_keeps_it_for_as_long_again(world, queue, message, use):
    queue.intake.send([message("x")])
    world.pass_time(200)
    if use == "send":
        queue.intake.send([message("y")])
    elif use == "update":
        world.namespace.update(world.namespace.queue("q"), QueueSettings(**IDLE, max_delivery_count=3))
    else:
        receiver = world.receiver(queue.messages)
        receiver.receive(1)
        queue.messages.detach(receiver.consumer)
    world.pass_time(299)
    assert exists(world, "q")
    world.pass_time(1)
    assert not exists(world, "q")


def test_a_receiver_that_waits_keeps_it(world, queue):
    receiver = world.receiver(queue.messages)
    world.pass_time(1000)
    queue.messages.detach(receiver.consumer)
    assert exists(world, "q")
    world.pass_time(600)
    assert not exists(world, "q")


def test_the_setting_may_come_and_go(world, queue):
    world.namespace.update(world.namespace.queue("q"), QueueSettings())
    world.pass_time(10_000)
    assert exists(world, "q")
    world.namespace.update(world.namespace.queue("q"), QueueSettings(**IDLE))
    world.pass_time(300)
    assert not exists(world, "q")


def test_one_that_forwards_is_never_idle(world):
    world.namespace.create_queue("end")
    world.namespace.create_queue("start", QueueSettings(forward_to="end", **IDLE))
    world.pass_time(10_000)
    assert exists(world, "start")


def test_an_entity_of_the_same_name_is_another(world, queue):
    world.pass_time(100)
    world.namespace.delete("q")
    world.namespace.create_queue("q")
    world.pass_time(1000)
    assert exists(world, "q")


def test_subscriptions_go_alone_and_keep_their_topic(world):
    world.namespace.create_topic("t", TopicSettings(auto_delete_on_idle=timedelta(minutes=10)))
    subscription = world.namespace.create_subscription("t", "s", SubscriptionSettings(**IDLE))
    world.receiver(subscription.messages)
    world.namespace.create_subscription("t", "idle", SubscriptionSettings(**IDLE))
    world.pass_time(1000)
    assert [exists(world, path) for path in ("t", "t/Subscriptions/s", "t/Subscriptions/idle")] == [True, True, False]


# -- Throttling by credits, in seconds that the test counts.


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
    assert bucket.spend(5, 0.0)
    assert not any(bucket.spend(10, 0.5) for _ in range(100))
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

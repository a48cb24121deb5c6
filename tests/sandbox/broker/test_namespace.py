"""Entities by path, topics and their copies, what may be changed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_sandbox.broker.broker_errors import (
    EntityExists,
    EntityNotFound,
    InvalidOperation,
    InvalidSettings,
    MessageTooLarge,
    QuotaExceeded,
)
from servicebus_sandbox.broker.entity_settings import QueueSettings, SubscriptionSettings, Tier, TopicSettings
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace


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
    subscriptions[0].messages.complete(token(received[0]))
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
        world.namespace.update_queue("q", replace(queue.settings, requires_session=True))
    world.clock.now += 10
    world.namespace.update_queue("q", replace(queue.settings, max_delivery_count=2))
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

"""Entities that delete themselves, and what keeps them."""

from datetime import timedelta

import pytest

from servicebus_sandbox.broker.broker_errors import EntityNotFound
from servicebus_sandbox.broker.entity_settings import QueueSettings, SubscriptionSettings, TopicSettings

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
        world.namespace.update_queue("q", QueueSettings(**IDLE, max_delivery_count=3))
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
    world.namespace.update_queue("q", QueueSettings())
    world.pass_time(10_000)
    assert exists(world, "q")
    world.namespace.update_queue("q", QueueSettings(**IDLE))
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

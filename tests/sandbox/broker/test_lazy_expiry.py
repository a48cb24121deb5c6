"""A time to live that acts when a receiver looks, as the service documents it."""

from datetime import timedelta

import pytest

from servicebus_sandbox.broker.broker_errors import MessageNotFound, SessionLockLost
from servicebus_sandbox.broker.entity_settings import Expiry, QueueSettings
from servicebus_sandbox.broker.queues.lane import Consumer
from servicebus_sandbox.broker.queues.message_queue import EXPIRED, REASON


@pytest.fixture
def lazy(make_world):
    return make_world(expiry=Expiry.LAZY)


def counts(queue):
    return queue.counts().active, queue.counts().dead_letter


@pytest.mark.parametrize("buries", [True, False])
def test_what_is_over_stays_until_a_receiver_has_credit(lazy, message, buries):
    queue = lazy.namespace.create_queue("q", QueueSettings(dead_letter_on_expiration=buries))
    queue.intake.send([message("old", ttl=5), message("new")])
    lazy.pass_time(60)
    assert counts(queue) == (2, 0)
    assert [stored.message.payload for stored in queue.messages.peek(0, 10)] == ["old", "new"]
    receiver = lazy.receiver(queue.messages)
    lazy.namespace.run()
    assert counts(queue) == (2, 0), "a receiver without credit does not look"
    assert [stored.message.payload for stored in receiver.receive()] == ["new"]
    assert counts(queue) == (1, int(buries))
    if buries:
        (dead,) = queue.dead_letters.peek(0, 10)
        assert dead.added[REASON] == EXPIRED


def test_while_a_receiver_waits_expiry_is_on_time(lazy, message, token):
    queue = lazy.namespace.create_queue("q", QueueSettings(lock_duration=timedelta(seconds=60)))
    queue.intake.send([message("deferred", ttl=5), message("later", ttl=20)])
    receiver = lazy.receiver(queue.messages)
    for stored in receiver.receive():
        queue.messages.defer(token(stored))
    queue.messages.grant(receiver.consumer, 1)
    lazy.pass_time(6)
    assert [stored.message.payload for stored in queue.messages.peek(0, 10)] == ["later"]
    queue.messages.grant(receiver.consumer, 0)
    lazy.pass_time(60)
    assert counts(queue) == (1, 0), "nobody waits any more"


def test_a_lock_that_ends_after_the_time_to_live_ends_the_message(lazy, message, token):
    queue = lazy.namespace.create_queue("q")
    queue.intake.send([message("held", ttl=5)])
    stored = lazy.receiver(queue.messages).receive_one()
    lazy.pass_time(6)
    queue.messages.abandon(token(stored))
    assert counts(queue) == (0, 0)


def test_a_deferred_message_that_is_over_is_not_received(lazy, message, token):
    queue = lazy.namespace.create_queue("q")
    queue.intake.send([message("m", ttl=5)])
    stored = lazy.receiver(queue.messages).receive_one()
    queue.messages.defer(token(stored))
    lazy.pass_time(6)
    assert counts(queue) == (1, 0)
    with pytest.raises(MessageNotFound):
        queue.messages.receive_deferred([stored.sequence_number])
    assert counts(queue) == (0, 0)


def test_a_session_of_expired_messages_is_not_offered(lazy, message):
    queue = lazy.namespace.create_queue("q", QueueSettings(requires_session=True))
    queue.intake.send([message("old", ttl=5, session_id="a"), message("new", session_id="b")])
    lazy.pass_time(6)
    answers = []
    consumer = Consumer(answers.append, answers.append)
    queue.messages.attach_to_next_session(consumer, lazy.clock.now + 10, answers.append)
    lazy.namespace.run()
    assert [session.id for session in answers] == ["b"]
    assert counts(queue) == (1, 0)


def test_waiting_for_a_session_is_looking(lazy, message):
    queue = lazy.namespace.create_queue("q", QueueSettings(requires_session=True))
    queue.intake.send([message("held", session_id="a"), message("over", ttl=5, session_id="a")])
    lazy.receiver(queue.messages, session="a")
    answers = []
    queue.messages.attach_to_next_session(
        Consumer(answers.append, answers.append), lazy.clock.now + 100, answers.append
    )
    lazy.pass_time(6)
    assert counts(queue) == (1, 0)


def test_forwarding_passes_on_nothing_that_is_over(lazy, message):
    target = lazy.namespace.create_queue("target")
    queue = lazy.namespace.create_queue("q")
    queue.intake.send([message("old", ttl=5), message("new")])
    lazy.pass_time(6)
    lazy.namespace.update_queue("q", QueueSettings(forward_to="target"))
    lazy.namespace.run()
    assert [stored.message.payload for stored in target.messages.peek(0, 10)] == ["new"]


def test_deleting_takes_the_oldest_waiting_ones(world, message, token):
    queue = world.namespace.create_queue("q")
    queue.intake.send([message(name) for name in "abcde"])
    receiver = world.receiver(queue.messages)
    receiver.receive_one()
    queue.messages.defer(token(receiver.receive_one()))
    cutoff = world.clock.now + 1
    world.pass_time(5)
    queue.intake.send([message("late")])
    assert queue.messages.delete_waiting(cutoff, 2) == 2
    assert [stored.message.payload for stored in queue.messages.peek(0, 10)] == ["a", "b", "e", "late"]
    assert queue.messages.delete_waiting(cutoff, 2) == 1
    assert queue.messages.delete_waiting(cutoff, 2) == 0
    assert [stored.message.payload for stored in receiver.receive()] == ["late"]


def test_a_session_has_to_be_held(world, message):
    queue = world.namespace.create_queue("q", QueueSettings(requires_session=True))
    queue.intake.send([message("a", session_id="a"), message("b", session_id="b")])
    with pytest.raises(SessionLockLost):
        queue.messages.check_session("a")
    world.receiver(queue.messages, session="a")
    queue.messages.check_session("a")
    assert queue.messages.delete_waiting(world.clock.now + 1, 10, "a") == 1
    assert [stored.message.payload for stored in queue.messages.peek(0, 10)] == ["b"]

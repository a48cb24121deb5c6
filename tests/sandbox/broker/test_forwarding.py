"""Messages that are forwarded from entity to entity, and those that do not arrive."""

from datetime import timedelta

import pytest

from servicebus_sandbox.broker.broker_errors import InvalidOperation
from servicebus_sandbox.broker.entity_settings import EntityStatus, QueueSettings, SubscriptionSettings


def to(target, **more):
    return QueueSettings(forward_to=target, **more)


def numbers(counts):
    return counts.active, counts.dead_letter, counts.transfer_dead_letter


@pytest.fixture
def entities(world):
    """`make("a", settings)` makes a queue and returns what tells its counts."""

    def make(path, settings=None):
        queue = world.namespace.create_queue(path, settings)
        return lambda: numbers(queue.counts())

    return make


def send(world, path, *messages):
    world.namespace.send_target(path).intake.send(messages)


def test_a_message_goes_on_with_its_first_number(world, entities, message):
    end, start = entities("end"), entities("start", to("end"))
    send(world, "end", message("other"))
    send(world, "start", message("a"))
    assert (start(), end()) == ((0, 0, 0), (2, 0, 0))
    _, got = world.receiver(world.namespace.queue("end").messages).receive()
    assert (got.message.payload, got.sequence_number, got.enqueued_sequence_number) == ("a", 2, 1)


def test_subscriptions_forward_to_queues_and_queues_to_topics(world, entities, message):
    end = entities("end")
    world.namespace.create_topic("topic")
    world.namespace.create_subscription("topic", "sub", SubscriptionSettings(forward_to="end"))
    entities("start", to("topic"))
    send(world, "start", message("a"))
    assert end() == (1, 0, 0)


def test_four_hops_are_the_most(world, entities, message):
    entities("q5")
    counts = {n: entities(f"q{n}", to(f"q{n + 1}")) for n in range(4, -1, -1)}
    send(world, "q1", message("four"))
    assert numbers(world.namespace.queue("q5").counts()) == (1, 0, 0)
    send(world, "q0", message("five"))
    assert numbers(world.namespace.queue("q5").counts()) == (1, 0, 0)
    assert counts[4]() == (0, 0, 1)
    (dead,) = world.namespace.queue("q4").transfer_dead_letters.peek(0, 10)
    assert dead.added["DeadLetterReason"] == "MaxTransferHopCountExceeded"


def test_a_circle_ends(world, entities, message):
    entities("b")
    entities("a", to("b"))
    world.namespace.update_queue("b", to("a"))
    send(world, "a", message("x"))
    total = [numbers(world.namespace.queue(path).counts()) for path in "ab"]
    assert sorted(total) == [(0, 0, 0), (0, 0, 1)]


def test_what_can_never_arrive_is_kept_in_the_transfer_dead_letters(world, entities, message):
    entities("gone")
    entities("sessions", QueueSettings(requires_session=True))
    start, other = entities("start", to("gone")), entities("other", to("sessions"))
    world.namespace.delete("gone")
    send(world, "start", message("x"))
    send(world, "other", message("x"), message("y", session_id="s"))
    assert (start(), other()) == ((0, 0, 1), (0, 0, 1))
    assert world.namespace.queue("sessions").counts().active == 1


def test_a_full_destination_is_tried_again(world, entities, message):
    end, start = entities("end", QueueSettings(max_size_mb=1)), entities("start", to("end"))
    send(world, "end", *(message(size=200 * 1024) for _ in range(5)))
    send(world, "start", message("first", size=100 * 1024))
    send(world, "start", message("second", size=10))
    assert (start(), end()) == ((2, 0, 0), (5, 0, 0))
    receiver = world.receiver(world.namespace.queue("end").messages, settles_on_delivery=True)
    receiver.receive(5)
    world.pass_time(1)
    assert (start(), end()) == ((0, 0, 0), (2, 0, 0))
    assert [stored.message.payload for stored in receiver.receive()] == ["first", "second"]


def test_a_disabled_destination_takes_what_is_forwarded(world, entities, message):
    end = entities("end", QueueSettings(status=EntityStatus.SEND_DISABLED))
    entities("start", to("end"))
    send(world, "start", message("x"))
    assert end() == (1, 0, 0)


def test_dead_letters_are_forwarded_with_their_reason_and_source(world, entities, message):
    end = entities("end")
    settings = QueueSettings(
        forward_dead_lettered_to="end", default_ttl=timedelta(seconds=5), dead_letter_on_expiration=True
    )
    start = entities("start", settings)
    send(world, "start", message("x"))
    world.pass_time(5)
    assert (start(), end()) == ((0, 0, 0), (1, 0, 0))
    (got,) = world.namespace.queue("end").messages.peek(0, 10)
    assert (got.added["DeadLetterReason"], got.dead_letter_source) == ("TTLExpiredException", "start")


def test_nobody_receives_where_messages_do_not_stay(world, entities, message):
    end, start = entities("end"), entities("start")
    send(world, "start", message("x"))
    receiver = world.receiver(world.namespace.queue("start").messages)
    world.namespace.update_queue("start", to("end"))
    world.pass_time(0)
    assert (start(), end()) == ((0, 0, 0), (1, 0, 0))
    assert isinstance(receiver.ended[0], InvalidOperation)
    with pytest.raises(InvalidOperation, match="receive from 'end'"):
        world.receiver(world.namespace.queue("start").messages)

"""Messages without id: each gets one of its own, as it enters."""

from __future__ import annotations

from dataclasses import replace

from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import Message

NAMELESS = Message(payload=b"x", size=1)


def _ids(queue) -> list[object]:
    return [stored.message.message_id for stored in queue.messages.peek(0, 10)]


def test_messages_without_id_get_ids_that_differ(world):
    queue = world.namespace.create_queue("orders")
    queue.intake.send([NAMELESS, replace(NAMELESS, message_id="a"), NAMELESS])
    first, kept, last = _ids(queue)
    assert kept == "a"
    for found in (first, last):
        assert isinstance(found, str)
        assert len(bytes.fromhex(found)) == 16
    assert first != last


def test_a_message_that_its_sender_still_holds_is_not_changed(world):
    queue = world.namespace.create_queue("orders")
    queue.intake.send([NAMELESS])
    assert NAMELESS.message_id is None


def test_duplicate_detection_takes_no_two_messages_without_id_for_one(world):
    queue = world.namespace.create_queue("orders", QueueSettings(requires_duplicate_detection=True))
    queue.intake.send([NAMELESS, NAMELESS])
    queue.intake.send([NAMELESS])
    assert len({*_ids(queue)}) == 3


def test_the_given_id_is_one_that_duplicate_detection_knows(world):
    queue = world.namespace.create_queue("orders", QueueSettings(requires_duplicate_detection=True))
    queue.intake.send([NAMELESS])
    (given,) = _ids(queue)
    queue.intake.send([replace(NAMELESS, message_id=given)])
    assert _ids(queue) == [given]


def test_all_copies_of_a_message_have_the_same_id(world):
    topic = world.namespace.create_topic("audit")
    copies = [world.namespace.create_subscription("audit", name) for name in ("one", "two")]
    topic.intake.send([NAMELESS])
    (first,), (second,) = map(_ids, copies)
    assert first == second is not None


def test_a_scheduled_message_has_its_id_from_the_start(world):
    queue = world.namespace.create_queue("orders")
    queue.intake.send([replace(NAMELESS, scheduled_at=world.clock.now + 60)])
    (waiting,) = _ids(queue)
    world.pass_time(61)
    assert _ids(queue) == [waiting]
    assert isinstance(waiting, str)

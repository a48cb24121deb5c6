"""Queues: order, locks, settling, expiry, limits."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from servicebus_sandbox.broker.broker_errors import (
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    QuotaExceeded,
    SessionLockLost,
)
from servicebus_sandbox.broker.entity_settings import EntityStatus, Expiry, Pings, QueueSettings, SubscriptionSettings
from servicebus_sandbox.broker.message import PING_CONTENT_TYPE, Message
from servicebus_sandbox.broker.queues.intake import DuplicateWindow
from servicebus_sandbox.broker.queues.message_queue import COMPLETE, EXPIRED, REASON, Consumer, Settlement, Settling
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

FIVE_SECONDS = timedelta(seconds=5)


def payloads(messages):
    return [stored.message.payload for stored in messages]


@pytest.fixture
def orders(world):
    return world.namespace.create_queue("orders", QueueSettings(max_delivery_count=3, lock_duration=FIVE_SECONDS))


def test_a_waiting_receiver_is_served_when_a_message_comes(world, orders, message):
    receiver = world.receiver(orders.messages)
    orders.messages.grant(receiver.consumer, 5)
    world.namespace.run()
    orders.intake.send([message("late")])
    world.namespace.run()
    assert payloads(receiver.got) == ["late"]


def test_receivers_take_turns(world, orders, message):
    receivers = [world.receiver(orders.messages) for _ in range(3)]
    for receiver in receivers:
        orders.messages.grant(receiver.consumer, 10)
    orders.intake.send([message(str(index)) for index in range(9)])
    world.namespace.run()
    assert [payloads(receiver.got) for receiver in receivers] == [list("036"), list("147"), list("258")]


def test_a_lock_outlives_its_receiver_and_then_expires(world, orders, message, token):
    orders.intake.send([message()])
    first = world.receiver(orders.messages)
    lock = token(first.receive_one())
    orders.messages.detach(first.consumer)
    other = world.receiver(orders.messages)
    world.pass_time(4.9)
    assert other.receive() == []
    world.pass_time(0.1)
    assert other.receive_one().delivery_count == 1
    with pytest.raises(MessageLockLost):
        orders.messages.settle(lock, COMPLETE)


def test_the_token_settles_after_the_receiver_has_left(world, orders, message, token):
    orders.intake.send([message()])
    receiver = world.receiver(orders.messages)
    lock = token(receiver.receive_one())
    orders.messages.detach(receiver.consumer)
    orders.messages.settle(lock, COMPLETE)
    assert len(orders.messages) == 0


def test_too_many_deliveries_end_in_the_dead_letter_queue(world, orders, message, token):
    orders.intake.send([message("bad")])
    receiver = world.receiver(orders.messages)
    for _ in range(3):
        orders.messages.settle(token(receiver.receive_one()), Settlement(Settling.ABANDON))
    dead = world.receiver(orders.dead_letters).receive_one()
    assert dead.message.payload == "bad"
    assert dead.added is not None
    assert dead.added["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert orders.counts().dead_letter == 1
    assert orders.counts().active == 0


def test_dead_letters_can_be_completed_but_not_dead_lettered(world, orders, message, token):
    orders.intake.send([message()])
    orders.messages.settle(token(world.receiver(orders.messages).receive_one()), Settlement(Settling.DEAD_LETTER))
    lock = token(world.receiver(orders.dead_letters).receive_one())
    with pytest.raises(InvalidOperation):
        orders.dead_letters.settle(lock, Settlement(Settling.DEAD_LETTER))
    orders.dead_letters.settle(lock, COMPLETE)
    assert orders.counts().total == 0


def test_dead_letters_never_expire_nor_run_out_of_deliveries(world, message, token):
    queue = world.namespace.create_queue("q", QueueSettings(default_ttl=FIVE_SECONDS, max_delivery_count=1))
    queue.intake.send([message()])
    queue.messages.settle(token(world.receiver(queue.messages).receive_one()), Settlement(Settling.DEAD_LETTER))
    receiver = world.receiver(queue.dead_letters)
    for _ in range(5):
        queue.dead_letters.settle(token(receiver.receive_one()), Settlement(Settling.ABANDON))
    world.pass_time(timedelta(days=30))
    assert queue.counts().dead_letter == 1


def test_receiving_deferred_is_all_or_nothing(world, orders, message, token):
    orders.intake.send([message("a"), message("b")])
    for stored in world.receiver(orders.messages).receive():
        orders.messages.settle(token(stored), Settlement(Settling.DEFER))
    with pytest.raises(MessageNotFound, match="9"):
        orders.messages.receive_deferred([1, 9])
    assert len(orders.messages.receive_deferred([2, 1])) == 2
    with pytest.raises(MessageNotFound):
        orders.messages.receive_deferred([1])


@pytest.mark.parametrize(("queue_ttl", "message_ttl", "lives"), [(None, 3, 3), (4, None, 4), (4, 3, 3), (3, 4, 3)])
def test_the_shorter_time_to_live_counts(world, message, queue_ttl, message_ttl, lives):
    ttl = timedelta(seconds=queue_ttl) if queue_ttl else None
    queue = world.namespace.create_queue("q", QueueSettings(default_ttl=ttl))
    queue.intake.send([message(ttl=message_ttl)])
    world.pass_time(lives - 0.1)
    assert queue.counts().active == 1
    world.pass_time(0.1)
    assert queue.counts().total == 0


def test_expired_messages_are_dead_lettered_where_the_queue_says_so(world, message):
    queue = world.namespace.create_queue("q", QueueSettings(dead_letter_on_expiration=True))
    queue.intake.send([message(ttl=1), message("stays")])
    world.pass_time(1)
    assert payloads(world.receiver(queue.messages).receive()) == ["stays"]
    assert world.receiver(queue.dead_letters).receive_one().added["DeadLetterReason"] == "TTLExpiredException"


def test_cancelling_is_all_or_nothing(world, orders, message):
    first, second = orders.intake.send([message(scheduled_at=world.clock.now + 10) for _ in range(2)])
    with pytest.raises(MessageNotFound):
        orders.intake.schedule.cancel([first, 99])
    assert orders.counts().scheduled == 2
    orders.intake.schedule.cancel([first, second])
    world.pass_time(20)
    assert orders.counts().total == 0


def test_pings_are_accepted_and_never_seen(world, orders, message):
    orders.intake.send([message(content_type=PING_CONTENT_TYPE, ttl=1)])
    assert orders.counts().total == 0
    assert world.receiver(orders.messages).receive() == []


def test_a_namespace_may_deliver_pings_like_any_message(world, message):
    namespace = BrokerNamespace("n", clock=world.clock, pings=Pings.DELIVERED)
    queue = namespace.create_queue("orders")
    namespace.create_topic("audit")
    subscription = namespace.create_subscription("audit", "all")
    for target in (queue, namespace.topic("audit")):
        target.intake.send([message("p", content_type=PING_CONTENT_TYPE)])
    assert payloads(queue.messages.peek(0, 10)) == payloads(subscription.messages.peek(0, 10)) == ["p"]
    with pytest.raises(MessageTooLarge):
        queue.intake.send([message(content_type=PING_CONTENT_TYPE, size=256 * 1024 + 1)])


def test_a_ping_is_refused_where_messages_are(world, orders, message):
    world.namespace.update(world.namespace.queue("orders"), QueueSettings(status=EntityStatus.SEND_DISABLED))
    with pytest.raises(EntityDisabled, match="SendDisabled"):
        orders.intake.send([message(content_type=PING_CONTENT_TYPE)])


def test_a_message_may_be_as_large_as_the_tier_allows(orders, message):
    orders.intake.send([message(size=256 * 1024)])
    with pytest.raises(MessageTooLarge, match="262144"):
        orders.intake.send([message(size=256 * 1024 + 1)])


def test_a_full_queue_takes_no_more_and_a_batch_enters_whole_or_not(world, message, token):
    queue = world.namespace.create_queue("small", QueueSettings(max_size_mb=1))
    chunk = 200 * 1024
    queue.intake.send([message(size=chunk) for _ in range(4)])
    with pytest.raises(QuotaExceeded, match="small"):
        queue.intake.send([message(size=chunk), message(size=chunk)])
    assert queue.counts().active == 4
    queue.messages.settle(token(world.receiver(queue.messages).receive_one()), COMPLETE)
    queue.intake.send([message(size=chunk), message(size=chunk)])
    assert queue.counts().active == 5


def test_duplicates_are_dropped_within_the_window(world, message):
    settings = QueueSettings(requires_duplicate_detection=True, duplicate_window=timedelta(seconds=30))
    queue = world.namespace.create_queue("q", settings)
    queue.intake.send([message(message_id="1"), message(message_id="1"), message(), message()])
    assert queue.counts().active == 3
    world.pass_time(29)
    queue.intake.send([message(message_id="1")])
    assert queue.counts().active == 3
    world.pass_time(1)
    queue.intake.send([message(message_id="1")])
    assert queue.counts().active == 4


def test_closing_for_receivers_ends_those_there_are(world, orders):
    receiver = world.receiver(orders.messages)
    world.namespace.update(world.namespace.queue("orders"), QueueSettings(status=EntityStatus.RECEIVE_DISABLED))
    assert [type(error) for error in receiver.ended] == [EntityDisabled]
    with pytest.raises(EntityDisabled):
        world.receiver(orders.messages)


def test_deleting_ends_receivers_and_drops_messages(world, orders, message):
    receiver = world.receiver(orders.messages)
    orders.intake.send([message(ttl=5)])
    world.namespace.delete("ORDERS")
    assert [type(error) for error in receiver.ended] == [EntityNotFound]
    world.pass_time(60)
    assert orders.counts().total == 0


def test_next_deadline_is_when_something_happens(world, orders, message):
    assert world.namespace.next_deadline() is None
    orders.intake.send([message(ttl=30), message(ttl=20), message(scheduled_at=world.clock.now + 25)])
    assert world.namespace.next_deadline() == world.clock.now + 20
    world.receiver(orders.messages).receive(1)
    assert world.namespace.next_deadline() == world.clock.now + 5


# -- Which message ids were seen within a window.


class Compared:
    """Counts comparisons of UUIDs: a set compares where hashes are equal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: Counter[str] = Counter()
        equal = UUID.__eq__

        def counted(one: UUID, other: object) -> bool:
            self.count["=="] += 1
            return bool(equal(one, other))

        monkeypatch.setattr(UUID, "__eq__", counted)


def test_ids_whose_hashes_a_sender_made_equal_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    compared, window = Compared(monkeypatch), DuplicateWindow(60.0)
    ids = [UUID(int=number * (2**61 - 1)) for number in range(200)]
    assert len({hash(one) for one in ids}) == 1
    assert all(window.is_new(one, 0.0) for one in ids)
    assert not any(window.is_new(one, 1.0) for one in ids)
    assert compared.count["=="] == 0


def test_a_uuid_and_its_bytes_are_two_ids() -> None:
    window = DuplicateWindow(60.0)
    assert window.is_new(UUID(int=7), 0.0)
    assert window.is_new(UUID(int=7).bytes, 0.0)


def test_an_id_is_new_again_when_its_window_is_over() -> None:
    window = DuplicateWindow(60.0)
    assert window.is_new(UUID(int=7), 0.0)
    assert window.is_new(UUID(int=7), 60.0)
    assert len(window) == 1


# -- Messages without id: each gets one of its own, as it enters.


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


# -- A time to live that acts when a receiver looks, as the service documents it.


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
        queue.messages.settle(token(stored), Settlement(Settling.DEFER))
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
    queue.messages.settle(token(stored), Settlement(Settling.ABANDON))
    assert counts(queue) == (0, 0)


def test_a_deferred_message_that_is_over_is_not_received(lazy, message, token):
    queue = lazy.namespace.create_queue("q")
    queue.intake.send([message("m", ttl=5)])
    stored = lazy.receiver(queue.messages).receive_one()
    queue.messages.settle(token(stored), Settlement(Settling.DEFER))
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
    lazy.namespace.update(lazy.namespace.queue("q"), QueueSettings(forward_to="target"))
    lazy.namespace.run()
    assert [stored.message.payload for stored in target.messages.peek(0, 10)] == ["new"]


def test_deleting_takes_the_oldest_waiting_ones(world, message, token):
    queue = world.namespace.create_queue("q")
    queue.intake.send([message(name) for name in "abcde"])
    receiver = world.receiver(queue.messages)
    receiver.receive_one()
    queue.messages.settle(token(receiver.receive_one()), Settlement(Settling.DEFER))
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


# -- Messages that are forwarded from entity to entity, and those that do not arrive.


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
    world.namespace.update(world.namespace.queue("b"), to("a"))
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
    world.namespace.update(world.namespace.queue("start"), to("end"))
    world.pass_time(0)
    assert (start(), end()) == ((0, 0, 0), (1, 0, 0))
    assert isinstance(receiver.ended[0], InvalidOperation)
    with pytest.raises(InvalidOperation, match="receive from 'end'"):
        world.receiver(world.namespace.queue("start").messages)

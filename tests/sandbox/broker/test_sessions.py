"""Sessions: one holder each, order inside, locks, state, waiting for the next one."""

from datetime import timedelta

import pytest

from servicebus_sandbox.broker.broker_errors import (
    InvalidOperation,
    MessageNotFound,
    SessionCannotBeLocked,
    SessionLockLost,
)
from servicebus_sandbox.broker.entity_settings import QueueSettings


@pytest.fixture
def payments(world):
    settings = QueueSettings(requires_session=True, lock_duration=timedelta(seconds=5), max_delivery_count=3)
    return world.namespace.create_queue("payments", settings)


@pytest.fixture
def send(payments, message):
    def send(text: str) -> None:
        """`a1 b1` sends message a1 in session a, b1 in session b."""
        payments.intake.send([message(word, session_id=word[0]) for word in text.split()])

    return send


def payloads(messages):
    return [stored.message.payload for stored in messages]


class Acceptor:
    """Waits for the next session and keeps the answers."""

    def __init__(self, world, queue, wait=10.0):
        self.receiver = world.receiver(queue.messages, attach=False)
        self.answers = []
        queue.messages.attach_to_next_session(self.receiver.consumer, world.clock.now + wait, self.answers.append)
        world.namespace.run()

    @property
    def accepted(self):
        return [session and session.id for session in self.answers]


def test_a_message_without_session_id_is_refused(payments, message):
    with pytest.raises(InvalidOperation, match="session id"):
        payments.intake.send([message()])


def test_a_receiver_without_session_is_refused(world, payments):
    with pytest.raises(InvalidOperation, match="requires sessions"):
        world.receiver(payments.messages)


def test_a_session_gives_its_own_messages_in_order(world, payments, send):
    send("a1 b1 a2 b2 a3")
    assert payloads(world.receiver(payments.messages, session="a").receive()) == ["a1", "a2", "a3"]


def test_one_holder_at_a_time(world, payments, send):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    with pytest.raises(SessionCannotBeLocked, match="'a'"):
        world.receiver(payments.messages, session="a")
    payments.messages.detach(receiver.consumer)
    assert payloads(world.receiver(payments.messages, session="a").receive()) == ["a1"]


def test_leaving_gives_messages_back_uncounted(world, payments, send):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    receiver.receive_one()
    payments.messages.detach(receiver.consumer)
    assert world.receiver(payments.messages, session="a").receive_one().delivery_count == 0


def test_a_session_lock_that_ends_counts_and_tells_the_holder(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    lock = token(receiver.receive_one())
    world.pass_time(5)
    assert [type(error) for error in receiver.ended] == [SessionLockLost]
    with pytest.raises(SessionLockLost):
        payments.messages.complete(lock)
    assert world.receiver(payments.messages, session="a").receive_one().delivery_count == 1


def test_a_holder_that_waits_for_more_keeps_the_session(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    payments.messages.grant(receiver.consumer, 2)
    world.pass_time(6)
    payments.messages.complete(token(receiver.got[0]))
    send("a2")
    world.namespace.run()
    world.pass_time(6)
    assert payloads(receiver.got) == ["a1", "a2"]
    assert [type(error) for error in receiver.ended] == [SessionLockLost]


def test_renewing_keeps_the_session(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    lock = token(receiver.receive_one())
    world.pass_time(4)
    assert payments.messages.renew_session("a") == world.clock.now + 5
    world.pass_time(4)
    payments.messages.complete(lock)
    assert receiver.ended == []
    with pytest.raises(SessionLockLost):
        payments.messages.renew_session("b")


def test_state_stays_with_the_session(world, payments):
    receiver = world.receiver(payments.messages, session="a")
    payments.messages.set_session_state("a", b"step 3")
    payments.messages.detach(receiver.consumer)
    with pytest.raises(SessionLockLost):
        payments.messages.session_state("a")
    world.receiver(payments.messages, session="a")
    assert payments.messages.session_state("a") == b"step 3"
    payments.messages.set_session_state("a", None)
    assert payments.messages.session_state("a") is None


def test_the_next_session_is_the_one_that_waits_longest(world, payments, send):
    send("b1 a1 b2")
    assert [Acceptor(world, payments).accepted, Acceptor(world, payments).accepted] == [["b"], ["a"]]


def test_waiting_ends_when_a_session_comes(world, payments, send):
    first, second = Acceptor(world, payments), Acceptor(world, payments)
    assert first.accepted == []
    send("a1")
    world.namespace.run()
    assert (first.accepted, second.accepted) == (["a"], [])
    payments.messages.detach(first.receiver.consumer)
    world.namespace.run()
    assert second.accepted == ["a"]


def test_waiting_ends_in_time(world, payments, send):
    acceptor = Acceptor(world, payments, wait=10)
    world.pass_time(9.9)
    assert acceptor.accepted == []
    world.pass_time(0.1)
    assert acceptor.accepted == [None]
    send("a1")
    world.namespace.run()
    assert acceptor.accepted == [None]


def test_one_who_left_is_not_waiting(world, payments, send):
    acceptor = Acceptor(world, payments)
    payments.messages.detach(acceptor.receiver.consumer)
    send("a1")
    world.pass_time(20)
    assert acceptor.accepted == []


def test_an_empty_session_is_not_offered_as_next(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    payments.messages.complete(token(receiver.receive_one()))
    payments.messages.detach(receiver.consumer)
    assert Acceptor(world, payments).accepted == []


def test_new_messages_reach_the_holder(world, payments, send):
    acceptor = Acceptor(world, payments)
    send("a1")
    world.namespace.run()
    payments.messages.grant(acceptor.receiver.consumer, 10)
    send("a2 b1")
    world.namespace.run()
    assert payloads(acceptor.receiver.got) == ["a1", "a2"]


def test_deferred_messages_belong_to_their_session(world, payments, send, token):
    send("a1 b1")
    receiver = world.receiver(payments.messages, session="a")
    payments.messages.defer(token(receiver.receive_one()))
    with pytest.raises(SessionLockLost):
        payments.messages.receive_deferred([1], session_id="b")
    world.receiver(payments.messages, session="b")
    with pytest.raises(MessageNotFound):
        payments.messages.receive_deferred([1], session_id="b")
    assert payloads(payments.messages.receive_deferred([1], session_id="a")) == ["a1"]


def test_peek_can_be_limited_to_a_session(payments, send):
    send("a1 b1 a2")
    assert payloads(payments.messages.peek(0, 10, "a")) == ["a1", "a2"]


def test_sessions_are_listed_by_messages_or_by_state(world, payments, send):
    send("b1 a1")
    world.receiver(payments.messages, session="c")
    assert payments.messages.session_ids() == ["a", "b"]
    payments.messages.set_session_state("c", b"x")
    assert payments.messages.session_ids() == ["a", "b", "c"]
    assert payments.messages.session_ids(state_set_since=world.clock.now) == ["c"]
    assert payments.messages.session_ids(state_set_since=world.clock.now + 1) == []


def test_dead_letters_of_sessions_need_no_session(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    payments.messages.dead_letter(token(receiver.receive_one()), "bad")
    assert payloads(world.receiver(payments.dead_letters).receive()) == ["a1"]


def test_expired_messages_leave_their_session(world, payments, message):
    payments.intake.send([message("a1", session_id="a", ttl=1)])
    world.pass_time(1)
    assert payments.messages.session_ids() == []
    assert Acceptor(world, payments).accepted == []

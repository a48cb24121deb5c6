"""Sessions: one holder each, order inside, locks, state, waiting for the next one."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from servicebus_sandbox.broker.broker_errors import (
    InvalidOperation,
    MessageNotFound,
    SessionCannotBeLocked,
    SessionLockLost,
)
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.message_queue import COMPLETE, Consumer, Settlement, Settling
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace


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


def test_a_session_lock_that_ends_counts_and_tells_the_holder(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    lock = token(receiver.receive_one())
    world.pass_time(5)
    assert [type(error) for error in receiver.ended] == [SessionLockLost]
    with pytest.raises(SessionLockLost):
        payments.messages.settle(lock, COMPLETE)
    assert world.receiver(payments.messages, session="a").receive_one().delivery_count == 1


def test_a_holder_that_waits_for_more_keeps_the_session(world, payments, send, token):
    send("a1")
    receiver = world.receiver(payments.messages, session="a")
    payments.messages.grant(receiver.consumer, 2)
    world.pass_time(6)
    payments.messages.settle(token(receiver.got[0]), COMPLETE)
    send("a2")
    world.namespace.run()
    world.pass_time(6)
    assert payloads(receiver.got) == ["a1", "a2"]
    assert [type(error) for error in receiver.ended] == [SessionLockLost]


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
    payments.messages.settle(token(receiver.receive_one()), Settlement(Settling.DEFER))
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
    payments.messages.settle(token(receiver.receive_one()), Settlement(Settling.DEAD_LETTER, reason="bad"))
    assert payloads(world.receiver(payments.dead_letters).receive()) == ["a1"]


def test_expired_messages_leave_their_session(world, payments, message):
    payments.intake.send([message("a1", session_id="a", ttl=1)])
    world.pass_time(1)
    assert payments.messages.session_ids() == []
    assert Acceptor(world, payments).accepted == []


# -- Sessions against a simple model: who holds which, what is in line, what is in hand.


LOCK, MAX_DELIVERIES = 10, 3
SESSIONS = ("a", "b", "c")
RECEIVERS = (0, 1, 2)


@dataclass
class Known:
    """A session as the model knows it: sequence numbers in line (sorted) and in hand, with their tokens."""

    line: list[int] = field(default_factory=list)
    hand: dict[int, bytes] = field(default_factory=dict)
    holder: int | None = None
    until: float = 0.0


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.namespace = BrokerNamespace("n", clock=lambda: self.now)
        lock = timedelta(seconds=LOCK)
        self.queue = self.namespace.create_queue(
            "q", QueueSettings(requires_session=True, lock_duration=lock, max_delivery_count=MAX_DELIVERIES)
        )
        self.messages = self.queue.messages
        self.known = {name: Known() for name in SESSIONS}
        self.failures: dict[int, int] = {}
        self.dead = self.sent = 0
        self.got: list = []
        self.lost: list[int] = []
        self.consumers: dict[int, Consumer] = {}

    def held_by(self, receiver: int) -> str | None:
        return next((name for name, known in self.known.items() if known.holder == receiver), None)

    def consumer(self, receiver: int) -> Consumer:
        made = Consumer(self.got.append, lambda error: self.lost.append(receiver))
        self.consumers[receiver] = made
        return made

    def come_back(self, known: Known, number: int, *, failed: bool) -> None:
        self.failures[number] += failed
        if failed and self.failures[number] >= MAX_DELIVERIES:
            self.dead += 1
        else:
            known.line = sorted([*known.line, number])

    def free(self, known: Known, *, failed: bool) -> None:
        for number in list(known.hand):
            self.come_back(known, number, failed=failed)
        known.hand.clear()
        known.holder = None

    @rule(session=st.sampled_from(SESSIONS))
    def send(self, session):
        (number,) = self.queue.intake.send([Message("x", 5, session_id=session)])
        self.sent += 1
        assert number == self.sent
        self.failures[number] = 0
        self.known[session].line.append(number)
        self.namespace.run()

    @rule(receiver=st.sampled_from(RECEIVERS), session=st.sampled_from(SESSIONS))
    def accept(self, receiver, session):
        if self.held_by(receiver) is not None:
            return
        known = self.known[session]
        if known.holder is not None:
            with pytest.raises(SessionCannotBeLocked):
                self.messages.attach_to_session(self.consumer(receiver), session)
            return
        self.messages.attach_to_session(self.consumer(receiver), session)
        known.holder, known.until = receiver, self.now + LOCK

    @rule(receiver=st.sampled_from(RECEIVERS))
    def accept_next(self, receiver):
        if self.held_by(receiver) is not None:
            return
        answers: list = []
        made = self.consumer(receiver)
        self.messages.attach_to_next_session(made, self.now + 100, answers.append)
        self.namespace.run()
        available = {name for name, known in self.known.items() if known.holder is None and known.line}
        if not available:
            assert answers == []
            self.messages.detach(made)
            return
        (session,) = answers
        assert session.id in available
        self.known[session.id].holder, self.known[session.id].until = receiver, self.now + LOCK

    @rule(receiver=st.sampled_from(RECEIVERS), credit=st.integers(1, 3))
    def receive(self, receiver, credit):
        name = self.held_by(receiver)
        if name is None:
            return
        known = self.known[name]
        self.got.clear()
        self.messages.grant(self.consumers[receiver], credit)
        self.namespace.run()
        self.messages.grant(self.consumers[receiver], 0)
        expected, known.line = known.line[:credit], known.line[credit:]
        assert [(s.sequence_number, s.delivery_count) for s in self.got] == [(n, self.failures[n]) for n in expected]
        known.hand.update({stored.sequence_number: stored.lock_token for stored in self.got})

    @rule(data=st.data(), session=st.sampled_from(SESSIONS), completing=st.booleans())
    def settle(self, data, session, completing):
        known = self.known[session]
        if not known.hand:
            return
        number = data.draw(st.sampled_from(sorted(known.hand)))
        token = known.hand.pop(number)
        if completing:
            self.messages.settle(token, COMPLETE)
        else:
            self.messages.settle(token, Settlement(Settling.ABANDON))
            self.come_back(known, number, failed=True)
        with pytest.raises(SessionLockLost):
            self.messages.settle(token, COMPLETE)

    @rule(session=st.sampled_from(SESSIONS))
    def renew(self, session):
        known = self.known[session]
        if known.holder is None:
            with pytest.raises(SessionLockLost):
                self.messages.renew_session(session)
        else:
            known.until = self.messages.renew_session(session)
            assert known.until == self.now + LOCK

    @rule(receiver=st.sampled_from(RECEIVERS))
    def leave(self, receiver):
        name = self.held_by(receiver)
        if name is not None:
            self.messages.detach(self.consumers[receiver])
            self.free(self.known[name], failed=False)

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds):
        self.now += seconds
        self.lost.clear()
        self.namespace.run()
        ended = [known for known in self.known.values() if known.holder is not None and known.until <= self.now]
        assert sorted(self.lost) == sorted(known.holder for known in ended)
        for known in ended:
            self.free(known, failed=True)

    @invariant()
    def counts_agree(self):
        alive = sum(len(known.line) + len(known.hand) for known in self.known.values())
        assert (self.queue.counts().active, self.queue.counts().dead_letter) == (alive, self.dead)
        with_messages = sorted(name for name, known in self.known.items() if known.line or known.hand)
        assert self.messages.session_ids() == with_messages


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(stateful_step_count=40)

"""Sessions against a simple model: who holds which, what is in line, what is in hand."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from servicebus_sandbox.broker.broker_errors import SessionCannotBeLocked, SessionLockLost
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.lane import Consumer
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

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
            self.messages.complete(token)
        else:
            self.messages.abandon(token)
            self.come_back(known, number, failed=True)
        with pytest.raises(SessionLockLost):
            self.messages.complete(token)

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

"""A queue against a model that is too simple to be wrong: a list of messages and what is known of each."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from servicebus_sandbox.broker.broker_errors import MessageLockLost, MessageNotFound
from servicebus_sandbox.broker.entity_settings import Expiry, QueueSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.message_queue import COMPLETE, Consumer, Settlement, Settling
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

LOCK, MAX_DELIVERIES = 10, 3


@dataclass
class Known:
    """One message as the model knows it; `place` is ready, locked, deferred, scheduled or dead."""

    name: int
    number: int
    place: str = "ready"
    expires: float | None = None
    due: float | None = None
    ttl: float | None = None
    failures: int = 0
    locked_until: float = 0.0
    deferred: bool = False
    token: bytes = b""


class QueueMachine(RuleBasedStateMachine):
    expiry = Expiry.ON_TIME

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.namespace = BrokerNamespace("n", clock=lambda: self.now, expiry=self.expiry)
        self.queue = self.namespace.create_queue(
            "q",
            QueueSettings(
                lock_duration=timedelta(seconds=LOCK),
                max_delivery_count=MAX_DELIVERIES,
                dead_letter_on_expiration=True,
            ),
        )
        self.got = []
        self.consumer = Consumer(self.got.append, self.fail)
        self.deleting = Consumer(self.got.append, self.fail, settles_on_delivery=True)
        self.queue.messages.attach(self.consumer)
        self.queue.messages.attach(self.deleting)
        self.model: list[Known] = []
        self.lost_tokens: list[bytes] = []
        self.names = self.numbers = 0

    def fail(self, error) -> None:
        raise AssertionError(f"no receiver is to be ended: {error}")

    # ---------------------------------------------------------------- what the model does by itself

    def new_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def at(self, place: str) -> list[Known]:
        return sorted((known for known in self.model if known.place == place), key=lambda known: known.number)

    def come_back(self, known: Known, *, failed: bool) -> None:
        known.failures += failed
        self.lost_tokens.append(known.token)
        if (failed and known.failures >= MAX_DELIVERIES) or (known.expires is not None and known.expires <= self.now):
            known.place = "dead"
        else:
            known.place = "deferred" if known.deferred else "ready"

    def pass_time(self) -> None:
        for known in self.at("locked"):
            if known.locked_until <= self.now:
                self.come_back(known, failed=True)
        if self.expiry is Expiry.ON_TIME:
            self.look()
        for known in sorted(self.at("scheduled"), key=lambda known: (known.due, known.number)):
            if known.due is not None and known.due <= self.now:
                known.number, known.place = self.new_number(), "ready"
                known.expires = self.now + known.ttl if known.ttl else None

    def look(self) -> None:
        """A receiver comes: what is over goes."""
        for known in self.at("ready") + self.at("deferred"):
            if known.expires is not None and known.expires <= self.now:
                known.place = "dead"

    # ---------------------------------------------------------------- what happens

    @rule(
        count=st.integers(1, 3),
        ttl=st.one_of(st.none(), st.integers(1, 30)),
        delay=st.one_of(st.none(), st.integers(1, 30)),
    )
    def send(self, count, ttl, delay):
        due = self.now + delay if delay else None
        messages = []
        for _ in range(count):
            self.names += 1
            messages.append(Message(self.names, 7, ttl=ttl, scheduled_at=due))
            known = Known(self.names, self.new_number(), ttl=ttl, due=due)
            known.place = "scheduled" if due else "ready"
            known.expires = self.now + ttl if ttl and not due else None
            self.model.append(known)
        self.queue.intake.send(messages)
        self.namespace.run()

    @rule(credit=st.integers(1, 4), deleting=st.booleans())
    def receive(self, credit, deleting):
        consumer = self.deleting if deleting else self.consumer
        self.got.clear()
        self.queue.messages.grant(consumer, credit)
        self.namespace.run()
        self.queue.messages.grant(consumer, 0)
        self.look()
        expected = self.at("ready")[:credit]
        seen = [(s.message.payload, s.sequence_number, s.delivery_count) for s in self.got]
        assert seen == [(known.name, known.number, known.failures) for known in expected]
        for known, stored in zip(expected, self.got, strict=True):
            if deleting:
                self.model.remove(known)
            else:
                self.lock(known, stored)

    def lock(self, known, stored):
        known.place, known.locked_until, known.token = "locked", self.now + LOCK, stored.lock_token
        assert stored.locked_until == known.locked_until

    @precondition(lambda self: self.at("locked"))
    @rule(data=st.data())
    def renew(self, data):
        known = data.draw(st.sampled_from(self.at("locked")))
        self.queue.messages.renew(known.token)
        known.locked_until = self.now + LOCK

    @precondition(lambda self: self.at("locked"))
    @rule(data=st.data(), how=st.sampled_from(Settling))
    def settle(self, data, how):
        known = data.draw(st.sampled_from(self.at("locked")))
        self.queue.messages.settle(known.token, Settlement(how))
        match how:
            case Settling.COMPLETE:
                self.model.remove(known)
                self.lost_tokens.append(known.token)
            case Settling.ABANDON | Settling.RELEASE:
                self.come_back(known, failed=how is Settling.ABANDON)
            case Settling.DEFER:
                known.deferred = True
                self.come_back(known, failed=False)
            case Settling.DEAD_LETTER:
                known.place = "dead"
                self.lost_tokens.append(known.token)

    @precondition(lambda self: self.at("deferred"))
    @rule(data=st.data())
    def receive_deferred(self, data):
        known = data.draw(st.sampled_from(self.at("deferred")))
        self.look()
        if known.place == "dead":
            with pytest.raises(MessageNotFound):
                self.queue.messages.receive_deferred([known.number])
            return
        (stored,) = self.queue.messages.receive_deferred([known.number])
        self.lock(known, stored)

    @precondition(lambda self: self.at("scheduled"))
    @rule(data=st.data())
    def cancel(self, data):
        known = data.draw(st.sampled_from(self.at("scheduled")))
        self.queue.intake.schedule.cancel([known.number])
        self.model.remove(known)

    @rule(seconds=st.integers(1, 25))
    def wait(self, seconds):
        self.now += seconds
        self.namespace.run()
        self.pass_time()

    # ---------------------------------------------------------------- what always holds

    @invariant()
    def counts_agree(self):
        counts = self.queue.counts()
        active = len(self.at("ready") + self.at("locked") + self.at("deferred"))
        assert (counts.active, counts.dead_letter, counts.scheduled) == (
            active,
            len(self.at("dead")),
            len(self.at("scheduled")),
        )
        assert self.queue.size_bytes == 7 * len(self.model)

    @invariant()
    def peeking_agrees(self):
        alive = sorted((k for k in self.model if k.place != "dead"), key=lambda known: known.number)
        assert [s.message.payload for s in self.queue.messages.peek(0, 1000)] == [k.name for k in alive]
        dead = [(s.message.payload, s.sequence_number) for s in self.queue.dead_letters.peek(0, 1000)]
        assert dead == [(known.name, known.number) for known in self.at("dead")]

    @invariant()
    def lost_locks_stay_lost(self):
        for token in self.lost_tokens[-2:]:
            try:
                self.queue.messages.settle(token, COMPLETE)
            except MessageLockLost:
                continue
            raise AssertionError("a lost lock settled a message")

    @invariant()
    def nothing_due_is_left_undone(self):
        deadline = self.namespace.next_deadline()
        assert deadline is None or deadline > self.now


class LazyQueueMachine(QueueMachine):
    """What is over stays until a receiver comes; no message is both delivered and expired."""

    expiry = Expiry.LAZY


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(stateful_step_count=40)
TestLazyQueueMachine = LazyQueueMachine.TestCase
TestLazyQueueMachine.settings = settings(stateful_step_count=40)

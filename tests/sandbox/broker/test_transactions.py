"""Transactions of the broker: each rule by itself, and all of them against a model that is too simple to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.sandbox.broker.conftest import World, make_message, token_of

from servicebus_sandbox.broker import broker_errors as errors
from servicebus_sandbox.broker.entity_settings import EntityStatus, QueueSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.message_queue import COMPLETE, RELEASE, Consumer, Settlement, Settling
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace
from servicebus_sandbox.broker.transaction import MAX_MESSAGES, Transaction

KB = 1024
ABANDON, DEAD_LETTER, DEFER = (Settlement(kind) for kind in (Settling.ABANDON, Settling.DEAD_LETTER, Settling.DEFER))


@pytest.fixture
def world() -> World:
    made = World()
    made.namespace.create_queue("orders", QueueSettings(lock_duration=timedelta(seconds=30)))
    made.namespace.create_queue("copies")
    made.namespace.create_queue("sess", QueueSettings(requires_session=True))
    return made


@dataclass
class Place:
    """A queue with one locked message "a" and a scheduled one, and an open transaction."""

    world: World
    transaction: Transaction = field(default_factory=Transaction)

    def __post_init__(self) -> None:
        queue = self.queue = self.world.namespace.queue("orders")
        queue.intake.send([make_message("a")])
        self.locked = token_of(self.world.receiver(queue.messages).receive_one())
        (self.later,) = queue.intake.send([make_message("later", scheduled_at=self.world.clock.now + 1000)])

    def send(self, *names: str, to: str = "orders", **fields: Any) -> None:
        intake = self.world.namespace.send_target(to).intake
        messages = [make_message(name, **fields) for name in names]
        self.transaction.include(lambda: intake.hold(messages))

    def settle(self, settlement: Settlement = COMPLETE) -> None:
        self.transaction.include(lambda: self.queue.messages.hold(self.locked, settlement))

    def cancel(self) -> None:
        self.transaction.include(lambda: self.queue.intake.schedule.hold([self.later]))

    def commit(self) -> None:
        self.transaction.commit()

    def seen(self, path: str = "orders") -> list[object]:
        return [stored.message.payload for stored in self.world.namespace.message_queue(path).peek(0, 100)]


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def test_nothing_is_seen_before_the_commit_and_all_at_once_after_it(place: Place) -> None:
    """The commit does all acts in one turn and in their order."""
    place.send("b", "c")
    place.settle()
    place.cancel()
    place.send("d")
    assert place.seen() == ["a", "later"]
    place.commit()
    assert place.seen() == ["b", "c", "d"]


def test_a_rollback_undoes_all_acts_and_the_lock_goes_on(place: Place) -> None:
    """A rollback, a lost coordinator and two minutes undo all [...], and no delivery is counted."""
    place.send("b")
    place.settle(ABANDON)
    place.cancel()
    place.transaction.roll_back()
    assert place.seen() == ["a", "later"]
    assert place.queue.messages.peek(0, 1)[0].delivery_count == 0
    place.queue.messages.settle(place.locked, COMPLETE)
    place.queue.intake.schedule.cancel([place.later])
    assert place.seen() == []


def _end_lock(place: Place) -> None:
    place.world.pass_time(31)


def _disable(place: Place) -> None:
    closed = replace(place.queue.settings, status=EntityStatus.SEND_DISABLED)
    place.world.namespace.update(place.queue, closed)


def _delete(place: Place) -> None:
    place.world.namespace.delete("orders")
    place.world.namespace.create_queue("orders")


@pytest.mark.parametrize(("spoil", "left"), [(_end_lock, ["a", "later"]), (_disable, ["a", "later"]), (_delete, [])])
def test_a_commit_that_cannot_be_done_whole_is_refused_whole(
    place: Place, spoil: Callable[[Place], None], left: list[str]
) -> None:
    """An act is checked and reserved when it is asked for; the commit [...] is refused whole."""
    place.send("b")
    place.cancel()
    place.settle()
    place.send("c")
    spoil(place)
    with pytest.raises(errors.TransactionRolledBack, match="the transaction is rolled back"):
        place.commit()
    assert place.seen() == left


def test_a_message_in_a_transaction_is_settled_by_no_other_act(place: Place) -> None:
    place.settle()
    other = Transaction()
    with pytest.raises(errors.MessageHeld):
        place.queue.messages.settle(place.locked, RELEASE)
    with pytest.raises(errors.MessageHeld):
        other.include(lambda: place.queue.messages.hold(place.locked, DEFER))
    other.commit()
    place.commit()
    assert place.seen() == ["later"]


def test_a_held_cancellation_holds_the_message_beyond_its_time(place: Place) -> None:
    place.cancel()
    with pytest.raises(errors.MessageNotFound):
        place.queue.intake.schedule.cancel([place.later])
    place.world.pass_time(1001)
    assert len(place.queue.intake.schedule) == 1
    place.transaction.roll_back()
    place.world.pass_time(0)
    assert len(place.queue.intake.schedule) == 0
    assert "later" in place.seen()


def test_room_is_kept_for_held_messages(place: Place) -> None:
    quota = place.queue.settings.max_size_mb * KB * KB
    place.send("large", size=200 * KB)
    rest = quota - place.queue.size_bytes - 200 * KB
    for _ in range(rest // (200 * KB)):
        place.queue.intake.send([make_message("x", size=200 * KB)])
    with pytest.raises(errors.QuotaExceeded):
        place.queue.intake.send([make_message("x", size=200 * KB)])
    place.commit()
    assert place.seen()[-1] != "later"


def test_a_duplicate_is_dropped_at_the_commit_and_a_rollback_leaves_no_trace(world: World) -> None:
    world.namespace.create_queue("unique", QueueSettings(requires_duplicate_detection=True))
    place = Place(world)
    for end in (Transaction.roll_back, Transaction.commit, Transaction.commit):
        place.transaction = Transaction()
        place.send("a", to="unique", message_id="1")
        end(place.transaction)
    assert place.seen("unique") == ["a"]


def test_a_sessions_state_changes_at_the_commit_and_only_for_its_holder(world: World) -> None:
    place = Place(world)
    sessions = world.namespace.queue("sess").messages
    for spoiled, state in ((False, b"new"), (True, b"new")):
        holder = world.receiver(sessions, session="s")
        place.transaction = Transaction()
        new = b"never" if spoiled else b"new"
        place.transaction.include(lambda new=new: sessions.hold_session_state("s", new))
        if spoiled:
            sessions.detach(holder.consumer)
            holder = world.receiver(sessions, session="s")
            with pytest.raises(errors.TransactionRolledBack):
                place.commit()
        else:
            place.commit()
        assert sessions.session_state("s") == state
        sessions.detach(holder.consumer)


def test_a_transaction_sends_at_most_100_messages(place: Place) -> None:
    """A transaction sends at most 100 messages."""
    place.send(*(f"{number}" for number in range(MAX_MESSAGES)))
    with pytest.raises(errors.TransactionLimit, match="more than 100 messages in a single transaction"):
        place.send("one more")
    place.commit()
    assert len(place.queue.messages) == 1 + MAX_MESSAGES


def test_a_transaction_sends_at_most_256_mb(place: Place) -> None:
    """A transaction sends at most [...] 256 MB."""
    place.queue.intake.max_message_bytes = 100 * KB * KB
    place.send("a", "b", size=100 * KB * KB)
    with pytest.raises(errors.TransactionLimit, match="at most 268,435,456 bytes"):
        place.send("c", size=100 * KB * KB)
    place.transaction.roll_back()
    assert place.queue.size_bytes < KB


# -- all rules at once, against a model ---------------------------------------------------------------------------

LOCK, QUEUES = 50, ("a", "b")
SETTINGS = QueueSettings(lock_duration=timedelta(seconds=LOCK), max_delivery_count=1000)


@dataclass
class Known:
    """A message as the model knows it. token: of its lock; held: its settling is in a transaction."""

    name: str
    number: int
    token: bytes | None = None
    locked_until: float = 0.0
    is_deferred: bool = False
    is_scheduled: bool = False
    failures: int = 0
    held: bool = False


@dataclass
class OpenOne:
    """A transaction as the model knows it: its acts as (queue, kind, subject)."""

    real: Transaction
    spans: bool
    entity: str | None = None
    acts: list[tuple[str, Any, Any]] = field(default_factory=list)


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.namespace = BrokerNamespace("n", clock=lambda: self.now)
        self.got: list[Any] = []
        self.consumers: dict[str, Consumer] = {}
        for name in QUEUES:
            self.consumers[name] = Consumer(self.got.append, lambda _: None)
            self.namespace.create_queue(name, SETTINGS).messages.attach(self.consumers[name])
        self.model: dict[str, list[Known]] = {name: [] for name in QUEUES}
        self.dead: dict[str, list[str]] = {name: [] for name in QUEUES}
        self.numbers = dict.fromkeys(QUEUES, 0)
        self.closed = dict.fromkeys(QUEUES, False)
        self.open: list[OpenOne] = []
        self.names = 0

    def new_name(self) -> str:
        self.names += 1
        return f"m{self.names}"

    def new_number(self, queue: str) -> int:
        self.numbers[queue] += 1
        return self.numbers[queue]

    def message(self, name: str, *, later: bool) -> Message:
        return Message(name, 10, scheduled_at=self.now + 10_000 if later else None)

    # -- outside of transactions

    @rule(queue=st.sampled_from(QUEUES), later=st.booleans())
    def send(self, queue: str, later: bool) -> None:
        if self.closed[queue]:
            return
        name = self.new_name()
        self.namespace.queue(queue).intake.send([self.message(name, later=later)])
        self.model[queue].append(Known(name, self.new_number(queue), is_scheduled=later))

    @rule(queue=st.sampled_from(QUEUES))
    def receive(self, queue: str) -> None:
        messages, consumer = self.namespace.queue(queue).messages, self.consumers[queue]
        self.got.clear()
        messages.grant(consumer, 1)
        self.namespace.run()
        messages.grant(consumer, 0)
        ready = [k for k in self.model[queue] if not (k.token or k.is_deferred or k.is_scheduled)]
        assert [stored.message.payload for stored in self.got] == [k.name for k in ready[:1]]
        for known, stored in zip(ready, self.got, strict=False):
            known.token, known.locked_until = stored.lock_token, self.now + LOCK

    @rule(queue=st.sampled_from(QUEUES))
    def settle_a_held_one(self, queue: str) -> None:
        for known in [k for k in self.model[queue] if k.held and k.token]:
            with pytest.raises(errors.MessageHeld):
                self.namespace.queue(queue).messages.settle(known.token or b"", COMPLETE)

    @rule(queue=st.sampled_from(QUEUES), closed=st.booleans())
    def close_for_sends(self, queue: str, closed: bool) -> None:
        found = self.namespace.queue(queue)
        status = EntityStatus.SEND_DISABLED if closed else EntityStatus.ACTIVE
        self.namespace.update(found, replace(SETTINGS, status=status))
        self.closed[queue] = closed

    @rule(seconds=st.sampled_from([1, 30, 51, 70]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        self.namespace.run()
        for known in [k for held in self.model.values() for k in held if k.token and k.locked_until <= self.now]:
            known.token, known.failures = None, known.failures + 1

    # -- in transactions

    @precondition(lambda self: len(self.open) < 2)
    @rule(spans=st.booleans())
    def declare(self, spans: bool) -> None:
        entity = "a" if spans else None
        self.open.append(OpenOne(Transaction(), spans, entity))

    def include(
        self, one: OpenOne, queue: str, act: tuple[Any, Any], hold: Callable[[], Any], *, is_send: bool
    ) -> bool:
        if one.entity not in (None, queue) and not (one.spans and is_send):
            return False  # the layer above refuses it
        one.entity = one.entity or queue
        one.real.include(hold)
        one.acts.append((queue, *act))
        return True

    @precondition(lambda self: self.open)
    @rule(data=st.data(), queue=st.sampled_from(QUEUES), later=st.booleans(), count=st.integers(1, 3))
    def send_in_one(self, data: st.DataObject, queue: str, later: bool, count: int) -> None:
        one = data.draw(st.sampled_from(self.open))
        for each in QUEUES if one.spans else (queue,):
            if not self.closed[each]:
                self.send_some(one, each, count, later=later)

    def send_some(self, one: OpenOne, queue: str, count: int, *, later: bool) -> None:
        intake = self.namespace.queue(queue).intake
        names = [self.new_name() for _ in range(count)]
        messages = [self.message(name, later=later) for name in names]
        if later:  # numbered at once, as by a request
            numbers = [intake.schedule.new_number() for _ in names]
            assert numbers == [self.new_number(queue) for _ in names]
            subject = [Known(name, number, is_scheduled=True) for name, number in zip(names, numbers, strict=True)]
            self.include(one, queue, ("send", subject), lambda: intake.hold(messages, numbers=numbers), is_send=True)
        else:
            for name, message in zip(names, messages, strict=True):
                self.include(one, queue, ("send", [Known(name, 0)]), partial(intake.hold, [message]), is_send=True)

    @precondition(lambda self: self.open and any(k.token and not k.held for held in self.model.values() for k in held))
    @rule(data=st.data(), kind=st.sampled_from(Settling))
    def settle_in_one(self, data: st.DataObject, kind: Settling) -> None:
        one = data.draw(st.sampled_from(self.open))
        free = [(name, k) for name in QUEUES for k in self.model[name] if k.token and not k.held]
        queue, known = data.draw(st.sampled_from(free))
        messages, token = self.namespace.queue(queue).messages, known.token or b""
        act = (kind, (known, token))
        if self.include(one, queue, act, lambda: messages.hold(token, Settlement(kind)), is_send=False):
            known.held = True

    @precondition(lambda self: self.open and any(k.is_scheduled and not k.held for h in self.model.values() for k in h))
    @rule(data=st.data())
    def cancel_in_one(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.open))
        free = [(name, k) for name in QUEUES for k in self.model[name] if k.is_scheduled and not k.held]
        queue, known = data.draw(st.sampled_from(free))
        schedule = self.namespace.queue(queue).intake.schedule
        if self.include(one, queue, ("cancel", known), lambda: schedule.hold([known.number]), is_send=True):
            known.held = True

    @precondition(lambda self: any(one.acts for one in self.open))
    @rule(data=st.data(), is_spoiled=st.booleans())
    def commit(self, data: st.DataObject, is_spoiled: bool) -> None:
        one = data.draw(st.sampled_from([one for one in self.open if one.acts]))
        queue = one.acts[-1][0]
        if is_spoiled:
            self.close_for_sends(queue, closed=True)
        self.end_by_commit(one)
        if is_spoiled:
            self.close_for_sends(queue, closed=False)

    def end_by_commit(self, one: OpenOne) -> None:
        if not all(self.is_possible(*act) for act in one.acts):
            with pytest.raises(errors.TransactionRolledBack):
                one.real.commit()
            self.undo(one)
            return
        one.real.commit()
        acts = one.acts
        self.undo(one)
        for act in acts:
            self.apply(*act)

    @precondition(lambda self: self.open)
    @rule()
    def roll_back(self) -> None:
        for one in list(self.open):
            one.real.roll_back()
            self.undo(one)

    def is_possible(self, queue: str, kind: Any, subject: Any) -> bool:
        if kind == "send":
            return not self.closed[queue]
        return kind == "cancel" or subject[0].token == subject[1]

    def undo(self, one: OpenOne) -> None:
        self.open.remove(one)
        for _, kind, subject in one.acts:
            if kind == "cancel":
                subject.held = False
            elif kind != "send":
                subject[0].held = False

    def apply(self, queue: str, kind: Any, subject: Any) -> None:
        messages = self.model[queue]
        if kind == "send":
            for known in subject:
                known.number = known.number or self.new_number(queue)
                messages.append(known)
        elif kind == "cancel":
            messages.remove(subject)
        elif kind in (Settling.COMPLETE, Settling.DEAD_LETTER):
            messages.remove(subject[0])
            if kind is Settling.DEAD_LETTER:
                self.dead[queue].append(subject[0].name)
        else:
            subject[0].token = None
            subject[0].failures += kind is Settling.ABANDON
            subject[0].is_deferred |= kind is Settling.DEFER
        messages.sort(key=lambda known: known.number)

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        for name in QUEUES:
            queue = self.namespace.queue(name)
            found = [
                (s.message.payload, s.sequence_number, s.delivery_count, s.lock_token)
                for s in queue.messages.peek(0, 999)
            ]
            assert found == [(k.name, k.number, k.failures, k.token) for k in self.model[name]]
            assert sorted(s.message.payload for s in queue.dead_letters.peek(0, 999)) == sorted(self.dead[name])


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def commit_in_part(self: Transaction) -> None:
    acts, self._acts = self._acts, []
    for act in acts:
        try:
            act.check()
        except errors.BrokerError as error:
            for left in acts:
                left.release()
            raise errors.TransactionRolledBack(error) from error
        act.perform()


def commit_twice(self: Transaction) -> None:
    acts = list(self._acts)
    _COMMIT(self)
    for act in acts:
        if act.messages:
            act.perform()


def commit_backwards(self: Transaction) -> None:
    self._acts.reverse()
    _COMMIT(self)


_COMMIT = Transaction.commit


@pytest.mark.slow
@pytest.mark.parametrize("bug", [commit_in_part, commit_twice, commit_backwards])
def test_the_model_finds_a_planted_bug(monkeypatch: pytest.MonkeyPatch, bug: Callable[[Transaction], None]) -> None:
    monkeypatch.setattr(Transaction, "commit", bug)
    chosen = settings(
        TransactionMachine.TestCase.settings,
        max_examples=1000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises((AssertionError, errors.BrokerError, pytest.fail.Exception, ExceptionGroup)):
        run_state_machine_as_test(TransactionMachine, settings=chosen)

"""What a pump decides, event by event (SPEC.md section 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.approval import Approve

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model import pairing_events
from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    DestinationFailed,
    DestinationHealed,
    Moved,
    SyphonPaused,
    SyphonResumed,
)
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Judgement
from paired_servicebus.core.pump import pump_events as e
from paired_servicebus.core.pump.dead_letter_rules import FATES, Fate
from paired_servicebus.core.pump.pump_machine import IN_VAIN, MAX_BYTES, WINDOW, PumpMachine

NOW = 1_700_000_000.0


class Pump:
    """A machine and the time."""

    def __init__(self, **policy: Any) -> None:
        self.now = NOW
        self.pairing = PairingMachine(Policy(enable_syphon=True, **policy), queues=(0,))
        self.machine: PumpMachine[e.PumpMessage] = PumpMachine(self.pairing, 0)
        self._numbers = 0

    def message(self, path: str = "orders", *, number: int = 0, id: str | None = None, recalled: bool = False) -> Any:
        self._numbers += 1
        number = number or self._numbers
        return e.PumpMessage(
            path, path.casefold(), number, f"m{number}" if id is None else id, 100, NOW, is_recalled=recalled
        )

    def step(self, event: Any) -> list[Any]:
        return list(self.machine.step(event))

    def arrive(self, message: e.PumpMessage, fault: str = "") -> list[Any]:
        return self.step(e.MessageArrived(message, self.now, fault))

    def accept(self, *messages: e.PumpMessage) -> list[Any]:
        return self.step(e.MessagesAccepted(list(messages), self.now))

    def fail(self, kind: FailureKind, *messages: e.PumpMessage, alone: bool | None = None) -> list[Any]:
        failure = Judgement(kind, VERDICTS[kind], str(kind))
        is_alone = len(messages) == 1 if alone is None else alone
        return self.step(e.DeliveryFailed(messages[0].path, list(messages), failure, self.now, alone=is_alone))

    def deferred(self, *messages: e.PumpMessage) -> None:
        for message in messages:
            self.step(e.MessagesSettled([message], e.Outcome.DEFERRED, True))


def published(effects: Sequence[Any]) -> list[pairing_events.Event]:
    return [event for effect in effects if isinstance(effect, e.Publish) for event in effect.events]


def kinds(effects: Sequence[Any]) -> list[type]:
    return [type(effect) for effect in effects]


@pytest.fixture
def pump() -> Pump:
    return Pump()


def test_a_message_is_completed_only_after_its_destination_accepted_it(pump: Pump) -> None:
    """Section 8: "complete only after the destination accepted"; section 11: its receipt comes before."""
    message = pump.message()
    assert pump.arrive(message) == [e.Deliver(message, pump.now)]
    message.sent_at = pump.now
    effects = pump.accept(message)
    assert kinds(effects) == [e.Publish, e.Complete]
    assert published(effects) == [Moved(at=NOW, entity="orders", message_id="m1", queue=0)]
    assert effects[1].messages == [message]
    assert pump.machine.in_hand == 0


def test_an_unreadable_message_is_dead_lettered_with_its_fault_and_a_receipt(pump: Pump) -> None:
    """Section 8: "dead-letter in the backlog queue with a reason that says which, and go on"."""
    message = pump.message("")
    effects = pump.arrive(message, "the application property 'x-ms-path' is missing")
    assert kinds(effects) == [e.Publish, e.DeadLetter]
    assert effects[1] == e.DeadLetter(message, "the application property 'x-ms-path' is missing")
    assert [type(event) for event in published(effects)] == [DeadLettered]
    assert pump.machine.in_hand == 0


@pytest.mark.parametrize("kind", [kind for kind, fate in FATES.items() if fate is Fate.DEAD_LETTERED])
def test_too_large_or_invalid_is_dead_lettered(pump: Pump, kind: FailureKind) -> None:
    """Section 8: "The destination says too large or invalid: the same"."""
    message = pump.message()
    pump.arrive(message)
    effects = pump.fail(kind, message)
    assert effects[-1] == e.DeadLetter(message, f"orders refused it: {kind}")
    assert not pump.pairing.destinations.open, "the destination is not at fault"


def test_a_failure_that_several_may_have_caused_is_nobodys_fault(pump: Pump) -> None:
    """ "Nothing is ever dropped": a message is at fault only when it failed alone."""
    pair = [pump.message(), pump.message()]
    for message in pair:
        pump.arrive(message)
    effects = pump.fail(FailureKind.TOO_LARGE, *pair)
    assert [effect for effect in effects if not isinstance(effect, e.Publish)] == [e.Defer(pair[0]), e.Defer(pair[1])]


@pytest.mark.parametrize("kind", [kind for kind, fate in FATES.items() if fate is Fate.WAITS])
def test_for_every_fault_of_the_destination_the_message_stays(pump: Pump, kind: FailureKind) -> None:
    """Section 8: "Unreachable, disabled, full, throttled, unauthorized: the message stays"."""
    first, second = pump.message(), pump.message()
    pump.arrive(first)
    effects = pump.fail(kind, first)
    assert effects[-1] == e.Defer(first)
    assert [type(event) for event in published(effects)] == [DestinationFailed]
    pump.now += 10_000.0
    pump.pairing.destinations.failed("orders", at=pump.now, kind=kind, reason="")
    assert pump.arrive(second) == [e.Defer(second)]


def test_not_found_waits_for_undeliverable_after_and_only_tries_count() -> None:
    """Section 8: "Not found: retried with back-off for `undeliverable_after`, then the same"."""
    pump = Pump(undeliverable_after=60.0)
    for seconds in (0.0, 30.0, 59.0):
        pump.now = NOW + seconds
        message = pump.message()
        assert pump.step(e.MessageArrived(message, pump.now))[-1] in (e.Deliver(message, pump.now), e.Defer(message))
        assert pump.fail(FailureKind.NOT_FOUND, message)[-1] == e.Defer(message)
    pump.now = NOW + 61.0
    last, waiting = pump.message(), pump.message()
    assert pump.fail(FailureKind.NOT_FOUND, last)[-1] == e.DeadLetter(last, "orders was not found for 61 s")
    assert pump.step(e.DeliveryWithheld([waiting], pump.now))[-1] == e.DeadLetter(
        waiting, "orders was not found for 61 s"
    )
    fresh = pump.message()
    assert pump.arrive(fresh) == [e.Defer(fresh)], "a new message waits for a try of its own"


def test_one_try_per_destination_not_per_message(pump: Pump) -> None:
    """Section 8: "one send try per destination, not per message; its messages are set aside"."""
    first = pump.message()
    pump.arrive(first)
    pump.fail(FailureKind.TIMEOUT, first)
    for _ in range(20):
        message = pump.message()
        assert pump.arrive(message) == [e.Defer(message)]
    other = pump.message("audit")
    assert pump.arrive(other) == [e.Deliver(other, pump.now)]


def test_a_destination_that_owes_answers_lets_others_pass(pump: Pump) -> None:
    """Section 8: "One failed destination must not delay the others' messages"."""
    pump.pairing.destinations.stalled.add("orders")
    message, other = pump.message(), pump.message("audit")
    assert pump.arrive(message) == [e.Defer(message)]
    assert pump.arrive(other) == [e.Deliver(other, pump.now)]


def test_deferred_messages_go_before_newer_ones(pump: Pump) -> None:
    """Section 8: what is set aside "goes before newer ones of its session"."""
    old = pump.message()
    pump.arrive(old)
    pump.fail(FailureKind.BUSY, old)
    pump.now += 3600.0  # it accepts messages again
    assert pump.machine.recallable(pump.now) == [], "it is not yet known to be deferred"
    newer = pump.message()
    assert pump.arrive(newer) == [e.Defer(newer)]
    pump.deferred(old, newer)
    assert pump.machine.recallable(pump.now) == ["orders"]
    assert pump.step(e.RecallDue("orders", 1, pump.now)) == [e.Recall("orders", "orders", [old.number])]
    newest = pump.message()
    assert pump.arrive(newest) == [e.Defer(newest)]
    again = pump.message(number=old.number, recalled=True)
    assert pump.arrive(again) == [e.Deliver(again, pump.now)]


def test_what_is_deferred_is_never_released(pump: Pump) -> None:
    """Section 8: it "is never set aside by abandoning"; released from deferral it would be received no more."""
    pump.step(e.DeferredFound([("orders", 7)]))
    pump.step(e.RecallDue("orders", 5, pump.now))
    again, fresh = pump.message(number=7, recalled=True), pump.message("audit")
    pump.arrive(again)
    pump.arrive(fresh)
    pump.pairing.step(SyphonPaused(at=pump.now, by="test"))
    assert pump.step(e.MessagesWithdrawn([again, fresh], pump.now)) == [e.Defer(again), e.Release(fresh)]


def test_a_paused_queue_takes_nothing_away_from_other_engines(pump: Pump) -> None:
    pump.pairing.step(SyphonPaused(at=pump.now, by="test"))
    message = pump.message()
    pump.pairing.destinations.stalled.add("orders")
    assert pump.arrive(message) == [e.Release(message)]


def test_a_moved_message_that_comes_again_is_completed_and_not_sent_again(pump: Pump) -> None:
    """Section 8: at least once; a lost completion is no reason for a duplicate."""
    message = pump.message()
    pump.arrive(message)
    pump.accept(message)
    again = pump.message(number=message.number)
    assert pump.arrive(again) == [e.Complete([again])]
    pump.step(e.MessagesSettled([again], e.Outcome.COMPLETED, True))
    new = pump.message(number=message.number)
    assert pump.arrive(new) == [e.Deliver(new, pump.now)]


@pytest.mark.parametrize(("before", "after"), [("a", "b"), ("", ""), ("a", ""), ("", "b")])
def test_a_number_is_a_message_only_together_with_its_id(pump: Pump, before: str, after: str) -> None:
    """ "Nothing is ever dropped": a queue that was deleted and made again counts from one."""
    moved, held = pump.message(number=1, id=before), pump.message(number=2, id=before)
    pump.arrive(moved)
    pump.accept(moved)
    pump.arrive(held)
    for number in (1, 2):
        other = pump.message(number=number, id=after)
        assert pump.arrive(other) == [e.Deliver(other, pump.now)]


def test_a_message_whose_lock_ended_in_hand_is_settled_by_the_new_lock(pump: Pump) -> None:
    message = pump.message()
    pump.arrive(message)
    again = pump.message(number=message.number)
    assert pump.arrive(again) == [e.Relock(message, again)]
    assert pump.machine.in_hand == 1


def test_an_unsent_message_with_a_lost_lock_comes_again_by_itself_or_by_its_number(pump: Pump) -> None:
    fresh = pump.message()
    pump.arrive(fresh)
    pump.step(e.DeferredFound([("audit", 9)]))
    pump.step(e.RecallDue("audit", 5, pump.now))
    recalled = pump.message("audit", number=9, recalled=True)
    pump.arrive(recalled)
    pump.step(e.RecallEnded("audit", [9], frozenset(), False, pump.now))
    assert pump.step(e.LocksLost([fresh, recalled])) == []
    assert pump.machine.in_hand == 0
    assert pump.machine.deferred.numbers() == {9}


def test_a_deferral_without_an_answer_counts_as_done_and_a_refused_one_does_not(pump: Pump) -> None:
    """What cannot be known is searched for by its number, and dropped if it is not there."""
    unknown, refused = pump.message(), pump.message("audit")
    for message in (unknown, refused):
        pump.arrive(message)
        pump.fail(FailureKind.TIMEOUT, message)
    pump.step(e.MessagesSettled([unknown], e.Outcome.DEFERRED, None))
    pump.step(e.MessagesSettled([refused], e.Outcome.DEFERRED, False))
    assert pump.machine.deferred.numbers() == {unknown.number}


def test_deferred_messages_that_do_not_come_are_anothers_and_searched_for_soon(pump: Pump) -> None:
    """Section 8: "found again after a crash with no list kept"."""
    pump.machine.search.ended(pump.now, took=0.0)
    late = pump.machine.search.due_at
    pump.step(e.DeferredFound([("orders", number) for number in range(1, IN_VAIN + 50)]))
    asked = 0
    while recalls := pump.step(e.RecallDue("orders", IN_VAIN, pump.now)):
        asked += len(recalls[0].numbers)
        missing = frozenset(recalls[0].numbers)
        pump.step(e.RecallEnded("orders", recalls[0].numbers, missing, False, pump.now))
    assert asked == IN_VAIN
    assert pump.machine.deferred.numbers() == set(), "the rest is probably another engine's as well"
    assert pump.machine.search.due_at < late


def test_numbers_of_a_request_that_failed_are_kept(pump: Pump) -> None:
    pump.step(e.DeferredFound([("orders", 3), ("orders", 4)]))
    (recall,) = pump.step(e.RecallDue("orders", 5, pump.now))
    pump.step(e.RecallEnded("orders", recall.numbers, frozenset({4}), True, pump.now))
    assert pump.machine.deferred.numbers() == {4}


def test_requests_grow_with_the_size_of_what_came(pump: Pump) -> None:
    """A queue with deferred messages alone shows their size only so: one message, then two, then four."""
    pump.step(e.DeferredFound([("orders", number) for number in range(1, 50)]))
    sizes = []
    for _ in range(4):
        (recall,) = pump.step(e.RecallDue("orders", 100, pump.now))
        sizes.append(len(recall.numbers))
        for number in recall.numbers:
            pump.arrive(pump.message(number=number, recalled=True))
        pump.step(e.RecallEnded("orders", recall.numbers, frozenset(), False, pump.now))
    assert sizes == [1, 2, 4, 8]


def test_a_number_is_requested_once_at_a_time(pump: Pump) -> None:
    """In a queue that was made anew, a number may be on its way as another destination's."""
    pump.step(e.DeferredFound([("orders", 3)]))
    (before,) = pump.step(e.RecallDue("orders", 5, pump.now))
    pump.step(e.DeferredFound([("audit", 3)]))
    assert pump.step(e.RecallDue("audit", 5, pump.now)) == [e.AwaitRoom("audit")]
    pump.step(e.RecallEnded("orders", before.numbers, frozenset({3}), False, pump.now))
    (again,) = pump.step(e.RecallDue("audit", 5, pump.now))
    assert again.numbers == [3]


def test_a_recall_waits_for_room_and_ends_with_the_destination(pump: Pump) -> None:
    pump.step(e.DeferredFound([("orders", 3)]))
    assert pump.step(e.RecallDue("orders", 0, pump.now)) == [e.AwaitRoom("orders")]
    pump.pairing.destinations.failed("orders", at=pump.now, kind=FailureKind.FULL, reason="")
    assert pump.step(e.RecallDue("orders", 5, pump.now)) == []
    assert pump.machine.deferred.numbers() == {3}


def test_a_success_that_began_before_the_failure_proves_nothing(pump: Pump) -> None:
    early, late = pump.message(), pump.message()
    for message in (early, late):
        pump.arrive(message)
        message.sent_at = pump.now
    pump.now += 1.0
    pump.fail(FailureKind.DISABLED, late)
    pump.now += 3600.0
    assert not [one for one in published(pump.accept(early)) if isinstance(one, DestinationHealed)]
    again = pump.message()
    pump.arrive(again)
    again.sent_at = pump.now
    assert [type(one) for one in published(pump.accept(again))] == [DestinationHealed, Moved]


def test_only_allowed_destinations_get_messages(approve: Approve) -> None:
    pump = Pump(destinations=("orders",))
    message = pump.message("elsewhere")
    effects = pump.arrive(message)
    approve.part(effects[-1].reason, "rules")


def test_a_pump_that_cannot_receive_says_so_once(pump: Pump, approve: Approve) -> None:
    """Section 8: "A pump's status is derived from messages moved, never from a task being alive"."""
    assert len(published(pump.step(e.PumpFailed("entity disabled", 5.0, pump.now)))) == 1
    assert pump.step(e.PumpFailed("entity disabled", 5.0, pump.now + 5)) == []
    approve.part(pump.machine.progress.text, "rules")
    pump.step(e.PumpWorks())
    assert len(published(pump.step(e.PumpFailed("entity disabled", 5.0, pump.now + 9)))) == 1


def test_a_queue_with_more_messages_than_known_is_searched_soon(pump: Pump) -> None:
    pump.machine.search.ended(pump.now, took=0.0)
    late = pump.machine.search.due_at
    pump.step(e.QueueCounted(3, 3, pump.now))
    assert pump.machine.search.due_at == late
    pump.step(e.QueueCounted(4, 3, pump.now))
    assert pump.machine.search.due_at < late


def test_credit_is_for_the_room_in_hand_by_number_and_by_bytes(pump: Pump) -> None:
    machine = pump.machine
    granted = machine.credit(0, NOW)
    assert granted is not None
    assert granted <= MAX_BYTES / (256 * 1024)
    assert machine.credit(granted, NOW) is None
    for number in range(WINDOW):
        machine.step(e.MessageArrived(e.PumpMessage("orders", "orders", number + 1, "x", 10, NOW), NOW))
    assert machine.room(NOW) == 0
    assert machine.credit(0, NOW) is None


def test_what_is_no_event_of_a_pump_is_refused_and_changes_nothing(pump: Pump, approve: Approve) -> None:
    with pytest.raises(IllegalEventError) as refused:
        pump.step("hello")
    approve.part(refused.value, "rules")
    assert pump.machine.in_hand == 0


# -- A pump under any order of events: every message is somewhere, and no event about one makes `step` raise.


PATHS = st.sampled_from(["orders", "Orders", "audit", "", "$management", "x" * 300, "a\x00\x1b[2J"])
IDS = st.sampled_from(["", "a", "b", "\ud800", "i" * 1000])
NUMBERS = st.one_of(st.integers(1, 6), st.sampled_from([-(2**63), -1, 0, 2**63 - 1]))
FAULTS = st.sampled_from(["", "bad"])
TIMES = st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 1.7e9])


class AnyOrder(RuleBasedStateMachine):
    """Events in any order, with the values that an enemy chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0
        self.pairing = PairingMachine(Policy(enable_syphon=True, undeliverable_after=30.0), queues=(0,))
        self.machine: PumpMachine[e.PumpMessage] = PumpMachine(self.pairing, 0)
        self.out: dict[e.PumpMessage, None] = {}
        """Messages that were given to the delivery and have not come back."""
        self.receipts = 0
        self.ended = 0

    def apply(self, event: Any) -> list[tuple[e.PumpMessage, e.Outcome]]:
        """Perform the effects, as an adapter does; return the settlements begun."""
        begun: list[tuple[e.PumpMessage, e.Outcome]] = []
        for effect in self.machine.step(event):
            match effect:
                case e.Deliver(message, _):
                    assert message not in self.out
                    self.out[message] = None
                case e.Publish(events):
                    self.receipts += sum(isinstance(one, Moved | DeadLettered) for one in events)
                case e.Complete(messages):
                    begun += [(message, e.Outcome.COMPLETED) for message in messages]
                case e.DeadLetter(message, reason):
                    assert reason
                    self.ended += 1
                    begun.append((message, e.Outcome.DEAD_LETTERED))
                case e.Defer(message):
                    begun.append((message, e.Outcome.DEFERRED))
                case e.Release(message):
                    assert message.deferred_as is None
                case e.Relock(held, again):
                    assert held is not again
        for message, _ in begun:
            self.out.pop(message, None)
        return begun

    @rule(
        path=PATHS, id=IDS, number=NUMBERS, size=st.integers(0, 2**40), ends=TIMES, fault=st.sampled_from(["", "bad"])
    )
    def arrives(self, path: str, id: str, number: int, size: int, ends: float, fault: str) -> None:
        message = e.PumpMessage(path, path.casefold(), number, id, size, ends)
        self.settle_later(self.apply(e.MessageArrived(message, self.now, fault)))

    def settle_later(self, begun: list[tuple[e.PumpMessage, e.Outcome]]) -> None:
        for message, outcome in begun:
            self.apply(e.MessagesSettled([message], outcome, self.answer))

    answer: bool | None = True

    @rule(answer=st.sampled_from([True, False, None]))
    def the_queue_answers(self, answer: bool | None) -> None:
        self.answer = answer

    @rule(data=st.data(), kind=st.sampled_from([None, *FailureKind]), in_doubt=st.booleans())
    def a_try_ends(self, data: st.DataObject, kind: FailureKind | None, in_doubt: bool) -> None:
        if not self.out:
            return
        tried = data.draw(st.lists(st.sampled_from(list(self.out)), min_size=1, max_size=3, unique=True))
        for message in tried:
            del self.out[message]
        before = self.receipts
        if kind is None:
            self.settle_later(self.apply(e.MessagesAccepted(tried, self.now)))
            assert self.receipts == before + len(tried)
            return
        failure = Judgement(kind, VERDICTS[kind], "no")
        event = e.DeliveryFailed(tried[0].path, tried, failure, self.now, in_doubt, len(tried) == 1)
        self.settle_later(self.apply(event))

    @rule(what=st.sampled_from([e.DeliveryWithheld, e.MessagesWithdrawn, e.LocksLost]))
    def nothing_is_sent(self, what: Any) -> None:
        unsent, self.out = list(self.out), {}
        event = e.LocksLost(unsent) if what is e.LocksLost else what(unsent, self.now)
        self.settle_later(self.apply(event))

    @rule(path=PATHS, number=NUMBERS)
    def a_search_finds(self, path: str, number: int) -> None:
        self.apply(e.DeferredFound([(path, number)] if number not in self.machine.known() else []))

    @rule(missing=st.booleans(), failed=st.booleans(), id=IDS)
    def deferred_messages_come(self, missing: bool, failed: bool, id: str) -> None:
        for key in self.machine.recallable(self.now):
            for effect in self.machine.step(e.RecallDue(key, 3, self.now)):
                if not isinstance(effect, e.Recall):
                    continue
                came = () if missing or failed else effect.numbers
                for number in came:
                    message = e.PumpMessage(effect.path, key, number, id, 1, self.now, is_recalled=True)
                    self.settle_later(self.apply(e.MessageArrived(message, self.now)))
                left = frozenset(effect.numbers) - frozenset(came)
                self.apply(e.RecallEnded(key, effect.numbers, left, failed, self.now))

    @rule(seconds=st.sampled_from([0.1, 1.0, 31.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def an_operator_pauses_or_resumes(self) -> None:
        paused = self.pairing.pauses.all
        self.pairing.step(SyphonResumed(at=self.now, by="t") if paused else SyphonPaused(at=self.now, by="t"))

    @invariant()
    def counts_agree(self) -> None:
        assert set(self.machine.messages()) <= self.out.keys()
        assert self.machine._sizes.in_hand == sum(message.size for message in self.machine.messages())
        for found in self.machine.deferred.by_key.values():
            assert found.deferring == 0
            assert found.asked == 0
            assert found.in_hand == sum(message.deferred_as is found for message in self.out)


TestAnyOrder = AnyOrder.TestCase

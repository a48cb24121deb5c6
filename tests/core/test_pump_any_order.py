"""A pump under any order of events: every message is somewhere, and no event about one makes `step` raise."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import DeadLettered, Moved, SyphonPaused, SyphonResumed
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Judgement
from paired_servicebus.core.pump.pump_events import (
    Complete,
    DeadLetter,
    Defer,
    DeferredFound,
    Deliver,
    DeliveryFailed,
    DeliveryWithheld,
    LocksLost,
    MessageArrived,
    MessagesAccepted,
    MessagesSettled,
    MessagesWithdrawn,
    Outcome,
    Publish,
    PumpMessage,
    Recall,
    RecallDue,
    RecallEnded,
    Release,
    Relock,
)
from paired_servicebus.core.pump.pump_machine import PumpMachine

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
        self.machine: PumpMachine[PumpMessage] = PumpMachine(self.pairing, 0)
        self.out: dict[PumpMessage, None] = {}
        """Messages that were given to the delivery and have not come back."""
        self.receipts = 0
        self.ended = 0

    def apply(self, event: Any) -> list[tuple[PumpMessage, Outcome]]:
        """Perform the effects, as an adapter does; return the settlements begun."""
        begun: list[tuple[PumpMessage, Outcome]] = []
        for effect in self.machine.step(event):
            match effect:
                case Deliver(message, _):
                    assert message not in self.out
                    self.out[message] = None
                case Publish(events):
                    self.receipts += sum(isinstance(one, Moved | DeadLettered) for one in events)
                case Complete(messages):
                    begun += [(message, Outcome.COMPLETED) for message in messages]
                case DeadLetter(message, reason):
                    assert reason
                    self.ended += 1
                    begun.append((message, Outcome.DEAD_LETTERED))
                case Defer(message):
                    begun.append((message, Outcome.DEFERRED))
                case Release(message):
                    assert message.deferred_as is None
                case Relock(held, again):
                    assert held is not again
        for message, _ in begun:
            self.out.pop(message, None)
        return begun

    @rule(
        path=PATHS, id=IDS, number=NUMBERS, size=st.integers(0, 2**40), ends=TIMES, fault=st.sampled_from(["", "bad"])
    )
    def arrives(self, path: str, id: str, number: int, size: int, ends: float, fault: str) -> None:
        message = PumpMessage(path, path.casefold(), number, id, size, ends)
        self.settle_later(self.apply(MessageArrived(message, self.now, fault)))

    def settle_later(self, begun: list[tuple[PumpMessage, Outcome]]) -> None:
        for message, outcome in begun:
            self.apply(MessagesSettled([message], outcome, self.answer))

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
            self.settle_later(self.apply(MessagesAccepted(tried, self.now)))
            assert self.receipts == before + len(tried)
            return
        failure = Judgement(kind, VERDICTS[kind], "no")
        event = DeliveryFailed(tried[0].path, tried, failure, self.now, in_doubt, len(tried) == 1)
        self.settle_later(self.apply(event))

    @rule(what=st.sampled_from([DeliveryWithheld, MessagesWithdrawn, LocksLost]))
    def nothing_is_sent(self, what: Any) -> None:
        unsent, self.out = list(self.out), {}
        event = LocksLost(unsent) if what is LocksLost else what(unsent, self.now)
        self.settle_later(self.apply(event))

    @rule(path=PATHS, number=NUMBERS)
    def a_search_finds(self, path: str, number: int) -> None:
        self.apply(DeferredFound([(path, number)] if number not in self.machine.known() else []))

    @rule(missing=st.booleans(), failed=st.booleans(), id=IDS)
    def deferred_messages_come(self, missing: bool, failed: bool, id: str) -> None:
        for key in self.machine.recallable(self.now):
            for effect in self.machine.step(RecallDue(key, 3, self.now)):
                if not isinstance(effect, Recall):
                    continue
                came = () if missing or failed else effect.numbers
                for number in came:
                    message = PumpMessage(effect.path, key, number, id, 1, self.now, is_recalled=True)
                    self.settle_later(self.apply(MessageArrived(message, self.now)))
                left = frozenset(effect.numbers) - frozenset(came)
                self.apply(RecallEnded(key, effect.numbers, left, failed, self.now))

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

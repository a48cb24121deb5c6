"""Two pumps over one backlog queue: every deferred message comes home in time, whatever happened before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import VERDICTS, FailureKind, Judgement
from paired_servicebus.core.pump import pump_events as e
from paired_servicebus.core.pump.pump_machine import PumpMachine

LOCK: Final = 60.0
HOME: Final = 150.0
REQUEST: Final = 0.05
"""Seconds of a request to the queue."""
MOST: Final = 10
"""Messages of a request."""
PATHS: Final = ("orders", "audit")
FAILURE: Final = Judgement(FailureKind.INTERNAL, VERDICTS[FailureKind.INTERNAL], "no")


@dataclass(eq=False)
class Stored:
    """A message of the queue. lock: the engine that has it, or None. ends: of a dead engine's lock; 0: it lives."""

    number: int
    path: str
    is_deferred: bool = False
    lock: object = None
    ends: float = 0.0


class Engine:
    """A pump with the rules of its engine, and its messages on their way to a destination."""

    def __init__(self) -> None:
        self.machine: PumpMachine[e.PumpMessage] = PumpMachine(
            PairingMachine(Policy(enable_syphon=True), queues=(0,)), 0
        )
        self.out: list[e.PumpMessage] = []
        self.most = MOST


class TwoPumps(RuleBasedStateMachine):
    """A request for deferred messages gets all of them or none, as the service answers it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000.0
        self.queue: dict[int, Stored] = {}
        self.sent = 0
        self.engines = [self.started(), self.started()]

    def started(self) -> Engine:
        """Return a new engine; a pump begins with a search."""
        engine = Engine()
        self.search(engine)
        return engine

    # -- an adapter ---------------------------------------------------------------------------------------------------

    def apply(self, engine: Engine, event: Any) -> None:
        for effect in engine.machine.step(event):
            match effect:
                case e.Deliver(message, _):
                    engine.out.append(message)
                case e.Complete(messages):
                    for message in messages:
                        del self.queue[message.number]
                    engine.machine.step(e.MessagesSettled(messages, e.Outcome.COMPLETED, True))
                case e.Defer(message):
                    stored = self.queue[message.number]
                    stored.is_deferred, stored.lock = True, None
                    engine.machine.step(e.MessagesSettled([message], e.Outcome.DEFERRED, True))
                case e.Release(message):
                    self.queue[message.number].lock = None
                case _:
                    assert isinstance(effect, e.Publish)

    def take(self, engine: Engine, found: Sequence[Stored]) -> None:
        for one in found:
            one.lock, one.ends = engine, 0.0
            message = e.PumpMessage(
                one.path, one.path, one.number, f"m{one.number}", 1, 0.0, is_recalled=one.is_deferred
            )
            self.apply(engine, e.MessageArrived(message, self.now))

    def is_free(self, one: Stored) -> bool:
        return one.lock is None or 0.0 < one.ends <= self.now

    def search(self, engine: Engine) -> None:
        """Search if it is time."""
        if self.now < engine.machine.search.due_at:
            return
        engine.machine.search.began()
        known = engine.machine.known()
        found = [one for one in self.queue.values() if one.is_deferred and one.number not in known]
        self.now += REQUEST
        engine.machine.step(e.DeferredFound([(one.path, one.number) for one in found]))
        engine.machine.search.ended(self.now, took=REQUEST)

    def recall(self, engine: Engine, key: str) -> bool:
        """Make one request for a destination's deferred messages; return whether there was one."""
        effects = engine.machine.step(e.RecallDue(key, engine.most, self.now))
        if not effects or not isinstance(effects[0], e.Recall):
            return False
        numbers = effects[0].numbers
        self.now += REQUEST
        found = [self.queue[number] for number in numbers if number in self.queue and self.is_free(self.queue[number])]
        is_refused = len(found) < len(numbers)
        engine.most = 1 if is_refused else min(MOST, 2 * len(numbers))
        if not is_refused:
            self.take(engine, found)
        missing, is_unclear = frozenset(numbers if is_refused else ()), is_refused and len(numbers) > 1
        self.apply(engine, e.RecallEnded(key, numbers, missing, is_unclear, self.now))
        return True

    def answer(self, engine: Engine, path: str, *, accepts: bool = True) -> None:
        """Answer an engine's messages on their way to a destination."""
        tried = [message for message in engine.out if message.path == path]
        engine.out = [message for message in engine.out if message.path != path]
        if tried and accepts:
            self.apply(engine, e.MessagesAccepted(tried, self.now))
        elif tried:
            self.apply(engine, e.DeliveryFailed(path, tried, FAILURE, self.now))

    # -- what happens -------------------------------------------------------------------------------------------------

    @rule(which=st.integers(0, 1), path=st.sampled_from(PATHS), count=st.integers(1, 12))
    def messages_arrive(self, which: int, path: str, count: int) -> None:
        new = [Stored(self.sent + 1 + number, path) for number in range(count)]
        self.sent += count
        self.queue.update((one.number, one) for one in new)
        self.take(self.engines[which], new)

    @rule(which=st.integers(0, 1), path=st.sampled_from(PATHS), accepts=st.booleans())
    def a_destination_answers(self, which: int, path: str, accepts: bool) -> None:
        self.answer(self.engines[which], path, accepts=accepts)

    @rule(which=st.integers(0, 1), requests=st.integers(1, 4))
    def deferred_messages_are_requested(self, which: int, requests: int) -> None:
        engine = self.engines[which]
        self.search(engine)
        for key in engine.machine.recallable(self.now):
            for _ in range(requests):
                self.recall(engine, key)

    @rule(which=st.integers(0, 1))
    def an_engine_is_killed(self, which: int) -> None:
        for one in self.queue.values():
            if one.lock is self.engines[which]:
                one.ends = self.now + LOCK
        self.engines[which] = self.started()

    @rule(seconds=st.sampled_from([0.5, 5.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    def teardown(self) -> None:
        """While its destination accepts, a deferred message comes home within 150 s."""
        healed_at = self.now
        while self.queue:
            self.now += 1.0
            for engine in self.engines:
                free = [one for one in self.queue.values() if not one.is_deferred and self.is_free(one)]
                self.take(engine, free[:MOST])
                self.search(engine)
                for key in engine.machine.recallable(self.now):
                    while self.recall(engine, key):
                        pass
                for path in PATHS:
                    self.answer(engine, path)
            assert self.now - healed_at <= HOME, f"{len(self.queue)} messages are not home"


TestTwoPumps = TwoPumps.TestCase


def test_a_thousand_messages_that_another_engine_has_moved_delay_the_others_by_seconds() -> None:
    """One that another engine holds, or has moved, is skipped without a retry."""
    pumps = TwoPumps()
    engine = pumps.engines[0]
    pumps.messages_arrive(0, "orders", 1085)
    pumps.answer(engine, "orders", accepts=False)
    for number in range(1, 1001):
        del pumps.queue[number]
    pumps.teardown()
    assert not pumps.queue

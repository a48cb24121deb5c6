"""The rules of SPEC.md section 8 for pumps, checked from outside: what a pump asks of its queue, and what lies there.

A record holds a pump's own requests; reasons come from the World: answers of destinations, announced states, pauses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.pairing_events import DeadLettered, Event, Moved
from paired_servicebus.simulation.run_plan import LOCK, RESCAN
from paired_servicebus.simulation.run_record import TOLERANCE, PumpEvents
from paired_servicebus.simulation.sim_engine import EVERYTHING, SimEngine
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue, SimDestination
from paired_servicebus.simulation.sim_pump import STALLED_SECONDS
from tests.simulation.invariants import MAX_BACK_OFF, InvariantChecker
from tests.simulation.state_invariants import StateInvariantChecker

MAX_WAIT: Final = 150.0
"""Seconds within which a message moves if nothing keeps it: two locks, a back-off."""
LOOK_INTERVAL: Final = 50.0
"""Seconds between two looks at waiting messages."""
SEARCH_PAUSE: Final = 30.0
"""Pause before the next search, as a multiple of the last one's duration: a lost answer may leave a message to it."""
UNREASONED: Final = 60.0
"""Seconds after which a second deferral without a reason is no race."""
UNSURE: Final = 2 * LOCK
"""Seconds for which an unanswered settlement leaves its message's place open."""


def is_paused(engine: SimEngine, what: str, which: object) -> bool:
    """Return whether operators paused a backlog queue or a destination; the whole syphon has every queue."""
    return (what, which) in engine.pauses or (what == "queue" and EVERYTHING in engine.pauses)


def _owes_answer(engine: SimEngine, key: str) -> bool:
    """Return whether a destination has not answered a try for long."""
    until = engine.clock.now - STALLED_SECONDS + TOLERANCE
    lanes = engine.delivery._lanes.items()
    return any(lane.under_way and lane.began <= until for name, lane in lanes if name[0] == key)


class PumpInvariantChecker(PumpEvents):
    """The checker of one pump during one boot."""

    def __init__(self, engine: SimEngine, queue: SimBacklogQueue, watch: InvariantChecker) -> None:
        self._engine = engine
        self._watch = watch
        self._queue = queue
        self._fail = watch.fail
        self._who = f"{engine.name}, {queue.name}"
        self._in_hand: dict[int, tuple[HeldMessage, int]] = {}
        """Messages with their locks."""
        self._own: dict[int, HeldMessage] = {}
        """Deferred messages by number that the pump deferred, or let go with a lost lock, and has not requested."""
        self._accepted: set[tuple[int, str]] = set()
        self._deferring: Counter[str] = Counter()
        """Deferrals under way, by destination."""
        self._unsure_until: dict[str, float] = {}
        self._unreasoned: dict[str, float] = {}
        """Time of the first of several deferrals without a reason, by destination."""
        self._receipts: set[str] = set()
        self._limited_at = 0.0
        """Time of the latest look at which throttling limited the syphon's rate."""

    # -- intake -------------------------------------------------------------------------------------------------------

    def receives(self) -> None:
        """Check that the pump may receive."""
        if is_paused(self._engine, "queue", self._queue.index):
            self._fail("paused", f"{self._who} receives though an operator paused it")

    def recalls(self, numbers: Iterable[int]) -> None:
        """Check a request for deferred messages."""
        self.receives()
        for number in numbers:
            self._own.pop(number, None)
            found = self._in_hand.get(number)
            if found is not None and self._is_surely_held(*found):
                self._fail("in hand", f"{self._who} asks for {found[0].letter.body}, which it has")

    def _is_surely_held(self, held: HeldMessage, lock: int) -> bool:
        """Return whether the message is in hand, and no recreated queue or lost answer has listed its number twice."""
        is_sure = held.letter.path.casefold() not in self._unsure_until
        return is_sure and not self._queue.deleted and held.lock == lock and self._queue.held.get(held.number) is held

    def took(self, held: HeldMessage, lock: int) -> None:
        held.holder = self
        self._in_hand[held.number] = held, lock

    def gives(self, held: HeldMessage) -> None:
        """Check a message for delivery: its destination has not accepted it from this pump before."""
        if self._accepted and (held.number, held.letter.body) in self._accepted:
            self._fail("sent again", f"{self._who} sends {held.letter.body} again, which it moved before")

    def accepted(self, held: HeldMessage) -> None:
        self._accepted.add((held.number, held.letter.body))

    # -- settlements --------------------------------------------------------------------------------------------------

    def published(self, events: Iterable[Event]) -> None:
        self._receipts.update(one.message_id for one in events if isinstance(one, Moved | DeadLettered))

    def leaves(self, held: HeldMessage, message_id: str) -> None:
        """Check that a receipt precedes the last settlement of a message (SPEC.md section 11).

        If the settlement gets lost, the message may wait for the next search.
        """
        self._in_hand.pop(held.number, None)
        held.holder = None
        if message_id not in self._receipts:
            self._fail("receipt first", f"{held.letter.body} is settled without a receipt")

    def lost(self, messages: Iterable[HeldMessage]) -> None:
        """Record messages with lost locks."""
        for held in messages:
            self._in_hand.pop(held.number, None)
            if held.deferred:
                self._own[held.number] = held

    def recalled(self, key: str, missing: Collection[int], *, asked: int, failed: bool) -> None:
        """Record the end of a request. After one in vain the rest may be dropped as another engine's."""
        if failed:
            self._own.update((number, self._queue.held[number]) for number in missing if number in self._queue.held)
        elif len(missing) == asked:
            self._own = {n: held for n, held in self._own.items() if held.letter.path.casefold() != key}

    def found(self, unknown: Iterable[HeldMessage]) -> None:
        """Check what a search found that the pump does not know: nothing that it deferred or let go itself."""
        for held in unknown:
            if self._own.get(held.number) is held and held.holder is self:
                self._fail("forgotten", f"{self._who} finds {held.letter.body}, which it had deferred or let go itself")

    def releases(self, held: HeldMessage) -> None:
        """Check a release: a deferred message stays deferred, whoever releases it. Others may overtake this one."""
        self._in_hand.pop(held.number, None)
        self._watch.hidden(self._queue.index, [held.letter])
        if held.deferred and self._queue.held.get(held.number) is held:
            self._fail("released", f"{self._who} releases {held.letter.body}, which is deferred")

    def defers(self, held: HeldMessage, key: str, *, is_recalling: bool) -> None:
        """Check that there is a reason for a deferral, and no pause, in which other engines should have the message."""
        self._in_hand.pop(held.number, None)
        if not held.deferred and is_paused(self._engine, "queue", self._queue.index):
            self._fail("released", f"{self._who} is paused and defers {held.letter.body}")
        if is_recalling or self._has_reason(held, key):
            self._unreasoned.pop(key, None)
        else:
            self._found_unreasoned(held, key)
        self._deferring[key] += 1

    def deferred(self, held: HeldMessage, key: str, is_done: bool | None) -> None:
        """Record the end of a deferral. is_done: None: neither confirmed nor refused."""
        self._deferring[key] -= 1
        if is_done is not False:
            self._own[held.number] = held
        if not is_done:
            self._unsure_until[key] = self._engine.clock.now + UNSURE

    def _has_reason(self, held: HeldMessage, key: str) -> bool:
        engine, now = self._engine, self._engine.clock.now
        longest = max(MAX_BACK_OFF, engine.world.plan.policy.throttle_wait) + TOLERANCE
        return (
            _states(engine).of(key).state in DIVERTING
            or now - engine.delivery.failed_at.get(key, 0.0) <= longest
            or _owes_answer(engine, key)
            or self._deferring[key] > 0
            or self._unsure_until.get(key, 0.0) > now
            or is_paused(engine, "destination", key)
            or any(
                other.deferred and other is not held and other.letter.path.casefold() == key
                for other in self._queue.held.values()
            )
        )

    def _found_unreasoned(self, held: HeldMessage, key: str) -> None:
        """With several syphons one alone may be a race: another engine has moved the deferred messages."""
        now, plan = self._engine.clock.now, self._watch.plan
        is_race_possible = sum(plan.syphons) > 1 or bool(plan.crashes or plan.recreations)
        if not is_race_possible or now - self._unreasoned.setdefault(key, now) > UNREASONED:
            self._fail("deferred without reason", f"{self._who} defers {held.letter.body}, though {key} accepts it")

    # -- looked at by others ------------------------------------------------------------------------------------------

    def may_move(self, key: str, since: float) -> bool:
        """Return whether nothing has kept the engine from moving a message for a destination for long."""
        engine, now = self._engine, self._engine.clock.now
        seen = _states(engine).of(key)
        if engine.machine.pace.limit(now) < inf:
            self._limited_at = now
        free_since = max(since, engine.booted_at, engine.paused_at, seen.since, self._limited_at)
        return (
            engine.alive
            and now - free_since > MAX_WAIT + SEARCH_PAUSE * self.search_seconds
            and self in engine.pump_watches
            and not engine.pauses
            and seen.state not in DIVERTING
        )


class WaitingChecker:
    """The check that no message waits without a reason, and no failed destination holds up the others' messages."""

    def __init__(
        self,
        watch: InvariantChecker,
        engines: Sequence[SimEngine],
        queues: Sequence[SimBacklogQueue],
        destinations: dict[str, SimDestination],
    ) -> None:
        self._watch = watch
        self._engines = engines
        self._queues = queues
        self._destinations = destinations

    def look(self, now: float) -> None:
        """Look at every message in a backlog queue."""
        for queue in self._queues:
            if queue.held and not queue.faults and now - queue.healed_at > MAX_WAIT:
                usable = {key for key, one in self._destinations.items() if _is_usable(one, now)}
                if usable:
                    self._look_at(queue, usable, now)

    def _look_at(self, queue: SimBacklogQueue, usable: Collection[str], now: float) -> None:
        pumps = [engine.pump_watches[queue.index] for engine in self._engines if engine.pump_watches]
        for held in queue.held.values():
            if held.since is None or now - held.since <= MAX_WAIT or held.letter.poison:
                continue
            key = held.letter.path.casefold()
            if key not in usable:
                continue
            well_since = max(held.since, queue.healed_at, _quiet_since(self._destinations[key]))
            if any(
                isinstance(one, PumpInvariantChecker) and one.may_move(key, well_since + later)
                for one, later in _movers(held, pumps)
            ):
                since = now - held.since
                self._watch.fail(
                    "moves on", f"{held.letter.body} waits in {queue.name} for {since:.0f} s, and {key} is well"
                )


def _movers(held: HeldMessage, pumps: Sequence[PumpEvents]) -> Sequence[tuple[object, float]]:
    """Return the pumps that have to move a message, with the seconds that each may need to find it.

    A deferred message comes home by the pump that received it last, and after its next search by any other.
    """
    if held.deferred and not held.lock:
        return [(one, 0.0 if one is held.holder else RESCAN) for one in pumps]
    return [(held.holder, 0.0)] if held.lock else [(one, 0.0) for one in pumps]


def _is_usable(destination: SimDestination, now: float) -> bool:
    return not destination.faults and now - _quiet_since(destination) > MAX_WAIT


def _quiet_since(destination: SimDestination) -> float:
    return max(destination.healed_at, destination.full_at)


class RateChecker:
    """The check of one engine's rate limit, as one bucket: not exceeded, and not used up by messages that waited.

    slack: messages by which requests under way may differ from it.
    """

    def __init__(self, watch: InvariantChecker, who: str, *, rate: float, slack: float, began: float) -> None:
        self._watch = watch
        self._who = who
        self._rate = rate
        self._slack = slack
        self._filled_at = began
        self._tokens = max(1.0, rate)
        self.busy_at = 0.0
        """Time of the latest "server busy", which lowers the limit for a while."""

    def _fill(self, now: float) -> None:
        self._tokens = min(max(1.0, self._rate), self._tokens + self._rate * (now - self._filled_at))
        self._filled_at = now

    def used(self, now: float) -> None:
        """Count a message that is delivered."""
        self._fill(now)
        self._tokens -= 1.0
        if self._tokens < -self._slack:
            self._watch.fail("rate", f"{self._who} moves more than {self._rate:g} messages a second")
            self._tokens = 0.0

    def waits(self, now: float) -> None:
        """Check that a pump waits for the limit only if messages were delivered."""
        self._fill(now)
        if self._tokens >= max(1.0, self._rate) - TOLERANCE and now - self.busy_at > MAX_WAIT:
            self._watch.fail("rate", f"{self._who} waits for a limit of {self._rate:g} a second that it does not use")


def _states(engine: SimEngine) -> StateInvariantChecker:
    states = engine.state_watch
    assert isinstance(states, StateInvariantChecker)
    return states

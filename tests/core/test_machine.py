"""The machine under any sequence of events: what must be true of it at every moment."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.effects import Announce, ProbeQueue, SendPing
from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_events import (
    KINDS,
    EntityReleased,
    Event,
    Forced,
    PingAccepted,
    PingFailed,
    Pinned,
    QueueProbed,
    SendAccepted,
    SendFailed,
    SendsCounted,
    StateChanged,
    SyphonPaused,
    SyphonResumed,
    Ticked,
)
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.operator.why_line import why

BEGAN = 1_700_000_000.0
PATHS = ("orders", "Orders", "payments")
"""Two entities by three names."""
QUEUES = 2
SHORT = st.integers(0, 8).map(float)
"""Whole seconds, so that deadlines often coincide."""

PATH = st.sampled_from(PATHS)
ROUTE = st.none() | st.integers(0, QUEUES - 1)


def picture(pairing: PairingMachine) -> tuple[object, ...]:
    rules = (pairing.pauses.all, pairing.next_deadline, pairing.destinations.circuits())
    return deepcopy((pairing.entities(), pairing.rotation.places, *rules))


class AnyHistory(RuleBasedStateMachine):
    """Events in any order; pings and probes that were asked for are answered at any time, or late."""

    @initialize(
        interval=st.sampled_from([0.0, 3.0, 5.0]),
        ping_interval=st.sampled_from([1.0, 3.0, 5.0]),
        row=st.integers(1, 3),
        cool_down=st.sampled_from([0.0, 7.0]),
    )
    def begin(self, interval: float, ping_interval: float, row: int, cool_down: float) -> None:
        policy = Policy(
            failover_interval=interval, ping_primary_interval=ping_interval, failback_pings=row, cool_down=cool_down
        )
        self.pairing = PairingMachine(policy, queues=range(QUEUES))
        self.now = BEGAN
        self.pings: list[tuple[SendPing, float]] = []
        """Asked for and not answered yet, with when they were sent; the latest may be the one the machine awaits."""
        self.probes: list[int] = []
        self.seconds: dict[str, float] = {}

    def tell(self, event: Event) -> None:
        before = picture(self.pairing)
        states = {entity.path: entity.state for entity in self.pairing.entities()}
        try:
            effects = self.pairing.step(event)
        except IllegalEventError:
            assert picture(self.pairing) == before
            return
        out = {place.index for place in self.pairing.rotation.places if place.pulled}
        self.probes = [queue for queue in self.probes if queue in out]  # a send that was answered is a probe too
        for effect in effects:
            if isinstance(effect, SendPing):
                self.pings.append((effect, self.now))
            elif isinstance(effect, ProbeQueue):
                assert effect.queue not in self.probes
                self.probes.append(effect.queue)
            else:
                self.announced(effect, states)
        assert all(states[entity.path] is entity.state for entity in self.pairing.entities() if entity.path in states)

    def announced(self, effect: Announce, states: dict[str, State]) -> None:
        """Announced changes are a chain from what was to what is, and every announced event can be journalled."""
        change = effect.event
        assert KINDS[change.kind] is type(change)
        if isinstance(change, StateChanged):
            assert change.was != change.now
            assert states.get(change.entity, State.UNKNOWN) == change.was
            assert change.why
            states[change.entity] = State(change.now)

    # -- what happens -----------------------------------------------------------------------------------------

    @rule(path=PATH, queue=ROUTE)
    def accepted(self, path: str, queue: int | None) -> None:
        self.tell(SendAccepted(at=self.now, entity=path, queue=queue))

    @rule(path=PATH, queue=ROUTE, failure=st.sampled_from(FailureKind))
    def failed(self, path: str, queue: int | None, failure: FailureKind) -> None:
        self.tell(SendFailed(at=self.now, entity=path, queue=queue, failure=failure, reason=str(failure)))

    @rule(seconds=SHORT)
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(path=PATH)
    def counted(self, path: str) -> None:
        event = SendsCounted(at=self.now, entity=path, route="primary", accepted=1, failed=0, seconds=1.0)
        known = {entity.path.casefold(): entity.state for entity in self.pairing.entities()}
        if known.get(path.casefold()) in (State.HEALTHY, State.FORCED, State.PINNED):
            self.tell(event)

    @rule()
    def falls_quiet(self) -> None:
        self.now += QUIET_AFTER
        self.tell(Ticked(at=self.now))
        assert all(entity.state is not State.HEALTHY for entity in self.pairing.entities())

    @rule()
    def ticked(self) -> None:
        self.tell(Ticked(at=self.now))
        deadline = self.pairing.next_deadline
        assert deadline is None or deadline > self.now

    @precondition(lambda self: self.pairing.next_deadline is not None)
    @rule()
    def slept_until_the_deadline(self) -> None:
        deadline = self.pairing.next_deadline
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.ticked()

    @precondition(lambda self: self.pings)
    @rule(data=st.data(), accepted=st.booleans(), throttled=st.booleans())
    def ping_answered(self, data: st.DataObject, accepted: bool, throttled: bool) -> None:
        index = data.draw(st.integers(0, len(self.pings) - 1))
        ping, sent = self.pings.pop(index)
        took = self.now - sent
        if accepted:
            self.tell(PingAccepted(at=self.now, entity=ping.entity, number=ping.number, took=took))
        else:
            reason = "server busy" if throttled else "timeout"
            event = PingFailed(
                at=self.now, entity=ping.entity, number=ping.number, reason=reason, took=took, throttled=throttled
            )
            self.tell(event)

    @precondition(lambda self: self.probes)
    @rule(accepted=st.booleans())
    def probe_answered(self, accepted: bool) -> None:
        self.tell(QueueProbed(at=self.now, queue=self.probes.pop(0), accepted=accepted))

    @rule(kind=st.sampled_from([Forced, Pinned, EntityReleased]), path=PATH)
    def by_hand(self, kind: type[Forced] | type[Pinned] | type[EntityReleased], path: str) -> None:
        self.tell(kind(at=self.now, entity=path, by="anna"))

    @rule(kind=st.sampled_from([SyphonPaused, SyphonResumed]))
    def syphon(self, kind: type[SyphonPaused] | type[SyphonResumed]) -> None:
        self.tell(kind(at=self.now, by="anna"))

    @rule(path=PATH, queue=st.sampled_from([-1, QUEUES]), accepted=st.booleans())
    def impossible(self, path: str, queue: int, accepted: bool) -> None:
        for event in (
            QueueProbed(at=self.now, queue=queue, accepted=accepted),
            SendFailed(at=self.now, entity=path, queue=queue, failure=FailureKind.TIMEOUT, reason="timeout"),
            PingAccepted(at=self.now, entity="nowhere", number=1, took=0.0),
            Forced(at=self.now, entity="nowhere", by="anna"),
        ):
            before = picture(self.pairing)
            with pytest.raises(IllegalEventError):
                self.pairing.step(event)
            assert picture(self.pairing) == before

    # -- what is always true ----------------------------------------------------------------------------------

    @invariant()
    def a_diverting_entity_has_exactly_one_ping_due_or_under_way(self) -> None:
        for entity in self.entities():
            expected = 1 if entity.diverting else 0
            assert (entity.ping_due is not None) + entity.ping_in_flight == expected, entity

    @invariant()
    def only_a_suspect_has_a_failover_ahead(self) -> None:
        for entity in self.entities():
            assert (entity.fails_over_at is not None) == (entity.state is State.SUSPECT), entity

    @invariant()
    def failovers_and_failbacks_alternate(self) -> None:
        for entity in self.entities():
            assert entity.failovers - entity.failbacks == (entity.state in DIVERTING), entity
            assert (entity.left_primary_at is not None) == entity.diverting

    @invariant()
    def time_on_the_backlog_never_shrinks(self) -> None:
        for entity in self.entities():
            assert entity.seconds_failed_over >= self.seconds.get(entity.path, 0.0)
            assert entity.seconds_failed_over <= self.now - BEGAN
            self.seconds[entity.path] = entity.seconds_failed_over

    @invariant()
    def the_next_deadline_is_the_nearest_there_is(self) -> None:
        places = self.pairing.rotation.places
        wanted = [place.probe_due for place in places]
        wanted.append(self.pairing.quiet.next())
        for entity in self.entities():
            wanted += [entity.fails_over_at, entity.ping_due]
        assert self.pairing.next_deadline == min((due for due in wanted if due is not None), default=None)

    @invariant()
    def a_healthy_entity_is_looked_at_before_it_can_be_quiet(self) -> None:
        look = self.pairing.quiet.next()
        healthy = [entity for entity in self.entities() if entity.state is State.HEALTHY]
        assert (look is not None) == bool(healthy)
        assert all(look <= max(self.now, entity.since) + QUIET_AFTER for entity in healthy)

    @invariant()
    def a_pulled_queue_has_a_probe_due_or_under_way(self) -> None:
        for place in self.pairing.rotation.places:
            due = (place.probe_due is not None) + (place.index in self.probes)
            assert due >= place.pulled, place
            assert place.pulled or place.probe_due is None, place

    @invariant()
    def by_whom_is_told_of_hand_made_states_alone(self) -> None:
        for entity in self.entities():
            assert bool(entity.by) == (entity.state in (State.FORCED, State.PINNED)), entity

    @invariant()
    def every_entity_has_a_why_line_of_one_line(self) -> None:
        for entity in self.entities():
            assert why(entity).splitlines() == [why(entity)]

    @invariant()
    def an_entity_is_there_once_whatever_the_case(self) -> None:
        paths = [entity.path.casefold() for entity in self.entities()]
        assert len(paths) == len(set(paths))

    def entities(self) -> tuple:
        return self.pairing.entities()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(stateful_step_count=40)

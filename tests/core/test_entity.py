"""The entity's table: every state and trigger, as SPEC.md section 6 says, written down here a second time."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.approval import Approve
from tests.fleet_views import own

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import Announce, PairingMachine, ProbeQueue, SendPing
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import DIVERTING, TABLE, Entity, State, Trigger, next_state
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.operator.why_line import outlook, percentile, pings, why
from paired_servicebus.core.text.number_format import format_indices

BEGAN = 1_700_000_000.0

SPECIFIED = """
                   | unknown     | healthy | suspect     | failed over | forced      | pinned
SEND_ACCEPTED      | healthy     | healthy | healthy     | failed over | forced      | pinned
SEND_FAILED        | suspect     | suspect | suspect     | failed over | forced      | pinned
INTERVAL_ENDED     | -           | -       | failed over | -           | -           | -
PING_ACCEPTED      | -           | -       | -           | failed over | forced      | -
PINGS_ENOUGH       | -           | -       | -           | healthy     | forced      | -
PING_FAILED        | -           | -       | -           | failed over | forced      | -
FORCE              | forced      | forced  | forced      | forced      | -           | forced
PIN                | pinned      | pinned  | pinned      | pinned      | pinned      | -
RELEASE            | -           | -       | -           | healthy     | healthy     | healthy
RELEASE_UNPROVEN   | -           | -       | -           | healthy     | failed over | failed over
RELEASE_UNKNOWN    | -           | -       | -           | -           | unknown     | unknown
QUIET              | -           | unknown | -           | -           | -           | -
GONE               | -           | -       | -           | unknown     | -           | -
"""
"""Rows are triggers, columns states; "-" cannot happen."""


def _cells() -> list[tuple[State, Trigger, State | None]]:
    head, *rows = (line.split("|") for line in SPECIFIED.strip("\n").splitlines())
    states = [State(word.strip()) for word in head[1:]]
    return [
        (state, Trigger[name.strip()], None if word.strip() == "-" else State(word.strip()))
        for name, *words in rows
        for state, word in zip(states, words, strict=True)
    ]


CELLS = _cells()
LEGAL = [(state, trigger, now) for state, trigger, now in CELLS if now is not None]
ILLEGAL = [(state, trigger) for state, trigger, now in CELLS if now is None]


def entity(state: State, **more: object) -> Entity:
    return Entity(path="orders", state=state, since=BEGAN, **more)


def test_the_table_here_names_every_state_and_trigger_once() -> None:
    assert sorted((state, trigger) for state, trigger, _ in CELLS) == sorted((s, t) for s in State for t in Trigger)


def test_the_projects_table_is_the_specifications() -> None:
    assert {(state, trigger): now for state, trigger, now in LEGAL} == TABLE


@pytest.mark.parametrize(("state", "trigger"), ILLEGAL)
def test_an_illegal_pair_is_refused_and_says_what_and_where(state: State, trigger: Trigger) -> None:
    with pytest.raises(IllegalEventError, match=rf"^invalid transition for orders: {trigger.words} while {state}$"):
        next_state(entity(state), trigger)


# -- Indices of backlog queues in sentences.


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ((), "none"),
        ((7,), "7"),
        ((1, 0), "0, 1"),
        ((0, 1, 2), "0 to 2"),
        ((3, 0, 2), "0, 2, 3"),
        ((0, 10, 11, 12, 19), "0, 10 to 12, 19"),
    ],
)
def test_consecutive_indices_are_a_range(indices: tuple[int, ...], words: str) -> None:
    assert format_indices(indices) == words


# -- What would change the state next, and when.


NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def ways(state: State, policy: Policy | None = None, **more: Any) -> list[tuple[State, str]]:
    return [tuple(change) for change in outlook(own("orders", state, since=NOON, **more), policy, NOON)]


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_way_out(state: State) -> None:
    assert ways(state)


def test_suspect_says_when_it_fails_over() -> None:
    """Section 6: "suspect -> (timer ends with no successful send; silence counts) failed over"."""
    first, second = ways(State.SUSPECT, fails_over_at=NOON + 60)
    assert first == (State.FAILED_OVER, "in 1m00s, unless a send succeeds before; silence counts as failure")
    assert second[0] is State.HEALTHY


def test_with_no_interval_the_first_failure_fails_over(approve: Approve) -> None:
    """Section 3: "0 = fail over on the first failure that counts"."""
    assert ways(State.HEALTHY, Policy(failover_interval=0))[0][0] is State.FAILED_OVER
    approve.part(ways(State.HEALTHY, Policy())[0][1], "rules", has=("60 s",))


def test_failed_over_counts_the_pings_that_are_missing_and_names_the_cool_down(approve: Approve) -> None:
    """Section 6: "(`failback_pings` pings accepted in a row, and at least `cool_down` in this state) healthy"."""
    policy = Policy(failback_pings=3, cool_down=300)
    said = ways(State.FAILED_OVER, policy, pings_in_a_row=1, next_ping_at=NOON + 120)[0][1]
    approve.part(said, "rules", has=("2 more", "2m00s", "5m00s"))


def test_a_deleted_entity_has_an_end_besides_a_failback() -> None:
    """Section 6: "nothing was sent to it for 15 min) unknown: it is deleted, and nobody's outage"."""
    deleted = ways(State.FAILED_OVER, Policy(), missing_since=NOON)
    (end,) = (when for to, when in deleted if to is State.UNKNOWN)
    assert "15 min after its last send" in end
    assert not [to for to, _ in ways(State.FAILED_OVER, Policy()) if to is State.UNKNOWN]


@pytest.mark.parametrize(("good", "to"), [(True, State.HEALTHY), (False, State.FAILED_OVER), (None, State.FAILED_OVER)])
def test_forced_ends_by_a_person_alone(good: bool | None, to: State) -> None:
    """Section 6: "`release` clears forced or pinned: to healthy if the last ping was accepted, else to failed over"."""
    where, said = ways(State.FORCED, last_ping_good=good)[0]
    assert where is to
    assert said.startswith("only when released")


def test_percentiles_are_of_accepted_pings_by_nearest_rank() -> None:
    assert pings([0.3, None, 0.1, 0.2]) == (4, 3, 0.2, 0.3)
    assert pings([None]) == (1, 0, None, None)
    assert pings([]) == (0, 0, None, None)
    assert percentile([float(number) for number in range(1, 101)], 0.95) == 95.0


# -- The machine under any sequence of events: what must be true of it at every moment.


PATHS = ("orders", "Orders", "payments")
"""Two entities by three names."""
QUEUES = 2
SHORT = st.integers(0, 8).map(float)
"""Whole seconds, so that deadlines often coincide."""

PATH = st.sampled_from(PATHS)
ROUTE = st.none() | st.integers(0, QUEUES - 1)


def picture(pairing: PairingMachine) -> tuple[object, ...]:
    rules = (pairing.pauses.all, pairing.next_deadline, tuple(pairing.destinations.open.values()))
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

    def tell(self, event: e.Event) -> None:
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
        assert e.KINDS[change.kind] is type(change)
        if isinstance(change, e.StateChanged):
            assert change.was != change.now
            assert states.get(change.entity, State.UNKNOWN) == change.was
            assert change.why
            states[change.entity] = State(change.now)

    # -- what happens -----------------------------------------------------------------------------------------

    @rule(path=PATH, queue=ROUTE)
    def accepted(self, path: str, queue: int | None) -> None:
        self.tell(e.SendAccepted(at=self.now, entity=path, queue=queue))

    @rule(path=PATH, queue=ROUTE, failure=st.sampled_from(FailureKind))
    def failed(self, path: str, queue: int | None, failure: FailureKind) -> None:
        self.tell(e.SendFailed(at=self.now, entity=path, queue=queue, failure=failure, reason=str(failure)))

    @rule(seconds=SHORT)
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(path=PATH)
    def counted(self, path: str) -> None:
        event = e.SendsCounted(at=self.now, entity=path, route="primary", accepted=1, failed=0, seconds=1.0)
        known = {entity.path.casefold(): entity.state for entity in self.pairing.entities()}
        if known.get(path.casefold()) in (State.HEALTHY, State.FORCED, State.PINNED):
            self.tell(event)

    @rule()
    def falls_quiet(self) -> None:
        self.now += QUIET_AFTER
        self.tell(e.Ticked(at=self.now))
        assert all(entity.state is not State.HEALTHY for entity in self.pairing.entities())

    @rule()
    def ticked(self) -> None:
        self.tell(e.Ticked(at=self.now))
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
            self.tell(e.PingAccepted(at=self.now, entity=ping.entity, number=ping.number, took=took))
        else:
            reason = "server busy" if throttled else "timeout"
            event = e.PingFailed(
                at=self.now, entity=ping.entity, number=ping.number, reason=reason, took=took, throttled=throttled
            )
            self.tell(event)

    @precondition(lambda self: self.probes)
    @rule(accepted=st.booleans())
    def probe_answered(self, accepted: bool) -> None:
        self.tell(e.QueueProbed(at=self.now, queue=self.probes.pop(0), accepted=accepted))

    @rule(kind=st.sampled_from([e.Forced, e.Pinned, e.EntityReleased]), path=PATH)
    def by_hand(self, kind: type[e.Forced] | type[e.Pinned] | type[e.EntityReleased], path: str) -> None:
        self.tell(kind(at=self.now, entity=path, by="anna"))

    @rule(kind=st.sampled_from([e.SyphonPaused, e.SyphonResumed]))
    def syphon(self, kind: type[e.SyphonPaused] | type[e.SyphonResumed]) -> None:
        self.tell(kind(at=self.now, by="anna"))

    @rule(path=PATH, queue=st.sampled_from([-1, QUEUES]), accepted=st.booleans())
    def impossible(self, path: str, queue: int, accepted: bool) -> None:
        for event in (
            e.QueueProbed(at=self.now, queue=queue, accepted=accepted),
            e.SendFailed(at=self.now, entity=path, queue=queue, failure=FailureKind.TIMEOUT, reason="timeout"),
            e.PingAccepted(at=self.now, entity="nowhere", number=1, took=0.0),
            e.Forced(at=self.now, entity="nowhere", by="anna"),
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
            assert not entity.failures_while_pinned or entity.state is State.PINNED, entity

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

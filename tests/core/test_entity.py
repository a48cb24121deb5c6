"""The entity's table: every state and trigger, as SPEC.md section 6 says, written down here a second time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.entity_state import DIVERTING, TABLE, Entity, State, Trigger, enter, next_state
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.operator.why_line import outlook, percentile, pings
from paired_servicebus.core.text.number_format import format_indices

BEGAN = 1_700_000_000.0
INTERVAL = 60.0

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


@pytest.mark.parametrize(("state", "trigger", "now"), LEGAL)
def test_a_legal_pair_leads_where_the_specification_says(state: State, trigger: Trigger, now: State) -> None:
    assert next_state(entity(state), trigger) is now


@pytest.mark.parametrize(("state", "trigger"), ILLEGAL)
def test_an_illegal_pair_is_refused_and_says_what_and_where(state: State, trigger: Trigger) -> None:
    with pytest.raises(IllegalEventError, match=rf"^invalid transition for orders: {trigger.words} while {state}$"):
        next_state(entity(state), trigger)


def test_the_projects_table_holds_no_pair_beyond_the_legal_ones() -> None:
    assert set(TABLE) == {(state, trigger) for state, trigger, _ in LEGAL}


@pytest.mark.parametrize("was", State)
@pytest.mark.parametrize("now", State)
def test_entering_a_state_keeps_counts_and_deadlines_that_belong_to_it(was: State, now: State) -> None:
    leaves, returns = was not in DIVERTING and now in DIVERTING, was in DIVERTING and now not in DIVERTING
    before = entity(
        was,
        fails_over_at=BEGAN + 5 if was is State.SUSPECT else None,
        left_primary_at=BEGAN - 100 if was in DIVERTING else None,
        ping_due=BEGAN + 20 if was in DIVERTING else None,
        pings=4 if was in DIVERTING else 0,
        failovers=3 if was in DIVERTING else 2,
        failbacks=2,
        seconds_failed_over=50.0,
        failures_while_pinned=7 if was is State.PINNED else 0,
        by="anna",
        by_why="a drill",
    )

    after = enter(before, now, at=BEGAN + 10, ping_interval=INTERVAL)

    assert (after.state, after.since, after.fails_over_at) == (now, BEGAN + 10, None)
    assert after.diverting is (now in DIVERTING)
    assert after.failovers == before.failovers + leaves
    assert after.failbacks == before.failbacks + returns
    assert after.seconds_failed_over == 50.0 + (110.0 if returns else 0.0)
    assert after.failures_while_pinned == 0
    assert (after.by, after.by_why) == (("anna", "a drill") if now in (State.FORCED, State.PINNED) else ("", ""))
    if now not in DIVERTING:
        assert (after.left_primary_at, after.ping_due, after.ping_in_flight) == (None, None, False)
    elif leaves:
        assert (after.left_primary_at, after.ping_due, after.pings) == (BEGAN + 10, BEGAN + 10 + INTERVAL, 0)
    else:
        assert (after.left_primary_at, after.ping_due, after.pings) == (BEGAN - 100, BEGAN + 20, 4)


@pytest.mark.parametrize(
    ("state", "primary_good", "last_ping_good", "trigger"),
    [
        (State.FORCED, None, True, Trigger.RELEASE),
        (State.FORCED, True, False, Trigger.RELEASE_UNPROVEN),
        (State.FORCED, True, None, Trigger.RELEASE_UNPROVEN),
        (State.FORCED, None, None, Trigger.RELEASE_UNKNOWN),
        (State.FAILED_OVER, None, True, Trigger.RELEASE),
        (State.FAILED_OVER, None, False, Trigger.RELEASE_UNPROVEN),
        (State.PINNED, True, None, Trigger.RELEASE),
        (State.PINNED, False, True, Trigger.RELEASE_UNPROVEN),
        (State.PINNED, None, None, Trigger.RELEASE_UNKNOWN),
    ],
)
def test_what_a_release_is_depends_on_the_primarys_last_answer(
    state: State, primary_good: bool | None, last_ping_good: bool | None, trigger: Trigger
) -> None:
    known = entity(state, primary_good=primary_good, last_ping_good=last_ping_good)
    assert known.release_trigger() is trigger


def test_an_entity_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        entity(State.HEALTHY).state = State.PINNED


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
    given: dict[str, Any] = {"path": "orders", "state": state, "since": NOON, "why": "", "route": "primary"}
    counts: dict[str, Any] = {"sends_per_second": 0.0, "accepted": 0, "diverted": 0, "failed": 0}
    return [tuple(change) for change in outlook(EntityView(**given, **counts, **more), policy, NOON)]


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

"""The entity's table: every state and trigger, as SPEC.md section 6 says, written down here a second time."""

from __future__ import annotations

import pytest

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.entity_state import DIVERTING, TABLE, Entity, State, Trigger, enter, next_state

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

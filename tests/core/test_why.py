"""The why-line of every state, word for word."""

from __future__ import annotations

import pytest

from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.operator.why_line import failover_cause, why
from paired_servicebus.core.text.time_format import clock

NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def line(state: State, **more: object) -> str:
    return why(Entity(path="orders", state=state, since=NOON, **more))


PINGED = {
    "first_failure": "timeout",
    "first_failure_at": NOON,
    "pings": 3,
    "ping_due": NOON + 90,
    "last_ping_at": NOON + 60,
    "last_ping_text": "connection lost",
}

LINES = [
    (State.UNKNOWN, {}, 'no sends by this engine; set probe = ["orders"] to watch it'),
    (
        State.UNKNOWN,
        {"last_failure": "server busy", "last_failure_at": NOON},
        "no send accepted yet; last failure 12:00:00 "
        "(server busy: partitioning the entity makes throttling less likely)",
    ),
    (State.HEALTHY, {}, "sends go to the primary; no failure since the engine started"),
    (
        State.HEALTHY,
        {"last_failure": "timeout", "last_failure_at": NOON + 5},
        "sends go to the primary; last failure 12:00:05 (timeout)",
    ),
    (
        State.HEALTHY,
        {"last_failure": "server busy", "last_failure_at": NOON},
        "sends go to the primary; last failure 12:00:00 "
        "(server busy: partitioning the entity makes throttling less likely)",
    ),
    (
        State.SUSPECT,
        {"first_failure": "timeout", "fails_over_at": NOON + 60},
        "timeout 12:00:00; fails over at 12:01:00 unless a send succeeds",
    ),
    (
        State.FAILED_OVER,
        {"first_failure": "timeout", "ping_due": NOON + 60},
        "timeout; first ping 12:01:00",
    ),
    (
        State.FAILED_OVER,
        {"first_failure": "timeout", "first_failure_at": NOON, "pings": 1, "ping_in_flight": True},
        "timeout since 12:00:00; no ping answered yet",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": False},
        "timeout since 12:00:00; ping 3 failed 12:01:00 (connection lost); next 12:01:30",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": False, "ping_due": None, "ping_in_flight": True},
        "timeout since 12:00:00; ping 2 failed 12:01:00 (connection lost)",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": False, "last_ping_text": "server busy"},
        "timeout since 12:00:00; ping 3 failed 12:01:00 "
        "(server busy: partitioning the entity makes throttling less likely); next 12:01:30",
    ),
    (
        State.FAILED_OVER,
        {**PINGED, "last_ping_good": True, "pings_in_a_row": 2},
        "timeout since 12:00:00; pings accepted (2 in a row); next 12:01:30",
    ),
    (State.FAILED_OVER, {"ping_due": NOON + 60}, "the primary accepted no send since the release; first ping 12:01:00"),
    (
        State.FORCED,
        {"by": "anna", "by_why": "a drill", "ping_due": NOON + 60},
        'forced by anna 12:00:00 "a drill"; first ping 12:01:00; stays until released',
    ),
    (
        State.FORCED,
        {**PINGED, "by": "anna", "last_ping_good": True, "pings_in_a_row": 3},
        "forced by anna 12:00:00; pings accepted (3 in a row); next 12:01:30; stays until released",
    ),
    (State.PINNED, {"by": "anna"}, "pinned by anna 12:00:00; no failure since"),
    (
        State.PINNED,
        {"by": "anna", "by_why": "a drill", "failures_while_pinned": 1},
        'pinned by anna 12:00:00 "a drill"; 1 failure since, none diverted',
    ),
    (
        State.PINNED,
        {"by": "anna", "failures_while_pinned": 4},
        "pinned by anna 12:00:00; 4 failures since, none diverted",
    ),
]


@pytest.mark.parametrize(("state", "more", "text"), LINES)
def test_the_why_line(state: State, more: dict[str, object], text: str) -> None:
    assert line(state, **more) == text


def test_every_state_has_a_line_here() -> None:
    assert {state for state, _, _ in LINES} == set(State)


def test_times_are_utc() -> None:
    assert clock(NOON + 3661) == "13:01:01"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("timeout since 12:00:00; no ping answered yet", "timeout"),
        ('no send accepted for 0.5 s after "timeout"', "timeout"),
        ("the primary accepted no send since the release; first ping 12:01:00", ""),
    ],
    ids=["line", "event", "released"],
)
def test_the_cause_of_a_failover_is_read_from_its_line(line: str, cause: str) -> None:
    assert failover_cause(line) == cause


class TestAsItHappens:
    """The same lines out of the machine, where a line and what it speaks of could part."""

    def test_a_ping_under_way_is_not_called_refused(self, told) -> None:
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        began = pairing.at
        pairing.ticks(to=10)
        assert why(pairing.entity()).endswith("no ping answered yet")
        pairing.now = 12
        pairing.ping_failed(1, took=2)
        answered = clock(pairing.at)
        pairing.ticks(to=20)
        assert why(pairing.entity()) == f"timeout since {clock(began)}; ping 1 failed {answered} (timeout)"

    def test_a_new_failover_does_not_tell_of_the_last_ones_pings(self, told) -> None:
        pairing = told(failover_interval=0, ping_primary_interval=10)
        pairing.fails()
        pairing.ticks(to=10)
        pairing.ping_accepted(1)
        pairing.fails(reason="connection lost")
        entity = pairing.entity()
        assert (entity.last_ping_at, entity.last_ping_good, entity.last_ping_text) == (None, None, "")
        assert why(entity) == f"connection lost since {clock(pairing.at)}; first ping {clock(pairing.at + 10)}"

"""When a backlog without a known syphon stands still: SPEC.md section 4.6."""

from __future__ import annotations

import pytest
from tests.approval import Approve

from paired_servicebus.core.backlog.syphon_status_rules import STALLED_AFTER, StallDetector, are_healthy
from paired_servicebus.core.model.entity_state import Entity, State


def alarm_after(*readings: tuple[int, float], healthy: bool = True) -> str:
    """The alarm once these readings, messages and time, were made."""
    stalled = StallDetector()
    for messages, at in readings:
        stalled.read(messages, at=at, healthy=healthy)
    return stalled.alarm


def test_the_alarm_is_due_once_the_depth_has_not_fallen_for_15_min(approve: Approve) -> None:
    """ "An alarm once … the depth has not fallen for 15 min while the destinations are healthy"."""
    assert alarm_after((5, 100.0), (5, 100.0 + STALLED_AFTER - 1)) == ""
    approve.part(alarm_after((5, 100.0), (7, 500.0), (7, 100.0 + STALLED_AFTER)), "rules", has=("15 min", "7 parked"))


def test_a_depth_that_falls_is_moved_by_somebody() -> None:
    assert alarm_after((5, 100.0), (4, 600.0), (4, 100.0 + STALLED_AFTER)) == ""


def test_an_old_reading_proves_nothing_however_often_it_is_looked_at() -> None:
    assert alarm_after((5, 100.0), (5, 100.0), (5, 100.0)) == ""


@pytest.mark.parametrize("readings", [((0, 100.0), (0, 2000.0)), ((5, 100.0), (0, 500.0), (5, 1100.0))])
def test_an_empty_backlog_is_no_alarm(readings: tuple[tuple[int, float], ...]) -> None:
    assert alarm_after(*readings) == ""


def test_while_destinations_are_not_known_to_be_healthy_nothing_has_to_move() -> None:
    assert alarm_after((5, 100.0), (5, 2000.0), healthy=False) == ""


@pytest.mark.parametrize(
    ("states", "healthy"),
    [
        ((), False),
        ((State.UNKNOWN,), False),
        ((State.HEALTHY, State.UNKNOWN), True),
        ((State.HEALTHY, State.SUSPECT), False),
        ((State.HEALTHY, State.FAILED_OVER), False),
        ((State.HEALTHY, State.FORCED), False),
    ],
)
def test_unknown_destinations_are_not_healthy(states: tuple[State, ...], healthy: bool) -> None:
    assert are_healthy(tuple(Entity(path=f"e{n}", since=0.0, state=one) for n, one in enumerate(states))) is healthy


def test_what_fell_quiet_was_healthy_when_last_heard_of() -> None:
    """Both take 15 minutes: the alarm of an application that sends nothing must not be lost to its own silence."""
    quiet = Entity(path="orders", since=0.0, quiet_since=0.0)
    assert are_healthy((quiet,))
    assert not are_healthy((quiet, Entity(path="audit", since=0.0, state=State.SUSPECT)))

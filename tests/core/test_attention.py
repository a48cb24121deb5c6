"""What calls a person, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.model.pairing_events import PingSent, StateChanged, Warned
from paired_servicebus.core.model.snapshot import QueueView, SyphonStatus, SyphonView
from paired_servicebus.core.operator.failover_readiness import backlog_alarms
from paired_servicebus.core.operator.notifications import begun, calls, turned


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("suspect", "failed over", True),
        ("failed over", "healthy", True),
        ("healthy", "forced", True),
        ("forced", "pinned", True),
        ("healthy", "suspect", False),
        ("suspect", "healthy", False),
        ("unknown", "healthy", False),
        ("failed over", "forced", False),
    ],
)
def test_an_entity_that_leaves_the_primary_or_comes_back_calls(was: str, now: str, expected: bool) -> None:
    assert turned(was, now) is expected
    assert calls(StateChanged(at=1.0, entity="orders", was=was, now=now, why="because")) is expected


@pytest.mark.parametrize(
    ("about", "expected"), [("alarm", True), ("readiness", True), ("journal", True), ("on_change", False)]
)
def test_alarms_call_and_a_failed_call_does_not(about: str, expected: bool) -> None:
    assert calls(Warned(at=1.0, about=about, text="…")) is expected


def test_nothing_else_calls() -> None:
    assert not calls(PingSent(at=1.0, entity="orders", number=1))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), ("3 dead-lettered messages lie there",), ("3 dead-lettered messages lie there",)),
        (("3 dead-lettered messages lie there",), ("1,204 dead-lettered messages lie there",), ()),
        (("the syphon is stuck: timeout",), ("the syphon is stuck: refused",), ()),
        (("queue 1 is 81% full",), ("queue 1 is 82% full", "queue 2 is 81% full"), ("queue 2 is 81% full",)),
        (("queue 1 is 81% full, and full 14:02:03 at this pace",), ("queue 1 is 99% full",), ()),
        (("a", "b"), ("b",), ()),
    ],
)
def test_an_alarm_that_says_other_figures_is_the_same(
    before: tuple[str, ...], after: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert begun(before, after) == expected


# -- A stuck pump and a backlog that is nearly full are alarms.


NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC
IDLE = SyphonView(status=SyphonStatus.IDLE, text="nothing to move")


def queue(**more: Any) -> QueueView:
    return QueueView(index=3, path="contoso/x-servicebus-transfer/3", in_rotation=True, read_at=NOON, **more)


@pytest.mark.parametrize("size", [None, 0, 80])
def test_a_queue_with_room_is_no_alarm(size: int | None) -> None:
    assert backlog_alarms([queue(size_bytes=size, limit_bytes=100)], IDLE) == []
    assert backlog_alarms([queue(size_bytes=size)], IDLE) == []


def test_a_queue_that_is_nearly_full_says_until_when_there_is_room(approve: Approve) -> None:
    full = queue(size_bytes=84, limit_bytes=100, bytes_growth=0.1)
    approve.part(backlog_alarms([full], IDLE), "rules", has=("3 is", "84%", "12:02:40"))
    approve.part(backlog_alarms([queue(size_bytes=84, limit_bytes=100)], IDLE), "rules", has=("3 is", "84%"))


def test_a_stuck_syphon_says_why(approve: Approve) -> None:
    stuck = SyphonView(status=SyphonStatus.STUCK, text="backlog queue 2: timeout")
    approve.part(backlog_alarms([queue()], stuck), "rules")

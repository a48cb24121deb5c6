"""The table of alarms: what calls a person, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.alarm_views import NOON, condition, obstacle, trouble
from tests.approval import Approve
from tests.fleet_views import own

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.gateway_view import GatewayView, TurnedAway, TurnedAwayView
from paired_servicebus.core.model.pairing_events import PingSent, StateChanged, Warned
from paired_servicebus.core.model.snapshot import (
    JournalView,
    QueueView,
    SyphonStatus,
    SyphonView,
    TroubleKind,
    UnusedQueue,
    UnusedView,
)
from paired_servicebus.core.operator.alarms import (
    ALARM,
    Alarm,
    AlarmChanges,
    Severity,
    advice,
    alarms,
    begun,
    calls,
    turned,
)


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
    ("about", "text", "expected"),
    [
        ("alarm", "critical no_receipts: …", True),
        ("alarm", "over: warning slow: …", True),
        ("alarm", "notice unknown: …", False),
        ("alarm", "over: notice unknown: …", False),
        ("on_change", "…", False),
        ("readiness", "…", False),
    ],
)
def test_alarms_call_and_a_notice_or_a_failed_call_does_not(about: str, text: str, expected: bool) -> None:
    assert calls(Warned(at=1.0, about=about, text=text)) is expected


def test_nothing_else_calls() -> None:
    assert not calls(PingSent(at=1.0, entity="orders", number=1))


# -- The table: names and subjects identify alarms, figures do not.


def raised(name: str, **changes: Any) -> list[Alarm]:
    """The alarms of one name in this condition."""
    return [one for one in alarms(condition(**changes)) if one.name == name]


def queue(index: int = 3, **more: Any) -> QueueView:
    path = f"contoso/x-servicebus-transfer/{index}"
    return QueueView(**{"index": index, "path": path, "in_rotation": True, "read_at": NOON, **more})


def full(*sizes: int) -> tuple[QueueView, ...]:
    return tuple(queue(index, size_bytes=size, limit_bytes=100) for index, size in enumerate(sizes))


def test_an_alarm_with_other_figures_is_the_same() -> None:
    one, two = raised("backlog_nearly_full", queues=full(81)), raised("backlog_nearly_full", queues=full(82, 90))
    assert [alarm.subject for alarm in begun(one, two)] == ["1"]
    assert begun(two, one) == ()
    assert one[0].sentence != two[0].sentence


def test_changes_are_reported_once_each_with_severity_and_name() -> None:
    said: list[tuple[str, str]] = []
    changes = AlarmChanges(lambda about, text: said.append((about, text)))
    over = own("orders", State.FAILED_OVER, why="timeout", route="backlog")
    for _ in range(2):
        changes.note(alarms(condition(queues=full(81), entities=(over,))))
    changes.note(alarms(condition()))
    assert [about for about, _ in said] == [ALARM, ALARM], "a change of state reports the failover"
    assert said[0][1].startswith("warning backlog_nearly_full: backlog queue 0 is 81% full")
    assert said[1][1] == f"over: {said[0][1]}"


def test_the_worst_come_first_and_the_advice_is_of_the_worst() -> None:
    found = alarms(
        condition(
            queues=full(90),
            troubles=(trouble(TroubleKind.SYPHON_UNKNOWN), trouble(TroubleKind.CREDENTIAL_REFUSED, "primary")),
        )
    )
    assert [one.severity for one in found] == [Severity.CRITICAL, Severity.WARNING, Severity.NOTICE]
    assert advice(found).startswith("replace it without a restart")
    assert advice(()) == ""


@pytest.mark.parametrize("size", [None, 0, 80])
def test_a_queue_with_room_is_no_alarm(size: int | None) -> None:
    assert raised("backlog_nearly_full", queues=(queue(size_bytes=size, limit_bytes=100),)) == []
    assert raised("backlog_nearly_full", queues=(queue(size_bytes=size),)) == []


def test_every_alarm_has_its_sentence_and_its_remedy(approve: Approve) -> None:
    """Each row has a name, a severity, a condition, a sentence, what to do, and the console's page."""
    stuck = SyphonView(status=SyphonStatus.STUCK, text="backlog queue 2: timeout")
    unused = UnusedQueue(path="p/12", index=12, status="Active", messages=3)
    grown = [replace(unused, index=index, grows=True) for index in range(10, 20)]
    away = TurnedAwayView(why=TurnedAway.WRONG_KEY, count=4, last_at=NOON - 10, last_text="no key named 'x'.")
    tried = replace(away, count=1, times=99)
    refused = replace(away, why=TurnedAway.ENGINE_REFUSED, count=2, last_text="not authorized")
    gateway = GatewayView(address="127.0.0.1", port=5673, since=0.0)
    conditions = [
        condition(queues=(queue(size_bytes=84, limit_bytes=100, bytes_growth=0.1),)),
        condition(queues=(queue(size_bytes=84, limit_bytes=100, dead_lettered=1),)),
        condition(queues=(queue(in_rotation=False, pulled_reason="timeout"),)),
        condition(syphon=stuck),
        condition(unused=UnusedView(queues=(unused,))),
        condition(unused=UnusedView(queues=(replace(unused, messages=1, grows=True),))),
        condition(unused=UnusedView(queues=tuple(grown))),
        condition(unused=UnusedView(queues=(replace(unused, is_moved=True),))),
        condition(gateway=replace(gateway, trouble="port 5673 is taken")),
        condition(gateway=replace(gateway, paused=3, paused_since=NOON - 5, bytes_in_hand=64 << 20)),
        *(condition(gateway=replace(gateway, turned_away=(one,))) for one in (away, tried, refused)),
        condition(gateway=replace(gateway, turned_away=(replace(away, last_at=NOON - 1000),))),
        *(condition(troubles=(trouble(kind, "X", since=NOON - 60),)) for kind in TroubleKind),
        condition(readiness=obstacle(NOON, "the secondary does not answer: timeout", "check [secondary]")),
        condition(journal=JournalView(lines=9, lost=2, trouble="No space left on device")),
    ]
    texts = ["\n".join(f"{one} [page {one.page}]" for one in alarms(each)) or "-" for each in conditions]
    assert texts.count("-") == 2, "moved by another engine; turned away long ago"
    approve.part(
        "\n".join(texts), "alarms", has=("12:02:40", "backlog_queue_count to 20 or more", "64.0 MB", "99 times")
    )

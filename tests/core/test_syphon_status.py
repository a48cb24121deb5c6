"""Status by messages moved, and by what explains those that were not (SPEC.md section 8, findings C4 and C7)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.approval import Approve

from paired_servicebus.core.backlog.syphon_status_rules import (
    Standstill,
    SyphonEvidence,
    UnavailableDestinations,
    judge,
)
from paired_servicebus.core.model.snapshot import SyphonStatus

PAUSED, STUCK, RUNNING = SyphonStatus.PAUSED, SyphonStatus.STUCK, SyphonStatus.RUNNING
WAITING, IDLE = SyphonStatus.WAITING, SyphonStatus.IDLE
OUTAGE = UnavailableDestinations(outage=("orders",))
REFUSED = UnavailableDestinations(refused=(("orders", "timeout"),))
PACE = "at most 5 a second"
UNEXPLAINED = "for an unknown reason"
LIES: dict[str, Any] = {"parked": 348, "lies_still": 348}


@pytest.mark.parametrize(
    ("status", "sight"),
    [
        (PAUSED, {"paused": "paused here", **LIES}),
        (STUCK, {"failing": "backlog queue 0: cannot receive"}),
        (STUCK, LIES),
        (STUCK, LIES | {"others": True}),
        (STUCK, LIES | {"away": REFUSED, "takes": True}),
        (RUNNING, {"parked": 5, "moves_now": True}),
        (RUNNING, {"parked": 5, "moved_lately": True}),
        (RUNNING, {"parked": 0, "moves_now": True}),
        (RUNNING, LIES | {"moves_now": True}),
        # "stuck" is not said while every destination that was looked at takes nothing
        (WAITING, LIES | {"away": OUTAGE}),
        (WAITING, LIES | {"away": REFUSED}),
        (WAITING, LIES | {"away": UnavailableDestinations(forced=("orders",))}),
        (WAITING, LIES | {"away": UnavailableDestinations(paused=("orders",))}),
        # nor while another engine on the same queues is known, or cannot be excluded, and moves
        (WAITING, LIES | {"others_busy": True}),
        (WAITING, LIES | {"away": REFUSED, "takes": True, "others": True}),
        # "idle" is: nothing parked and nothing to do
        (WAITING, {"parked": 8}),
        (WAITING, {"parked": 8, "is_whole": False}),
        (WAITING, {"parked": 8, "paused_queues": "backlog queue 1"}),
        (IDLE, {"parked": 0}),
        (IDLE, {"parked": 0, "moved_lately": True}),
        (IDLE, {"parked": 0, "away": OUTAGE}),
        (IDLE, {"parked": None}),
    ],
)
def test_the_rule(status: SyphonStatus, sight: dict[str, Any]) -> None:
    assert judge(SyphonEvidence(**sight))[0] is status


@pytest.mark.parametrize(
    ("text", "sight"),
    [
        ("holds 924 messages for an outage of orders; moves them when it is healthy again", {"away": OUTAGE}),
        ("holds 924 messages for orders (timeout); moves them when it is healthy again", {"away": REFUSED}),
        (
            "holds 924 messages for an outage of orders, audit; moves them when each is healthy again",
            {"away": UnavailableDestinations(outage=("orders", "audit"))},
        ),
        ("holds 924 messages for orders (forced here)", {"away": UnavailableDestinations(forced=("orders",))}),
        (
            "holds 924 messages for an outage of a and b (paused by an operator); moves them when it is healthy again",
            {"away": UnavailableDestinations(outage=("a",), paused=("b",))},
        ),
        (
            "holds 924 messages for an outage of a, b, c and 2 more; moves them when each is healthy again",
            {"away": UnavailableDestinations(outage=tuple("abcde"))},
        ),
        ("924 messages parked; an operator paused backlog queue 1", {"paused_queues": "backlog queue 1"}),
        ("924 messages parked; another engine moves them, or holds them for an outage", {"others_busy": True}),
        ("924 messages parked, and none received since the start", {}),
        (f"924 messages in the backlog, none moved, {UNEXPLAINED}", {"lies_still": 924}),
        (f"1 message in the backlog, none moved, {UNEXPLAINED}", {"lies_still": 1}),
        ("moving messages to their destinations; at most 5 a second", {"moves_now": True, "pace": PACE}),
    ],
)  # fmt: skip
def test_it_says_why(text: str, sight: dict[str, Any]) -> None:
    assert judge(SyphonEvidence(**{"parked": 924} | sight))[1] == text


def test_unknown_is_not_idle_with_nothing_to_move(approve: Approve) -> None:
    approve.part(judge(SyphonEvidence(parked=None))[1], "rules")
    approve.part(judge(SyphonEvidence(parked=0, is_whole=False))[1], "rules")
    approve.part(judge(SyphonEvidence())[1], "rules")


# -- since when they lie still ----------------------------------------------------------------------------------------


def look(still: Standstill, at: float, **changes: Any) -> bool:
    """A second with messages that nothing explains; whether they are proven to lie still for 30 s."""
    known = {"unexplained": 9, "empty_at": 0.0, "read_at": at, "moved_at": 0.0, "away": False}
    still.look(at, **known | changes)  # type: ignore[arg-type] # by their names
    return still.is_proven(30)


def test_it_takes_a_reading_after_the_time_to_prove_it() -> None:
    still = Standstill()
    assert not look(still, 100, read_at=99)
    assert not look(still, 140, read_at=99), "somebody may have moved them since"
    assert look(still, 141, read_at=130)


def test_whoever_moves_some_begins_it_anew() -> None:
    still = Standstill()
    look(still, 100)
    look(still, 125, moved_at=124)
    assert not look(still, 150)
    assert look(still, 155)


def test_messages_that_are_explained_end_it() -> None:
    still = Standstill()
    look(still, 100)
    look(still, 120, unexplained=0)
    look(still, 121)
    assert not look(still, 150)
    assert look(still, 151)


def test_after_an_outage_every_engine_has_its_own_pause_until_it_tries() -> None:
    still = Standstill()
    look(still, 100)
    look(still, 200, away=True)
    assert not look(still, 250), "another engine may wait 30 s before it tries again"
    assert look(still, 260)

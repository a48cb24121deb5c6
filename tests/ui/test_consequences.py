"""What a dangerous action would do, in sentences made from the newest snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.actions import BY_ID as ORDERS
from paired_servicebus.core.operator.consequences import UNKNOWN
from paired_servicebus.core.operator.targets import ActionTarget, Scope
from paired_servicebus.ui.commands.consequences import ARMABLE, facts, title

UNUSED = "contoso/x-servicebus-transfer/12"


def aim_at(action: str, target: str = "payments") -> ActionTarget:
    """A target of the kind that the action takes."""
    scope = ORDERS[action].scope
    named = {
        Scope.ALL: (),
        Scope.ENTITY: (target,),
        Scope.QUEUE: ("3",),
        Scope.UNUSED: (UNUSED,),
        Scope.DEAD_LETTERS: ("3/118,121",),
    }
    return ActionTarget(scope, named[scope])


def said(action: str, snapshot: Any, target: str = "payments") -> dict[str, str]:
    return dict(facts(action, snapshot, aim_at(action, target)))


@pytest.mark.parametrize("action", sorted(ARMABLE))
def test_engines_reached_and_undo_are_always_named(made: Any, action: str) -> None:
    """Section 12: "Every question, page and verb says whom it reaches, whom not, and what it cannot know"."""
    table = said(action, made.outage())
    reached, not_known = (
        "one engine: orders@web-1 (process 4711)",
        "engines elsewhere, unknown here, continue as before",
    )
    if ORDERS[action].scope is Scope.ENTITY:
        not_known = "senders elsewhere are not affected; their state is unknown"
    if action == "clean-up":
        reached, not_known = (
            "the queue in contoso-backup, for all its users",
            "only engines on this machine",
        )
    assert reached in table["Reaches"]
    assert not_known in table["Reaches"]
    assert table["Undo"]


NOTHING_SENT = {"accepted": 0, "diverted": 0, "failed": 0, "sends_per_second": 0.0, "carried": False}


@pytest.mark.parametrize(
    ("action", "label", "not_done"),
    [
        ("force", "Force failover", "no sender is diverted"),
        ("pin", "Pin", "no sender is pinned"),
        ("release", "Release", "no sender returns to the primary"),
    ],
)
def test_the_title_says_that_an_engine_without_senders_reaches_none(
    made: Any, action: str, label: str, not_done: str
) -> None:
    snapshot = made.snapshot(made.entity("orders", **NOTHING_SENT))
    missed = f"this engine sends nothing to orders: {not_done}; applications elsewhere are unaffected"
    assert title(action, label, snapshot, aim_at(action, "orders"), "p") == f"{label}: orders — {missed}"
    assert missed in said(action, snapshot, "orders")["From now on"]
    assert "sends for" not in said(action, snapshot, "orders")["From now on"]


def test_the_title_of_an_engine_that_sends_names_the_target_alone(made: Any) -> None:
    snapshot = made.snapshot(made.entity("orders", carried=True))
    assert title("force", "Force failover", snapshot, aim_at("force", "orders"), "p") == "Force failover: orders"
    assert title("drain", "Drain", snapshot, aim_at("drain"), "p") == "Drain: p"


def test_of_several_entities_those_without_a_sender_are_counted_and_the_others_summed_up(made: Any) -> None:
    snapshot = made.snapshot(made.entity("orders", **NOTHING_SENT), made.entity("payments", sends_per_second=38.0))
    table = dict(facts("force", snapshot, ActionTarget(Scope.ENTITY, ("orders", "payments"))))
    assert table["From now on"].startswith("sends for payments, now 38/s, go to the backlog")
    assert "; this engine sends nothing to 1 of them: no sender is diverted" in table["From now on"]


def test_forcing_where_nothing_is_sent_says_what_it_does_to_parked_messages_and_what_it_costs(made: Any) -> None:
    """Section 6: "Pumps skip destinations that are failed over or forced in their own engine"."""
    snapshot = made.snapshot(made.entity("orders", **NOTHING_SENT), syphon=made.syphon(SyphonStatus.IDLE))
    table = said("force", snapshot, "orders")
    assert "its syphon leaves messages parked for orders until release, even if the primary is healthy" in table["Room"]
    assert table["Cost"] == "a ping an interval; this engine diverts no message"
    off = replace(snapshot, syphon=made.syphon(SyphonStatus.OFF))
    assert "leaves what is parked" not in said("force", off, "orders")["Room"]


def test_clean_up_says_what_no_engine_can_know(made: Any) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none""."""
    table = said("clean-up", made.outage())
    assert table["Unknown"].startswith("whether engines or applications of other hosts or users still use it")
    assert "senders elsewhere are not affected" not in " ".join(table.values())


def test_a_paused_syphon_is_said_to_be_paused_here(made: Any) -> None:
    paused = replace(made.outage(), syphon=made.syphon(SyphonStatus.PAUSED))
    assert "paused here: engines elsewhere may still move messages" in said("force", paused)["Undo"]


@pytest.mark.parametrize("action", sorted(ARMABLE))
def test_what_is_not_known_is_said_to_be(made: Any, action: str) -> None:
    before = dict(facts(action, None, aim_at(action)))
    assert set(before.values()) == {UNKNOWN}
    assert before.keys() == said(action, made.outage()).keys()


def test_force_says_where_sends_go_and_how_many(made: Any) -> None:
    table = said("force", made.outage())
    assert table["From now on"].startswith("sends for payments, now 38/s, go to the backlog on contoso-backup")
    assert table["Room"] == "9 of 10 backlog queues accepting; 1,221 messages parked (read 14:02:10)"


def queues_of(made: Any, *, depth: int, growth: float | None) -> Any:
    """Two queues of 5 GB, a tenth full."""
    tenth = 5 * 1024**3 // 10
    return tuple(
        replace(queue, depth=depth, size_bytes=tenth, limit_bytes=10 * tenth, bytes_growth=growth)
        for queue in made.queues(number=2)
    )


@pytest.mark.parametrize(
    ("depth", "growth", "sends", "expected"),
    [
        (10_000, 0.0, 0.0, ", 10 % full; "),
        (10_000, -5.0, 0.0, ", 10 % full; "),
        (10_000, 10_000.0, 0.0, ", 10 % full, all of it in 6 days at this rate; "),
        (10_000, 0.0, 38.0, ", 10 % full, all of it in 1 h 18 min at this rate; "),
        (10_000, 0.1, 0.0, ", 10 % full, all of it in years at this rate; "),
        (0, 0.0, 38.0, ", 10 % full (fill time unknown); "),
        (10_000, None, 38.0, ", 10 % full (fill time unknown); "),
    ],
)
def test_force_says_when_the_backlog_would_be_full(
    made: Any, depth: int, growth: float | None, sends: float, expected: str
) -> None:
    queues = queues_of(made, depth=depth, growth=growth)
    room = said("force", made.snapshot(made.entity("payments", sends_per_second=sends), queues=queues))["Room"]
    assert room.startswith(f"2 of 2 backlog queues accepting{expected}")


def test_sends_that_are_parked_already_are_in_the_slope_and_not_counted_twice(made: Any) -> None:
    queues = queues_of(made, depth=10_000, growth=10_000.0)
    room = said("force", made.snapshot(made.failed_over("payments"), queues=queues))["Room"]
    assert "all of it in 6 days at this rate" in room


def test_force_into_a_backlog_that_takes_nothing_says_so(made: Any) -> None:
    none = tuple(replace(queue, in_rotation=False) for queue in made.queues())
    table = said("force", made.snapshot(made.entity("payments"), queues=none))
    assert "accepts nothing now: no queue of contoso-backup accepts sends" in table["From now on"]


def test_no_ping_is_not_a_bad_ping(made: Any) -> None:
    table = said("force", made.snapshot(made.entity("payments")))
    assert table["Evidence"].startswith("last ping: unknown")


@pytest.mark.parametrize(
    ("entity", "sentence"),
    [
        ({"state": State.FORCED, "last_ping_good": True}, "go to contoso immediately; it accepted the last ping"),
        ({"state": State.FORCED, "last_ping_good": False}, "payments stays failed over, since no ping was accepted"),
        ({"state": State.FORCED, "last_ping_good": None}, "payments stays failed over, since no ping was accepted"),
        ({"state": State.FAILED_OVER, "last_ping_good": False}, "immediately, although it has not accepted a ping"),
        ({"state": State.PINNED, "last_ping_good": None}, "fail over by themselves again"),
    ],
)
def test_release_says_what_the_rules_will_do(made: Any, entity: dict[str, Any], sentence: str) -> None:
    table = said("release", made.snapshot(made.failed_over("payments", **entity)))
    assert sentence in table["From now on"]


def test_parked_messages_without_a_syphon_are_said_to_wait(made: Any) -> None:
    off = replace(made.outage(), syphon=made.syphon(SyphonStatus.OFF))
    assert "runs no syphon, so parked messages wait for one elsewhere" in said("force", off)["Undo"]


@pytest.mark.parametrize("action", ["force", "release", "pin"])
def test_the_evidence_has_pings_in_a_row_and_their_times(made: Any, action: str) -> None:
    pings = {"last_ping_good": True, "pings_in_a_row": 4, "recent_pings": (None, 0.012, 0.08, 0.012, 0.01)}
    table = said(action, made.snapshot(made.failed_over("payments", **pings)))
    assert "accepted, 4 in a row; p50 12 ms p95 80 ms" in table["Evidence"]


def test_several_entities_are_summed_up(made: Any) -> None:
    table = dict(facts("force", made.outage(), ActionTarget(Scope.ENTITY, ("orders", "payments"))))
    assert table["From now on"].startswith("sends for 2 entities, now 450/s, go to the backlog")
    assert table["Now"] == "● orders, ▲ payments"
    assert "unknown of 1" in table["Evidence"]


def test_one_target_that_is_gone_makes_all_of_it_not_known(made: Any) -> None:
    table = dict(facts("force", made.outage(), ActionTarget(Scope.ENTITY, ("orders", "gone"))))
    assert set(table.values()) == {UNKNOWN}


def test_clean_up_shows_what_is_known_of_the_queue(made: Any) -> None:
    table = said("clean-up", made.outage())
    assert table["Evidence"] == "…/12: 3 messages, 0 dead letters, last active 09:30:00"
    assert "checked with a peek, dead letters too; deleted if empty" in table["From now on"]


def test_redrive_says_how_many_and_where(made: Any) -> None:
    queues = tuple(replace(queue, dead_lettered=7) for queue in made.queues())
    table = said("redrive", made.snapshot(queues=queues))
    assert table["From now on"].startswith("7 dead letters of backlog/3 are re-driven")

"""What a dangerous action would do, in sentences made from the newest snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.actions import ACTIONS
from paired_servicebus.core.operator.actions import BY_ID as ORDERS
from paired_servicebus.core.operator.consequences import UNKNOWN
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.ui.commands.action_table import facts, title
from tests.approval import Approve

ARMABLE = frozenset(action.id for action in ACTIONS if action.facts)
"""Ids of the actions with consequences."""
UNUSED = "contoso/x-servicebus-transfer/12"


def aim_at(action: str, target: str = "payments") -> Command:
    """A target of the kind that the action takes."""
    scope = ORDERS[action].scope
    named = {
        Scope.ALL: (),
        Scope.ENTITY: (target,),
        Scope.QUEUE: ("3",),
        Scope.UNUSED: (UNUSED,),
        Scope.DEAD_LETTERS: ("3/118,121",),
    }
    return Command(action_id=action, scope=scope, targets=named[scope])


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


@pytest.mark.parametrize("action", sorted(ARMABLE))
def test_what_is_not_known_is_said_to_be(made: Any, action: str) -> None:
    before = dict(facts(action, None, aim_at(action)))
    assert set(before.values()) == {UNKNOWN}
    assert before.keys() == said(action, made.outage()).keys()


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
    assert expected in room


def test_sends_that_are_parked_already_are_in_the_slope_and_not_counted_twice(made: Any) -> None:
    queues = queues_of(made, depth=10_000, growth=10_000.0)
    room = said("force", made.snapshot(made.failed_over("payments"), queues=queues))["Room"]
    assert "in 6 days" in room


def test_one_target_that_is_gone_makes_all_of_it_not_known(made: Any) -> None:
    aim = Command(action_id="force", scope=Scope.ENTITY, targets=("orders", "gone"))
    table = dict(facts("force", made.outage(), aim))
    assert set(table.values()) == {UNKNOWN}


def _sent(made: Any, **changes: Any) -> Any:
    return made.snapshot(made.entity("payments", **changes))


def _over(made: Any, state: State, good: bool | None) -> Any:
    return made.snapshot(made.failed_over("payments", state=state, last_ping_good=good))


PINGS = {"last_ping_good": True, "pings_in_a_row": 4, "recent_pings": (None, 0.012, 0.08, 0.012, 0.01)}
ASKED: dict[str, tuple[str, Callable[[Any], Any], tuple[str, ...]]] = {
    "force in an outage": ("force", lambda made: made.outage(), ("38/s", "9 of 10", "1,221", "14:02:10")),
    "force where nothing is sent": (
        "force", lambda made: replace(_sent(made, **NOTHING_SENT), syphon=made.syphon()), ("no sender",)
    ),
    "force where nothing is sent and no syphon runs": (
        "force", lambda made: replace(_sent(made, **NOTHING_SENT), syphon=made.syphon(SyphonStatus.OFF)), ("no sender",)
    ),
    "pin where nothing is sent": ("pin", lambda made: _sent(made, **NOTHING_SENT), ("no sender",)),
    "release where nothing is sent": ("release", lambda made: _sent(made, **NOTHING_SENT), ("no sender",)),
    "force with a paused syphon": (
        "force", lambda made: replace(made.outage(), syphon=made.syphon(SyphonStatus.PAUSED)), ("paused here",)
    ),
    "force without a syphon": (
        "force", lambda made: replace(made.outage(), syphon=made.syphon(SyphonStatus.OFF)), ("no syphon",)
    ),
    "force into a closed backlog": (
        "force",
        lambda made: made.snapshot(
            made.entity("payments"), queues=tuple(replace(queue, in_rotation=False) for queue in made.queues())
        ),
        ("accepts nothing",),
    ),
    "force with pings in a row": (
        "force", lambda made: made.snapshot(made.failed_over("payments", **PINGS)), ("4 in", "12 ms", "80 ms")
    ),
    "release to a primary that accepts": ("release", lambda made: _over(made, State.FORCED, True), ("contoso",)),
    "release to a primary that refuses": ("release", lambda made: _over(made, State.FORCED, False), ("no ping",)),
    "release to a primary nobody pinged": ("release", lambda made: _over(made, State.FORCED, None), ("no ping",)),
    "release although it refuses": ("release", lambda made: _over(made, State.FAILED_OVER, False), ("a ping",)),
    "release of a pinned one": ("release", lambda made: _over(made, State.PINNED, None), ("again",)),
    "clean up": ("clean-up", lambda made: made.outage(), ("3 messages", "09:30:00", "no engine")),
    "re-drive": (
        "redrive",
        lambda made: made.snapshot(queues=tuple(replace(queue, dead_lettered=7) for queue in made.queues())),
        ("7 dead",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_a_question_has_its_figures(made: Any, approve: Approve, name: str) -> None:
    """Section 12: "what nobody here can know is "unknown", never "none""."""
    action, make, figures = ASKED[name]
    snapshot = make(made)
    table = said(action, snapshot)
    heading = title(action, ORDERS[action].label, snapshot, aim_at(action), "p")
    assert [figure for figure in figures if figure not in "\n".join(table.values())] == []
    assert not (action == "clean-up" and "not affected" in "\n".join(table.values()))
    approve.part("\n".join((heading, *(f"  {label:<12}{text}" for label, text in table.items()))), "consequences", name)


def test_several_entities_are_summed_up(made: Any, approve: Approve) -> None:
    both = Command(action_id="force", scope=Scope.ENTITY, targets=("orders", "payments"))
    silent = made.snapshot(made.entity("orders", **NOTHING_SENT), made.entity("payments", sends_per_second=38.0))
    tables = [dict(facts("force", snapshot, both)) for snapshot in (made.outage(), silent)]
    assert [figure for table, figure in zip(tables, ("450/s", "38/s"), strict=True) if figure in table["From now on"]]
    assert "of 1" in tables[0]["Evidence"]
    assert "1 of them" in tables[1]["From now on"]
    text = "\n\n".join("\n".join(f"  {label:<12}{text}" for label, text in table.items()) for table in tables)
    approve.part(text, "consequences")

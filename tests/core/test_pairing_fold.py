"""The fold over all engines of a pairing.

SPEC.md section 12: "One fold over all engines of the pairing answers what state an entity is in, since when, why,
whether callers fail, what is parked, what stands."
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fleet_views import AT, calm, engine, outage, own

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntity, FleetStatus, FleetView
from paired_servicebus.core.model.pairing_fold import fold, old_since, part_of, silent_part, sum_parts
from paired_servicebus.core.model.snapshot import DestinationView, EntityView

FAILING = replace(calm().entities[0], refused_per_second=1.5, failing=("web-2",), failing_count=1)
times = st.none() | st.floats(AT - 100, AT)
views = st.builds(
    own,
    state=st.sampled_from(State),
    refused_per_second=st.sampled_from((0.0, 0.5)),
    refused_in_outage=st.integers(0, 9),
    refused_at=times,
    refused_since=times,
    first_failure_at=times,
    first_failure_kind=st.sampled_from(("timeout", "connection lost")),
    throttled=st.integers(0, 3),
    throttled_since=times,
    next_ping_at=times,
    last_ping_at=times,
    route=st.sampled_from(("primary", "backlog/3", "nowhere")),
)


def summed(found: Sequence[tuple[str, EntityView | None]]) -> FleetEntity:
    parts = [silent_part("payments") if view is None else part_of(name, view) for name, view in found]
    return sum_parts("payments", parts)


@given(st.lists(st.none() | views, max_size=6), st.integers(0, 6))
def test_a_sum_of_sums_is_the_sum(found: list[EntityView | None], place: int) -> None:
    named = [(f"web-{number}", view) for number, view in enumerate(found)]
    whole, other = summed(named), sum_parts("payments", [summed(named[place:]), summed(named[:place])])
    for one in fields(FleetEntity):
        before, after = getattr(whole, one.name), getattr(other, one.name)
        if one.name == "causes":
            before, after = dict(before), dict(after)
        if one.name != "last_ping_good":
            assert before == pytest.approx(after) if isinstance(before, float) else before == after, one.name


def test_without_a_fleet_it_is_what_this_engine_knows() -> None:
    mine = own(state=State.SUSPECT, refused_per_second=1.5, why="timeout 14:01:59")
    (found,) = fold((mine,), None, AT).entities
    assert {one.name: getattr(found, one.name) for one in fields(EntityView)} == {
        one.name: getattr(mine, one.name) for one in fields(EntityView)
    }
    assert (found.in_state, found.engines, found.is_elsewhere) == (1, 1, False)


def test_the_worst_state_of_any_engine_is_the_entity_s() -> None:
    found = fold((own(),), outage(), AT).entities[0]
    assert (found.state, found.in_state, found.engines) == (State.FAILED_OVER, 15, 20)
    assert found.here is not None
    assert found.here.state is State.HEALTHY
    assert found.since < AT - 5
    assert found.first_failure_kind == "timeout"
    assert found.route == "15 backlog · 3 primary"


def test_entities_of_other_engines_are_there() -> None:
    found = fold((), outage(), AT).entities
    assert [one.path for one in found] == ["payments", "orders", "audit"]
    assert all(one.here is None for one in found)


def test_this_engine_counts_by_what_it_knows_now_not_by_what_it_reported() -> None:
    fleet = calm()
    found = fold((own("orders", State.FAILED_OVER, refused_per_second=3.0),), fleet, AT)
    assert found.fleet is not None
    mine = next(one for one in found.fleet.engines if one.engine == "web-1")
    assert mine.state == "failed over"
    assert mine.figures is not None
    assert mine.figures.refused_per_second == 3.0
    assert found.entities[0].total.failing == ("web-1",)


def test_a_refused_caller_at_any_engine_is_counted() -> None:
    there = replace(
        calm().entities[0],
        refused_per_second=1.5,
        failing=("web-2",),
        failing_count=1,
        refused_in_outage=7,
        refused_at=AT,
    )
    found = fold((own("orders"),), replace(calm(), entities=(there,)), AT).entities[0]
    assert (found.state, found.refused_per_second, found.refused_in_outage) == (State.HEALTHY, 1.5, 7)


def test_what_syphons_hold_back_is_counted_per_own() -> None:
    there = replace(calm().entities[0], held_back=40)
    fleet = replace(calm(), entities=(there,))
    mine = (DestinationView(path="Orders", set_aside=173, moved=2),)
    assert fold((own("orders"),), fleet, AT, mine).entities[0].total.held_back == 213
    assert fold((own("orders"),), None, AT).entities[0].total.held_back is None


@pytest.mark.parametrize(
    ("changes", "is_old"),
    [
        ({}, False),
        ({"read_at": AT - 3000}, False),
        ({"read_at": AT - 3, "read_every": 5.0}, False),
        ({"read_at": AT - 11, "read_every": 5.0}, True),
        ({"read_at": AT - 4100}, True),
        ({"trouble": "timeout"}, True),
        ({"read_at": None}, True),
    ],
)
def test_figures_are_old_one_interval_after_the_board_was_read(changes: dict[str, Any], is_old: bool) -> None:
    """SPEC.md section 12: "What rests on a board that cannot be read is old within one interval, and has its time"."""
    assert (old_since(replace(calm(), **changes), AT) is not None) is is_old


def test_callers_of_silent_and_old_engines_are_unknown() -> None:
    quiet = engine(2, status=FleetStatus.SILENT)
    fleet = FleetView(me="web-1", engines=(engine(1), quiet, engine(3, figures=None), engine(4)), read_at=AT)
    assert [one.engine for one in fold((), fleet, AT).unreported] == ["web-2", "web-3"]
    assert len(fold((), replace(fleet, trouble="timeout"), AT).unreported) == 3


def test_what_calls_did_at_other_engines_is_not_now_once_it_is_old() -> None:
    there = replace(
        calm().entities[0], refused_per_second=1.5, failing=("web-2",), failing_count=1, throttled=3, waiting=("web-2",)
    )
    found = fold((own("orders"),), replace(calm(), entities=(there,), trouble="timeout"), AT).entities[0]
    assert (found.refused_per_second, found.total.failing, found.throttled) == (0.0, (), 0)
    assert found.total.unreported == 2

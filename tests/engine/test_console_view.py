"""What a console gets: snapshots as changes that give the same snapshot again, and a fleet of bounded size."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntityState, FleetView
from paired_servicebus.core.model.snapshot import ParkedView, Snapshot, SyphonStatus
from paired_servicebus.core.operator.fleet_question import FleetRequest, draft_order, reach_text
from paired_servicebus.core.operator.fleet_sentences import engines_part
from paired_servicebus.engine.control.console_view import (
    CHANGE_BURST,
    CHANGE_BYTES_A_SECOND,
    ChangeBudget,
    apply_change,
    bound_fleet,
    find_change,
    size_of,
    size_of_claims,
    without_new_claims,
)
from paired_servicebus.engine.control.protocol import SnapshotChanged, SnapshotSent, decode_from_engine, encode
from tests import fleet_views
from tests.core.fleet.fleet_world import START, snapshot


def drawn(draw: random.Random) -> Snapshot:
    """A snapshot whose parts come, go, and change."""
    paths = draw.sample(["orders", "payments", "audit", "Audit-2", "é"], draw.randrange(6))
    made = snapshot("me", START + draw.randrange(3), entities={path: draw.choice(list(State)) for path in paths})
    engines = tuple(
        fleet_views.engine(number, draw.choice([State.HEALTHY, State.FORCED]), heard_at=START + draw.randrange(9))
        for number in draw.sample(range(1, 12), draw.randrange(12))
    )
    fleet = replace(draw.choice([fleet_views.outage(), fleet_views.calm()]), engines=engines)
    return replace(
        made,
        queues=made.queues[: draw.randrange(4)],
        fleet=draw.choice([None, fleet]),
        parked=draw.choice([None, ParkedView(messages=draw.randrange(3), read_at=None, known=1, queues=1)]),
        syphon=replace(made.syphon, status=draw.choice(list(SyphonStatus)), history=(1.5,) * draw.randrange(3)),
    )


def sent(old: Snapshot, new: Snapshot) -> Any:
    """The change as it comes over the socket."""
    message = decode_from_engine(encode(SnapshotChanged(find_change(old, new) or {"f": {}})))
    assert isinstance(message, SnapshotChanged)
    return message.change


@pytest.mark.parametrize("seed", range(40))
def test_a_snapshot_and_its_change_give_the_next_snapshot(seed: int) -> None:
    draw = random.Random(seed)
    first = shown = drawn(draw)
    message = decode_from_engine(encode(SnapshotSent(first)))
    assert isinstance(message, SnapshotSent)
    shown = message.snapshot
    for _ in range(6):
        following = drawn(draw)
        shown = apply_change(shown, sent(first, following))
        assert shown == following
        first = following


def test_an_engine_that_comes_among_many_costs_that_engine_alone() -> None:
    many = tuple(fleet_views.engine(number) for number in range(1, 200))
    before = replace(snapshot("me"), fleet=replace(fleet_views.calm(), engines=(*many[:50], *many[51:])))
    after = replace(before, at=before.at + 1, fleet=replace(fleet_views.calm(), engines=many))
    assert len(encode(SnapshotChanged(sent(before, after)))) < 1_000
    assert apply_change(before, sent(before, after)) == after


@pytest.mark.parametrize(
    "change", [{}, {"f": {"none": {"=": 1}}}, {"f": {"at": {"=": "x"}}}, {"f": {"queues": {"i": {"9": {}}}}}]
)
def test_a_change_of_another_form_is_unreadable(change: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError):
        apply_change(snapshot("me"), change)


def forged(engines: int, *, wide: bool) -> FleetView:
    """A view full of claims: each with the longest names, and ten entities where it is wide."""
    paths = [FleetEntityState(path="é" * 260, state=State.FAILED_OVER, since=START)] * 10 if wide else []
    long = "é" * 80
    claims = tuple(
        fleet_views.engine(
            number, engine=f"{number}-{long}"[:80], boot=long, host=long, program=long, version=long,
            environment=long, signers=long, not_well=tuple(paths), differs=(long * 2,) * 10,
        )
        for number in range(engines)
    )  # fmt: skip
    return replace(fleet_views.outage(), me="web-1", engines=(*claims, *fleet_views.calm().engines))


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_a_view_full_of_claims_is_bounded_and_lists_what_an_operator_needs(wide: bool) -> None:
    """ "A console gets the view by difference, at most 200 kB whole." """
    view = replace(forged(500, wide=wide), expected_names=("web-2",))
    shown = bound_fleet(view)
    assert size_of(shown) < 200_000
    assert {"web-1", "web-2"} <= {one.engine for one in shown.engines}
    assert len(shown.engines) + shown.unlisted == len(view.engines)


def test_a_fleet_of_200_engines_is_listed_whole() -> None:
    view = replace(fleet_views.calm(), engines=tuple(fleet_views.engine(number) for number in range(200)))
    assert (bound_fleet(view).engines, bound_fleet(view).unlisted) == (view.engines, 0)


def test_engines_that_a_console_does_not_list_are_counted_and_addressed() -> None:
    """ "Engines that it does not list are counted and addressed all the same." """
    many = tuple(fleet_views.engine(number, host="h" * 60) for number in range(500))
    shown = bound_fleet(replace(fleet_views.calm(), engines=many, expected=500))
    assert shown.unlisted > 0
    assert engines_part(shown)[0] == f"500 engines: {500 - shown.unlisted} healthy · {shown.unlisted} not listed"
    wanted = FleetRequest(command=Command(action_id="force", scope="entity", targets=("orders",)))
    draft = draft_order(shown, wanted, primary="a", secondary="b", now=START)
    assert (draft.text.reach, draft.to_type, draft.needs_partial) == (500, "500", "")
    assert reach_text(shown, None) == "the fleet (500 engines)"


def test_changes_of_the_fleet_have_a_budget() -> None:
    """ "at most … ≤ 5 kB a second": a flood of claims changes the view more often than a console shows it."""
    budget = ChangeBudget()
    allowed = [20_000 for second in range(600) if budget.allows(20_000, float(second))]
    assert sum(allowed) <= CHANGE_BURST + 600 * CHANGE_BYTES_A_SECOND + 20_000
    assert len(allowed) > 100
    assert budget.allows(1, 700.0)


def test_beyond_the_budget_orders_and_answers_still_come() -> None:
    """Nothing that an order needs depends on the number of claims."""
    before = replace(snapshot("me"), fleet=replace(fleet_views.calm(), orders=()))
    after = replace(snapshot("me"), fleet=replace(forged(500, wide=True), orders=fleet_views.outage().orders))
    assert size_of_claims(find_change(before, after) or {}) > 100_000
    held = without_new_claims(before, after)
    assert held.fleet is not None
    assert (held.fleet.engines, held.fleet.orders) == (fleet_views.calm().engines, fleet_views.outage().orders)
    assert size_of_claims(find_change(before, held) or {}) == 0


def test_equal_snapshots_have_no_change() -> None:
    assert find_change(snapshot("me"), msgspec.convert(msgspec.to_builtins(snapshot("me")), Snapshot)) is None

"""Figures over time: what an engine keeps of its snapshots, and what a console makes of the steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.accounting.send_times import SendTimes, joined, percentile
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import (
    BilledView,
    EntityView,
    ParkedView,
    Snapshot,
    SyphonStatus,
    SyphonView,
)
from paired_servicebus.core.series.graphs import KEPT, MOST_ENTITIES, Graphs, Mark, SeriesRing, follow


def entity(path: str, accepted: int = 0, **changes: Any) -> EntityView:
    base = EntityView(
        path=path,
        state=State.HEALTHY,
        since=0.0,
        why="because",
        route="primary",
        sends_per_second=0.0,
        accepted=accepted,
        diverted=0,
        failed=0,
    )
    return replace(base, **changes)


def snapshot(at: float, *entities: EntityView, parked: ParkedView | None = None, moved: int = 0) -> Snapshot:
    return Snapshot(
        engine="orders@web-1",
        boot="b1",
        pid=1,
        seq=1,
        at=at,
        pairing="orders",
        environment="",
        primary="contoso",
        secondary="contoso-backup",
        read_only=False,
        entities=entities,
        queues=(),
        syphon=SyphonView(status=SyphonStatus.IDLE, text="", moved=moved),
        billed=BilledView(),
        times="",
        parked=parked,
    )


def sampled(ring: SeriesRing, *snapshots: Snapshot) -> Graphs:
    """The newest step after these snapshots."""
    steps = [ring.add(one, {}) for one in snapshots]
    assert steps[-1] is not None
    return steps[-1]


def known(messages: int) -> ParkedView:
    return ParkedView(messages=messages, read_at=1.0, known=2, queues=2)


# -- call times --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0002, 0.004, 0.018, 0.9, 3.0, 61.0])
def test_a_percentile_is_within_seven_percent(seconds: float) -> None:
    times = SendTimes()
    times.add(seconds)
    assert percentile(times.take(), 0.5) == pytest.approx(seconds, rel=0.07)


def test_percentiles_of_many_calls() -> None:
    times = SendTimes()
    for number in range(1000):
        times.add(0.004 if number < 980 else 2.0)
    counts = times.take()
    assert percentile(counts, 0.5) == pytest.approx(0.004, rel=0.07)
    assert percentile(counts, 0.99) == pytest.approx(2.0, rel=0.07)


def test_taken_calls_are_counted_once() -> None:
    times = SendTimes()
    times.add(0.1)
    assert sum(times.take().values()) == 1
    assert percentile(times.take(), 0.5) is None


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1e9, float("inf"), float("nan")])
def test_an_impossible_time_is_the_nearest_possible_one(seconds: float) -> None:
    times = SendTimes()
    times.add(seconds)
    assert percentile(times.take(), 0.5) is not None


def test_the_buckets_are_bounded() -> None:
    times = SendTimes()
    for exponent in range(-400, 400):
        for part in range(8):
            times.add(2.0 ** (exponent / 8) * (1 + part / 64))
    assert len(joined([times.take()])) <= 240


# -- the engine's ring -------------------------------------------------------------------------------------------------


def test_the_first_snapshot_begins_the_count() -> None:
    ring = SeriesRing()
    assert ring.add(snapshot(100.0, entity("orders", 4_000)), {}) is None
    assert ring.whole() is None


def test_rates_are_differences_by_the_seconds_between() -> None:
    step = sampled(
        SeriesRing(),
        snapshot(100.0, entity("orders", 4_000), moved=10),
        snapshot(105.0, entity("orders", 4_100, diverted=20, refused=5), parked=known(7), moved=60),
    )
    assert step.total.to_primary == (20.0,)
    assert step.total.to_backlog == (4.0,)
    assert step.total.refused == (1.0,)
    assert step.total.moved == (10.0,)
    assert step.total.parked == (7.0,)
    assert step.entities["orders"].to_primary == (20.0,)


def test_call_times_become_milliseconds() -> None:
    times = SendTimes()
    times.add(0.018)
    ring = SeriesRing()
    ring.add(snapshot(100.0, entity("orders")), {})
    step = ring.add(snapshot(105.0, entity("orders", 1)), {"orders": times.take()})
    assert step is not None
    assert step.total.p99[0] == pytest.approx(18, rel=0.07)
    assert step.entities["orders"].p99[0] == step.total.p99[0]


@pytest.mark.parametrize("parked", [None, ParkedView(messages=7, read_at=1.0, known=1, queues=2)])
def test_an_unread_depth_is_unknown_and_not_zero(parked: ParkedView | None) -> None:
    step = sampled(SeriesRing(), snapshot(100.0), snapshot(105.0, parked=parked))
    assert step.total.parked == (None,)


def test_a_step_without_calls_has_no_time() -> None:
    step = sampled(SeriesRing(), snapshot(100.0), snapshot(105.0))
    assert step.total.p99 == (None,)


def test_time_without_a_sample_is_unknown() -> None:
    ring = SeriesRing()
    sampled(ring, snapshot(100.0, entity("orders")), snapshot(120.0, entity("orders", 40)))
    whole = ring.whole()
    assert whole is not None
    assert whole.total.to_primary == (None, None, None, 2.0)


def test_a_ring_is_bounded() -> None:
    ring = SeriesRing()
    sampled(ring, *(snapshot(5.0 * number, entity("orders", number)) for number in range(2 * KEPT)))
    whole = ring.whole()
    assert whole is not None
    assert whole.length == KEPT
    assert len(whole.entities["orders"].p99) == KEPT


def test_an_entity_without_sends_has_no_curves() -> None:
    step = sampled(
        SeriesRing(), snapshot(100.0, entity("a"), entity("b")), snapshot(105.0, entity("a", 1), entity("b"))
    )
    assert list(step.entities) == ["a"]
    assert step.of("A") is step.entities["a"]


def test_an_entity_leaves_after_fifteen_minutes_without_sends() -> None:
    ring = SeriesRing()
    later = (snapshot(105.0 + 5 * number, entity("a", 1)) for number in range(KEPT + 2))
    sampled(ring, snapshot(100.0, entity("a")), *later)
    whole = ring.whole()
    assert whole is not None
    assert not whole.entities


def test_the_entities_are_bounded_and_it_is_said() -> None:
    ring = SeriesRing()
    paths = [f"e{number}" for number in range(MOST_ENTITIES + 1)]
    step = sampled(ring, snapshot(100.0, *map(entity, paths)), snapshot(105.0, *(entity(path, 1) for path in paths)))
    assert len(step.entities) == MOST_ENTITIES
    assert step.crowded


# -- the console's end -------------------------------------------------------------------------------------------------


def test_steps_followed_from_the_first_equal_the_whole() -> None:
    ring, followed = SeriesRing(), None
    ring.add(snapshot(0.0), {})
    for number in range(1, KEPT + 20):
        if number == 50:
            ring.mark(Mark(at=5.0 * number, what="failed over", subject="a"))
        busy = entity("b", 100 if number > 40 else 0)
        step = ring.add(snapshot(5.0 * number, entity("a", 10 * number), busy, parked=known(number)), {})
        assert step is not None
        followed = follow(followed, step)
    whole = ring.whole()
    assert whole is not None
    assert followed == whole


def test_steps_that_did_not_arrive_are_unknown() -> None:
    ring = SeriesRing()
    first = sampled(ring, snapshot(0.0), snapshot(5.0, entity("a", 5)))
    ring.add(snapshot(10.0, entity("a", 10)), {})
    third = ring.add(snapshot(15.0, entity("a", 15)), {})
    assert third is not None
    assert follow(follow(None, first), third).total.to_primary == (1.0, None, 1.0)


def test_a_whole_replaces_what_was_there() -> None:
    ring = SeriesRing()
    before = follow(None, sampled(ring, snapshot(0.0), snapshot(5.0, entity("a", 5))))
    whole = ring.whole()
    assert whole is not None
    assert follow(before, whole) == whole

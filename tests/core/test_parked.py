"""One figure for what is parked: the last reading, and what this engine diverted and moved since."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fleet_views import own

from paired_servicebus.core.accounting.send_times import SendTimes, joined, percentile
from paired_servicebus.core.backlog.backlog_totals import (
    DepthRead,
    DrainRate,
    QueueCounters,
    QueueDepthEstimate,
    parked_view,
)
from paired_servicebus.core.backlog.depth_readings import (
    DepthGrowth,
    DepthReading,
    PollReason,
    Trend,
    every,
    growth,
    reading_now,
    seconds_until,
    trend,
)
from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.model.snapshot import (
    EntityView,
    Meter,
    ParkedView,
    Snapshot,
    SyphonStatus,
    SyphonView,
)
from paired_servicebus.core.series.graphs import KEPT, MOST_ENTITIES, Graphs, Mark, SeriesRing, follow


def read(at: float, messages: int, *, added: int = 0, removed: int = 0, leaving: int = 0, aside: int = 0) -> DepthRead:
    counts = QueueCounters(added, removed, leaving, aside)
    return DepthRead(at, Depth(messages=messages, dead_lettered=0, size_bytes=0), counts, counts)


THEN, READ_0 = read(10, 760), read(10, 0)


@pytest.mark.parametrize(
    ("looks", "messages"),
    [
        # Seen: `760 parked` 4 s after all 760 were moved.
        (((THEN, QueueCounters()), (THEN, QueueCounters(removed=400))), 360),
        (((THEN, QueueCounters()), (THEN, QueueCounters(removed=760))), 0),
        # Seen: `nothing parked` while the table below says parked 4 + 10: the engine knows what it diverted.
        (((read(10, 0, added=100), QueueCounters(added=114)),), 14),
        # Seen: `nothing parked` while the syphon "holds 7", whoever diverted it; a reading says that they were moved.
        (((READ_0, QueueCounters(aside=7)),), 7),
        (((read(10, 0, aside=7), QueueCounters(aside=7)),), 0),
        # What was set aside and then moved is gone, though that is noticed later.
        (
            (
                (READ_0, QueueCounters(added=5, aside=5)),
                (READ_0, QueueCounters(5, 5, aside=5)),
                (READ_0, QueueCounters(5, 5, aside=0)),
            ),
            0,
        ),
        # What had left the queue only nearly when it was read is counted once.
        (((read(10, 30, removed=730, leaving=30), QueueCounters(removed=760)),), 0),
        # What others divert and this engine moves makes no debt.
        (((READ_0, QueueCounters(removed=500)), (READ_0, QueueCounters(added=10, removed=500))), 10),
        # A new reading is the figure.
        (((read(10, 100), QueueCounters(removed=20)), (read(15, 90, removed=20), QueueCounters(removed=25))), 85),
    ],
)
def test_the_figure_is_the_reading_and_what_the_engine_knows_since(
    looks: tuple[tuple[DepthRead, QueueCounters], ...], messages: int
) -> None:
    queue = QueueDepthEstimate()
    for reading, counts in looks:
        queue.look(reading, counts)
    assert queue.messages == messages


def test_a_fall_that_this_engine_cannot_explain_is_anothers() -> None:
    queue = QueueDepthEstimate()
    queue.look(read(10, 100), QueueCounters())
    queue.look(read(15, 60, removed=40), QueueCounters(removed=40))
    assert queue.others_at is None
    queue.look(read(20, 30, removed=50), QueueCounters(removed=50))
    assert queue.others_at == 20


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20), st.integers(0, 500))
def test_it_is_what_lies_there_as_long_as_nobody_else_is_there(steps: list[tuple[int, int]], start: int) -> None:
    queue, lying, added, removed = QueueDepthEstimate(), start, 0, 0
    then = read(0, start)
    for more, less in steps:
        added, removed = added + more, removed + min(less, lying + more)
        lying = start + added - removed
        queue.look(then, QueueCounters(added, removed))
        assert queue.messages == lying


# -- the sum, and when it is empty -----------------------------------------------------------------------------------


def test_nothing_is_known_of_queues_that_were_never_read() -> None:
    """Unknown when never read and nothing known."""
    queues = [QueueDepthEstimate(), QueueDepthEstimate()]
    assert parked_view(queues, DrainRate(), at=20, oldest=10) is None
    queues[0].look(None, QueueCounters(added=3))
    view = parked_view(queues, DrainRate(), at=20, oldest=10)
    assert view is not None
    assert (view.messages, view.read_at, view.known, view.queues) == (3, None, 0, 2)


def test_it_says_the_oldest_reading_and_how_many_queues_were_read() -> None:
    queues = [QueueDepthEstimate(), QueueDepthEstimate(), QueueDepthEstimate()]
    queues[0].look(read(10, 5), QueueCounters())
    queues[1].look(read(12, 6), QueueCounters())
    view = parked_view(queues, DrainRate(), at=20, oldest=10)
    assert view is not None
    assert (view.messages, view.read_at, view.known, view.queues) == (11, 10, 2, 3)


class Scene:
    """A queue, followed second by second."""

    def __init__(self, messages: int) -> None:
        self.queue, self.drained, self.at = QueueDepthEstimate(), DrainRate(), 0.0
        self.removed = 0
        self.reading = read(0, messages)
        self.second()

    def second(self, *, removed: int = 0, added: int = 0, held_up: bool = False) -> None:
        self.removed += removed
        self.queue.look(self.reading, QueueCounters(added=added, removed=self.removed))
        messages, read_at = self.queue.messages, self.reading.at
        self.drained.look(self.at, messages, removed=self.removed, read_at=read_at, every=5.0, held_up=held_up)
        self.at += 1

    def empty_in(self, *, oldest: float = 100.0) -> float | None:
        now = self.at - 1
        view = parked_view([self.queue], self.drained, at=now, oldest=oldest)
        return view.empty_at - now if view is not None and view.empty_at is not None else None


def test_the_end_is_told_by_the_speed_since_draining_began() -> None:
    """Seen: `767 parked · syphon running, empty` an hour later; it was empty 4 s later."""
    scene = Scene(800)
    for _ in range(10):
        scene.second()  # idle seconds do not count
    assert scene.empty_in() is None
    scene.second(removed=200)
    assert scene.empty_in() == 3
    scene.second(removed=200)
    assert scene.empty_in() == 2


def test_there_is_no_end_while_it_does_not_drain() -> None:
    scene = Scene(800)
    scene.second(removed=200)
    scene.second(removed=200, held_up=True)
    assert scene.empty_in() is None, "what waits for a destination does not go at that speed"
    for _ in range(7):
        scene.second()
    assert (scene.empty_in(), scene.drained.since) == (None, None)


def test_an_empty_backlog_does_not_drain() -> None:
    scene = Scene(400)
    scene.second(removed=200)
    scene.second(removed=200)
    assert (scene.empty_in(), scene.drained.since, scene.drained.per_second) == (None, None, None)


def test_an_old_reading_tells_no_end() -> None:
    scene = Scene(800)
    scene.second(removed=200)
    assert scene.empty_in(oldest=0.5) is None


def test_without_a_syphon_it_drains_from_reading_to_reading() -> None:
    queue, drained = QueueDepthEstimate(), DrainRate()
    for at, messages in ((0, 100), (5, 100), (10, 80), (15, 60)):
        queue.look(read(at, messages), QueueCounters())
        drained.look(at + 0.5, queue.messages, removed=0, read_at=at, every=5.0, held_up=False)
    assert drained.since == 5
    assert drained.per_second is not None
    assert 3.5 < drained.per_second < 4.5


# -- Growing, steady or draining.


def readings(*messages: int, every: float = 5.0) -> list[DepthReading]:
    return [DepthReading(index * every, number, number * 100) for index, number in enumerate(messages)]


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ((0, 50, 100), Trend.GROWING),
        ((100, 60, 10), Trend.DRAINING),
        ((7, 7, 7), Trend.STEADY),
        ((7, 8, 7), Trend.STEADY),
        ((0, 0, 0, 90, 80, 0), Trend.STEADY),
        ((90, 80, 0), Trend.STEADY),
        ((90, 80, 0, 0, 0, 0), Trend.STEADY),
        ((0, 100, 200, 150), Trend.DRAINING),
        ((300, 200, 100, 180), Trend.GROWING),
        ((0, 400, 401, 399, 400), Trend.GROWING),
    ],
)
def test_the_word_is_that_of_the_slope(messages: tuple[int, ...], word: Trend) -> None:
    grown = growth(readings(*messages))
    assert grown is not None
    assert trend(grown.messages) is word


@pytest.mark.parametrize("few", [readings(), readings(1, 9), readings(1, 5, 9, every=1.0)])
def test_too_few_readings_say_nothing(few: list[DepthReading]) -> None:
    assert growth(few) is None
    assert trend(None) is None


def test_it_is_computed_from_the_turn_on_and_never_across_it() -> None:
    """Seen: `growing 5.6/s` while the syphon empties it, `draining 0.5/s` 30 s after it was empty."""
    since = growth(readings(0, 100, 200, 150, 100))
    assert since is not None
    assert since.messages == pytest.approx(-10)
    assert growth(readings(90, 50, 0, 0)) == DepthGrowth(0.0, 0.0)


def test_the_figure_of_now_is_the_latest_reading() -> None:
    last = DepthReading(10.0, 200, 20_000)
    assert reading_now(last, 50, 12.0) == DepthReading(12.0, 50, 5_000)
    assert reading_now(DepthReading(10.0, 0, 700), 5, 12.0) == DepthReading(12.0, 5, 700)


@given(st.floats(-1000, 1000), st.integers(3, 12))
def test_a_straight_line_has_its_own_slope(slope: float, number: int) -> None:
    line = [DepthReading(index * 5.0, round(1e6 + slope * index * 5), 0) for index in range(number)]
    grown = growth(line)
    assert grown is not None
    assert grown.messages == pytest.approx(slope, abs=0.2)


def test_the_time_until_a_goal() -> None:
    assert seconds_until(100, 200, 10) == 10
    assert seconds_until(100, 0, -10) == 10
    assert seconds_until(100, 200, -10) is None, "it goes the other way"
    assert seconds_until(100, 200, 0) is None
    assert seconds_until(100, 200, None) is None


# -- How often the depths are read, reason by reason: the rows of core/backlog/depth_readings.py.


WATCHED, SCRAPED, SYPHON, DIVERTING, PARKED, LYING, UNMOVED = PollReason


@pytest.mark.parametrize(
    ("reasons", "seconds"),
    [
        ((), None),
        ((PARKED, LYING), None),  # a sender that knows a syphon elsewhere
        ((DIVERTING, PARKED, LYING, UNMOVED), 60),
        ((PARKED, LYING, UNMOVED), 300),
        ((SYPHON,), 300),
        ((SYPHON, PARKED), 300),  # all of it is held aside
        ((SYPHON, PARKED, LYING), 30),
        ((SCRAPED,), 30),
        ((WATCHED,), 15),
        ((WATCHED, SCRAPED, SYPHON, PARKED, LYING), 5),
    ],
)
def test_management_is_asked_only_where_somebody_looks_or_a_rule_needs_it(
    reasons: tuple[PollReason, ...], seconds: float | None
) -> None:
    """Section 12: "Management is asked only where somebody looks or a rule needs it; a sender-only process in good
    health asks nothing."."""
    assert every(frozenset(reasons)) == seconds


def test_a_further_reason_never_has_the_depths_read_less_often() -> None:
    for number in range(len(PollReason)):
        for held in map(frozenset, combinations(PollReason, number)):
            for more in PollReason:
                assert (every(held | {more}) or 1e9) <= (every(held) or 1e9)


# -- Figures over time: what an engine keeps of its snapshots, and what a console makes of the steps.


def entity(path: str, accepted: int = 0, **changes: Any) -> EntityView:
    return own(path, accepted=accepted, **changes)


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
        billed=Meter(),
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
def test_an_unread_depth_and_the_time_of_no_call_are_unknown_and_not_zero(parked: ParkedView | None) -> None:
    step = sampled(SeriesRing(), snapshot(100.0), snapshot(105.0, parked=parked))
    assert (step.total.parked, step.total.p99) == ((None,), (None,))


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

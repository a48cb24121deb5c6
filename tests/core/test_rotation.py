"""The rotation: who is in, who is out, and when one that is out is tried again (SPEC.md section 7.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.approval import Approve

from paired_servicebus.core.failover.send_router import MAX_PROBE_INTERVALS, Rotation

NOW = 1_700_000_000.0
DRAW = st.floats(0, 1, exclude_max=True)


def rotation(count: int = 4, *, out: tuple[int, ...] = ()) -> Rotation:
    made = Rotation(range(count), probe_interval=10)
    for index in out:
        made.pull(index, at=NOW, reason="timeout")
    return made


def test_queues_are_named_by_their_indices_which_may_have_gaps() -> None:
    """Section 4.3: "its real indices, not their number: creation may leave gaps"."""
    made = Rotation((3, 0, 2), probe_interval=10)
    assert made.indices == (0, 2, 3)
    assert [made.pick(draw) for draw in (0.0, 0.5, 0.9)] == [0, 2, 3]
    assert [made.holds(index) for index in range(5)] == [True, False, True, True, False]
    assert made.pull(3, at=NOW, reason="timeout")
    assert made.probes_due(NOW + 10) == [3]
    assert made.probed(3, at=NOW + 11, accepted=True)


def distances(made: Rotation, count: int) -> list[float]:
    """How far apart the probes of queue 0 are while each of them fails."""
    found, last = [], NOW
    for _ in range(count):
        due = made.next_probe()
        assert due is not None
        assert made.probes_due(due) == [0]
        made.probed(0, at=due, accepted=False)
        found.append(due - last)
        last = due
    return found


def test_all_queues_are_in_at_first() -> None:
    made = rotation(3)
    assert [made.holds(index) for index in (-1, 0, 1, 2, 3)] == [False, True, True, True, False]
    assert (made.next_probe(), made.probes_due(NOW)) == (None, [])


@given(draws=st.lists(DRAW, min_size=1))
def test_every_draw_picks_a_queue_that_is_in_and_not_avoided(draws: list[float]) -> None:
    made = rotation(5, out=(1, 4))
    assert {made.pick(draw, avoid=[2]) for draw in draws} <= {0, 3}


@given(count=st.integers(1, 20), data=st.data())
def test_draws_are_spread_evenly(count: int, data: st.DataObject) -> None:
    """ "Many clients that don't know each other balance so": equal parts of [0, 1) for each queue that is in."""
    out = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    made = rotation(count, out=tuple(out))
    left = [index for index in range(count) if index not in out]
    assert [made.pick((place + 0.5) / len(left)) for place in range(len(left))] == left


@pytest.mark.parametrize(("out", "avoid"), [((0, 1), ()), ((), (0, 1)), ((0,), (1,))])
def test_none_is_picked_where_none_is_left(out: tuple[int, ...], avoid: tuple[int, ...]) -> None:
    assert rotation(2, out=out).pick(0.5, avoid=avoid) is None


def test_a_pulled_queue_says_since_when_and_why() -> None:
    made = rotation()
    assert made.pull(2, at=NOW, reason="timeout")
    place = made.places[2]
    assert (place.pulled, place.since, place.reason) == (True, NOW, "timeout")


def test_a_queue_that_is_out_already_is_left_as_it_is() -> None:
    made = rotation(out=(2,))
    assert not made.pull(2, at=NOW + 5, reason="connection lost")
    assert (made.places[2].since, made.places[2].reason, made.next_probe()) == (NOW, "timeout", NOW + 10)


def test_a_probe_is_handed_out_once_until_its_outcome_is_known() -> None:
    made = rotation(out=(0,))
    assert made.probes_due(NOW + 9.9) == []
    assert made.probes_due(NOW + 10) == [0]
    assert (made.probes_due(NOW + 99), made.next_probe()) == ([], None)


def test_probes_of_a_queue_that_keeps_failing_grow_apart_up_to_a_limit() -> None:
    found = distances(rotation(1, out=(0,)), 6)
    assert found == [10, 20, 40, 80, 80, 80]
    assert max(found) == MAX_PROBE_INTERVALS * 10


def test_a_queue_that_is_out_for_days_is_still_probed() -> None:
    """Eight hours at a probe every eight seconds are more than a thousand probes, and there are longer outages."""
    assert distances(rotation(1, out=(0,)), 3000)[-1] == MAX_PROBE_INTERVALS * 10


def test_an_accepted_probe_brings_the_queue_back() -> None:
    made = rotation(out=(0,))
    made.probes_due(NOW + 10)
    assert made.probed(0, at=NOW + 11, accepted=True)
    place = made.places[0]
    assert (place.pulled, place.reason, place.probe_due, made.holds(0)) == (False, "", None, True)


def test_a_failed_probe_tells_its_own_reason(approve: Approve) -> None:
    made = rotation(out=(0, 1))
    assert not made.probed(0, at=NOW + 10, accepted=False, reason="entity not found")
    assert not made.probed(1, at=NOW + 10, accepted=False)
    approve.part([place.reason for place in made.places[:2]], "rules")


def test_a_probe_of_a_queue_that_is_in_brings_nothing_back() -> None:
    assert not rotation().probed(0, at=NOW, accepted=True)


@pytest.mark.parametrize(("lasted", "distance"), [(79, 20), (80, 10)])
def test_a_return_that_did_not_last_makes_probes_rarer(lasted: float, distance: float) -> None:
    made = rotation(1, out=(0,))
    made.probes_due(NOW + 10)
    made.probed(0, at=NOW + 10, accepted=True)
    made.pull(0, at=NOW + 10 + lasted, reason="timeout")
    assert made.next_probe() == NOW + 10 + lasted + distance


def test_the_next_probe_is_the_nearest() -> None:
    made = rotation()
    made.pull(3, at=NOW + 2, reason="timeout")
    made.pull(1, at=NOW, reason="timeout")
    assert (made.next_probe(), made.probes_due(NOW + 12)) == (NOW + 10, [1, 3])

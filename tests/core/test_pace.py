"""How fast the syphon may go: what the owner set, what throttling taught, and the share of live senders."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.approval import Approve

from paired_servicebus.core.pump.intake_limit import BURST, LIVE_SECONDS, MIN_RATE, SyphonRateLimit

REST = 10.0
NOW = 1_700_000_000.0


def moving(pace: SyphonRateLimit, rate: int, *, seconds: int = 3, at: float = NOW) -> float:
    """So many messages a second are moved for a while; the time then."""
    for second in range(seconds):
        assert pace.left(at + second) >= 1
        pace.took(rate)
    return at + seconds


def test_without_a_rate_and_without_throttling_nothing_is_held_back() -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 1_000_000)
    pace.live_at = at
    assert (pace.limit(at), pace.left(at), pace.why(at)) == (inf, inf, "")


@given(
    rate=st.floats(0.1, 100_000),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**6)), max_size=60),
)
def test_a_rate_is_kept_over_any_time(rate: float, steps: list[tuple[float, int]]) -> None:
    """However irregularly it is asked: never more than the rate and one burst."""
    pace, at, taken = SyphonRateLimit(rate=rate, rest=REST), NOW, 0
    for pause, wish in steps:
        at += pause
        took = min(wish, int(pace.left(at)))
        pace.took(took)
        taken += took
        assert taken <= rate * (at - NOW + 2 * BURST) + 2


@given(rate=st.floats(0.1, 1000), seconds=st.integers(2, 30))
def test_whoever_asks_often_gets_the_rate(rate: float, seconds: int) -> None:
    pace, taken = SyphonRateLimit(rate=rate, rest=REST), 0
    for tick in range(10 * seconds):
        took = int(pace.left(NOW + tick / 10))
        pace.took(took)
        taken += took
    assert taken >= int(rate * (seconds - 0.2)) - 1


def test_throttled_it_halves_what_was_moved_and_grows_again_by_equal_steps_until_nothing_holds(
    approve: Approve,
) -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 1000)
    assert pace.throttled(at) == pytest.approx(500)
    approve.part(pace.why(at), "rules", has=("500 a",))
    assert pace.limit(at + REST) == pytest.approx(500)
    grown = [pace.limit(at + REST + second) for second in range(1, 30)]
    assert [later - earlier for earlier, later in pairwise(grown)] == pytest.approx([50] * 28)
    assert pace.limit(at + REST + 30) == inf
    assert pace.why(at + REST + 31) == ""


def test_refusals_of_the_same_moment_halve_once() -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 1000)
    pace.throttled(at)
    assert [pace.throttled(at + late) for late in (0, 0.01, REST - 0.01)] == [None] * 3
    assert pace.limit(at + REST) == pytest.approx(500)


def test_throttled_again_and_again_it_goes_on_slowly() -> None:
    pace, at = SyphonRateLimit(rest=REST), NOW
    moving(pace, 1000)
    limits = []
    for _ in range(40):
        at += REST
        limits.append(pace.throttled(at))
    assert limits[-1] is not None
    assert MIN_RATE <= limits[-1] < 10


def test_throttling_before_anything_was_moved_was_not_the_syphons() -> None:
    pace = SyphonRateLimit(rest=REST)
    assert pace.throttled(NOW) is None
    assert pace.left(NOW) == inf


@given(
    rate=st.floats(0, 10_000),
    share=st.floats(0, 0.9),
    told=st.lists(
        st.tuples(st.floats(0, 20), st.sampled_from(["throttled", "live", "took"]), st.integers(1, 5000)), max_size=80
    ),
)
def test_whatever_it_is_told_it_never_goes_beyond_the_owners_rate_nor_stands_still(
    rate: float, share: float, told: list[tuple[float, str, int]]
) -> None:
    pace, at = SyphonRateLimit(rate=rate, live_share=share, rest=REST), NOW
    for pause, what, count in told:
        at += pause
        pace.left(at)
        if what == "throttled":
            pace.throttled(at)
        elif what == "live":
            pace.live_at = at
        else:
            pace.took(count)
        assert pace.limit(at) <= (rate or inf)
        assert pace.limit(at) >= min(MIN_RATE, rate or inf)
        assert bool(pace.why(at)) == (pace.limit(at) < inf)


def test_live_senders_have_their_share_as_long_as_they_send(approve: Approve) -> None:
    pace = SyphonRateLimit(rate=100, live_share=0.25, rest=REST)
    pace.live_at = NOW
    assert pace.limit(NOW) == pytest.approx(75)
    approve.part(pace.why(NOW), "rules", has=("75 a", "syphon_rate"))
    assert pace.limit(NOW + LIVE_SECONDS) == 100
    approve.part(pace.why(NOW + LIVE_SECONDS), "rules", has=("100 a", "syphon_rate"))


def test_what_was_moved_without_a_limit_is_no_debt_when_there_is_one() -> None:
    pace = SyphonRateLimit(rest=REST)
    at = moving(pace, 10_000)
    pace.throttled(at)
    assert pace.left(at + 0.1) >= 1


def test_what_is_put_aside_instead_was_not_moved() -> None:
    pace = SyphonRateLimit(rate=10, rest=REST)
    before = pace.left(NOW)
    pace.took(5)
    pace.gave_back(5)
    assert pace.left(NOW) == before

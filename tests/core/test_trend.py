"""Growing, steady or draining."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.backlog.depth_readings import (
    DepthGrowth,
    DepthReading,
    Trend,
    growth,
    reading_now,
    seconds_until,
    trend,
)


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
    """Seen: `growing 5.6/s` while the syphon empties it, `draining 0.5/s` 30 s after it was empty (finding C7)."""
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

"""Numbers and times in a known number of cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.text import number_format
from paired_servicebus.core.text.number_format import BARS, sparkline


@pytest.mark.parametrize(
    ("number", "width", "shown"),
    [
        (None, 5, "–"),
        (0, 5, "0"),
        (1_204, 5, "1,204"),
        (12_345, 5, "12.3k"),
        (999_999, 5, "1000k"),
        (1_250_000, 5, "1.2M"),
        (1_250_000, 9, "1,250,000"),
    ],
)
def test_a_count_is_in_full_where_it_fits(number: int | None, width: int, shown: str) -> None:
    assert number_format.short_count(number, width) == shown


@given(st.integers(min_value=0, max_value=10**14))
def test_a_short_count_fits_a_column(number: int) -> None:
    assert len(number_format.short_count(number, 5)) <= 5


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (0.04, "0"), (0.4, "0.4"), (9.97, "10"), (1204.4, "1,204")])
def test_a_trickle_is_told_from_nothing(value: float, shown: str) -> None:
    assert number_format.rate(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (1.25, "1.2 s"), (13, "13 s"), (192, "3 min 12 s"), (3600, "1 h"), (7384, "2 h 3 min")],
)
def test_durations_name_their_two_largest_units(seconds: float, shown: str) -> None:
    assert number_format.duration(seconds) == shown


def test_a_time_older_than_a_day_is_a_day() -> None:
    now = 1_795_183_331.0  # 2026-11-20 14:02:11 UTC
    assert number_format.time_or_day(now - 60, now) == "14:01:11"
    assert number_format.time_or_day(now - 2 * number_format.DAY, now) == "18 Nov"
    assert number_format.time_or_day(None, now) == number_format.NOT_KNOWN


def test_a_sparkline_tells_nothing_known_nothing_moved_and_a_little_moved_apart() -> None:
    assert sparkline([], 4) == "    "
    assert sparkline([0, 0], 4) == f"  {BARS[0]}{BARS[0]}"
    assert sparkline([0, 0.1, 100], 3) == f"{BARS[0]}{BARS[1]}{BARS[-1]}"


@given(st.lists(st.floats(min_value=0, max_value=1e9), max_size=80), st.integers(min_value=0, max_value=60))
def test_a_sparkline_fills_its_cells(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == width

"""Figures over time on the screen: bars at 80x24, charts on wide screens, and what is shown where there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.series.graphs import KEPT, Curves, Graphs, Mark
from paired_servicebus.ui.display.terminal_app import to_ascii
from paired_servicebus.ui.render.spans import Role
from paired_servicebus.ui.state.view import Reached
from paired_servicebus.ui.widgets.graph_parts import (
    CHART_SECONDS,
    Part,
    bars,
    fitting_window,
    in_columns,
    log_scale,
    round_top,
    stack,
    time_axis,
    time_columns,
)
from tests.graph_views import graphs

from .conftest import AT


def text(spans: Any) -> str:
    return "".join(span.text for span in spans)


# -- the painter -------------------------------------------------------------------------------------------------------


def test_a_step_within_a_column_moves_nothing() -> None:
    pictures = set()
    for step in range(3):  # the three steps of one column of 15 s
        columns = time_columns(1_500.0 + 5 * step + 5, 300.0, 20, step=5.0)
        curve = (7.0,) * KEPT
        pictures.add((columns.begins(0), in_columns(curve, columns, step=5.0)))
    assert len(pictures) == 1


@pytest.mark.parametrize(("room", "number"), [(180, 180), (100, 90), (61, 60), (45, 45), (44, 36), (15, 15), (5, 5)])
def test_columns_are_whole_numbers_of_steps(room: int, number: int) -> None:
    assert time_columns(AT, 900.0, room, step=5.0).number == number


@pytest.mark.parametrize("seconds", [60, 115, 125, 295, 305, 895])
@pytest.mark.parametrize("room", [20, 29, 45, 60, 90, 180])
@pytest.mark.parametrize("least", [0.0, CHART_SECONDS])
def test_a_third_of_the_width_is_filled_after_a_minute(seconds: int, room: int, least: float) -> None:
    """Charts scale to what exists: at least a third of the width is filled after a minute."""
    known = seconds // 5
    curve = (None,) * (KEPT - known) + (7.0,) * known
    columns = time_columns(AT, fitting_window((curve,), step=5.0, most=900.0), room, step=5.0, least=least)
    filled = [value for value in in_columns(curve, columns, step=5.0) if value is not None]
    assert 3 * len(filled) >= columns.number
    assert columns.number > room // 2


def test_bars_tell_unknown_from_zero_and_zero_from_little() -> None:
    assert text(bars((None, 0.0, 0.001, 10.0), Role.KEY, top=10.0)) == " ▁▂█"


def test_a_little_part_of_a_stack_is_seen() -> None:
    parts = (Part((0.1,), "▓", Role.FAILED_OVER), Part((1_000.0,), "█", Role.HEALTHY))
    assert [row[0][0] for row in stack(parts, top=1_000.0, rows=3)] == ["█", "█", "▓"]


def test_a_stack_ends_in_eighths() -> None:
    parts = (Part((0.0,), "▓", Role.FAILED_OVER), Part((50.0,), "█", Role.HEALTHY))
    assert [row[0][0] for row in stack(parts, top=100.0, rows=3)] == [" ", "▄", "█"]


def test_an_unknown_column_of_a_stack_is_blank_and_zero_is_not() -> None:
    parts = (Part((None, 0.0), "▓", Role.FAILED_OVER), Part((None, 0.0), "█", Role.HEALTHY))
    assert [cell[0] for cell in stack(parts, top=1.0, rows=2)[-1]] == [" ", "▁"]


@pytest.mark.parametrize(
    ("highest", "top"), [(0.0, 1.0), (1.0, 1.0), (43.0, 50.0), (412.0, 500.0), (5_001.0, 10_000.0)]
)
def test_a_scale_seldom_changes(highest: float, top: float) -> None:
    assert round_top((None, highest)) == top


def test_the_time_scale_is_logarithmic() -> None:
    assert log_scale((None, 0.2, 1.0, 10.0, 1_000.0), top=1_000.0) == pytest.approx((None, 0.0, 0.0, 1 / 3, 1.0))


def test_a_mark_stands_at_its_time_with_its_name() -> None:
    columns = time_columns(AT, 900.0, 90, step=5.0)
    axis = text(time_axis(columns, (Mark(at=AT - 600, what="failed over", subject="payments"),)))
    assert len(axis) == columns.number
    assert "▲13:52:11 failed over" in axis
    assert axis.index("▲") == columns.place(AT - 600)


def test_a_time_of_day_is_not_taken_for_the_time_of_a_mark() -> None:
    columns = time_columns(AT, 900.0, 90, step=5.0)
    tick = text(time_axis(columns, ())).index("13:55")
    marks = [Mark(at=columns.begins(place), what="x" * 99, subject="a") for place in (tick - 1, tick + 5)]
    assert "13:55─" not in text(time_axis(columns, marks[:1]))
    assert "13:55▲" not in text(time_axis(columns, marks[1:]))


def test_marks_in_one_column_are_counted() -> None:
    marks = [Mark(at=AT - 600, what="suspect", subject=f"e{number}") for number in range(300)]
    assert "13:52:11 300 changes" in text(time_axis(time_columns(AT, 900.0, 90, step=5.0), marks))


def test_a_strangers_words_keep_the_axis_in_its_cells() -> None:
    columns = time_columns(AT, 900.0, 60, step=5.0)
    for what in ("\x1b[2J", "界" * 9, "e\u0301" * 9, "\u202eabc", "x" * 260):
        axis = time_axis(columns, (Mark(at=AT - 300, what=what, subject="a"),))
        assert sum(span.width for span in axis) == columns.number


def test_the_glyphs_of_a_stack_differ_without_colours() -> None:
    assert len({to_ascii(glyph) for glyph in "█▒▓"}) == 3


# -- the screen --------------------------------------------------------------------------------------------------------


async def test_bars_fit_60x20(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(), graphs(), size=(60, 20)) as console:
        row = next(row for row in console.rows() if row.startswith(" to primary"))
    assert "1,221" in row
    assert "96/s" in row


@pytest.mark.parametrize(
    "size", [(140, 40), *(pytest.param(one, marks=pytest.mark.slow) for one in ((120, 40), (200, 50)))]
)
async def test_charts_on_a_wide_screen(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    async with open_console(made.outage(), graphs(), size=size) as console:
        screen, rows = console.screen(), console.rows()
    assert "refused 0" in screen
    assert "▓ p50 4.0  █ p99 3,000" in screen
    assert "▲" in next(row for row in rows if "└" in row)
    assert "500┤" in screen


async def test_a_depth_that_could_not_be_read_is_unknown(open_console: Any, made: Any) -> None:
    unread = replace(graphs(), total=replace(graphs().total, parked=(None,) * KEPT))
    async with open_console(made.outage(), unread) as console:
        row = next(row for row in console.rows() if row.startswith(" to primary"))
    assert "unknown" in row


async def test_parked_is_the_figure_of_the_rest_of_the_screen(open_console: Any, made: Any) -> None:
    """A curve's newest point is up to five seconds old."""
    async with open_console(Reached(), graphs(), made.outage()) as console:
        row = next(row for row in console.rows() if row.startswith(" to primary"))
        assert row.split()[-1] == "1,221", row


async def test_a_step_is_added_to_what_is_there(open_console: Any, made: Any) -> None:
    step = Graphs(at=AT + 5, whole=False, total=Curves(**dict.fromkeys(("to_primary", "refused"), (77.0,))))
    async with open_console(made.outage(), graphs(), step) as console:
        assert "77/s" in next(row for row in console.rows() if row.startswith(" to primary"))


async def test_an_entitys_own_graphs(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(), graphs()) as console:
        await console.press("2")
        assert "to backlog ▁" in console.screen()
        await console.told(graphs(entities={}))
        assert "15 min" in console.screen()
        await console.told(graphs(entities={}, crowded=True))
        assert "250 entities" in console.screen()

"""What did not change is not painted; what changed is painted alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console as RichConsole
from rich.segment import Segments
from textual.app import App
from textual.screen import Screen

from paired_servicebus.ui.display.profile import PROFILES, ProfileName

NUMBER_BUDGET = 50
"""Bytes for one changed number in the middle of a row, at 256 colours."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counts the bytes that would go to a terminal of 256 colours; each call returns those since the last."""
    terminal = RichConsole(color_system="256", force_terminal=True, legacy_windows=False)
    updates: list[int] = []

    def display(_app: App[Any], _screen: Screen[Any], update: Any) -> None:
        if isinstance(update, Segments):  # without a cursor
            updates.append(sum(len(segment.text.encode()) for segment in update.segments))
        elif update is not None:
            updates.append(len(update.render_segments(terminal).encode()))

    monkeypatch.setattr(App, "_display", display)

    def since_last() -> int:
        total = sum(updates)
        updates.clear()
        return total

    return since_last


def many(made: Any, number: int = 30) -> list[Any]:
    return [made.entity(f"queue-{place:02}") for place in range(number)]


async def test_the_same_snapshot_again_writes_nothing(open_console: Any, made: Any, written: Any) -> None:
    async with open_console(made.outage(), size=(140, 40)) as console:
        assert written() > 1000
        await console.told(made.outage())
        assert written() == 0


async def test_the_same_snapshot_again_writes_nothing_on_any_page(open_console: Any, made: Any, written: Any) -> None:
    async with open_console(made.backlog(), size=(140, 40)) as console:
        for key in "2345":
            await console.press(key)
            written()
            await console.told(made.backlog())
            assert written() == 0, key


async def test_one_row_costs_one_row(open_console: Any, made: Any, written: Any) -> None:
    entities = many(made)
    async with open_console(made.snapshot(*entities), size=(140, 40)) as console:
        written()
        entities[4] = replace(entities[4], sends_per_second=97.0)
        await console.told(made.snapshot(*entities))
        assert 0 < written() <= NUMBER_BUDGET


async def test_a_tenth_of_30_rows_and_the_clock_stay_far_below_2_kilobytes(
    open_console: Any, made: Any, written: Any
) -> None:
    entities = many(made)
    async with open_console(made.snapshot(*entities), size=(140, 40)) as console:
        written()
        for place in (1, 5, 9):
            entities[place] = replace(entities[place], sends_per_second=97.0, accepted=412_097)
        await console.told(made.snapshot(*entities, at=made.AT + 1))
        assert 0 < written() <= 3 * 2 * NUMBER_BUDGET + 60


class Time:
    """A time of day that a test moves."""

    def __init__(self, at: float) -> None:
        self.at = at

    def passes(self, console: Any, seconds: float) -> None:
        self.at += seconds
        console.app._tick()


async def test_the_clock_ticks_and_costs_its_digits(open_console: Any, made: Any, written: Any) -> None:
    """A clock that stands still reads as a hung screen."""
    time = Time(made.AT + 4)
    async with open_console(made.snapshot(), now=lambda: time.at, monotonic=lambda: time.at) as console:
        written()
        for second in range(16, 20):
            time.passes(console, 1)
            await console.pilot.pause()
            assert f"14:02:{second} UTC" in console.rows()[0]
            assert 0 < written() <= NUMBER_BUDGET


async def test_ages_and_countdowns_tick_with_it(open_console: Any, made: Any, written: Any) -> None:
    time = Time(made.AT)
    snapshot = made.snapshot(made.failed_over("payments", next_ping_at=made.AT + 6), made.entity("orders"))
    async with open_console(snapshot, now=lambda: time.at, monotonic=lambda: time.at) as console:
        assert "for 13 s" in console.rows()[1]
        assert "in 6 s" in console.rows()[3]
        written()
        time.passes(console, 2)
        await console.pilot.pause()
        assert "for 15 s" in console.rows()[1]
        assert "in 4 s" in console.rows()[3]
        assert 0 < written() <= 6 * NUMBER_BUDGET
        time.passes(console, 60)
        await console.pilot.pause()
        assert "for 1m15s" in console.rows()[1]
        assert "is due" in console.rows()[3]


async def test_a_slow_link_gets_the_clock_each_five_seconds() -> None:
    assert PROFILES[ProfileName.FULL].clock_every == 1.0
    assert PROFILES[ProfileName.SLOW].clock_every == 5.0


async def test_figures_of_a_silent_engine_grow_no_older_than_its_news(open_console: Any, made: Any) -> None:
    """How long an outage lasts is not known of an engine that says nothing."""
    time = Time(made.AT)
    news = made.snapshot(made.failed_over("payments"))
    async with open_console(news, now=lambda: time.at, monotonic=lambda: time.at) as console:
        time.passes(console, 30)
        console.app._check_silence()
        await console.pilot.pause()
        assert "for 30 s" in console.rows()[1]
        assert "for 13 s" in console.rows()[2]


async def test_entities_out_of_sight_cost_nothing(open_console: Any, made: Any, written: Any) -> None:
    entities = many(made, 1000)
    async with open_console(made.snapshot(*entities), size=(140, 40)) as console:
        written()
        entities[900] = replace(entities[900], sends_per_second=97.0)
        await console.told(made.snapshot(*entities))
        assert written() == 0


async def test_a_dialog_that_closes_costs_what_it_covered(open_console: Any, made: Any, written: Any) -> None:
    async with open_console(made.outage(), size=(140, 40)) as console:
        whole = written()
        await console.press("F")
        assert 0 < written() < whole / 2
        await console.press("escape")
        assert 0 < written() < whole / 2


async def test_ctrl_l_writes_everything_again(open_console: Any, made: Any, written: Any) -> None:
    async with open_console(made.outage()) as console:
        whole = written()
        await console.press("ctrl+l")
        assert whole / 2 < written() <= whole

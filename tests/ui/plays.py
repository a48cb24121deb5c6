"""Plays on the dashboard as rows of a table: the news it begins with, keys as texts, and checks between them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from paired_servicebus.ui.state.view import News

from .conftest import Console, MadeUp

Check = Callable[[Console], Any]
Step = str | Check
MADE = MadeUp()


class Play(NamedTuple):
    """`options` are those of `open_console`."""

    news: tuple[News, ...]
    steps: tuple[Step, ...]
    options: dict[str, Any]


def play(*parts: News | Step, **options: Any) -> Play:
    """The parts before the first key or check are news."""
    news = tuple(part for part in parts if not isinstance(part, str) and not inspect.isfunction(part))
    return Play(news, parts[len(news) :], options)  # type: ignore[arg-type]


async def run(open_console: Any, played: Play) -> None:
    """Keys that follow each other are pressed together; a check may be a coroutine function."""
    async with open_console(*played.news, **played.options) as console:
        for are_keys, steps in groupby(played.steps, lambda step: isinstance(step, str)):
            if are_keys:
                await console.press(*steps)
                continue
            for step in steps:
                found = step(console)  # type: ignore[operator]
                if inspect.isawaitable(found):
                    await found


def sees(*texts: str) -> Check:
    def check(console: Console) -> None:
        assert [text for text in texts if text not in console.screen()] == [], console.screen()

    return check


def lacks(*texts: str) -> Check:
    def check(console: Console) -> None:
        assert [text for text in texts if text in console.screen()] == [], console.screen()

    return check


def row(number: int, *texts: str) -> Check:
    """A row of the screen has the texts."""

    def check(console: Console) -> None:
        assert [text for text in texts if text not in console.rows()[number]] == [], console.rows()[number]

    return check


def on(screen: type, *, is_there: bool = True) -> Check:
    def check(console: Console) -> None:
        assert isinstance(console.app.screen, screen) == is_there, console.app.screen

    return check


def ordered(*orders: str) -> Check:
    """All orders so far, as verb and targets; the operator is kim."""

    def check(console: Console) -> None:
        assert [f"{verb} {targets}".rstrip() for verb, targets, _ in console.feed.orders] == list(orders)
        assert {by for *_, by in console.feed.orders} <= {"kim"}

    return check


def fed(**values: Any) -> Check:
    """Fields of the feed."""

    def check(console: Console) -> None:
        assert {name: getattr(console.feed, name) for name in values} == values

    return check


def viewed(**values: Any) -> Check:
    """Fields of the view."""

    def check(console: Console) -> None:
        assert {name: getattr(console.app.view, name) for name in values} == values

    return check


def focused(name: str) -> Check:
    def check(console: Console) -> None:
        assert console.app.focused is not None
        assert console.app.focused.id == name

    return check


def holds(condition: Callable[[Console], object]) -> Check:
    def check(console: Console) -> None:
        assert condition(console), console.screen()

    return check


def told(*news: News) -> Check:
    async def tell(console: Console) -> None:
        await console.told(*news)

    return tell


def lost(reason: str = "the engine process died") -> Check:
    async def lose(console: Console) -> None:
        console.feed.lose(reason)
        await console.pilot.pause()

    return lose


def feed(**values: Any) -> Check:
    """Let the feed answer otherwise from now on."""

    def change(console: Console) -> None:
        for name, value in values.items():
            setattr(console.feed, name, value)

    return change


def named(number: int, *failed: int) -> list[Any]:
    """Entities queue-000 and so on, some of them failed over."""
    return [
        MADE.failed_over(f"queue-{place:03}") if place in failed else MADE.entity(f"queue-{place:03}")
        for place in range(number)
    ]


def table(console: Console) -> list[str]:
    """The rows of the table of entities, with what is said to be out of sight."""
    rows = console.rows()
    top = next(y for y, row in enumerate(rows) if "worst first ─" in row or ("entities" in row and row[0] == "─"))
    return rows[top + 2 : next(y for y, row in enumerate(rows) if row.startswith("── last 5 min"))]


def tabled(*texts: str) -> Check:
    """The table of entities has a row with each text."""

    def check(console: Console) -> None:
        assert [text for text in texts if not any(text in row for row in table(console))] == [], console.screen()

    return check


def listed(*names: str) -> Check:
    """The table shows these entities, as marker, glyph and name, and no other."""

    def check(console: Console) -> None:
        assert [row[:20].strip() for row in table(console) if "queue-" in row[:20]] == list(names)

    return check

"""What did not change is not painted; what changed is painted alone."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.console import Console as RichConsole
from rich.segment import Segment, Segments
from rich.style import Style
from textual.app import App
from textual.screen import Screen
from textual.strip import Strip

from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.display.terminal_app import ScreenBuffer
from paired_servicebus.ui.render.spans import ELLIPSIS, Line, Role, Span, cut, fit, line, rule, shorten, spread, wrap

from .emulator import Emulator

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


async def test_the_same_snapshot_again_writes_nothing_on_any_page(open_console: Any, made: Any, written: Any) -> None:
    async with open_console(made.backlog(), size=(140, 40)) as console:
        assert written() > 1000
        for key in "12345":
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


async def test_with_many_entities_down_ages_in_rows_move_once_in_five_seconds(
    open_console: Any, made: Any, written: Any
) -> None:
    """Section 12: "With many entities in trouble the ages of rows move once in five seconds"."""
    now = made.AT
    each = [
        made.failed_over(f"queue-{one:02}", last_ping_at=made.AT - one, next_ping_at=made.AT + 60) for one in range(30)
    ]
    news = made.snapshot(*each, at=made.AT)
    async with open_console(news, size=(140, 40), now=lambda: now, monotonic=lambda: now) as console:
        seen, spent = [console.rows()], list[int]()
        for second in range(1, 11):
            now = made.AT + second
            written()
            await console.told(replace(news, at=now))
            spent.append(written())
            seen.append(console.rows())
        names = [row for row, text in enumerate(seen[0]) if " queue-" in text]
        moves = [sum(a[row] != b[row] for a, b in pairwise(seen)) for row in names]
        assert len(names) > 3
        assert max(moves) == 2
        assert sum(spent) < 10 * 400


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


# -- Whatever is written, the terminal ends up with what the frame says: checked against a small terminal of our
# own.


CONSOLE = Console(color_system="256", force_terminal=True, legacy_windows=False)
STYLES = [
    Style.parse(text)
    for text in (
        "red", "bold red", "on blue", "green on blue", "reverse", "white on blue", "bold reverse",
        "bright_red on #123456",
        "bold #58a6ff on #0d1117", "#58a6ff on #0d1117", "dim italic on bright_blue", "bold", "#58a6ff",
    )
]  # fmt: skip


def strip(*parts: tuple[str, Style | None], width: int) -> Strip:
    return Strip([Segment(text, style) for text, style in parts]).adjust_cell_length(width)


def text_of(strips: list[Strip]) -> str:
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def test_the_same_frame_again_is_nothing() -> None:
    painted = ScreenBuffer()
    frame = [strip(("abc", STYLES[0]), width=20), strip(("def", None), width=20)]
    assert painted.difference(frame, CONSOLE) is not None
    assert painted.difference(list(frame), CONSOLE) is None


def test_one_changed_number_is_a_move_and_the_number() -> None:
    painted = ScreenBuffer()
    red = STYLES[0]
    painted.difference([strip(("● orders       ", red), ("412", red), ("  09:12:40", red), width=40)], CONSOLE)
    update = painted.difference([strip(("● orders       ", red), ("97 ", red), ("  09:12:40", red), width=40)], CONSOLE)
    assert update is not None
    assert update.text == "\x1b[1;16H\x1b[31m97 \x1b[m"


def test_a_style_is_written_by_what_differs() -> None:
    blue, bold = Style.parse("#58a6ff on #0d1117"), Style.parse("bold #4ebf71 on #0d1117")
    update = ScreenBuffer().difference([strip(("a", blue), ("b", bold), ("c", blue), width=3)], CONSOLE)
    assert update is not None
    assert update.text.endswith("16ma\x1b[1;38;5;71mb\x1b[0;38;5;75;48;5;16mc\x1b[m")


def test_spaces_take_the_ink_of_what_is_around_them() -> None:
    painted = ScreenBuffer()
    update = painted.difference([strip(("a", STYLES[0]), (" ", None), ("b", STYLES[0]), width=3)], CONSOLE)
    assert update is not None
    assert update.text.endswith("\x1b[31ma b\x1b[m")


def test_a_frame_of_another_size_or_after_forgetting_is_written_whole() -> None:
    painted, screen = ScreenBuffer(), Emulator(6, 1)
    painted.difference([strip(("abc", None), width=4)], CONSOLE)
    wider = painted.difference([strip(("abc", None), width=6)], CONSOLE)
    assert wider is not None
    screen.write(wider.text)
    assert screen.text == "abc   "
    painted.forget()
    again = painted.difference([strip(("abc", None), width=6)], CONSOLE)
    assert again is not None
    assert again.text == wider.text


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
@pytest.mark.parametrize("seed", range(12))
def test_any_frame_after_any_other_is_shown(seed: int, system: Literal["standard", "256", "truecolor"]) -> None:
    draw = random.Random(seed)
    console = Console(color_system=system, force_terminal=True, legacy_windows=False)
    painted, screen, fresh = ScreenBuffer(), Emulator(30, 4), Emulator(30, 4)

    def part() -> tuple[str, Style | None]:
        text = "".join(draw.choice("ab  ●é漢e") for _ in range(draw.randrange(1, 8)))
        return text, draw.choice([None, *STYLES])

    frame = [strip(*[part() for _ in range(8)], width=30) for _ in range(4)]
    for _ in range(40):
        frame = [strip(*[part() for _ in range(8)], width=30) if draw.random() < 0.4 else row for row in frame]
        if draw.random() < 0.5:
            row = draw.randrange(4)
            parts = [(segment.text, segment.style) for segment in frame[row]]
            parts[draw.randrange(len(parts))] = part()
            frame[row] = strip(*parts, width=30)
        update = painted.difference(frame, console)
        screen.write(update.text if update else "")
        assert screen.ink == "", "the next to write finds the terminal as it was"
        assert screen.text == text_of(frame)
        whole = ScreenBuffer().difference(frame, console)
        fresh.write(whole.text if whole else "")
        coloured = [[(glyph, ink) for glyph, ink in row if glyph != " "] for row in screen.rows]
        assert coloured == [[(glyph, ink) for glyph, ink in row if glyph != " "] for row in fresh.rows]


# -- Lines are measured in cells, and nothing from outside can steer the terminal.


ANY_TEXT = st.text(max_size=60)
WIDTHS = st.integers(min_value=0, max_value=70)


@given(ANY_TEXT)
def test_no_span_holds_a_character_that_steers_the_terminal(text: str) -> None:
    kinds = {unicodedata.category(character) for character in Span(text).text}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines", "two\\x0alines"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202etxt.exe", "abc\\u202etxt.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("[bold red]markup[/]", "[bold red]markup[/]"),
    ],
)
def test_what_could_move_hide_or_turn_text_is_written_out(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(ANY_TEXT, WIDTHS, st.sampled_from(["left", "right"]))
def test_fit_fills_its_cells_exactly(text: str, width: int, align: str) -> None:
    assert cell_len(fit(text, width, align)) == width  # type: ignore[arg-type]


@given(st.lists(ANY_TEXT, max_size=6), WIDTHS)
def test_cut_never_takes_more_than_its_cells(texts: list[str], width: int) -> None:
    assert sum(span.width for span in cut([Span(text) for text in texts], width)) <= width


def test_cut_shows_that_something_is_missing() -> None:
    assert Line(cut([Span("abc"), Span("def")], 3)).text == "ab" + ELLIPSIS
    assert Line(cut([Span("abc"), Span("def")], 5)).text == "abcd" + ELLIPSIS


@given(ANY_TEXT, st.text(max_size=10), st.integers(min_value=30, max_value=90))
def test_spread_and_rule_fill_the_width(left: str, right: str, width: int) -> None:
    room_for_right = cell_len(harmless(right)) <= width
    spread_out = spread([Span(left)], [Span(right)], width)
    assert spread_out.width == (width if room_for_right else cell_len(harmless(right)))
    assert rule("events", width, note=Span(left)).width == width


@example("\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}", 1, 1)  # a sign of no cell
@given(ANY_TEXT, st.integers(min_value=1, max_value=40), st.integers(min_value=1, max_value=4))
def test_wrap_gives_at_most_the_lines_asked_for_and_none_empty(text: str, width: int, lines: int) -> None:
    wrapped = wrap(text, width, lines=lines)
    assert len(wrapped) <= lines
    assert all(0 < cell_len(part) <= width for part in wrapped)


def test_wrap_loses_no_word_that_fits() -> None:
    assert wrap("sends go to the backlog", 10, lines=3) == ["sends go", "to the", "backlog"]


def test_a_shortened_sentence_keeps_what_comes_next() -> None:
    sentence = "connection lost since 14:01:58; ping 7 failed 14:02:03 (timeout); next 14:03:03"
    short = shorten(sentence, 60)
    assert cell_len(short) == 60
    assert short.startswith("connection lost")
    assert short.endswith("; next 14:03:03")


def test_the_rest_of_a_reason_in_brackets_is_not_what_comes_next() -> None:
    sentence = "ping 2 failed 14:02:03 (internal server error: orders is not available; try again later)"
    assert shorten(sentence, 60) == fit(sentence, 60)


@given(ANY_TEXT, WIDTHS)
def test_shorten_stays_inside(text: str, width: int) -> None:
    assert cell_len(shorten(text, width)) <= width


def test_a_greyed_line_keeps_its_words_and_its_ground() -> None:
    before = line(Span("412", Role.HEALTHY), ground=Role.SELECTED)
    assert before.greyed() == line(Span("412", Role.MUTED), ground=Role.SELECTED)

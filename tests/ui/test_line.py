"""Lines are measured in cells, and nothing from outside can steer the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.render.spans import ELLIPSIS, Line, Role, Span, cut, fit, line, rule, shorten, spread, wrap

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


@given(ANY_TEXT, st.integers(min_value=1, max_value=40), st.integers(min_value=1, max_value=4))
def test_wrap_gives_the_lines_asked_for(text: str, width: int, lines: int) -> None:
    wrapped = wrap(text, width, lines=lines)
    assert len(wrapped) == lines
    assert all(cell_len(part) <= width for part in wrapped)


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

"""Whatever is written, the terminal ends up with what the frame says: checked against a small terminal of our own."""

from __future__ import annotations

import random
from typing import Literal

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from paired_servicebus.ui.display.terminal_app import ScreenBuffer

from .emulator import Emulator

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

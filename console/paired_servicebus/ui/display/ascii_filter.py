"""Filters between what is drawn and what is written: without colours, and in ASCII alone.

Every sign of ours has one of ASCII, one cell each, so that nothing moves; the six of the states stay six. What is left
of other alphabets is a question mark a cell, since such a terminal would show rubbish or lose count of its columns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

SIGNS: Final[dict[str, str]] = {
    "●": "o",
    "○": "-",
    "◐": "!",
    "▲": "X",
    "■": "#",
    "◆": "@",
    "▸": ">",
    "✓": "+",
    "✗": "x",
    "≈": "~",
    "…": "~",
    "–": "-",
    "·": "|",
    "×": "x",
    "“": '"',
    "”": '"',
    "↑": "^",
    "↓": "v",
    "←": "<",
    "→": ">",
    "─": "-",
    "━": "=",
    "│": "|",
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼", "+"),
    **dict(zip("▁▂▃▄▅▆▇█", "_.,:-=+#", strict=True)),
    "░": ".",
    "▒": ":",
    "▓": "%",
    "▔": "-",
    "▊": "|",
    "▎": "|",
}
_TABLE: Final = str.maketrans(SIGNS)


@lru_cache(maxsize=4096)
def to_ascii(text: str) -> str:
    """The text in ASCII, as wide as before."""
    if text.isascii():
        return text
    known = text.translate(_TABLE)
    return "".join(glyph if glyph.isascii() else "?" * cell_len(glyph) for glyph in known)


class NoColourFilter(LineFilter):
    """Bold and reversed text stay; the terminal's own colours do."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same text in the terminal's own colours."""
        return [Segment(text, style.without_color if style else None, control) for text, style, control in segments]


class AsciiFilter(LineFilter):
    """Signs of ASCII alone."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same cells, in ASCII."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]

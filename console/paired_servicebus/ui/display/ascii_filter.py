"""Filters between painting and writing: no colours, and ASCII only.

Each of our signs has a distinct ASCII sign of one cell, so that nothing moves. Other letters become a question mark a
cell, since such a terminal would show rubbish or lose count of its columns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

ASCII_SIGNS: Final[dict[str, str]] = {
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
_TABLE: Final = str.maketrans(ASCII_SIGNS)


@lru_cache(maxsize=4096)
def to_ascii(text: str) -> str:
    """Return the text in ASCII, in the same width."""
    if text.isascii():
        return text
    known = text.translate(_TABLE)
    return "".join(glyph if glyph.isascii() else "?" * cell_len(glyph) for glyph in known)


class NoColourFilter(LineFilter):
    """Drops colours; bold and reversed text stay."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the text in the terminal's own colours."""
        return [Segment(text, style.without_color if style else None, control) for text, style, control in segments]


class AsciiFilter(LineFilter):
    """Replaces every sign by ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same cells in ASCII."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]

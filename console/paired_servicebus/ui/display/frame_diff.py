"""What stands on the terminal, cell by cell, so that only cells that look different are written.

The terminal library repaints a widget's row from its left edge, and a whole screen when a dialog opens or closes. Over
a slow link that is most of what is sent, and most of it stands there already. `ScreenBuffer` compares each frame with the
one before it and makes an update of the difference. It holds one copy of the screen; `forget` is for moments when the
terminal may show something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import COLOR_SYSTEMS, Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from textual._compositor import CompositorUpdate
from textual.strip import Strip

GAP: Final = 6
"""Cells that are written again rather than jumped over: a jump costs some eight bytes."""


class Ink(NamedTuple):
    """How a cell is written: `sgr` in all, and `ground` as far as a space shows it."""

    sgr: str
    ground: str


class Cell(NamedTuple):
    """One cell; the second half of a wide character has no glyph."""

    glyph: str
    ink: Ink


NO_INK: Final = Ink("", "")


class Difference(CompositorUpdate):
    """Text that turns the screen before into the screen now."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, _console: Console) -> str:
        """The text."""
        return self.text

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        """The text, as the base class wants it."""
        yield Segment(self.text)


class ScreenBuffer:
    """The screen as it was last written."""

    def __init__(self) -> None:
        self._strips: list[Strip] = []
        self._rows: list[list[Cell]] = []

    def forget(self) -> None:
        """Takes nothing on the terminal for known: the next difference is everything."""
        self._strips.clear()
        self._rows.clear()

    def difference(self, strips: Sequence[Strip], console: Console) -> Difference | None:
        """What has to be written so that the terminal shows `strips`; None if it does."""
        system = COLOR_SYSTEMS[console.color_system or "standard"]
        parts: list[str] = []
        if [strip.cell_length for strip in strips] != [strip.cell_length for strip in self._strips]:
            self._start(strips)
            parts.append("\x1b[m\x1b[2J")
        ink = NO_INK
        for y, strip in enumerate(strips):
            if strip == self._strips[y]:
                continue
            row = _cells(strip, system)
            for start, end in _changes(self._rows[y], row):
                text, ink = _written(row[start:end], ink)
                parts += (f"\x1b[{y + 1};{start + 1}H", text)
            self._strips[y], self._rows[y] = strip, row
        if ink.sgr:
            parts.append("\x1b[m")
        return Difference("".join(parts)) if parts else None

    def _start(self, strips: Sequence[Strip]) -> None:
        """A terminal that was just cleared."""
        self._strips = [Strip([], strip.cell_length) for strip in strips]
        self._rows = [[Cell(" ", NO_INK)] * strip.cell_length for strip in strips]


@lru_cache(maxsize=1024)
def _ink(style: Style | None, system: ColorSystem) -> Ink:
    if style is None:
        return NO_INK
    sgr = Strip.render_ansi(style, system)
    seen_on_spaces = style.reverse or style.underline or style.strike or style.overline or style.underline2
    return Ink(sgr, sgr if seen_on_spaces else Strip.render_ansi(Style(bgcolor=style.bgcolor), system))


def _cells(strip: Strip, system: ColorSystem) -> list[Cell]:
    row: list[Cell] = []
    for text, style, control in strip:
        if control:
            continue
        ink = _ink(style, system)
        for glyph in text:
            width = 1 if glyph.isascii() else cell_len(glyph)
            if width == 0 and row:  # joins the character before it
                place = len(row) - 1 if row[-1].glyph or len(row) == 1 else len(row) - 2
                row[place] = Cell(row[place].glyph + glyph, row[place].ink)
            elif width:
                row.append(Cell(glyph, ink))
            if width == 2:
                row.append(Cell("", ink))
    return row


def _same(before: Cell, after: Cell) -> bool:
    if before.glyph != after.glyph:
        return False
    return before.ink == after.ink or (after.glyph == " " and before.ink.ground == after.ink.ground)


def _changes(before: Sequence[Cell], after: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """The stretches of `after` to write, as start and end; short gaps between them are included."""
    start = end = -1
    for x, cell in enumerate(after):
        if x < len(before) and _same(before[x], cell):
            continue
        if start >= 0 and x - end > GAP:
            yield start, _past_wide(after, end)
            start = -1
        if start < 0:
            start = x if cell.glyph else max(0, x - 1)
        end = x + 1
    if start >= 0:
        yield start, _past_wide(after, end)


def _past_wide(row: Sequence[Cell], end: int) -> int:
    """A stretch ends behind a wide character, never inside it."""
    return end + 1 if end < len(row) and not row[end].glyph else end


def _written(cells: Sequence[Cell], ink: Ink) -> tuple[str, Ink]:
    """The cells as text for a terminal that writes in `ink`, and the ink afterwards."""
    parts: list[str] = []
    for cell in cells:
        if cell.ink.sgr != ink.sgr and not (cell.glyph == " " and cell.ink.ground == ink.ground):
            parts.append(f"\x1b[{'0;' if ink.sgr and cell.ink.sgr else ''}{cell.ink.sgr}m")
            ink = cell.ink
        parts.append(cell.glyph)
    return "".join(parts), ink

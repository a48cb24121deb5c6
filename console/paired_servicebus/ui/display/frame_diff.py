"""The content of the terminal by cells, so that only changed cells are written.

Textual repaints a widget's row from its left edge, and a whole screen when a dialog opens or closes; most of that is on
the terminal already, and a slow link pays for it. `ScreenBuffer` keeps one copy of the screen and writes differences.
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

MAX_GAP_CELLS: Final = 6
"""Unchanged cells that are rewritten rather than skipped: a jump costs some eight bytes."""


class Ink(NamedTuple):
    """The style of a cell: `sgr` in full, and `ground`, its part that a space shows."""

    sgr: str
    ground: str


class Cell(NamedTuple):
    """One cell; the second half of a wide character has no glyph."""

    glyph: str
    ink: Ink


NO_INK: Final = Ink("", "")
_FOREGROUNDS: Final = frozenset(map(str, (*range(30, 38), 39, *range(90, 98))))
_GROUNDS: Final = frozenset(map(str, (*range(40, 48), 49, *range(100, 108))))
"""Codes of the sixteen colours, and of the terminal's own."""


class Difference(CompositorUpdate):
    """Text that turns the previous screen into the present one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, _console: Console) -> str:
        return self.text

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield Segment(self.text)


class ScreenBuffer:
    """The screen as it was last written."""

    def __init__(self) -> None:
        self._strips: list[Strip] = []
        self._rows: list[list[Cell]] = []

    def forget(self) -> None:
        """Drop the copy: the next difference is the whole screen."""
        self._strips.clear()
        self._rows.clear()

    def difference(self, strips: Sequence[Strip], console: Console) -> Difference | None:
        """Return the text that makes the terminal show `strips`; None if it shows them already."""
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
                text, ink = _to_text(row[start:end], ink)
                parts += (f"\x1b[{y + 1};{start + 1}H", text)
            self._strips[y], self._rows[y] = strip, row
        if ink.sgr:
            parts.append("\x1b[m")
        return Difference("".join(parts)) if parts else None

    def _start(self, strips: Sequence[Strip]) -> None:
        """Reset to a cleared terminal."""
        self._strips = [Strip([], strip.cell_length) for strip in strips]
        self._rows = [[Cell(" ", NO_INK)] * strip.cell_length for strip in strips]


@lru_cache(maxsize=1024)
def _ink(style: Style | None, system: ColorSystem) -> Ink:
    if style is None:
        return NO_INK
    sgr = Strip.render_ansi(style, system)
    seen_on_spaces = style.reverse or style.underline or style.strike or style.overline or style.underline2
    return Ink(sgr, sgr if seen_on_spaces else Strip.render_ansi(Style(bgcolor=style.bgcolor), system))


class Codes(NamedTuple):
    """The parts of a style's codes."""

    attributes: frozenset[str]
    foreground: str
    ground: str


@lru_cache(maxsize=1024)
def _codes(sgr: str) -> Codes:
    attributes: set[str] = set()
    colours = {"3": "", "4": ""}
    left = iter(sgr.split(";") if sgr else ())
    for code in left:
        if code in ("38", "48"):  # of a palette of 256, or of red, green and blue
            kind = next(left)
            colours[code[0]] = ";".join((code, kind, *(next(left) for _ in range(1 if kind == "5" else 3))))
        elif code in _GROUNDS:
            colours["4"] = code
        elif code in _FOREGROUNDS:
            colours["3"] = code
        else:
            attributes.add(code)
    return Codes(frozenset(attributes), colours["3"], colours["4"])


@lru_cache(maxsize=4096)
def _turn(before: str, after: str) -> str:
    """Return the shortest codes that turn one style into the other: the whole of it after a reset, or what differs."""
    whole = f"0;{after}" if before and after else after
    was, now = _codes(before), _codes(after)
    if not before or not after or not was.attributes <= now.attributes:
        return whole
    differing = sorted(now.attributes - was.attributes)
    differing += [now.foreground or "39"] if now.foreground != was.foreground else []
    differing += [now.ground or "49"] if now.ground != was.ground else []
    return min(";".join(differing), whole, key=len)


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
    """Yield the ranges of `after` to write, as start and end; short gaps between them are included."""
    start = end = -1
    for x, cell in enumerate(after):
        if x < len(before) and _same(before[x], cell):
            continue
        if start >= 0 and x - end > MAX_GAP_CELLS:
            yield start, _past_wide(after, end)
            start = -1
        if start < 0:
            start = x if cell.glyph else max(0, x - 1)
        end = x + 1
    if start >= 0:
        yield start, _past_wide(after, end)


def _past_wide(row: Sequence[Cell], end: int) -> int:
    """Return the end of a range behind a wide character, never inside it."""
    return end + 1 if end < len(row) and not row[end].glyph else end


def _to_text(cells: Sequence[Cell], ink: Ink) -> tuple[str, Ink]:
    """Return the cells as text for a terminal that writes in `ink`, and the ink afterwards."""
    parts: list[str] = []
    for cell in cells:
        if cell.ink.sgr != ink.sgr and not (cell.glyph == " " and cell.ink.ground == ink.ground):
            parts.append(f"\x1b[{_turn(ink.sgr, cell.ink.sgr)}m")
            ink = cell.ink
        parts.append(cell.glyph)
    return "".join(parts), ink

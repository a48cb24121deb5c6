"""Lines of block glyphs for figures over time: bars of one row, stacked charts, a time axis with marks.

Columns are aligned to the time of day, so that a picture stands still and then moves by a whole column: a step between
changes one cell. Unknown is blank, zero is the lowest bar. Each part of a stack has its own glyph beside its colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log10
from typing import Final

from rich.cells import cell_len

from paired_servicebus.core.series.graphs import Curve, Mark
from paired_servicebus.core.text.number_format import BARS
from paired_servicebus.core.text.time_format import clock, written
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.render.spans import RULE, Role, Span

EIGHTHS: Final = len(BARS)
MARK: Final = "▲"
WINDOWS: Final = (120.0, 300.0, 900.0)
"""Seconds of a picture: the first that holds all known figures, so that a third of its width is filled in a minute."""
TICK_SECONDS: Final = 300.0
SHORT_TICK_SECONDS: Final = 60.0
"""Between the times of an axis of the shortest window, and of the others."""
Cell = tuple[str, Role]
EMPTY: Final[Cell] = (" ", Role.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeColumns:
    """The columns of a picture: `number` cells in columns of `cells` and `seconds` each; the newest contains `at`."""

    number: int
    seconds: float
    at: float
    cells: int = 1

    def place(self, at: float) -> int:
        """Return the first cell of the column of a time; negative if it is before the first."""
        return self.number - self.cells * (1 + _index(self.at, self.seconds) - _index(at, self.seconds))

    def begins(self, place: int) -> float:
        """Return the time at which the column of a cell begins."""
        return (_index(self.at, self.seconds) - (self.number - 1 - place) // self.cells) * self.seconds


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stack. The last part of a stack ends in eighths of a cell, so its glyph is the full block."""

    values: Curve
    glyph: str
    role: Role


def time_columns(at: float, window: float, room: int, *, step: float, least: float = 0.0) -> TimeColumns:
    """Return as many columns for `window` seconds as there is room for, each a whole number of steps and of cells.

    least: seconds of a column at least: a picture moves once in that time, which costs bytes.
    """
    steps, first = round(window / step), max(1, round(least / step))
    wide = next((each for each in range(first, steps) if steps % each == 0 and steps // each <= room), steps)
    columns = max(1, steps // wide)
    cells = max(1, room // columns)
    return TimeColumns(number=columns * cells, seconds=wide * step, at=at - step / 2, cells=cells)


def fitting_window(curves: Iterable[Curve], *, step: float, most: float) -> float:
    """Return the seconds of a picture that holds all known figures, `most` at most."""
    known = max((_known(curve) for curve in curves), default=0) * step
    return min(most, next((window for window in WINDOWS if known <= window), most))


def _known(curve: Curve) -> int:
    """Return the number of values from the first known one on."""
    return len(curve) - next((place for place, value in enumerate(curve) if value is not None), len(curve))


def in_columns(curve: Curve, columns: TimeColumns, *, step: float, largest: bool = False) -> Curve:
    """Return one value a cell: the mean of its column's known values, or the largest; None: all are unknown."""
    found: list[list[float]] = [[] for _ in range(columns.number)]
    for age, value in enumerate(reversed(curve)):
        place = columns.place(columns.at - age * step)
        if place < 0:
            break
        if value is not None:
            found[place].append(value)
    values = [(max(known) if largest else sum(known) / len(known)) if known else None for known in found]
    return tuple(values[place - place % columns.cells] for place in range(columns.number))


def round_top(values: Iterable[float | None], *, least: float = 1.0) -> float:
    """Return 1, 2 or 5 times a power of ten, not below any value: a scale that seldom changes."""
    highest = max((value for value in values if value is not None), default=0.0)
    power = least
    while True:
        for factor in (1, 2, 5):
            if power * factor >= highest:
                return power * factor
        power *= 10


def bars(values: Curve, role: Role, *, top: float) -> list[Span]:
    """Return one row of bars; those above zero have the role, and are never the lowest."""
    return spans([_bar(value, role, top) for value in values])


def _bar(value: float | None, role: Role, top: float) -> Cell:
    if value is None:
        return EMPTY
    if value <= 0:
        return BARS[0], Role.MUTED
    return BARS[min(EIGHTHS - 1, max(1, round(value / top * (EIGHTHS - 1))))], role


def stack(parts: Sequence[Part], *, top: float, rows: int) -> list[list[Cell]]:
    """Return the rows of a stacked chart, the upper first. The parts lie on each other, the first at the bottom.

    A part above zero has a cell at least, so that few refused sends among many are seen.
    """
    columns = [_column([part.values[place] for part in parts], parts, top, rows) for place in _places(parts)]
    return [[column[row] for column in columns] for row in range(rows - 1, -1, -1)]


def _places(parts: Sequence[Part]) -> range:
    return range(len(parts[0].values))


def _column(values: Sequence[float | None], parts: Sequence[Part], top: float, rows: int) -> list[Cell]:
    """Return one column, from the bottom."""
    if all(value is None for value in values):
        return [EMPTY] * rows
    heights = [
        _height(value, top, rows, whole=part is not parts[-1]) for value, part in zip(values, parts, strict=True)
    ]
    while sum(heights) > rows * EIGHTHS:  # the least cells of small parts left no room for the largest
        heights[heights.index(max(heights))] -= 1
    cells: list[Cell] = []
    for height, part in zip(heights, parts, strict=True):
        full, rest = divmod(height, EIGHTHS)
        cells += [(part.glyph, part.role)] * full
        if rest:
            cells.append((BARS[rest - 1] if part is parts[-1] else part.glyph, part.role))
    if not cells:
        cells.append((BARS[0], Role.MUTED))
    return (cells + [EMPTY] * rows)[:rows]


def _height(value: float | None, top: float, rows: int, *, whole: bool) -> int:
    """Return the height in eighths of a cell, `whole` cells for all but the last part."""
    if not value or value < 0:
        return 0
    share = min(1.0, value / top)
    return EIGHTHS * max(1, round(share * rows)) if whole else max(1, round(share * rows * EIGHTHS))


def log_scale(curve: Curve, *, top: float) -> Curve:
    """Return values of 1 to `top` as shares of the scale's decades, from 0 to 1; smaller ones are 0."""
    decades = log10(max(top, 10.0))
    return tuple(None if value is None else log10(max(value, 1.0)) / decades for value in curve)


def time_axis(columns: TimeColumns, marks: Sequence[Mark]) -> list[Span]:
    """Return the axis: a mark below each change, labels of the newest as far as there is room, and times."""
    places: dict[int, list[Mark]] = {}
    for mark in marks:
        places.setdefault(columns.place(mark.at), []).append(mark)
    cells: list[Cell] = [(RULE, Role.MUTED)] * columns.number
    shown = sorted((place for place in places if 0 <= place < columns.number), reverse=True)
    for place in shown:
        cells[place] = (MARK, Role.SUSPECT)
    for place in shown:
        _label(cells, place, places[place])
    window = columns.number // columns.cells * columns.seconds
    tick = SHORT_TICK_SECONDS if window <= WINDOWS[0] else TICK_SECONDS
    for place in range(0, columns.number, columns.cells):
        at = columns.begins(place)
        if at % tick < columns.seconds:
            _write(cells, place, written(at - at % tick, "%H:%M"), Role.MUTED, apart=True)
    return spans(cells)


def _label(cells: list[Cell], place: int, marks: Sequence[Mark]) -> None:
    """Write time and change beside a mark, on the right, else on the left; else only one of them, or nothing."""
    at = clock(marks[-1].at)
    what = harmless(marks[-1].what) if len(marks) == 1 else f"{len(marks)} changes"
    for text in (f"{at} {what}", what, at):
        if cell_len(text) == len(text) and (
            _write(cells, place + 1, text, Role.TEXT) or _write(cells, place - len(text), text, Role.TEXT)
        ):
            return


def _write(cells: list[Cell], place: int, text: str, role: Role, *, apart: bool = False) -> bool:
    """Write the text if that part of the axis is free, and no other text is next to it; `apart`: no mark either."""
    ends = place + len(text)
    before, after = cells[max(0, place - 1) : place], cells[ends : ends + 1]
    beside = [glyph for glyph, _ in (*before, *after) if glyph != RULE and (apart or glyph != MARK)]
    if place < 0 or ends > len(cells) or beside or any(glyph != RULE for glyph, _ in cells[place:ends]):
        return False
    cells[place:ends] = [(letter, role) for letter in text]
    return True


def spans(cells: Iterable[Cell]) -> list[Span]:
    """Return the cells with neighbours of one role joined."""
    joined: list[Span] = []
    text, last = "", Role.TEXT
    for glyph, role in cells:
        if role is not last and text:
            joined.append(Span(text, last))
            text = ""
        text, last = text + glyph, role
    return [*joined, Span(text, last)] if text else joined


def _index(at: float, seconds: float) -> int:
    return int(at // seconds)

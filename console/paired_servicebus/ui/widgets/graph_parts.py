"""Figures over time as block glyphs: rows of bars for the last five minutes; on wide screens charts of fifteen.

Columns are aligned to the time of day, so that a picture stands still and then moves by a whole column: a step between
changes one cell. Unknown is blank: the engine did not run, or could not read it; zero is the lowest bar. Each part of a
stack has its own glyph beside its colour. The engine keeps the figures (core.series).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log10
from typing import Final

from rich.cells import cell_len

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import KEPT, MOST_ENTITIES, Curve, Curves, Graphs, Mark
from paired_servicebus.core.text.number_format import (
    BARS,
    NOT_KNOWN,
    count,
    rate,
    short_count,
)
from paired_servicebus.core.text.time_format import clock, written
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.render.spans import (
    RULE,
    Line,
    Role,
    Span,
    cut,
    fit,
    line,
    rule,
)
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.queue_table import backlog_note

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


SHORT_SECONDS: Final = 300.0
GRAPHS_WIDE: Final = 120
"""Columns from which there are charts."""
CHART_SECONDS: Final = 15.0
"""Seconds of a chart's column at least."""
LEAST_CHART: Final = 5
"""Rows of a chart: title, three of bars, axis."""
LEFT_LABEL: Final = 12
RIGHT_LABEL: Final = 9
FIGURE: Final = 8
SCALE: Final = 6
"""Cells for the number at an axis."""
GAP: Final = 2
NONE_YET: Final = "graphs: the first figures come after five seconds"


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of bars: a curve's name on screen, in Curves, its unit and its role."""

    label: str
    name: str
    unit: str
    role: Role


TO_PRIMARY: Final = _Row("to primary", "to_primary", "/s", Role.HEALTHY)
TO_BACKLOG: Final = _Row("to backlog", "to_backlog", "/s", Role.SUSPECT)
REFUSED: Final = _Row("refused", "refused", "/s", Role.FAILED_OVER)
PARKED: Final = _Row("parked", "parked", "", Role.SUSPECT)
P99: Final = _Row("p99 ms", "p99", "", Role.KEY)
MOVED: Final = _Row("moved", "moved", "/s", Role.KEY)
ENGINE_ROWS: Final = ((TO_PRIMARY, PARKED), (TO_BACKLOG, P99), (REFUSED, MOVED))
ENTITY_ROWS: Final = ((TO_PRIMARY, REFUSED), (TO_BACKLOG, P99))
LARGEST: Final = frozenset({"p99", "parked"})
"""Curves of which a column shows the largest value, not the mean."""


class GraphStrip(Lines):
    """The engine's figures over time, under a rule that also reports trouble with a backlog queue."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return charts where there is room, else rows of bars."""
        note = backlog_note(view)
        if view.snapshot is None or view.graphs is None:
            charts = width >= GRAPHS_WIDE and height >= LEAST_CHART  # there the backlog's own strip has the note
            return _absent(_why_absent(view), width, height, None if charts else note)
        found, total = view.graphs, _with_parked_now(view.graphs.total, view.snapshot)
        if width >= GRAPHS_WIDE and height >= LEAST_CHART:
            extra = 1 if height > LEAST_CHART else 0
            drawn = _charts(found, found.total, found.marks, width, height - extra)
            rows = (
                [_graph_row((PARKED, MOVED), found, total, width, _window(found, KEPT * found.step))] if extra else []
            )
            return [*drawn, *rows]
        window = _window(found, SHORT_SECONDS)
        rows = [_graph_row(pair, found, total, width, window) for pair in ENGINE_ROWS[: height - 1]]
        return [rule(_last(window), width, note=note), *rows]


class EntityGraphs(Lines):
    """The selected entity's figures over time."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return charts where there is room, else rows of bars."""
        found = view.graphs
        curves = found.of(view.selected) if found is not None else None
        if found is None or curves is None:
            return _absent(_why_no_entity(view), width, height, None)
        if width >= GRAPHS_WIDE and height >= LEAST_CHART:
            marks = [mark for mark in found.marks if mark.subject.casefold() == view.selected.casefold()]
            return _charts(found, curves, marks, width, height)
        window = _window(found, SHORT_SECONDS)
        rows = [_graph_row(pair, found, curves, width, window) for pair in ENTITY_ROWS]
        return [rule(_last(window), width), *rows] if height > len(rows) else rows


def _window(graphs: Graphs, most: float) -> float:
    """Return the seconds that all pictures of the engine show."""
    total = graphs.total
    return fitting_window((total.to_primary, total.to_backlog, total.parked), step=graphs.step, most=most)


def _last(window: float) -> str:
    return f"last {round(window / 60)} min"


def _with_parked_now(curves: Curves, snapshot: Snapshot) -> Curves:
    """Return the curves whose newest figure of parked messages is that of the rest of the screen."""
    sums = sum_backlog(snapshot)
    if not curves.parked or curves.parked[-1] is None or sums.known < sums.queues:
        return curves
    return replace(curves, parked=(*curves.parked[:-1], float(sums.messages)))


def _why_absent(view: View) -> str:
    return NONE_YET if view.snapshot is not None else ""


def _why_no_entity(view: View) -> str:
    if view.graphs is None or view.entity is None:
        return _why_absent(view)
    if view.graphs.crowded:
        return f"graphs: unknown, this engine keeps those of {MOST_ENTITIES} entities, and not of this one"
    return "graphs: no sends in the last 15 min"


def _absent(why: str, width: int, height: int, note: Span | None) -> Sequence[Line]:
    text = line(Span(fit(f" {why}", width).rstrip(), Role.MUTED))
    return [rule(_last(SHORT_SECONDS), width, note=note), text] if height > 2 else [text]


# -- rows of bars ------------------------------------------------------------------------------------------------------


def _graph_row(pair: tuple[_Row, _Row], graphs: Graphs, curves: Curves, width: int, window: float) -> Line:
    """Return two curves side by side, each with its name and newest figure."""
    room = (width - LEFT_LABEL - RIGHT_LABEL - 2 * FIGURE - 1) // 2
    columns = time_columns(graphs.at, window, room, step=graphs.step)
    left, right = pair
    drawn = [
        *_half(left, LEFT_LABEL, graphs, curves, columns),
        Span(" " * (GAP if width > columns.number * 2 + LEFT_LABEL + RIGHT_LABEL + 2 * FIGURE + GAP else 0)),
        *_half(right, RIGHT_LABEL, graphs, curves, columns),
    ]
    return Line(cut(drawn, width))


def _half(row: _Row, label: int, graphs: Graphs, curves: Curves, columns: TimeColumns) -> list[Span]:
    curve: Curve = getattr(curves, row.name)
    shown = in_columns(curve, columns, step=graphs.step, largest=row.name in LARGEST)
    newest = curve[-1] if curve else None
    return [
        Span(fit(f" {row.label}", label), Role.MUTED),
        *bars(shown, row.role, top=round_top(shown)),
        Span(fit(_figure(newest, row), FIGURE, "right"), Role.TITLE if newest else Role.TEXT),
    ]


def _figure(newest: float | None, row: _Row) -> str:
    if newest is None:
        return "unknown" if row.name == "parked" else NOT_KNOWN
    if row.name == "p99":
        return _milliseconds(newest)
    return short_count(round(newest), FIGURE - 1) if row.name == "parked" else f"{_short_rate(newest)}{row.unit}"


def _short_rate(value: float) -> str:
    return rate(value) if value < 9_999 else short_count(round(value), FIGURE - 3)


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else short_count(round(value), FIGURE - 1)


# -- charts ------------------------------------------------------------------------------------------------------------


def _charts(graphs: Graphs, curves: Curves, marks: Sequence[Mark], width: int, height: int) -> list[Line]:
    """Return title, rows and axis: sends a second on the left, milliseconds of a send on the right."""
    half = (width - GAP) // 2
    window = _window(graphs, KEPT * graphs.step)
    columns = time_columns(graphs.at, window, half - SCALE - 2, step=graphs.step, least=CHART_SECONDS)
    rows = height - 2
    sends, times = _sends(graphs, curves, columns, rows), _times(graphs, curves, columns, rows)
    minutes = round(window / 60)
    axis = time_axis(columns, marks)
    heads = (_send_title(curves, half, minutes), _time_title(curves, width - half - GAP, minutes))
    side = SCALE + 1 + columns.number
    lines = [Line((*heads[0], Span(RULE * GAP, Role.MUTED), *heads[1]))]
    pad = Span(" " * (half + GAP - side))
    for left, right in zip(sends, times, strict=True):
        lines.append(Line(cut([*left, pad, *right], width)))
    corner = Span(" " * SCALE + "└", Role.MUTED)
    lines.append(Line(cut([corner, *axis, pad, corner, *axis], width)))
    return lines


def _send_title(curves: Curves, width: int, minutes: int) -> list[Span]:
    legend = [
        Span("▓", Role.FAILED_OVER),
        Span(f" refused {_newest(curves.refused)}  "),
        Span("▒", Role.SUSPECT),
        Span(f" backlog {_newest(curves.to_backlog)}  "),
        Span("█", Role.HEALTHY),
        Span(f" primary {_newest(curves.to_primary)} "),
    ]
    return _title("sends/s", f", {minutes} min", legend, width)


def _time_title(curves: Curves, width: int, minutes: int) -> list[Span]:
    p50, p99 = (curve[-1] if curve else None for curve in (curves.p50, curves.p99))
    legend = [
        Span("▓", Role.MUTED),
        Span(f" p50 {NOT_KNOWN if p50 is None else _milliseconds(p50)}  "),
        Span("█", Role.KEY),
        Span(f" p99 {NOT_KNOWN if p99 is None else _milliseconds(p99)} "),
    ]
    return _title("send time in ms", f", {minutes} min", legend, width)


def _title(text: str, window: str, legend: list[Span], width: int) -> list[Span]:
    """Return a part of a rule with its name and its legend, in `width` cells; the window where there is room."""
    if sum(span.width for span in legend) + len(text + window) + len("──   ") > width:
        window = ""
    head = [Span(f"{RULE * 2} ", Role.MUTED), Span(f"{text}{window}  ", Role.TITLE), *legend]
    used = sum(span.width for span in head)
    return [*cut(head, width), Span(RULE * max(0, width - used), Role.MUTED)]


def _newest(curve: Curve) -> str:
    return NOT_KNOWN if not curve or curve[-1] is None else _short_rate(curve[-1])


def _sends(graphs: Graphs, curves: Curves, columns: TimeColumns, rows: int) -> list[list[Span]]:
    shown = [
        in_columns(curve, columns, step=graphs.step) for curve in (curves.refused, curves.to_backlog, curves.to_primary)
    ]
    sums = [sum(value or 0.0 for value in values) for values in zip(*shown, strict=True)]
    top = round_top(sums)
    refused, parked, accepted = shown
    parts = (
        Part(refused, "▓", Role.FAILED_OVER),
        Part(parked, "▒", Role.SUSPECT),
        Part(accepted, "█", Role.HEALTHY),
    )
    drawn = stack(parts, top=top, rows=rows)
    return [_scaled(spans(row), place, rows, count(round(top)), "0") for place, row in enumerate(drawn)]


def _times(graphs: Graphs, curves: Curves, columns: TimeColumns, rows: int) -> list[list[Span]]:
    p50 = in_columns(curves.p50, columns, step=graphs.step)
    p99 = in_columns(curves.p99, columns, step=graphs.step, largest=True)
    top = round_top(p99, least=10.0)
    low, high = log_scale(p50, top=top), log_scale(p99, top=top)
    rest = tuple(None if b is None else max(0.0, b - (a or 0.0)) for a, b in zip(low, high, strict=True))
    drawn = stack((Part(low, "▓", Role.MUTED), Part(rest, "█", Role.KEY)), top=1.0, rows=rows)
    return [_scaled(spans(row), place, rows, count(round(top)), "1") for place, row in enumerate(drawn)]


def _scaled(row: list[Span], place: int, rows: int, top: str, bottom: str) -> list[Span]:
    """Return a row with its axis; the upper and the lowest row have the scale's number."""
    number = top if place == 0 else bottom if place == rows - 1 else ""
    return [Span(fit(number, SCALE, "right"), Role.MUTED), Span("┤" if number else "│", Role.MUTED), *row]

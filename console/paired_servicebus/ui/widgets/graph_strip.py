"""Figures over time: rows of bars for the last five minutes; on wide screens charts of the last fifteen.

The engine keeps the figures (core.series). Blank is unknown: the engine did not run, or could not read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import KEPT, MOST_ENTITIES, Curve, Curves, Graphs, Mark
from paired_servicebus.core.text.number_format import NOT_KNOWN, count, rate, short_count
from paired_servicebus.ui.render.charts import (
    Part,
    TimeColumns,
    bars,
    in_columns,
    log_scale,
    round_top,
    spans,
    stack,
    time_axis,
    time_columns,
)
from paired_servicebus.ui.render.spans import BLANK, RULE, Line, Role, Span, cut, fit, line, rule
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.dashboard_parts import backlog_note
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

SHORT_SECONDS: Final = 300.0
WIDE: Final = 120
"""Columns from which there are charts."""
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
        """Return charts where there is room, else rows of bars; always `height` lines."""
        note = backlog_note(view)
        if view.snapshot is None or view.graphs is None:
            charts = width >= WIDE and height >= LEAST_CHART  # there the backlog's own strip has the note
            return _absent(_why_absent(view), width, height, None if charts else note)
        found, total = view.graphs, _with_parked_now(view.graphs.total, view.snapshot)
        if width >= WIDE and height >= LEAST_CHART:
            extra = 1 if height > LEAST_CHART else 0
            drawn = _charts(found, found.total, found.marks, width, height - extra)
            rows = [_row((PARKED, MOVED), found, total, width, KEPT * found.step)] if extra else []
            return [*drawn, *rows]
        rows = [_row(pair, found, total, width, SHORT_SECONDS) for pair in ENGINE_ROWS[: height - 1]]
        return _filled([rule("last 5 min", width, note=note), *rows], height)


class EntityGraphs(Lines):
    """The selected entity's figures over time."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return charts where there is room, else rows of bars; always `height` lines."""
        found = view.graphs
        curves = found.of(view.selected) if found is not None else None
        if found is None or curves is None:
            return _absent(_why_no_entity(view), width, height, None)
        if width >= WIDE and height >= LEAST_CHART:
            marks = [mark for mark in found.marks if mark.subject.casefold() == view.selected.casefold()]
            return _charts(found, curves, marks, width, height)
        rows = [_row(pair, found, curves, width, SHORT_SECONDS) for pair in ENTITY_ROWS]
        return _filled([rule("last 5 min", width), *rows] if height > len(rows) else rows, height)


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
    return _filled([rule("last 5 min", width, note=note), text] if height > 2 else [text], height)


def _filled(lines: Sequence[Line], height: int) -> Sequence[Line]:
    return [*lines[:height], *[BLANK] * (height - len(lines))]


# -- rows of bars ------------------------------------------------------------------------------------------------------


def _row(pair: tuple[_Row, _Row], graphs: Graphs, curves: Curves, width: int, window: float) -> Line:
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
    columns = time_columns(graphs.at, KEPT * graphs.step, half - SCALE - 2, step=graphs.step)
    rows = height - 2
    sends, times = _sends(graphs, curves, columns, rows), _times(graphs, curves, columns, rows)
    minutes = round(KEPT * graphs.step / 60)
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

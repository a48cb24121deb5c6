"""The dashboard beside its entities: the pairing, the backlog queues side by side, the syphon, the newest events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from rich.cells import cell_len

from paired_servicebus.core.backlog.backlog_totals import BacklogTotals, is_old, sum_backlog
from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import FindingVerdict, QueueView, Readiness, Snapshot, SyphonStatus
from paired_servicebus.core.series.graphs import KEPT, MOST_ENTITIES, Curve, Curves, Graphs, Mark
from paired_servicebus.core.text.number_format import NOT_KNOWN, count, duration, plural, rate, short_count, sparkline
from paired_servicebus.core.text.time_format import age, clock, roughly
from paired_servicebus.ui.render.charts import (
    Part,
    TimeColumns,
    bars,
    fitting_window,
    in_columns,
    log_scale,
    round_top,
    spans,
    stack,
    time_axis,
    time_columns,
)
from paired_servicebus.ui.render.spans import (
    BLANK,
    RULE,
    SYPHON_LOOKS,
    Line,
    Role,
    Span,
    cut,
    fit,
    line,
    name_list,
    pack,
    rule,
    shorten,
    spread,
)
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.timeline_list import event_spans, folding

LABEL: Final = 10
CELL: Final = 6
WIDEST_CELL: Final = 11
TOTAL: Final = 9
MARGIN: Final = 1
Draw = Callable[[QueueView, Snapshot, int], Span]
Sum = Callable[[Sequence[QueueView], int], str]


class BacklogStrip(Lines):
    """A rule with the newest trouble and the time of reading, then a table with a column a queue.

    Queues without room for a column are summed up in the last one.
    """

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and `height` - 1 rows."""
        snapshot = view.snapshot
        if snapshot is None:
            return [rule("backlog", width), *[BLANK] * (height - 1)]
        rows = _TALL_ROWS if height > len(_ROWS) + 1 else _ROWS[: height - 1]
        shown, hidden, cell = _columns(snapshot.queues, width)
        table = [_row(row, snapshot, shown, hidden, cell, width) for row in rows]
        return [rule(f"backlog on {snapshot.secondary}", width, note=_note(snapshot, view.now)), *table]


def _columns(queues: Sequence[QueueView], width: int) -> tuple[Sequence[QueueView], Sequence[QueueView], int]:
    """Return the queues with a column, those without, and the columns' width."""
    room = width - LABEL - TOTAL - MARGIN
    fitting = max(1, room // CELL)
    if len(queues) > fitting:
        return queues[: fitting - 1], queues[fitting - 1 :], CELL
    return queues, (), min(WIDEST_CELL, room // max(1, len(queues)))


def backlog_note(view: View) -> Span | None:
    """Return the trouble with backlog queues, for the rule of another part; None: there is none."""
    if view.snapshot is None:
        return None
    note = _note(view.snapshot, view.now)
    return note if note.role is Role.SUSPECT else None


def _note(snapshot: Snapshot, now: float) -> Span:
    """Return the newest trouble with a queue, or the age of the depths."""
    out = [queue for queue in snapshot.queues if not queue.in_rotation]
    sums = sum_backlog(snapshot)
    read = _read(snapshot.queues, sums, now)
    if not out:
        return Span(read, Role.SUSPECT if sums.old else Role.MUTED)
    newest = max(out, key=lambda queue: queue.pulled_since or 0.0)
    which = f"queue {newest.index}" if len(out) == 1 else f"{len(out)} of {len(snapshot.queues)} queues"
    since = f" for {age(now - newest.pulled_since)}" if newest.pulled_since is not None else ""
    before = f"{read} · " if sums.old else ""
    return Span(f"{before}{which} not accepting{since}: {newest.pulled_reason or 'no reason given'}", Role.SUSPECT)


def _read(queues: Sequence[QueueView], sums: BacklogTotals, now: float) -> str:
    """Return the age of old depths; otherwise the interval of reading, which does not tick."""
    if sums.read_at is None:
        return "not read yet"
    slowest = max(queue.read_every for queue in queues)
    return f"read {age(now - sums.read_at)} ago, old" if sums.old else f"read every {duration(slowest)}"


def _row(
    row: tuple[str, Draw, Sum],
    snapshot: Snapshot,
    shown: Sequence[QueueView],
    hidden: Sequence[QueueView],
    cell: int,
    width: int,
) -> Line:
    label, draw, total = row
    spans = [Span(fit(f" {label}", LABEL), Role.MUTED)]
    for queue in shown:
        drawn = draw(queue, snapshot, cell - 1)
        spans.append(Span(fit(drawn.text, cell, "right"), drawn.role))
    if hidden:
        text = f"+{len(hidden)}" if draw is _index else total(hidden, CELL)
        spans.append(Span(fit(text, CELL, "right"), Role.MUTED))
    muted = draw is _index or (draw in _READ and any(is_old(queue, snapshot.at) for queue in snapshot.queues))
    sums = sum_backlog(snapshot)  # the same figure as on other pages
    text = short_count(sums.messages, TOTAL - 1) if draw is _depth and sums.is_known else total(snapshot.queues, TOTAL)
    spans.append(Span(fit(text, TOTAL, "right"), Role.MUTED if muted else Role.TITLE))
    return Line(cut(spans, width))


def _index(queue: QueueView, _snapshot: Snapshot, _width: int) -> Span:
    return Span(str(queue.index), Role.MUTED)


def _depth(queue: QueueView, snapshot: Snapshot, width: int) -> Span:
    number = queue.parked
    if number is None:
        return Span(short_count(None, width), Role.MUTED)
    old = is_old(queue, snapshot.at)
    return Span(short_count(number, width), Role.MUTED if old else Role.TITLE if number else Role.TEXT)


def _dead(queue: QueueView, snapshot: Snapshot, width: int) -> Span:
    role = Role.MUTED if is_old(queue, snapshot.at) else Role.SUSPECT if queue.dead_lettered else Role.TEXT
    return Span(short_count(queue.dead_lettered, width), role)


def _moved(queue: QueueView, _snapshot: Snapshot, width: int) -> Span:
    return Span(short_count(queue.moved, width))


def _accepts(queue: QueueView, _snapshot: Snapshot, _width: int) -> Span:
    return Span("yes") if queue.in_rotation else Span("no", Role.FAILED_OVER)


def _sum_of(value: Callable[[QueueView], int | None]) -> Sum:
    def total(queues: Sequence[QueueView], width: int) -> str:
        known = [number for queue in queues if (number := value(queue)) is not None]
        return short_count(sum(known) if known else None, width - 1)

    return total


def _accepting(queues: Sequence[QueueView], _width: int) -> str:
    return f"{sum(queue.in_rotation for queue in queues)}/{len(queues)}"


_ROWS: Final[tuple[tuple[str, Draw, Sum], ...]] = (
    ("queue", _index, lambda _queues, _width: "all"),
    ("parked", _depth, _sum_of(lambda queue: queue.parked)),
    ("accepts", _accepts, _accepting),
)
_READ: Final = (_depth, _dead)
"""Read from the namespace at intervals: a sum is as old as its oldest figure."""
_TALL_ROWS: Final[tuple[tuple[str, Draw, Sum], ...]] = (
    *_ROWS[:2],
    ("dead", _dead, _sum_of(lambda queue: queue.dead_lettered)),
    ("moved", _moved, _sum_of(lambda queue: queue.moved)),
    _ROWS[2],
)


class PairingLine(Lines):
    """The primary and its secondary on the left, the times on the right."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.snapshot is None:
            return (BLANK,)
        names = [
            Span(" "),
            Span(view.snapshot.primary),
            Span(" backed by ", Role.MUTED),
            *_secondary(view.snapshot.secondary, view.snapshot.readiness, view.now),
        ]
        return (spread(names, [Span(f"{view.snapshot.times} ", Role.MUTED)], width),)


def _secondary(name: str, found: Readiness | None, now: float) -> list[Span]:
    """Return its name between a glyph, which is never cut, and the latest readiness in words, if there is room.

    An engine that is not ready also has an alarm.
    """
    if found is None:  # not checked yet
        return [Span(name)]
    warnings = len(found.of(FindingVerdict.WARN))
    if not found.ready:
        glyph, words, role = "✗", f"not ready, checked {roughly(now - found.at)} ago", Role.FAILED_OVER
    elif warnings:
        glyph, words, role = "!", f"ready, {plural(warnings, 'warning')} (!)", Role.SUSPECT
    else:
        glyph, words, role = "●", "ready", Role.HEALTHY
    return [Span(f"{glyph} ", role), Span(name), Span(f"  {words}", role)]


LONGEST: Final = 60
"""Seconds of history in a snapshot."""


class SyphonLine(Lines):
    """Status, sparkline, rate and moved; its why-line below."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.snapshot is None:
            return (BLANK, BLANK)
        syphon = view.snapshot.syphon
        look = SYPHON_LOOKS[syphon.status]
        bars = max(10, min(LONGEST, width // 4))
        dead = f"  dead-lettered {count(syphon.dead_lettered)}" if syphon.dead_lettered else ""
        spans = [
            Span(fit(" syphon", LABEL), Role.MUTED),
            Span(fit(f"{look.glyph} {syphon.status}", 9), look.role),
            Span("  "),
            Span(sparkline(syphon.history, bars), Role.KEY),
            Span(fit(f"{rate(syphon.per_second)} msg/s", 12, "right")),
            Span("  moved ", Role.MUTED),
            Span(fit(count(syphon.moved), 7), Role.TITLE),
            Span(dead, Role.SUSPECT),
        ]
        held = syphon.paused_parts
        text = _text(view.snapshot, width - LABEL)
        reason = shorten(f"{held}; {text}" if held else text, width - LABEL)
        role = look.role if look.weight else Role.FORCED if held else Role.MUTED
        return (Line(cut(spans, width)), line(" " * LABEL, Span(reason, role)))


def _text(snapshot: Snapshot, width: int) -> str:
    """Return the syphon's text; while it waits, the entities and the number of parked messages."""
    away = [one.path for one in snapshot.entities if one.state in DIVERTING]
    if snapshot.syphon.status is not SyphonStatus.WAITING or not away:
        return snapshot.syphon.text
    waiting = f"{plural(sum_backlog(snapshot).messages, 'message')} parked, waiting for "
    return pack([name_list(away, before=waiting)], width)


SUBJECT: Final = 10
WIDE_SUBJECT: Final = 24
WIDE: Final = 110


class RecentEvents(Lines):
    """A rule, then as many of the newest entries as fit. It fills from the top, then moves up."""

    ages: ClassVar[bool] = False  # an event stays true

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and `height` - 1 entries."""
        room = max(0, height - 1)
        entries = view.events[-room:] if room else ()
        shown = [_line(entry, width) for entry in entries]
        if not shown and room:
            shown = [Line((Span(" nothing happened yet", Role.MUTED),))] if view.snapshot else []
        note = Span(folding(view), Role.MUTED)
        return [rule("what changed", width, note=note), *shown, *[BLANK] * (room - len(shown))]


def _line(entry: LogEntry, width: int) -> Line:
    subject = fit(entry.sentence.subject, WIDE_SUBJECT if width >= WIDE else SUBJECT)
    text = event_spans(entry, width - cell_len(subject) - 12)
    return line(Span(f" {clock(entry.at)} ", Role.MUTED), Span(f"{subject}  "), *text)


# Figures over time: rows of bars for the last five minutes; on wide screens charts of the last fifteen.
#
# The engine keeps the figures (core.series). Blank is unknown: the engine did not run, or could not read it.

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
        """Return charts where there is room, else rows of bars; always `height` lines."""
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
        return _filled([rule(_last(window), width, note=note), *rows], height)


class EntityGraphs(Lines):
    """The selected entity's figures over time."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return charts where there is room, else rows of bars; always `height` lines."""
        found = view.graphs
        curves = found.of(view.selected) if found is not None else None
        if found is None or curves is None:
            return _absent(_why_no_entity(view), width, height, None)
        if width >= GRAPHS_WIDE and height >= LEAST_CHART:
            marks = [mark for mark in found.marks if mark.subject.casefold() == view.selected.casefold()]
            return _charts(found, curves, marks, width, height)
        window = _window(found, SHORT_SECONDS)
        rows = [_graph_row(pair, found, curves, width, window) for pair in ENTITY_ROWS]
        return _filled([rule(_last(window), width), *rows] if height > len(rows) else rows, height)


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
    return _filled([rule(_last(SHORT_SECONDS), width, note=note), text] if height > 2 else [text], height)


def _filled(lines: Sequence[Line], height: int) -> Sequence[Line]:
    return [*lines[:height], *[BLANK] * (height - len(lines))]


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

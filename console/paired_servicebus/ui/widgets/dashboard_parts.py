"""The dashboard beside its entities: the pairing, the backlog queues side by side, the syphon, the newest events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len

from paired_servicebus.core.backlog.backlog_totals import BacklogTotals, is_old, sum_backlog
from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import FindingVerdict, QueueView, Readiness, Snapshot, SyphonStatus
from paired_servicebus.core.text.number_format import count, duration, plural, rate, short_count, sparkline
from paired_servicebus.core.text.time_format import age, clock, roughly
from paired_servicebus.ui.render.spans import (
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
            return [rule("backlog", width)]
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
            return ()
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
            return ()
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
        return [rule("what changed", width, note=note), *shown]


def _line(entry: LogEntry, width: int) -> Line:
    subject = fit(entry.sentence.subject, WIDE_SUBJECT if width >= WIDE else SUBJECT)
    text = event_spans(entry, width - cell_len(subject) - 12)
    return line(Span(f" {clock(entry.at)} ", Role.MUTED), Span(f"{subject}  "), *text)

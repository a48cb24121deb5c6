"""Unused backlog queues: their stranded messages, their age, and their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import stranded_messages
from paired_servicebus.core.model.snapshot import Snapshot, UnusedQueue
from paired_servicebus.core.text.index_ranges import format_indices
from paired_servicebus.core.text.number_format import NOT_KNOWN, count, plural, time_or_day
from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, rule, shorten
from paired_servicebus.ui.state.row_order import unused_queues
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

INDEX: Final = 6


class UnusedTable(Lines):
    """A rule, then a row a queue."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rows that fit, the selected one among them."""
        if view.snapshot is None:
            return [rule("unused queues", width), *[BLANK] * (height - 1)]
        queues, room = unused_queues(view.snapshot), height - 1
        place = next((row for row, queue in enumerate(queues) if queue.path == view.unused), 0) if view.on_unused else 0
        top = max(0, place - room + 1)
        rows = [_row(queue, view, width) for queue in queues[top : top + room]] or [_none(view.snapshot, width)]
        hidden = f" · ↓ {len(queues) - top - room} more" if len(queues) > top + room else ""
        title = f"{len(queues)} unused{hidden}{_stranded(view.snapshot)}" if queues else "unused queues"
        return [rule(title, width, note=_note(view.snapshot, view.now)), *rows, *[BLANK] * (room - len(rows))]


def _stranded(snapshot: Snapshot) -> str:
    counts = stranded_messages(snapshot)
    where = format_indices(list(counts)) if counts else ""
    return f" · {plural(sum(counts.values()), 'message')} stranded in {where}" if counts else ""


def _note(snapshot: Snapshot, now: float) -> Span | None:
    unused = snapshot.unused
    if unused.trouble:
        return Span(f"cannot be listed: {unused.trouble}", Role.SUSPECT)
    if unused.read_at is None:
        return Span("not listed yet", Role.MUTED)
    old = snapshot.at - unused.read_at > 2 * unused.read_every
    return Span(f"listed {age(now - unused.read_at)} ago, old", Role.SUSPECT) if old else None


def _none(snapshot: Snapshot, width: int) -> Line:
    if snapshot.unused.read_at is None or snapshot.unused.trouble:
        return BLANK
    return Line(cut([Span(" none: every backlog queue under the prefix is in use", Role.MUTED)], width))


def _row(queue: UnusedQueue, view: View, width: int) -> Line:
    selected = view.on_unused and queue.path == view.unused
    now = view.snapshot.at if view.snapshot else 0.0
    parts = [
        f"{count(queue.messages)} stranded",
        f"{count(queue.dead_lettered)} dead",
        f"last active {time_or_day(queue.last_active, now) if queue.last_active is not None else NOT_KNOWN}",
        queue.status or "status unknown",
        *queue.differences,
    ]
    text = shorten(" · ".join(parts), width - INDEX - 4)
    role = Role.SUSPECT if queue.messages else Role.TEXT
    spans = (Span("▸" if selected else " ", Role.KEY), Span(f"  {fit(str(queue.index), INDEX)}"), Span(text, role))
    return line(*spans, ground=Role.SELECTED if selected else None)

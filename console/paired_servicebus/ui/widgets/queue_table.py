"""The backlog queues in use, a row each: messages by kind, share of the limit, trend and outlook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import is_old, sum_backlog
from paired_servicebus.core.backlog.depth_readings import Trend, seconds_until, trend
from paired_servicebus.core.model.snapshot import QueueView, Snapshot
from paired_servicebus.core.operator.failover_readiness import FULL_SHARE, share_used
from paired_servicebus.core.text.number_format import NOT_KNOWN, percent, rate, short_count, time_from_now
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import BLANK, Column, Line, Role, Span, columns_in, fit, line, rule
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

INDEX: Final = 3


def outlook(queue: QueueView, now: float) -> str:
    """Return when it is full or empty at this rate; a dash if that is unknown."""
    if queue.depth is None or is_old(queue, now) or trend(queue.growth) is None:
        return NOT_KNOWN
    read_at = queue.read_at or now
    if trend(queue.growth) is Trend.DRAINING:
        number, at = (queue.depth, read_at) if queue.parked is None else (queue.parked, now)
        return f"empty {time_from_now(seconds_until(number, 0, queue.growth), at)}" if number else "empty"
    if trend(queue.growth) is Trend.GROWING and queue.limit_bytes and queue.size_bytes is not None:
        left = seconds_until(queue.size_bytes, queue.limit_bytes, queue.bytes_growth)
        return NOT_KNOWN if left is None else f"full {time_from_now(left, read_at)}"
    return NOT_KNOWN


def _parked(queue: QueueView, _: Snapshot) -> Span:
    number = queue.parked
    return Span(short_count(number, 7), Role.TITLE if number else Role.TEXT)


def _dead(queue: QueueView, _: Snapshot) -> Span:
    return Span(short_count(queue.dead_lettered, 5), Role.SUSPECT if queue.dead_lettered else Role.TEXT)


def _full(queue: QueueView, _: Snapshot) -> Span:
    role = Role.FAILED_OVER if share_used(queue) > FULL_SHARE else Role.TEXT
    return Span(percent(queue.size_bytes, queue.limit_bytes), role)


def _trend(queue: QueueView, _: Snapshot) -> Span:
    word = trend(queue.growth)
    if word is None:
        return Span(NOT_KNOWN)
    per_second = abs(queue.growth or 0.0)
    speed = f" {rate(per_second) if per_second < 1000 else short_count(round(per_second), 4)}/s"
    speed = "" if word is Trend.STEADY else speed
    roles = {Trend.GROWING: Role.SUSPECT, Trend.DRAINING: Role.HEALTHY, Trend.STEADY: Role.TEXT}
    return Span(f"{word}{speed}", roles[word])


def _accepts(queue: QueueView, snapshot: Snapshot) -> Span:
    if queue.index in snapshot.syphon.paused_queues:
        return Span("paused", Role.FORCED)
    return Span("yes") if queue.in_rotation else Span("no", Role.FAILED_OVER)


COLUMNS: Final[tuple[Column[QueueView, Snapshot], ...]] = (
    Column(title="parked", width=7, draw=_parked),
    Column(title="held", width=6, draw=lambda it, _: Span(short_count(it.set_aside, 6)), from_width=70),
    Column(title="sched", width=6, draw=lambda it, _: Span(short_count(it.scheduled, 6)), from_width=90),
    Column(title="dead", width=5, draw=_dead),
    Column(title="used", width=6, draw=_full),
    Column(title="trend", width=14, align="left", draw=_trend),
    Column(
        title="full/empty in", width=14, align="left", draw=lambda it, now: Span(outlook(it, now.at)), from_width=76
    ),
    Column(title="accepts", width=7, align="left", draw=_accepts),
    Column(title="moved", width=10, from_width=100, draw=lambda it, _: Span(short_count(it.moved, 10))),
    Column(
        title="read", width=8, from_width=112, draw=lambda it, _: Span(clock(it.read_at) if it.read_at else NOT_KNOWN)
    ),
)


class QueueHead(Lines):
    """The rule with the sums and their age, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        snapshot = view.snapshot
        if snapshot is None:
            return [rule("backlog", width), BLANK]
        titles = "".join(f"  {fit(column.title, column.width, column.align)}" for column in columns_in(width, COLUMNS))
        return [
            rule(f"backlog on {snapshot.secondary}", width, note=_note(snapshot, view.now)),
            line(Span(f"   {fit('#', INDEX)}{titles}"[:width], Role.MUTED)),
        ]


def _note(snapshot: Snapshot, now: float) -> Span:
    sums = sum_backlog(snapshot)
    if sums.read_at is None:
        least = f" · at least {sums.messages:,} parked" if sums.messages else ""
        return Span(f"not read yet{least}", Role.SUSPECT)
    old = ", old" if sums.old else ""
    text = f"read {age(now - sums.read_at)} ago{old} · {sums.messages:,} parked, {sums.dead_lettered:,} dead-lettered"
    return Span(text, Role.SUSPECT if sums.old else Role.MUTED)


class QueueTable(Lines):
    """The rows, with the selected one in sight."""

    DEFAULT_CSS = "QueueTable { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.snapshot is None:
            return ()
        return [_row(queue, view, view.snapshot, width) for queue in view.snapshot.queues]

    def show(self, view: View) -> None:
        """Show the view, with the selected row in sight."""
        super().show(view)
        names = [str(queue.index) for queue in view.snapshot.queues] if view.snapshot else []
        self.keep_in_sight(names.index(view.queue) if view.queue in names else 0)


def _row(queue: QueueView, view: View, snapshot: Snapshot, width: int) -> Line:
    selected = not view.on_unused and str(queue.index) == view.queue
    old = is_old(queue, snapshot.at)
    spans = [Span("▸" if selected else " ", Role.KEY), Span(f"{'!' if queue.differences else ' '} ", Role.SUSPECT)]
    spans.append(Span(fit(str(queue.index), INDEX), Role.TITLE if selected else Role.TEXT))
    for column in columns_in(width, COLUMNS):
        drawn = column.draw(queue, snapshot)
        aged = old and column.title not in ("accepts", "moved")
        spans.append(Span("  " + fit(drawn.text, column.width, column.align), Role.MUTED if aged else drawn.role))
    return line(*spans, ground=Role.SELECTED if selected else None)

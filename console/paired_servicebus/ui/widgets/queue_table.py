"""The backlog queues in use, a row each: messages by kind, share of the limit, trend and outlook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import FULL_SHARE, is_old, share_used, stranded_messages, sum_backlog
from paired_servicebus.core.backlog.depth_readings import Trend, seconds_until, trend
from paired_servicebus.core.model.snapshot import QueueView, Snapshot, UnusedQueue
from paired_servicebus.core.text.number_format import (
    NOT_KNOWN,
    count,
    format_indices,
    percent,
    plural,
    rate,
    short_count,
    size,
    time_from_now,
    time_or_day,
)
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import (
    BLANK,
    Column,
    Line,
    Role,
    Span,
    columns_in,
    cut,
    fact,
    fit,
    line,
    rule,
    shorten,
)
from paired_servicebus.ui.state.view import View, unused_queues
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

# The selected backlog queue in words: its pump, its sends, its settings, its dead letters.

LABEL: Final = 14
FIXED: Final = 4
"""Lines before the reasons for dead letters, which fill the rest."""


class QueueDetail(Lines):
    """One queue, in a fixed number of lines."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        queues = view.snapshot.queues if view.snapshot else ()
        queue = next((one for one in queues if str(one.index) == view.queue), None)
        if queue is None:
            return [rule("queue", width)]
        used = f"{_oldest(queue, view.now)}{size(queue.size_bytes)} of {size(queue.limit_bytes)}"
        return [
            rule(queue.path, width, note=Span(used, Role.MUTED)),
            _fact("pump", queue.pump_text or "no syphon here", Role.TEXT, width),
            _fact("sends", *_sends(queue, view.now), width),
            _fact("settings", *_settings(queue), width),
            *_dead_letters(queue, width, height - FIXED, view.now),
        ]


def _fact(label: str, text: str, role: Role, width: int) -> Line:
    return fact(label, shorten(text, width - LABEL), LABEL, width, role)


def _sends(queue: QueueView, now: float) -> tuple[str, Role]:
    if queue.in_rotation:
        return "accepted", Role.TEXT
    since = f" for {age(now - queue.pulled_since)}" if queue.pulled_since is not None else ""
    return (
        f"not accepted{since}: {queue.pulled_reason or 'no reason given'}; again after a probe succeeds",
        Role.FAILED_OVER,
    )


def _settings(queue: QueueView) -> tuple[str, Role]:
    if not queue.differences:
        return "default", Role.TEXT
    return f"changed by owner: {'; '.join(queue.differences)}", Role.SUSPECT


def _oldest(queue: QueueView, now: float) -> str:
    """Return the age of the first message, by a peek; empty if the queue is."""
    oldest = queue.oldest
    if not queue.depth or (oldest.enqueued_at is None and not oldest.trouble):
        return ""
    if oldest.enqueued_at is None or oldest.read_at is None:
        return f"oldest unknown: {oldest.trouble} · "
    failed = f", then {oldest.trouble}" if oldest.trouble else ""
    return f"oldest waits {age(now - oldest.enqueued_at)}{failed} · "


def _dead_letters(queue: QueueView, width: int, rows: int, now: float) -> list[Line]:
    """Return the number of dead letters, then their reasons, a line each if there is room.

    The reasons are of the peeked dead letters; before the first peek, of those of this engine.
    """
    dead = queue.dead_lettered
    where, reasons = _reasons(queue, now)
    if not dead:
        shown = [_fact("dead letters", "not read yet" if dead is None else "none", Role.TEXT, width)]
    elif not reasons:
        shown = [_fact("dead letters", f"{count(dead)}; {where}", Role.SUSPECT, width)]
    elif rows == 1:
        why, number = reasons[0]
        more = f" (and {plural(len(reasons) - 1, 'more reason')})" if reasons[1:] else ""
        shown = [_fact("dead letters", f"{count(dead)}; {where}: {number:,} × {why}{more}", Role.SUSPECT, width)]
    else:
        shown = [_fact("dead letters", f"{count(dead)}; {where}:", Role.SUSPECT, width)]
        shown += [_fact("", f"{number:>8,} × {why}", Role.TEXT, width) for why, number in reasons[: rows - 1]]
    return shown


def _reasons(queue: QueueView, now: float) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the scope of the known reasons, and the reasons."""
    peeked = queue.dead_letters
    failed = f"peek failed ({peeked.trouble})" if peeked.trouble else ""
    if peeked.read_at is None:
        own = "by this engine since it started" if queue.dead_reasons else "their reasons are in the queue"
        return ", ".join(filter(None, (failed, own))), queue.dead_reasons
    if not peeked.looked_at:
        return f"a peek {age(now - peeked.read_at)} ago saw none", ()
    part = f"sample of {peeked.looked_at:,}, " if peeked.looked_at < (queue.dead_lettered or 0) else ""
    return f"{part}read {age(now - peeked.read_at)} ago{f', then {failed}' if failed else ''}", peeked.reasons


# Unused backlog queues: their stranded messages, their age, and their differences.

UNUSED_INDEX: Final = 6


class UnusedTable(Lines):
    """A rule, then a row a queue."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rows that fit, the selected one among them."""
        if view.snapshot is None:
            return [rule("unused queues", width)]
        queues, room = unused_queues(view.snapshot), height - 1
        place = next((row for row, queue in enumerate(queues) if queue.path == view.unused), 0) if view.on_unused else 0
        top = max(0, place - room + 1)
        rows = [_unused_row(queue, view, width) for queue in queues[top : top + room]] or [_none(view.snapshot, width)]
        hidden = f" · ↓ {len(queues) - top - room} more" if len(queues) > top + room else ""
        title = f"{len(queues)} unused{hidden}{_stranded(view.snapshot)}" if queues else "unused queues"
        return [rule(title, width, note=_unused_note(view.snapshot, view.now)), *rows]


def _stranded(snapshot: Snapshot) -> str:
    counts = stranded_messages(snapshot.unused)
    where = format_indices(list(counts)) if counts else ""
    return f" · {plural(sum(counts.values()), 'message')} stranded in {where}" if counts else ""


def _unused_note(snapshot: Snapshot, now: float) -> Span | None:
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


def _unused_row(queue: UnusedQueue, view: View, width: int) -> Line:
    selected = view.on_unused and queue.path == view.unused
    now = view.snapshot.at if view.snapshot else 0.0
    parts = [
        f"{count(queue.messages)} stranded",
        f"{count(queue.dead_lettered)} dead",
        f"last active {time_or_day(queue.last_active, now) if queue.last_active is not None else NOT_KNOWN}",
        queue.status or "status unknown",
        *queue.differences,
    ]
    text = shorten(" · ".join(parts), width - UNUSED_INDEX - 4)
    role = Role.SUSPECT if queue.messages else Role.TEXT
    spans = (
        Span("▸" if selected else " ", Role.KEY),
        Span(f"  {fit(str(queue.index), UNUSED_INDEX)}"),
        Span(text, role),
    )
    return line(*spans, ground=Role.SELECTED if selected else None)


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
            return [rule("backlog", width)]
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

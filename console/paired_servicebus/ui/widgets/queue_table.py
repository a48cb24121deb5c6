"""The backlog: parked messages by destination, the queues in use, a row each, the selected one, and the unused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from paired_servicebus.core.backlog.backlog_totals import (
    FULL_SHARE,
    is_old,
    oldest_for,
    share_used,
    stranded_messages,
    sum_backlog,
)
from paired_servicebus.core.backlog.depth_readings import LONGEST_ESTIMATE, Trend, seconds_until, trend
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.pairing_fold import pairing_of
from paired_servicebus.core.model.snapshot import QueueView, Snapshot, SyphonStatus, UnusedQueue
from paired_servicebus.core.text.number_format import (
    NOT_KNOWN,
    count,
    format_indices,
    percent,
    plural,
    rate,
    short_count,
    size,
    sparkline,
    time_from_now,
    time_or_day,
)
from paired_servicebus.core.text.time_format import age, clock, roughly
from paired_servicebus.ui.render.spans import (
    BLANK,
    LOOKS,
    SYPHON_LOOKS,
    Column,
    Line,
    Role,
    Span,
    columns_in,
    cut,
    fact,
    fit,
    fit_name,
    line,
    name_list,
    pack,
    rule,
    shorten,
)
from paired_servicebus.ui.state.summary import parked_text
from paired_servicebus.ui.state.view import Page, View, unused_queues
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

# The parked messages by destination: what the syphons of all engines hold back for each, as the fold has it.
#
# A syphon learns a message's destination when it receives the message; what none has received is of all destinations.


class Parked(NamedTuple):
    """What is parked for one destination. held: None, no syphon has met a message for it."""

    path: str
    held: int | None
    state: State | None = None
    moved: int = 0


def parked_by_destination(snapshot: Snapshot) -> list[Parked]:
    """Return the destinations with parked messages, or of which sends are diverted, the most messages first."""
    here = {one.path.casefold(): one for one in snapshot.syphon.destinations}
    known = {one.path.casefold(): one for one in pairing_of(snapshot).entities}
    found = [
        Parked(one.path, one.total.held_back, one.state, here[key].moved if key in here else 0)
        for key, one in known.items()
        if one.total.held_back or one.state in DIVERTING
    ]
    found += [Parked(one.path, one.set_aside, None, one.moved) for key, one in here.items() if key not in known]
    return sorted((one for one in found if one.held or one.state), key=lambda one: (-(one.held or 0), one.path))


class DestinationTable(Lines):
    """A rule with the trouble of the backlog, or its sum; then a row a destination."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and `height` - 1 rows; the last one counts those without room."""
        snapshot = view.snapshot
        if snapshot is None:
            return [rule("parked", width)]
        found, sums = parked_by_destination(snapshot), sum_backlog(snapshot)
        rest = sums.messages - sum(one.held or 0 for one in found) if sums.is_known else None
        rows = [_destination(one, rest, snapshot, width, view.now) for one in found]
        if not found or (rest and rest > 0 and not any(one.state in DIVERTING for one in found)):
            text = "nothing is parked" if rest == 0 else f"{count(rest)} for destinations that no syphon has met yet"
            rows.append(line(Span(f" {text if rest is not None else 'unknown: no depth was read'}", Role.MUTED)))
        if len(rows) > height - 1:
            hidden = len(rows) - (height - 2)
            rows[max(0, height - 2) :] = [line(Span(f" and {hidden} more", Role.MUTED))]
        trouble = _trouble(snapshot, view.now) if view.page is Page.PAIRING else None  # page 3 has it in its rows
        return [rule("parked by destination", width, note=trouble or parked_text(snapshot, view.now)), *rows]


def _destination(one: Parked, rest: int | None, snapshot: Snapshot, width: int, now: float) -> Line:
    oldest, is_exact = oldest_for(snapshot, one.path)
    part = "an unknown number" if rest is None else "part of all"  # the sum is in the rule: rows at rest cost nothing
    bound = "at least" if rest is None or rest > 0 else "at most"
    number = count(one.held) if rest == 0 else f"{bound} {one.held:,}" if one.held else part
    waits = "" if oldest is None else f"oldest {'' if is_exact else 'at least '}{roughly(now - oldest)}"
    paused = one.path in snapshot.syphon.paused_destinations
    look = LOOKS[one.state] if one.state is not None else None
    spans = [
        Span(f" {look.glyph} " if look else "   ", look.role if look else Role.TEXT),
        Span(fit_name(one.path, NAME if width >= WIDE else NARROW_NAME), Role.TEXT),
        Span(f"  {fit(number, NUMBER)}", Role.TITLE),
        Span(f"  {waits}"),
        Span("  paused" if paused else "", Role.FORCED),
        Span(f"  {count(one.moved)} moved here" if one.moved and width >= WIDE else "", Role.MUTED),
    ]
    return Line(cut(spans, width))


NAME: Final = 32
NARROW_NAME: Final = 20
WIDE: Final = 100
NUMBER: Final = 17


def backlog_note(view: View) -> Span | None:
    """Return the trouble with backlog queues, for the rule of another part; None: there is none."""
    return _trouble(view.snapshot, view.now) if view.snapshot is not None else None


def _trouble(snapshot: Snapshot, now: float) -> Span | None:
    """Return the newest trouble with a queue in use, or that the depths are old or unknown."""
    out = [queue for queue in snapshot.queues if not queue.in_rotation]
    read = _note(snapshot, now)
    if not out:
        return read if read.role is Role.SUSPECT else None
    newest = max(out, key=lambda queue: queue.pulled_since or 0.0)
    many = f"all {len(out)}" if len(out) == len(snapshot.queues) else f"{len(out)} of {len(snapshot.queues)}"
    which = f"queue {newest.index}" if len(out) == 1 else f"{many} queues"
    since = f" since {time_or_day(newest.pulled_since, now)}" if newest.pulled_since is not None else ""
    before = f"{read.text} · " if read.role is Role.SUSPECT else ""
    return Span(f"{before}{which} not accepting{since}: {newest.pulled_reason or 'no reason given'}", Role.SUSPECT)


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
        limit = f" of {size(queue.limit_bytes)}" if queue.limit_bytes else ""
        used = f"{_oldest(queue, view.now)}{size(queue.size_bytes)}{limit}"
        return [
            rule(queue.path, width, note=used),
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
    listed = f"listed {roughly(now - unused.read_at)} ago"
    return Span(f"{listed}, old", Role.SUSPECT) if old else Span(listed, Role.MUTED)


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
        if left is None or left > LONGEST_ESTIMATE:
            return NOT_KNOWN if left is None else "full >7 days"
        return f"full {time_from_now(left, read_at)}"
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


C = Column
COLUMNS: Final[tuple[Column[QueueView, Snapshot], ...]] = (
    C(title="parked", width=7, draw=_parked),
    C(title="held", width=6, draw=lambda it, _: Span(short_count(it.set_aside, 6)), from_width=70),
    C(title="sched", width=6, draw=lambda it, _: Span(short_count(it.scheduled, 6)), from_width=90),
    C(title="dead", width=5, draw=_dead),
    C(title="used", width=6, draw=_full),
    C(title="trend", width=14, align="left", draw=_trend),
    C(title="full/empty in", width=14, align="left", draw=lambda it, now: Span(outlook(it, now.at)), from_width=76),
    C(title="accepts", width=7, align="left", draw=_accepts),
    C(title="moved", width=10, from_width=100, draw=lambda it, _: Span(short_count(it.moved, 10))),
    C(title="read", width=8, from_width=112, draw=lambda it, _: Span(clock(it.read_at) if it.read_at else NOT_KNOWN)),
)


class QueueHead(Lines):
    """The rule with the sums and their age, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        snapshot = view.snapshot
        if snapshot is None:
            return [rule("backlog", width)]
        titles = "".join(f"  {fit(column.title, column.width, column.align)}" for column in columns_in(width, COLUMNS))
        title = f"{plural(len(snapshot.queues), 'queue')} on {snapshot.secondary}"
        heads = line(Span(f"   {fit('#', INDEX)}{titles}"[:width], Role.MUTED))
        return [rule(title, width, note=_note(snapshot, view.now)), heads]


def _note(snapshot: Snapshot, now: float) -> Span:
    sums = sum_backlog(snapshot)
    if sums.read_at is None:
        least = f" · at least {sums.messages:,} parked" if sums.messages else ""
        return Span(f"not read yet{least}", Role.SUSPECT)
    old = ", old" if sums.old else ""
    text = f"read {time_or_day(sums.read_at, now)}{old} · {sums.dead_lettered:,} dead-lettered"
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


# The syphon, which empties the queues.

SYPHON_LABEL: Final = 10
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
            Span(fit(" syphon", SYPHON_LABEL), Role.MUTED),
            Span(fit(f"{look.glyph} {syphon.status}", 9), look.role),
            Span("  "),
            Span(sparkline(syphon.history, bars), Role.KEY),
            Span(fit(f"{rate(syphon.per_second)} msg/s", 12, "right")),
            Span("  moved ", Role.MUTED),
            Span(count(syphon.moved), Role.TITLE),
            Span(dead, Role.SUSPECT),
        ]
        held = syphon.paused_parts
        text = _syphon_text(view.snapshot, width - SYPHON_LABEL)
        reason = shorten(f"{held}; {text}" if held else text, width - SYPHON_LABEL)
        role = look.role if look.weight else Role.FORCED if held else Role.MUTED
        return (Line(cut(spans, width)), line(" " * SYPHON_LABEL, Span(reason, role)))


def _syphon_text(snapshot: Snapshot, width: int) -> str:
    """Return the syphon's text; while it waits, the entities and the number of parked messages."""
    away = [one.path for one in snapshot.entities if one.state in DIVERTING]
    if snapshot.syphon.status is not SyphonStatus.WAITING or not away:
        return snapshot.syphon.text
    waiting = f"{plural(sum_backlog(snapshot).messages, 'message')} parked, waiting for "
    return pack([name_list(away, before=waiting)], width)

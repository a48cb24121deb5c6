"""The selected backlog queue in words: its pump, its sends, its settings, its dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.snapshot import QueueView
from paired_servicebus.core.text.number_format import count, plural, size
from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, line, rule, shorten
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 14
FIXED: Final = 4
"""Lines before the reasons for dead letters, which fill the rest."""


class QueueDetail(Lines):
    """One queue, in a fixed number of lines."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        queues = view.snapshot.queues if view.snapshot else ()
        queue = next((one for one in queues if str(one.index) == view.queue), None)
        if queue is None:
            return [rule("queue", width), *[BLANK] * (height - 1)]
        used = f"{_oldest(queue, view.now)}{size(queue.size_bytes)} of {size(queue.limit_bytes)}"
        shown = [
            rule(queue.path, width, note=Span(used, Role.MUTED)),
            _fact("pump", queue.pump_text or "no syphon here", Role.TEXT, width),
            _fact("sends", *_sends(queue, view.now), width),
            _fact("settings", *_settings(queue), width),
            *_dead(queue, width, height - FIXED, view.now),
        ]
        return shown[:height]


def _fact(label: str, text: str, role: Role, width: int) -> Line:
    spans = [Span(f" {label:<{LABEL - 1}}", Role.MUTED), Span(shorten(text, width - LABEL), role)]
    return Line(cut(spans, width))


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


def _dead(queue: QueueView, width: int, rows: int, now: float) -> list[Line]:
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
    return [*shown, *[line()] * (rows - len(shown))]


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

"""The syphon: its status, its rate over the last minute, the moved messages, and its why-line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.text.number_format import count, plural, rate, sparkline
from paired_servicebus.ui.render.packing import name_list, pack
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, shorten
from paired_servicebus.ui.render.state_looks import SYPHON_LOOKS
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.backlog_strip import LABEL
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

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

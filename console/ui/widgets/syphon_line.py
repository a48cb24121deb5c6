"""The syphon: what it does, how fast over the last minute, how much it moved, and in its own words why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from console.ui.figures import count, rate, sparkline
from console.ui.line import BLANK, Line, Role, Span, cut, fit, line, shorten
from console.ui.states import SYPHON_LOOKS
from console.ui.view import View
from console.ui.widgets.backlog_strip import LABEL
from console.ui.widgets.lines import Lines

LONGEST: Final = 60
"""Seconds of history that a snapshot carries."""


class SyphonLine(Lines):
    """Status, sparkline, rate and moved; its why-line below."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Two lines."""
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
        reason = shorten(f"{held}; {syphon.text}" if held else syphon.text, width - LABEL)
        role = look.role if look.weight else Role.FORCED if held else Role.MUTED
        return (Line(cut(spans, width)), line(" " * LABEL, Span(reason, role)))

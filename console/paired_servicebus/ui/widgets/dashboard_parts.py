"""The dashboard beside its entities: the pairing, the syphon, the newest events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import FindingVerdict, Readiness, Snapshot, SyphonStatus
from paired_servicebus.core.text.number_format import count, plural, rate, sparkline
from paired_servicebus.core.text.time_format import clock, roughly
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
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.timeline_list import event_line, folding

LABEL: Final = 10


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
            Span(count(syphon.moved), Role.TITLE),
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


class RecentEvents(Lines):
    """A rule, then as many of the newest entries as fit. It fills from the top, then moves up."""

    ages: ClassVar[bool] = False  # an event stays true

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and `height` - 1 entries."""
        room = max(0, height - 1)
        entries = view.events[-room:] if room else ()
        shown = [event_line(entry, f" {clock(entry.at)}", view, width) for entry in entries]
        if not shown and room:
            shown = [Line((Span(" nothing happened yet", Role.MUTED),))] if view.snapshot else []
        note = Span(folding(view), Role.MUTED)
        return [rule("what changed", width, note=note), *shown]

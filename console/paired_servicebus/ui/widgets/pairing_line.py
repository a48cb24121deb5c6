"""The two namespaces, the readiness for a failover, and the times in force."""

from __future__ import annotations

from collections.abc import Sequence

from paired_servicebus.core.model.snapshot import FindingVerdict, Readiness
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, spread
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines


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
        glyph, words, role = "✗", f"not ready, checked {age(now - found.at)} ago", Role.FAILED_OVER
    elif warnings:
        glyph, words, role = "!", f"ready, {plural(warnings, 'warning')}", Role.SUSPECT
    else:
        glyph, words, role = "●", "ready", Role.HEALTHY
    return [Span(f"{glyph} ", role), Span(name), Span(f"  {words}", role)]

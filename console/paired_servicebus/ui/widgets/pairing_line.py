"""Which two namespaces, whether the second would take over now, and the times in force: what the clock times on the
screen are to be judged by.
"""

from __future__ import annotations

from collections.abc import Sequence

from paired_servicebus.core.model.snapshot import FindingVerdict, Readiness
from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.render.number_format import plural
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, spread
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines


class PairingLine(Lines):
    """The primary and its secondary on the left, the times on the right."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """One line."""
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
    """Its name, and what the engine's latest look found: a glyph before it, which is never cut, and words after it
    where there is room. What is not ready stands in the alarms, too."""
    if found is None:  # not looked yet
        return [Span(name)]
    warnings = len(found.of(FindingVerdict.WARN))
    if not found.ready:
        glyph, words, role = "✗", f"not ready, looked at {age(now - found.at)} ago", Role.FAILED_OVER
    elif warnings:
        glyph, words, role = "!", f"ready, {plural(warnings, 'warning')}", Role.SUSPECT
    else:
        glyph, words, role = "●", "ready", Role.HEALTHY
    return [Span(f"{glyph} ", role), Span(name), Span(f"  {words}", role)]

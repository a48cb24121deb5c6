"""The newest events, newest last: clock time, subject, sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.cells import cell_len

from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, fit, line, rule, shorten
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

SUBJECT: Final = 10
WIDE_SUBJECT: Final = 24
WIDE: Final = 110


class RecentEvents(Lines):
    """A rule, then as many of the newest entries as fit. It fills from the top, then moves up."""

    ages: ClassVar[bool] = False  # an event stays true

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and `height` - 1 entries."""
        room = max(0, height - 1)
        entries = view.log[-room:] if room else ()
        shown = [_line(entry, width) for entry in entries]
        if not shown and room:
            shown = [Line((Span(" nothing happened yet", Role.MUTED),))] if view.snapshot else []
        return [rule("events", width), *shown, *[BLANK] * (room - len(shown))]


def _line(entry: LogEntry, width: int) -> Line:
    subject = fit(entry.sentence.subject, WIDE_SUBJECT if width >= WIDE else SUBJECT)
    text = shorten(entry.text, width - cell_len(subject) - 12)
    return line(Span(f" {clock(entry.at)} ", Role.MUTED), Span(f"{subject}  "), Span(text, entry.role))

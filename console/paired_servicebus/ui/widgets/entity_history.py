"""The events of one entity, newest last, with its why-lines in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from paired_servicebus.core.model.pairing_events import StateChanged
from paired_servicebus.core.text.number_format import time_or_day
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, line, rule, wrap
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

CLOCK: Final = 10
MAX_LINES: Final = 3
"""Lines of a why-line; other entries have one."""


class EntityHistory(Lines):
    """A rule, then as many of the newest entries as fit."""

    ages: ClassVar[bool] = False  # an event stays true

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and the entries, from the top."""
        room = max(0, height - 1)
        shown = _newest(view, width, room)
        if not shown and view.snapshot is not None:
            shown = [line(Span(" no events of this entity yet", Role.MUTED))][:room]
        return [rule("history", width), *shown, *[BLANK] * (room - len(shown))]


def _newest(view: View, width: int, room: int) -> list[Line]:
    path, shown = view.selected.casefold(), list[Line]()
    for entry in reversed(view.log):
        if entry.sentence.subject.casefold() != path:
            continue
        shown[:0] = _lines(entry, width, view.snapshot.at if view.snapshot else entry.at)
        if len(shown) >= room:
            return shown[len(shown) - room :]
    return shown


def _lines(entry: LogEntry, width: int, now: float) -> list[Line]:
    most = MAX_LINES if entry.kind == StateChanged.kind else 1
    parts = [part for part in wrap(entry.text, width - CLOCK - 1, lines=most) if part]
    first = line(
        Span(f" {time_or_day(entry.at, now):<{CLOCK - 1}}", Role.MUTED), Span(parts[0] if parts else "", entry.role)
    )
    return [first, *[line(" " * CLOCK, Span(part, entry.role)) for part in parts[1:]]]

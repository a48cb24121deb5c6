"""The timeline: every event of the engine, a line each, drawn on demand; the selected one in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events

from paired_servicebus.core.text.number_format import DAY, plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, fit, line, rule, shorten, wrap
from paired_servicebus.ui.state import timeline_reader
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import LazyLines, Lines

SUBJECT: Final = 12
WIDE_SUBJECT: Final = 28
WIDE: Final = 110
TIME: Final = 12


class TimelineHead(Lines):
    """The rule: the number of events, the filter, and whether the newest is followed."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        shown = timeline_reader.entries(view.log, view.timeline_position.filter)
        title = plural(len(view.log), "event")
        if view.timeline_position.filter:
            title = f"{len(shown):,} of {title} with “{view.timeline_position.filter}”"
        note = "newest followed" if view.timeline_position.cursor is None else "paused: end follows the newest"
        return (rule(title, width, note=Span(note, Role.MUTED)),)


class TimelineList(Lines):
    """The rows; the selected one is in sight, at the bottom while the newest is followed."""

    ages: ClassVar[bool] = False  # an event stays true
    DEFAULT_CSS = "TimelineList { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return a row an event, drawn on demand."""
        return TimelineRows(view, width)

    def show(self, view: View) -> None:
        """Show the view, with the selected event in sight."""
        super().show(view)
        self._keep_in_sight()

    def on_resize(self, _event: events.Resize) -> None:
        """Keep the selected event in sight from the first paint on."""
        self.call_after_refresh(self._keep_in_sight)

    def _keep_in_sight(self) -> None:
        if isinstance(self._lines, TimelineRows):
            self.keep_in_sight(self._lines.place)


class TimelineRows(LazyLines):
    """The lines of the list, computed on demand."""

    def __init__(self, view: View, width: int) -> None:
        self._entries = timeline_reader.entries(view.log, view.timeline_position.filter)
        self.place = timeline_reader.place_of(self._entries, view.timeline_position.cursor)
        self._now = view.snapshot.at if view.snapshot else view.log[-1].at if view.log else 0.0
        self._width = width

    def __len__(self) -> int:
        return len(self._entries)

    def line_at(self, place: int) -> Line:
        return _row(self._entries[place], self._now, self._width, selected=place == self.place)


def _row(entry: LogEntry, now: float, width: int, *, selected: bool) -> Line:
    subject = fit(entry.sentence.subject, WIDE_SUBJECT if width >= WIDE else SUBJECT)
    pointer, at = Span("▸" if selected else " ", Role.KEY), fit(_when(entry.at, now), TIME)
    text = shorten(entry.text, width - cell_len(subject) - TIME - 4)
    ground = Role.SELECTED if selected else None
    return line(pointer, Span(f"{at} ", Role.MUTED), Span(f"{subject}  "), Span(text, entry.role), ground=ground)


def _when(at: float, now: float) -> str:
    """Return a clock time, with the day if it is not today."""
    if abs(now - at) < DAY / 2:
        return clock(at)
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M")


class EventInFull(Lines):
    """The selected event, wrapped, with day, time and its number in the engine's history."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        shown = timeline_reader.entries(view.log, view.timeline_position.filter)
        place = timeline_reader.place_of(shown, view.timeline_position.cursor)
        if place < 0:
            text = "no event has these words" if view.timeline_position.filter else "nothing happened yet"
            return [rule("event", width), line(Span(f" {text}", Role.MUTED)), *[BLANK] * (height - 2)]
        entry = shown[place]
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        number = f" · number {entry.place[1]:,} of boot {entry.place[0]}" if entry.place else ""
        sentence = wrap(f"{entry.sentence.subject} {entry.text}", width - 2, lines=height - 1)
        note = Span(f"{entry.kind or 'console'}{number}", Role.MUTED)
        return [rule(f"{at} UTC", width, note=note), *[line(" ", Span(text, entry.role)) for text in sentence]]

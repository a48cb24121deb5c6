"""The timeline: every event of the engine, a line each, drawn on demand; the selected one in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events

from paired_servicebus.core.text.number_format import DAY, plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID
from paired_servicebus.ui.render.spans import Line, Role, Span, fit, line, rule, shorten, wrap
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.log_entries import LogEntry, Pings, ping_counts
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
        shown = selection.entries(view.events, view.timeline_position.filter)
        events = plural(len(view.events), "event")
        title = f"{events}, {folding(view)}"
        if view.timeline_position.filter:
            title = f"{len(shown):,} of {events} with “{view.timeline_position.filter}”"
        note = "live" if view.timeline_position.cursor is None else "paused; end is live again"
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


def folding(view: View) -> str:
    """Return whether pings are folded, and the key that changes it."""
    key = CONSOLE_BY_ID["pings"].key(view.keys)
    return f"{key} folds the pings" if view.each_ping else f"pings folded; {key} shows each"


def event_spans(entry: LogEntry, room: int) -> list[Span]:
    """Return an entry's text and its pings in `room` cells."""
    if entry.pings is None:
        return [Span(shorten(entry.brief, room), entry.role)]
    tails, whole = _ping_tails(entry.pings), cell_len(harmless(entry.brief)) + 2
    tail = next((text for text in tails if whole + cell_len(text) <= room), tails[-1])
    text = shorten(entry.brief, room - cell_len(tail) - 2)
    return [Span(text, entry.role), Span(f"  {tail}", Role.MUTED if entry.pings.over else Role.TEXT)]


def _ping_tails(pings: Pings) -> tuple[str, ...]:
    """Return the folded pings in shorter and shorter wordings; the time of the last, if its state has not ended."""
    counts = ping_counts(pings)
    if pings.over:
        return (f"then {counts}", counts)
    return (f"then {counts}, last {clock(pings.last_at)}", f"then {counts}", counts)


class TimelineRows(LazyLines):
    """The lines of the list, computed on demand."""

    def __init__(self, view: View, width: int) -> None:
        self._entries = selection.entries(view.events, view.timeline_position.filter)
        self.place = selection.place_of(self._entries, view.timeline_position.cursor)
        self._now = view.snapshot.at if view.snapshot else view.events[-1].at if view.events else 0.0
        self._width = width

    def __len__(self) -> int:
        return len(self._entries)

    def line_at(self, place: int) -> Line:
        entry = self._entries[place]
        return _row(entry, self._now, self._width, selected=place == self.place)


def _row(entry: LogEntry, now: float, width: int, *, selected: bool) -> Line:
    subject = fit(entry.sentence.subject, WIDE_SUBJECT if width >= WIDE else SUBJECT)
    pointer, at = Span("▸" if selected else " ", Role.KEY), fit(_when(entry.at, now), TIME)
    text = event_spans(entry, width - cell_len(subject) - TIME - 4)
    ground = Role.SELECTED if selected else None
    return line(pointer, Span(f"{at} ", Role.MUTED), Span(f"{subject}  "), *text, ground=ground)


def _when(at: float, now: float) -> str:
    """Return a clock time, with the day if it is not today."""
    if abs(now - at) < DAY / 2:
        return clock(at)
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M")


class EventInFull(Lines):
    """The selected event, wrapped, with day and time."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        shown = selection.entries(view.events, view.timeline_position.filter)
        place = selection.place_of(shown, view.timeline_position.cursor)
        if place < 0:
            text = "no event has these words" if view.timeline_position.filter else "nothing happened yet"
            return [rule("event", width), line(Span(f" {text}", Role.MUTED))]
        entry = shown[place]
        at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        sentence = wrap(f"{entry.sentence.subject} {entry.text}", width - 2, lines=height - 1)
        return [rule(f"{at} UTC", width), *[line(" ", Span(text, entry.role)) for text in sentence]]

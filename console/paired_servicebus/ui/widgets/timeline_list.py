"""The timeline: every event of the pairing's engines, a line each, drawn on demand; the selected one in full."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events

from paired_servicebus.core.model.pairing_events import StateChanged
from paired_servicebus.core.text.number_format import plural, time_or_day
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID
from paired_servicebus.ui.render.spans import Line, Role, Span, fit, fit_name, line, paragraph, rule, shorten, wrap
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.log_entries import LogEntry, Pings, ping_counts
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import LazyLines, Lines

SUBJECT: Final = 12
WIDE_SUBJECT: Final = 28
WIDE: Final = 110
ENGINE: Final = 10
WIDE_ENGINE: Final = 20
TIME: Final = 8


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
        return (rule(title, width, note=note),)


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


def event_line(entry: LogEntry, at: str, view: View, width: int, *, ground: Role | None = None) -> Line:
    """Return an entry as one line: its time, the engine in a fleet, its subject, its text."""
    wide = width >= WIDE
    subject = fit_name(entry.sentence.subject, WIDE_SUBJECT if wide else SUBJECT)
    engine = f"{fit_name(engine_of(entry, view), WIDE_ENGINE if wide else ENGINE)}  " if view.fleet else ""
    text = event_spans(entry, width - cell_len(f"{at}{engine}{subject}") - 3)
    return line(Span(f"{at} ", Role.MUTED), Span(engine, Role.MUTED), Span(f"{subject}  "), *text, ground=ground)


def engine_of(entry: LogEntry, view: View) -> str:
    """Return the name of the engine that an entry is about; empty with no fleet."""
    return "" if view.fleet is None else entry.engine or view.fleet.me


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
        self._view = view

    def __len__(self) -> int:
        return len(self._entries)

    def line_at(self, place: int) -> Line:
        selected, entry = place == self.place, self._entries[place]
        at = f"{'▸' if selected else ' '}{fit(time_or_day(entry.at, self._now), TIME)}"
        return event_line(entry, at, self._view, self._width, ground=Role.SELECTED if selected else None)


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
        where = f" at {engine_of(entry, view)}" if view.fleet is not None else ""
        text = f"{entry.sentence.subject} {entry.text}"
        return [rule(f"{at} UTC{where}", width), *paragraph(text, width, entry.role, lines=height - 1)]


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
        return [rule("what changed", width, note=folding(view)), *shown]


# The events of one entity.

CLOCK: Final = 10
MAX_LINES: Final = 3
"""Lines of a why-line; other entries have one."""


class EntityHistory(Lines):
    """A rule, then as many of the newest entries as fit."""

    ages: ClassVar[bool] = False  # an event stays true

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the rule and the entries, from the top."""
        room = max(0, height - 1)
        shown = _newest_of(view, width, room)
        if not shown and view.snapshot is not None:
            shown = [line(Span(" no events of this entity yet", Role.MUTED))][:room]
        return [rule("history", width), *shown]


def _newest_of(view: View, width: int, room: int) -> list[Line]:
    path, shown = view.selected.casefold(), list[Line]()
    for entry in reversed(view.events):
        if entry.sentence.subject.casefold() != path:
            continue
        where = f"{engine_of(entry, view)}: " if view.fleet is not None else ""
        shown[:0] = _history_lines(entry, where, width, view.snapshot.at if view.snapshot else entry.at)
        if len(shown) >= room:
            return shown[len(shown) - room :]
    return shown


def _history_lines(entry: LogEntry, where: str, width: int, now: float) -> list[Line]:
    most = MAX_LINES if entry.kind == StateChanged.kind else 1
    parts = wrap(where + entry.text, width - CLOCK - 1, lines=most)
    first = line(
        Span(f" {time_or_day(entry.at, now):<{CLOCK - 1}}", Role.MUTED), Span(parts[0] if parts else "", entry.role)
    )
    return [first, *[line(" " * CLOCK, Span(part, entry.role)) for part in parts[1:]]]

"""The incidents in journal and tables, newest first, and the selected one in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import ClassVar, Final

from paired_servicebus.core.text.number_format import count, duration
from paired_servicebus.core.text.time_format import clock, day_and_clock
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, rule, wrap
from paired_servicebus.ui.state.incident_history import Incident, IncidentHistory
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.incident_comparison import comparison

WHEN: Final = 21
LASTED: Final = 14
PARKED: Final = 9
MAX_LINES: Final = 12
"""Lines of one sentence."""
HEADS: Final = 2
"""Lines above the rows."""
TALLEST: Final = 12
"""Lines of the list at most."""


class IncidentList(Lines):
    """A row an incident, the selected one in sight."""

    ages: ClassVar[bool] = False

    def show(self, view: View) -> None:
        """Leave the selected incident the room that few incidents do not need."""
        history = view.past.history if view.past else None
        if history is not None and history.incidents:
            with_gap = HEADS + len(history.incidents) + 1
            self.styles.max_height = min(TALLEST, with_gap)
        super().show(view)

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return head and rows, or why there are none."""
        past = view.past
        if past is None:
            return [rule("incidents", width), line(Span(" journal and tables are being read …", Role.MUTED))]
        if past.history is None:
            return [
                rule("incidents: unknown", width),
                *(line(f" {part}") for part in _wrapped(past.trouble, width - 2)),
            ]
        history = past.history
        head = rule("incidents", width, note=Span(_as_of(history), Role.MUTED))
        if not history.incidents:
            remarks = [line(Span(f" {part}", Role.MUTED)) for part in _remarks(history, width - 2)]
            return [head, line(f" no failover recorded{_since(history)}"), *remarks]
        rows = [_row(one, width, selected=one.episode == history.chosen) for one in history.incidents]
        return [head, _heads(width), *_in_sight(rows, history, max(1, height - HEADS))]


class IncidentReport(Lines):
    """The selected incident: figures before, during and after, and its report. It scrolls once it is opened."""

    ages: ClassVar[bool] = False
    DEFAULT_CSS = "IncidentReport { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    _shown: str = ""

    def show(self, view: View) -> None:
        """Show the view; another incident begins at its first line."""
        history = view.past.history if view.past else None
        chosen = history.chosen if history is not None else ""
        if chosen != self._shown or not view.incident_open:
            self._shown = chosen
            self.scroll_to(y=0, animate=False, force=True)
        super().show(view)

    def scroll_lines(self, steps: int) -> None:
        """Scroll down by this many lines, within both ends."""
        last = max(0, self.virtual_size.height - self.size.height)
        self.scroll_to(y=max(0, min(last, self.scroll_offset.y + steps)), animate=False, force=True)
        self.refresh()

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        history = view.past.history if view.past else None
        incident = history.selected if history is not None else None
        if history is None or incident is None:
            return []
        shown = [Line(cut(one.spans, width)) for one in (*comparison(incident, view, width), *_report(history, width))]
        if view.incident_open or len(shown) <= height:
            return shown
        rest = len(shown) - height + 1
        return [*shown[: height - 1], line(Span(f" ↓ {rest} more lines: enter opens it", Role.MUTED))]


def _report(history: IncidentHistory, width: int) -> Iterator[Line]:
    """Yield the report of the tables, or the way to it."""
    incident = history.selected
    if incident is None or not incident.in_tables:
        yield rule("report", width)
        yield from (line(Span(f" {part}", Role.MUTED)) for part in _remarks(history, width - 2))
        return
    if not history.report:
        yield rule("report", width)
        yield line(Span(" is being read …", Role.MUTED))
        return
    yield rule("report", width)
    for first, part in _sentence_lines(history.report, width - 4):
        yield line(f"{' ' if first else '   '}{part}")
    for part in _wrapped(f"full report: paired report --episode {history.chosen} --out DIR", width - 2):
        yield line(Span(f" {part}", Role.MUTED))


def _remarks(history: IncidentHistory, width: int) -> Iterator[str]:
    """Yield why there is no report, wrapped."""
    for remark in history.remarks or ("not in the tables yet: paired pipeline --once brings them up to date",):
        yield from _wrapped(remark, width)


def _sentence_lines(sentences: Sequence[str], width: int) -> Iterator[tuple[bool, str]]:
    """Yield the sentences' lines; whether a line is the first of its sentence."""
    for sentence in sentences:
        for number, part in enumerate(_wrapped(sentence, width)):
            yield number == 0, part


def _wrapped(text: str, width: int) -> list[str]:
    lines = min(MAX_LINES, ceil(len(text) / max(1, width - 12)) + 1)
    return [part for part in wrap(text, max(1, width), lines=lines) if part]


def _as_of(history: IncidentHistory) -> str:
    parts = [f"tables written {clock(history.written_at)}"] if history.batch is not None else ["no tables"]
    if history.journal_since is not None:
        parts.append(f"journal from {clock(history.journal_since)}")
    return " · ".join(parts) + " UTC"


def _since(history: IncidentHistory) -> str:
    if history.batch is not None or history.journal_since is None:
        return ""
    return f" since {day_and_clock(history.journal_since)} UTC, where the journal was read from"


def _heads(width: int) -> Line:
    text = f" {fit('began (UTC)', WHEN)}{fit('lasted', LASTED)}{fit('parked', PARKED, 'right')}  entities"
    return Line(cut([Span(text, Role.MUTED)], width))


def _row(incident: Incident, width: int, *, selected: bool) -> Line:
    began = day_and_clock(incident.began_at)
    lasted = "not over" if incident.lasted is None else duration(incident.lasted)
    spans = [
        Span(f"{'▸' if selected else ' '}{fit(began, WHEN)}", Role.TITLE),
        Span(fit(lasted, LASTED), Role.FAILED_OVER if incident.lasted is None else Role.TEXT),
        Span(f"{fit(count(incident.parked), PARKED, 'right')}  "),
        Span(", ".join(incident.entities)),
    ]
    kept = cut(spans, width)
    return Line(kept, Role.SELECTED) if selected else Line(kept)


def _in_sight(rows: Sequence[Line], history: IncidentHistory, room: int) -> Sequence[Line]:
    names = [one.episode for one in history.incidents]
    place = names.index(history.chosen) if history.chosen in names else 0
    first = max(0, min(place - room // 2, len(rows) - room))
    return rows[first : first + room] or [BLANK]

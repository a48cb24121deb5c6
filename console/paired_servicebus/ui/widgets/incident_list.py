"""The incidents in the pipeline's tables, newest first, and the report of the selected one."""

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
        """Leave the report the room that few incidents do not need."""
        history = view.past.history if view.past else None
        if history is not None and history.incidents:
            with_gap = HEADS + len(history.incidents) + 1
            self.styles.max_height = min(TALLEST, with_gap)
        super().show(view)

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return head and rows, or why there are none."""
        past = view.past
        if past is None:
            return [rule("history", width), line(Span(" the tables are being read …", Role.MUTED))]
        if past.history is None:
            return [rule("history", width), *(line(f" {part}") for part in _wrapped(past.trouble, width - 2))]
        history = past.history
        head = rule("history", width, note=Span(_as_of(history), Role.MUTED))
        if not history.incidents:
            return [head, line(" no failover recorded")]
        rows = [_row(one, width, selected=one.episode == history.chosen) for one in history.incidents]
        return [head, _heads(width), *_in_sight(rows, history, max(1, height - HEADS))]


class IncidentReport(Lines):
    """The selected incident in sentences."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        history = view.past.history if view.past else None
        if history is None or not history.chosen:
            return []
        if not history.report:
            return [rule("report", width), line(Span(" is being read …", Role.MUTED))]
        shown = [line(f"{' ' if first else '   '}{part}") for first, part in _sentence_lines(history.report, width - 4)]
        room = max(0, height - 2)
        whole = Span(f" in full, with plots: paired report --episode {history.chosen} --out DIR", Role.MUTED)
        return [rule("report", width), *shown[:room], Line(cut([whole], width))]


def _sentence_lines(sentences: Sequence[str], width: int) -> Iterator[tuple[bool, str]]:
    """Yield the sentences' lines; whether a line is the first of its sentence."""
    for sentence in sentences:
        for number, part in enumerate(_wrapped(sentence, width)):
            yield number == 0, part


def _wrapped(text: str, width: int) -> list[str]:
    lines = min(MAX_LINES, ceil(len(text) / max(1, width - 12)) + 1)
    return [part for part in wrap(text, max(1, width), lines=lines) if part]


def _as_of(history: IncidentHistory) -> str:
    return f"as of batch {history.batch:,}, written {clock(history.written_at)}, read at {clock(history.read_at)} UTC"


def _heads(width: int) -> Line:
    text = f" {fit('began (UTC)', WHEN)}{fit('lasted', LASTED)}{fit('parked', PARKED, 'right')}  entities"
    return Line(cut([Span(text, Role.MUTED)], width))


def _row(incident: Incident, width: int, *, selected: bool) -> Line:
    began = day_and_clock(incident.began_at)
    lasted = "not over" if incident.lasted is None else duration(incident.lasted)
    spans = [
        Span(f" {fit(began, WHEN)}", Role.TITLE),
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

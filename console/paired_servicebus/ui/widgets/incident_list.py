"""The incidents in journal and tables, newest first, and the selected one in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median
from typing import ClassVar, Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.fleet_view import engines_away
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Curve, Curves, Graphs
from paired_servicebus.core.text.number_format import count, duration, plural, rate
from paired_servicebus.core.text.time_format import age, clock, day_and_clock
from paired_servicebus.core.text.untrusted_text import names
from paired_servicebus.pipeline.report.report_values import Figures, IncidentEpisode, Stretch
from paired_servicebus.ui.render.spans import (
    BLANK,
    MAX_LINES,
    Line,
    Role,
    Span,
    cut,
    fact,
    fit,
    line,
    name_list,
    pack,
    paragraph,
    rule,
    wrap,
)
from paired_servicebus.ui.state.incident_history import Incident, IncidentHistory
from paired_servicebus.ui.state.summary import parked_text
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

# One incident in figures: what it was, the outage so far, and before, during and after side by side.

UNKNOWN: Final = "unknown"
LABEL: Final = 20
COLUMN: Final = 13
MAX_EPISODES: Final = 100
"""Entities that are listed singly."""
MAX_ENGINES: Final = 5
"""Engines without a journal here that are named."""

Figure = Callable[[Stretch], int | None]
RATES: Final[tuple[tuple[str, Figure], ...]] = (
    ("sends/s to primary", lambda it: it.to_primary),
    ("sends/s to backlog", lambda it: it.to_backlog),
    ("failed attempts/s", lambda it: it.failed),
    ("operations/s", lambda it: it.operations),
    ("  added by pairing", lambda it: it.added),
)
OfCurve = Callable[[Sequence[float]], float]
CURVES: Final[tuple[tuple[str, Callable[[Curves], Curve], OfCurve, Callable[[float], str]], ...]] = (
    ("refused/s", lambda it: it.refused, fmean, rate),
    ("p50 of sends", lambda it: it.p50, median, lambda value: f"{value:,.0f} ms"),
    ("worst p99 of sends", lambda it: it.p99, max, lambda value: f"{value:,.0f} ms"),
)
"""Figures of the whole engine that the journal does not keep, and its curves of the last minutes do."""


def comparison(history: IncidentHistory, incident: Incident, view: View, width: int) -> Iterator[Line]:
    """Yield the lines of the selected incident."""
    lasted = f"for {duration(incident.lasted)}" if incident.lasted is not None else "not over"
    yield rule(f"incident of {day_and_clock(incident.began_at)} UTC", width, note=lasted)
    yield from paragraph(_journals(history, view), width, Role.MUTED)
    if history.figures is None:
        yield line(Span(" before, during, after: being read …", Role.MUTED))
        return
    if incident.lasted is None and view.snapshot is not None:
        yield from _so_far(incident, history.figures.during, view, view.snapshot, width)
    yield from _compared(history.figures, view.graphs)
    yield from _episodes(incident, width)


def _away(history: IncidentHistory, view: View) -> tuple[str, ...]:
    """Return the engines of the fleet that have no records here."""
    fleet = view.fleet
    known = (*(one.engine for one in fleet.engines), *fleet.missing) if fleet is not None else ()
    return engines_away(known, (*history.engines, fleet.me if fleet is not None else ""))


def _journals(history: IncidentHistory, view: View) -> str:
    """Return whose records this is made of, and the engines of the fleet that have none here."""
    away, here = _away(history, view), f"by the journals of {plural(len(history.engines), 'engine')}"
    if not away:
        return here
    return f"{here}; those of {names(away, MAX_ENGINES)} are not here, and what they saw is unknown"


def _so_far(incident: Incident, during: Stretch, view: View, snapshot: Snapshot, width: int) -> Iterator[Line]:
    """Yield the outage so far, by the figures of now."""
    yield line(Span(f" this outage so far, {age(view.now - incident.began_at)}", Role.FAILED_OVER))
    for label, text in (
        ("  parked now", _parked(snapshot)),
        ("  errors", _errors(incident, during, snapshot)),
        ("  operations", _operations(during, view)),
        ("  longest wait", _longest_wait(snapshot, view.now)),
    ):
        yield fact(label, text, 18, width)


def _parked(snapshot: Snapshot) -> str:
    messages = snapshot.parked.messages if snapshot.parked is not None else sum_backlog(snapshot).messages
    return UNKNOWN if messages is None else plural(messages, "message")


def _errors(incident: Incident, during: Stretch, snapshot: Snapshot) -> str:
    paths = set(incident.entities)
    refused = sum(one.refused for one in snapshot.entities if one.path in paths)
    failed = UNKNOWN if during.failed is None else count(during.failed)
    return f"{refused:,} at callers since the engine started; failed attempts in this outage: {failed}"


def _operations(during: Stretch, view: View) -> str:
    added = during.added
    if added is None:
        return UNKNOWN
    if view.price is None:
        return f"+{added:,} added by pairing; money unknown: set [prices] in console.toml"
    return f"+{added:,} added by pairing, {view.price.of(added):,.4f} {view.price.currency}"


def _longest_wait(snapshot: Snapshot, now: float) -> str:
    oldest = [one.oldest.enqueued_at for one in snapshot.queues if one.oldest.enqueued_at is not None]
    if oldest:
        return f"{age(now - min(oldest))} (the oldest parked message)"
    is_empty = snapshot.parked is not None and snapshot.parked.messages == 0
    return "nothing waits" if is_empty else UNKNOWN


def _compared(figures: Figures, graphs: Graphs | None) -> Iterator[Line]:
    columns = (figures.before, figures.during, figures.after)
    yield line(Span(f" {'':<{LABEL}}" + "".join(fit(one, COLUMN, "right") for one in _HEADS), Role.MUTED))
    rows = [("time", [duration(one.seconds) if one else "–" for one in columns])]
    rows += [(label, [_rate(one, figure) for one in columns]) for label, figure in RATES]
    rows.append(("operations", [_count(one, lambda it: it.operations) for one in columns]))
    rows.append(("sent to backlog", [_count(one, lambda it: it.to_backlog) for one in columns]))
    for label, curve_of, sum_up, shown in CURVES:
        found = [_of_curve(one, graphs, curve_of) if one is not None else () for one in columns]
        texts = [shown(sum_up(values)) if values else UNKNOWN for values in found]
        rows.append((label, [text if one is not None else "–" for one, text in zip(columns, texts, strict=True)]))
    known = [row for row in rows if not {*row[1]} <= {UNKNOWN, "–"}]
    yield from (_figures(label, values) for label, values in known)
    if unknown := [label.strip() for label, values in rows if (label, values) not in known]:
        yield from paragraph(f"unknown: {', '.join(unknown)}", 78, Role.MUTED)


_HEADS: Final = ("before", "during", "after")


def _of_curve(stretch: Stretch, graphs: Graphs | None, curve_of: Callable[[Curves], Curve]) -> tuple[float, ...]:
    """Return the known values within the stretch; none if the curves do not cover it."""
    if graphs is None:
        return ()
    curve = curve_of(graphs.total)
    first_at = graphs.at - len(curve) * graphs.step
    if not curve or first_at > stretch.since + graphs.step or stretch.until - stretch.since < graphs.step:
        return ()
    ends = (first_at + (place + 1) * graphs.step for place in range(len(curve)))
    return tuple(
        value
        for value, at in zip(curve, ends, strict=True)
        if value is not None and stretch.since < at <= stretch.until + graphs.step
    )


def _figures(label: str, values: list[str]) -> Line:
    cells = "".join(fit(value, COLUMN, "right") for value in values)
    return line(Span(f" {fit(label, LABEL)}", Role.MUTED), cells)


def _rate(stretch: Stretch | None, figure: Figure) -> str:
    if stretch is None:
        return "–"
    number = figure(stretch)
    return UNKNOWN if number is None or not stretch.seconds else rate(number / stretch.seconds)


def _count(stretch: Stretch | None, figure: Figure) -> str:
    if stretch is None:
        return "–"
    number = figure(stretch)
    return UNKNOWN if number is None else count(number)


def _episodes(incident: Incident, width: int) -> Iterator[Line]:
    episodes = incident.episodes
    several = len({one.engine for one in episodes}) > 1
    yield rule("its entities", width, note=plural(len(incident.entities), "entity", "entities"))
    for one in episodes[:MAX_EPISODES]:
        at = f" at {one.engine}" if several else ""
        yield line(Span(f" {one.entity}{at}", Role.TITLE), f"  {_course(one)}")
        yield line(Span(f"   {one.cause}", Role.MUTED))
    if episodes[MAX_EPISODES:]:
        yield line(Span(f" and {plural(len(episodes) - MAX_EPISODES, 'more episode')}", Role.MUTED))


def _course(one: IncidentEpisode) -> str:
    how = "forced" if one.forced else "failed over"
    failed_over = one.failed_over_at or one.began_at
    after = failed_over - one.began_at
    parts = [f"{how} {clock(failed_over)}" + (f" after {duration(after)}" if after >= 1 else "")]
    if one.closed_at is None:
        parts.append("not back")
    elif one.outcome == FAILED_BACK:
        parts.append(f"back {clock(one.closed_at)} after {duration(one.closed_at - failed_over)}")
    else:
        parts.append(f"until {clock(one.closed_at)}: {one.outcome}" + (f", {one.end_reason}" if one.end_reason else ""))
    parts.append(f"{plural(one.pings, 'ping')}, {one.pings_accepted:,} accepted")
    return " · ".join(parts)


FAILED_BACK: Final = "failed back"
"""The outcome of an episode whose entity went back to the primary by the rules."""
WHEN: Final = 21
LASTED: Final = 14
PARKED: Final = 9
HEADS: Final = 2
"""Lines above the rows."""
TALLEST: Final = 12
"""Lines of the list at most."""


class IncidentList(Lines):
    """A row an incident, the selected one in sight."""

    ages: ClassVar[bool] = False

    def show(self, view: View) -> None:
        """Leave the selected incident the room that few incidents do not need."""
        if view.past is not None and view.past.incidents:
            with_gap = HEADS + len(view.past.incidents) + 1
            self.styles.max_height = min(TALLEST, with_gap)
        super().show(view)

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return head and rows, or why there are none."""
        history = view.past
        if history is None:
            return [rule("incidents", width), line(Span(" journal and tables are being read …", Role.MUTED))]
        if history.trouble:
            return [rule("incidents: unknown", width), *paragraph(history.trouble, width)]
        head = rule("incidents", width, note=_as_of(history))
        if not history.incidents:
            none = [*_none_here(history, view, width), *_remarks(history, width)]
            return [head, *_present(history, view, width), *none]
        now = _present(history, view, width)
        rows = [_row(one, width, selected=one.episode == history.chosen) for one in history.incidents]
        return [head, *now, _heads(width), *_in_sight(rows, history, max(1, height - HEADS - len(now)))]


def _present(history: IncidentHistory, view: View, width: int) -> list[Line]:
    """Return the incident of now as all engines report it; nothing if there is none, or a journal here has it."""
    if view.snapshot is None or any(one.lasted is None for one in history.incidents):
        return []
    unwell = [one for one in view.entities if one.state in DIVERTING]
    if not unwell:
        return []
    began = min(one.first_failure_at or one.since for one in unwell)
    errors = sum(one.refused_in_outage for one in unwell)
    facts = f"{plural(errors, 'error')} at callers, {parked_text(view.snapshot, view.now)}"
    named = name_list([one.path for one in unwell], before=f" not over, since {clock(began)}: {facts} · ")
    return [line(Span(pack((named,), width), Role.FAILED_OVER))]


def _none_here(history: IncidentHistory, view: View, width: int) -> Iterator[Line]:
    """Yield that no incident is recorded here; of engines whose journals are elsewhere that is unknown."""
    away = _away(history, view)
    if away:
        text = f"unknown at {names(away, MAX_ENGINES)}: their journals are not here; page 7 has their hosts, and there "
        yield from paragraph(f"{text}paired report writes it", width, Role.SUSPECT)
    yield line(f" no failover recorded{' here' if away else ''}{_since(history)}")


class IncidentReport(Lines):
    """The selected incident: figures before, during and after, and its report. It scrolls once it is opened."""

    ages: ClassVar[bool] = False
    DEFAULT_CSS = "IncidentReport { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    _shown: str = ""

    def show(self, view: View) -> None:
        """Show the view; another incident begins at its first line."""
        chosen = view.past.chosen if view.past is not None else ""
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
        history = view.past
        incident = history.selected if history is not None else None
        if history is None or incident is None:
            return []
        shown = [
            Line(cut(one.spans, width))
            for one in (*comparison(history, incident, view, width), *_report(history, width))
        ]
        if view.incident_open or len(shown) <= height:
            return shown
        rest = len(shown) - height + 1
        return [*shown[: height - 1], line(Span(f" ↓ {rest} more lines: enter opens it", Role.MUTED))]


def _report(history: IncidentHistory, width: int) -> Iterator[Line]:
    """Yield the report of the tables, or the way to it."""
    incident = history.selected
    yield rule("report", width)
    if incident is None or not incident.in_tables:
        yield from _remarks(history, width)
        return
    if not history.report:
        yield line(Span(" is being read …", Role.MUTED))
        return
    for sentence in history.report:
        parts = wrap(sentence, max(1, width - 4), lines=MAX_LINES)
        yield from (line(f"{'   ' if place else ' '}{part}") for place, part in enumerate(parts))
    yield from paragraph(f"full report: paired report --episode {history.chosen} --out DIR", width, Role.MUTED)


def _remarks(history: IncidentHistory, width: int) -> Iterator[Line]:
    """Yield why there is no report."""
    for remark in history.remarks or ("not in the tables yet: paired pipeline --once brings them up to date",):
        yield from paragraph(remark, width, Role.MUTED)


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

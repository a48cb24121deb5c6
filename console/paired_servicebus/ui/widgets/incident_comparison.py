"""One incident in figures: what it was, the outage so far, and before, during and after side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.incidents.incident_fold import Episode, IncidentRecord, Stretch
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import Curve, Curves, Graphs
from paired_servicebus.core.text.number_format import count, duration, plural, rate
from paired_servicebus.core.text.time_format import age, clock, day_and_clock
from paired_servicebus.ui.render.spans import Line, Role, Span, fit, line, rule
from paired_servicebus.ui.state.incident_history import Incident
from paired_servicebus.ui.state.view import View

UNKNOWN: Final = "unknown"
LABEL: Final = 20
COLUMN: Final = 13
MAX_EPISODES: Final = 100
"""Entities that are listed singly."""

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


def comparison(incident: Incident, view: View, width: int) -> Iterator[Line]:
    """Yield the lines of an incident."""
    record = incident.record
    lasted = f"for {duration(incident.lasted)}" if incident.lasted is not None else "not over"
    yield rule(f"incident of {day_and_clock(incident.began_at)} UTC", width, note=Span(lasted, Role.MUTED))
    if record is None:
        yield line(Span(" before, during, after: unknown, since the journal read here does not reach it", Role.MUTED))
        return
    if record.ended_at is None and view.snapshot is not None:
        yield from _so_far(record, view, view.snapshot)
    yield from _compared(record, view.graphs)
    yield from _episodes(record, width)


def _so_far(record: IncidentRecord, view: View, snapshot: Snapshot) -> Iterator[Line]:
    """Yield the outage so far, by the figures of now."""
    yield line(Span(f" this outage so far, {age(view.now - record.began_at)}", Role.FAILED_OVER))
    for label, text in (
        ("parked now", _parked(snapshot)),
        ("errors", _errors(record, snapshot)),
        ("operations", _operations(record, view)),
        ("longest wait", _longest_wait(snapshot, view.now)),
    ):
        yield line(Span(f"   {label:<15}", Role.MUTED), text)


def _parked(snapshot: Snapshot) -> str:
    messages = snapshot.parked.messages if snapshot.parked is not None else sum_backlog(snapshot).messages
    return UNKNOWN if messages is None else plural(messages, "message")


def _errors(record: IncidentRecord, snapshot: Snapshot) -> str:
    names = set(record.entities)
    refused = sum(one.refused for one in snapshot.entities if one.path in names)
    failed = UNKNOWN if record.during.failed is None else count(record.during.failed)
    return f"{refused:,} at callers since the engine started; failed attempts in this outage: {failed}"


def _operations(record: IncidentRecord, view: View) -> str:
    added = record.during.added
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


def _compared(record: IncidentRecord, graphs: Graphs | None) -> Iterator[Line]:
    columns = (record.before, record.during, record.after)
    yield line(Span(f" {'':<{LABEL}}" + "".join(fit(one, COLUMN, "right") for one in _HEADS), Role.MUTED))
    yield _figures("time", [duration(one.seconds) if one else "–" for one in columns])
    for label, figure in RATES:
        yield _figures(label, [_rate(one, figure) for one in columns])
    yield _figures("operations", [_count(one, lambda it: it.operations) for one in columns])
    yield _figures("sent to backlog", [_count(one, lambda it: it.to_backlog) for one in columns])
    for label, curve_of, sum_up, shown in CURVES:
        found = [_of_curve(one, graphs, curve_of) if one is not None else () for one in columns]
        texts = [shown(sum_up(values)) if values else UNKNOWN for values in found]
        yield _figures(label, [text if one is not None else "–" for one, text in zip(columns, texts, strict=True)])


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


def _episodes(record: IncidentRecord, width: int) -> Iterator[Line]:
    episodes = record.episodes
    yield rule("its entities", width, note=Span(plural(len(record.entities), "entity", "entities"), Role.MUTED))
    for one in episodes[:MAX_EPISODES]:
        yield line(Span(f" {one.entity}", Role.TITLE), f"  {_told(one)}")
        yield line(Span(f"   {one.cause}", Role.MUTED))
    if episodes[MAX_EPISODES:]:
        yield line(Span(f" and {plural(len(episodes) - MAX_EPISODES, 'more episode')}", Role.MUTED))


def _told(one: Episode) -> str:
    how = "forced" if one.forced else "failed over"
    after = one.failed_over_at - one.began_at
    parts = [f"{how} {clock(one.failed_over_at)}" + (f" after {duration(after)}" if after >= 1 else "")]
    if one.back_at is None:
        parts.append("not back")
    elif one.end:
        parts.append(f"until {clock(one.back_at)}: {one.end}")
    else:
        parts.append(f"back {clock(one.back_at)} after {duration(one.back_at - one.failed_over_at)}")
    parts.append(f"{plural(one.pings, 'ping')}, {one.pings_accepted:,} accepted")
    return " · ".join(parts)

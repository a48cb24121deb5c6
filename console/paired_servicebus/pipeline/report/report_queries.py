"""The report of an incident, of a time, or of all that is recorded, from one state of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.report.queries.curve_queries import read_callers, read_curves, read_dwell
from paired_servicebus.pipeline.report.queries.incident_queries import (
    count_recovered,
    read_cost,
    read_engines,
    read_incidents,
    read_judgement,
    read_pairings,
    read_total,
    read_unknowns,
    recorded_span,
)
from paired_servicebus.pipeline.report.queries.table_source import Scope, TableSource
from paired_servicebus.pipeline.report.queries.timeline_queries import read_acts, read_timeline
from paired_servicebus.pipeline.report.report_values import Chain, Report, Source, shared_fates

BEFORE = 30.0
"""Seconds of normal operation before an incident that its report includes."""
AFTER = 15.0
KNOWN = 3
"""Incidents that an unknown episode's error names."""

Choice = Callable[[TableSource], Report]


def last_report(tables: TableSource, *, pairing: str | None = None) -> Report:
    """Return the report of the latest incident; of all that is recorded, if nothing failed over.

    Raises ConfigurationError: nothing is recorded, or the pairing is unknown.
    """
    found = read_incidents(tables, pairing=_known(tables, pairing))
    if found:
        return _of_chain(tables, found, max(found, key=lambda chain: max(one.began_at for one in chain)))
    chosen = _Chosen(tables, (pairing,) if pairing is not None else tuple(read_pairings(tables)))
    return _report(chosen, (), *chosen.recorded, before=None)


def report_of(tables: TableSource, episode: str) -> Report:
    """Return the report of an episode's incident. Raises ConfigurationError: there is no such episode."""
    found = read_incidents(tables)
    for chain in found:
        if any(one.id == episode for one in chain):
            return _of_chain(tables, found, chain)
    known = ", ".join(repeated(one.id) for chain in found[-KNOWN:] for one in chain[:1]) or "none"
    raise ConfigurationError(
        f"there is no episode {repeated(episode)!r} in the tables; the latest incidents begin with: {known}"
    )


def report_since(tables: TableSource, since: float, *, pairing: str | None = None) -> Report:
    """Return the report of everything since a time (seconds since the epoch).

    Raises ConfigurationError: nothing is recorded since, or the pairing is unknown.
    """
    pairings = tuple(read_pairings(tables)) if _known(tables, pairing) is None else (pairing or "",)
    chosen = _Chosen(tables, pairings)
    first, last = chosen.recorded
    if since > last:
        raise ConfigurationError("nothing is recorded since then: the tables end earlier")
    chains = read_incidents(tables, pairing=pairing)
    episodes = sorted(
        (one for chain in chains for one in chain if one.ended_at >= since), key=lambda one: (one.began_at, one.id)
    )
    return _report(chosen, tuple(episodes), max(since, first), last, before=None)


def _known(tables: TableSource, pairing: str | None) -> str | None:
    """Return the pairing. Raises ConfigurationError: the tables do not have it."""
    pairings = read_pairings(tables)
    if pairing is not None and pairing not in pairings:
        known = ", ".join(map(repeated, pairings)) or "none"
        raise ConfigurationError(f"the tables have no pairing {repeated(pairing)!r}; they have: {known}")
    return pairing


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Tables and the pairings that a report is about."""

    tables: TableSource
    pairings: tuple[str, ...]

    @property
    def engines(self) -> tuple[str, ...]:
        known = read_pairings(self.tables)
        return tuple(dict.fromkeys(engine for pairing in self.pairings for engine in known.get(pairing, ())))

    @property
    def recorded(self) -> tuple[float, float]:
        return recorded_span(self.tables, self.engines)


def _of_chain(tables: TableSource, chains: list[Chain], chain: Chain) -> Report:
    chosen = _Chosen(tables, (chain[0].pairing,))
    first, last = chosen.recorded
    began, ended = chain[0].began_at, max(one.ended_at for one in chain)
    until = last if any(one.open for one in chain) else ended + AFTER
    earlier = [
        max(one.ended_at for one in other)
        for other in chains
        if other[0].pairing == chain[0].pairing and other[0].began_at < began
    ]
    since = max(first, began - BEFORE)
    return _report(chosen, chain, since, max(since, min(last, until)), before=max(earlier, default=None))


def _report(chosen: _Chosen, episodes: Chain, since: float, until: float, *, before: float | None) -> Report:
    tables, recorded = chosen.tables, chosen.recorded
    scope = Scope(tables=tables, pairings=chosen.pairings, engines=chosen.engines, since=since, until=until)
    fates, acts = shared_fates(episodes), read_acts(scope)
    began = episodes[0].began_at if episodes else since
    ended = max((one.ended_at for one in episodes), default=until)
    timeline, left_out = read_timeline(scope)
    engines, judgement = read_engines(scope), read_judgement(scope)
    more = [f"{plural(left_out, 'event')} of the timeline are left out"] if left_out else []
    return Report(
        source=_source(tables),
        pairings=chosen.pairings,
        others=tuple(name for name in read_pairings(tables) if name not in chosen.pairings),
        environment="",
        since=since,
        until=until,
        episodes=episodes,
        fates=fates,
        recovered=count_recovered(scope),
        engines=engines,
        callers=read_callers(scope, fates),
        dwell=read_dwell(scope, fates),
        cost=read_cost(scope, began, min(ended, until), recorded[0], before) if episodes else read_total(scope),
        judgement=judgement,
        acts=acts,
        timeline=timeline,
        curves=read_curves(scope, fates, episodes, acts, recorded),
        unknowns=(*read_unknowns(scope, engines, judgement), *more),
    )


def _source(tables: TableSource) -> Source:
    return Source(
        kind="tables" if tables.batch else "journal",
        folders=tuple(map(str, tables.folders)),
        batch=tables.batch,
        written_at=tables.written_at,
        read_at=tables.read_at,
    )

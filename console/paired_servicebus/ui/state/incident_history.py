"""The incidents page's data: the incidents in the pipeline's tables, and in the newest part of the journals here.

Both have the same tables by the same SQL, so an incident of both is one row. The tables have all of it, with a report.
`read_history` blocks and imports the tables' library, so it runs in a thread when the page is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paired_servicebus.core.errors import ConfigurationError, PipelineError
from paired_servicebus.core.model.pairing_events import Record, StateChanged
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.pipeline.report.report_values import Chain, Figures
from paired_servicebus.ui.render.spans import QUIET

if TYPE_CHECKING:
    from paired_servicebus.pipeline.journal_tables import JournalTables
    from paired_servicebus.pipeline.report.report_values import IncidentEpisode, Report
    from paired_servicebus.pipeline.table_store.table_reader import Tables

MAX_INCIDENTS: Final = 50
"""Incidents in the list, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One row of the list."""

    episode: str
    """The id that `paired report` takes, if the tables have it."""
    began_at: float
    lasted: float | None
    """Seconds; None: the incident is not over."""
    entities: tuple[str, ...]
    parked: int | None
    """Messages that went to the backlog; None: unknown."""
    episodes: Chain = ()
    in_tables: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentHistory:
    """The tables as of one batch, and the newest part of the journals; or the reason why neither can be read."""

    trouble: str = ""
    """Why nothing can be read; empty: it was."""
    batch: int | None = None
    """None: there are no tables."""
    written_at: float = 0.0
    read_at: float = 0.0
    incidents: tuple[Incident, ...] = ()
    report: tuple[str, ...] = ()
    """The chosen incident's report in sentences."""
    figures: Figures | None = None
    """The chosen incident's; None: not read yet."""
    chosen: str = ""
    """The chosen incident's episode."""
    journal_since: float | None = None
    """From when on the journals were read; None: they were not."""
    engines: tuple[str, ...] = ()
    """Engines with records in tables or journals."""
    remarks: tuple[str, ...] = ()
    """Why the tables, or the journals, are missing."""

    @property
    def selected(self) -> Incident | None:
        """The chosen incident."""
        return next((one for one in self.incidents if one.episode == self.chosen), None)


def may_change_incidents(records: Sequence[Record]) -> bool:
    """Return whether an incident may have begun or ended: an entity left or reached a state that needs no operator."""
    changes = [record.event for record in records if isinstance(record.event, StateChanged)]
    return any((event.was in QUIET) != (event.now in QUIET) for event in changes)


def read_history(folder: Path, chosen: str, *, journals: Sequence[Path] = (), pairing: str = "") -> IncidentHistory:
    """Read the tables in `folder` and the newest part of some journals, with the chosen incident or the latest.

    Args:
        chosen: an incident's episode.
        pairing: the name of the pairing whose incidents count, with its engines of other names; empty: all.
    """
    from paired_servicebus.pipeline.journal_tables import JournalTables
    from paired_servicebus.pipeline.table_store.table_reader import Tables

    remarks: list[str] = []
    with ExitStack() as opened:
        tables: Tables | None = None
        recent: JournalTables | None = None
        try:
            tables = opened.enter_context(Tables.open(folder))
        except PipelineError as error:
            remarks.append(str(error))
        try:
            recent = opened.enter_context(JournalTables.recent(journals)) if journals else None
        except PipelineError as error:
            remarks.insert(0, str(error))
        if tables is None and recent is None:
            return IncidentHistory(trouble="; ".join(remarks))
        try:
            return replace(_history(tables, recent, chosen, pairing), remarks=tuple(remarks))
        except (PipelineError, ConfigurationError) as error:
            return IncidentHistory(trouble=str(error))


def _history(tables: Tables | None, recent: JournalTables | None, chosen: str, pairing: str) -> IncidentHistory:
    from paired_servicebus.pipeline.report.report_queries import report_of
    from paired_servicebus.pipeline.report.report_values import incidents
    from paired_servicebus.pipeline.report.table_queries import read_episodes, read_figures, read_pairings

    sources = [one for one in (tables, recent) if one is not None]
    stored = {one.id: one for one in read_episodes(tables)} if tables is not None else {}
    known = dict(stored)
    for one in read_episodes(recent) if recent is not None else ():
        known[one.id] = _newest(stored.get(one.id), one)
    engines = {name for one in sources for name in _engines_of(read_pairings(one), pairing)}
    chains = incidents(one for one in known.values() if one.failed_over_at is not None and one.engine in engines)
    chains = sorted(chains, key=lambda chain: -chain[0].began_at)[:MAX_INCIDENTS]
    rows = tuple(_incident(chain, is_stored=chain[0].id in stored) for chain in chains)
    selected = next((one for one in rows if one.episode == chosen), rows[0] if rows else None)
    report: tuple[str, ...] = ()
    figures: Figures | None = None
    if selected is not None:
        figures = read_figures(sources, selected.episodes)
        if tables is not None and selected.in_tables:
            report = tuple(_sentences(report_of(tables, selected.episode)))
    return IncidentHistory(
        batch=tables.batch if tables is not None else None,
        written_at=tables.written_at if tables is not None else 0.0,
        read_at=tables.read_at if tables is not None else 0.0,
        incidents=rows,
        report=report,
        figures=figures,
        chosen=selected.episode if selected is not None else "",
        journal_since=recent.since if recent is not None else None,
        engines=tuple(sorted(engines)),
    )


def _engines_of(pairings: dict[str, tuple[str, ...]], pairing: str) -> tuple[str, ...]:
    """Return the engines of a pairing, or all."""
    from paired_servicebus.pipeline.report.table_queries import known_as

    if pairing:
        return pairings.get(known_as(pairings, pairing) or "", ())
    return tuple(name for engines in pairings.values() for name in engines)


def _newest(stored: IncidentEpisode | None, recent: IncidentEpisode) -> IncidentEpisode:
    """Return an episode as its journal has it now, with the judged figures of the tables."""
    if stored is None or stored.last_at >= recent.last_at:
        return stored or recent
    return replace(
        recent,
        parked=stored.parked if stored.parked is not None else recent.parked,
        backlog_empty_at=stored.backlog_empty_at,
        first_diverted_at=stored.first_diverted_at,
        last_good_at=stored.last_good_at,
    )


def _incident(chain: Chain, *, is_stored: bool) -> Incident:
    began = min(one.began_at for one in chain)
    over = not any(one.open for one in chain)
    judged = [one.parked for one in chain if one.parked is not None]
    return Incident(
        episode=chain[0].id,
        began_at=began,
        lasted=max(one.ended_at for one in chain) - began if over else None,
        entities=tuple(dict.fromkeys(one.entity for one in chain)),
        parked=sum(judged) if judged else None,
        episodes=chain,
        in_tables=is_stored,
    )


def _sentences(report: Report) -> Iterator[str]:
    """Yield the report as paragraphs, without the width of its tables."""
    from paired_servicebus.pipeline.report.sentences import Clock, duration, failover_sentences, impact, percent

    yield from impact(report)
    yield from failover_sentences(report, Clock(report.since, report.until))
    for one in report.failovers:
        steps = (
            ("detected within", one.to_detect),
            ("failed over after", one.to_divert),
            ("away for", one.away),
            ("backlog empty after", one.to_drain),
        )
        took = [f"{step} {duration(time)}" for step, time in steps if time is not None]
        yield f"{one.entity}: {', '.join([*took, plural(one.pings, 'ping')])}"
    for met in report.entities:
        if met.share is not None:
            without = (
                f", {duration(met.longest_without)} at most without an accepted send" if met.longest_without else ""
            )
            yield f"{met.entity}: {percent(met.share)} of attempts accepted, {met.failed:,} failed{without}"
        if met.parked:
            within = f", half within {duration(met.middle)}, all within {duration(met.longest)}" if met.home else ""
            yield f"{met.entity}: {met.home:,} of {met.parked:,} parked are home{within}"
    yield from report.unknowns

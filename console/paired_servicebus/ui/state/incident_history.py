"""The incidents page's data: the incidents in the engine's journal and in the pipeline's tables.

The journal has the newest part with figures before, during and after. The tables have all of it, with a report.
`read_history` blocks and imports the tables' library, so it runs in a thread when the page is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paired_servicebus.core.errors import ConfigurationError, NoTablesError
from paired_servicebus.core.incidents.incident_fold import TOGETHER_SECONDS, IncidentRecord
from paired_servicebus.core.model.pairing_events import Record, StateChanged
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.ui.render.spans import QUIET

if TYPE_CHECKING:
    from paired_servicebus.pipeline.report.report_values import IncidentEpisode, Report

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
    record: IncidentRecord | None = None
    """What the journal has of it; None: nothing."""
    in_tables: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentHistory:
    """The tables as of one batch, and the newest part of the journal."""

    batch: int | None
    """None: there are no tables."""
    written_at: float = 0.0
    read_at: float = 0.0
    incidents: tuple[Incident, ...]
    report: tuple[str, ...] = ()
    """The chosen incident's report in sentences."""
    chosen: str = ""
    """The chosen incident's episode."""
    journal_since: float | None = None
    """From when on the journal was read; None: it was not."""
    remarks: tuple[str, ...] = ()
    """Why the tables, or the journal, are missing."""

    @property
    def selected(self) -> Incident | None:
        """The chosen incident."""
        return next((one for one in self.incidents if one.episode == self.chosen), None)


@dataclass(frozen=True, slots=True)
class HistoryNews:
    """The content of the tables, or the reason why they cannot be read."""

    history: IncidentHistory | None
    trouble: str = ""


def may_change_incidents(records: Sequence[Record]) -> bool:
    """Return whether an incident may have begun or ended: an entity left or reached a state that needs no operator."""
    changes = [record.event for record in records if isinstance(record.event, StateChanged)]
    return any((event.was in QUIET) != (event.now in QUIET) for event in changes)


def read_history(folder: Path, chosen: str, *, spool: Path | None = None) -> HistoryNews:
    """Read the journal in `spool` and the tables in `folder`, with the report of the chosen incident or the latest."""
    tables = _read_tables(folder, chosen)
    return tables if spool is None else _with_journal(tables, spool, chosen)


def _read_tables(folder: Path, chosen: str) -> HistoryNews:
    from paired_servicebus.pipeline.report.queries.incident_queries import read_incidents
    from paired_servicebus.pipeline.report.report_queries import report_of
    from paired_servicebus.pipeline.table_store.table_reader import Tables

    try:
        with Tables.open(folder) as tables:
            chains = sorted(read_incidents(tables), key=lambda chain: -chain[0].began_at)[:MAX_INCIDENTS]
            incidents = tuple(_incident(chain) for chain in chains)
            known = [one.episode for one in incidents]
            chosen = chosen if chosen in known else next(iter(known), "")
            report = tuple(_sentences(report_of(tables, chosen))) if chosen else ()
            return HistoryNews(
                IncidentHistory(
                    batch=tables.batch,
                    written_at=tables.written_at,
                    read_at=tables.read_at,
                    incidents=incidents,
                    report=report,
                    chosen=chosen,
                )
            )
    except (NoTablesError, ConfigurationError) as error:
        return HistoryNews(None, str(error))


def _with_journal(tables: HistoryNews, spool: Path, chosen: str) -> HistoryNews:
    """Return the tables' incidents with those of the journal; without tables, the journal's alone."""
    from paired_servicebus.pipeline.report.journal_incidents import read_journal_incidents

    try:
        journal = read_journal_incidents(spool)
    except OSError as error:
        reason = f"the journal in {spool} cannot be read: {error.strerror or error}"
        if tables.history is None:
            return HistoryNews(None, f"{reason}; {tables.trouble}")
        return HistoryNews(replace(tables.history, remarks=(reason,)))
    history = tables.history or IncidentHistory(batch=None, incidents=(), remarks=(tables.trouble,))
    history = replace(history, journal_since=journal.since)
    return HistoryNews(with_records(history, journal.incidents, chosen))


def with_records(history: IncidentHistory, records: Sequence[IncidentRecord], chosen: str) -> IncidentHistory:
    """Return the history with the journal's records: each at its row in the tables, or as a row of its own."""
    rows = list(history.incidents)
    for record in records:
        place = next((place for place, row in enumerate(rows) if _is_same(row, record)), None)
        if place is None:
            rows.append(of_record(record))
        else:
            rows[place] = replace(rows[place], record=record)
    rows = sorted(rows, key=lambda one: one.began_at, reverse=True)[:MAX_INCIDENTS]
    known = [one.episode for one in rows]
    chosen = chosen if chosen in known else next(iter(known), "")
    report = history.report if chosen == history.chosen else ()
    return replace(history, incidents=tuple(rows), chosen=chosen, report=report)


def of_record(record: IncidentRecord) -> Incident:
    """Return the row of an incident that only the journal has."""
    return Incident(
        episode=record.id,
        began_at=record.began_at,
        lasted=None if record.ended_at is None else record.ended_at - record.began_at,
        entities=record.entities,
        parked=record.during.to_backlog,
        record=record,
        in_tables=False,
    )


def _is_same(row: Incident, record: IncidentRecord) -> bool:
    near = abs(row.began_at - record.began_at) <= TOGETHER_SECONDS
    return row.record is None and near and bool({*row.entities} & {*record.entities})


def _incident(chain: Sequence[IncidentEpisode]) -> Incident:
    began = min(one.began_at for one in chain)
    over = not any(one.open for one in chain)
    judged = [one.parked for one in chain if one.parked is not None]
    return Incident(
        episode=chain[0].id,
        began_at=began,
        lasted=max(one.ended_at for one in chain) - began if over else None,
        entities=tuple(dict.fromkeys(one.entity for one in chain)),
        parked=sum(judged) if judged else None,
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

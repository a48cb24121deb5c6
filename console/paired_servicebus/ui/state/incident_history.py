"""The history page's data: the incidents in the pipeline's tables, and the report of the selected one.

`read_history` blocks and imports the tables' library, so it runs in a thread when the page is first opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paired_servicebus.core.errors import ConfigurationError, NoTablesError
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock

if TYPE_CHECKING:
    from paired_servicebus.pipeline.report.incident import IncidentEpisode, Report

MAX_INCIDENTS: Final = 50
"""Incidents in the list, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One row of the list."""

    episode: str
    """The id that `paired report` takes."""
    began_at: float
    lasted: float | None
    """Seconds; None: the incident is not over."""
    entities: tuple[str, ...]
    parked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentHistory:
    """The tables as of one batch."""

    batch: int
    written_at: float
    read_at: float
    incidents: tuple[Incident, ...]
    report: tuple[str, ...] = ()
    """The chosen incident's report in sentences."""
    chosen: str = ""
    """The chosen incident's episode."""


@dataclass(frozen=True, slots=True)
class HistoryNews:
    """The content of the tables, or the reason why they cannot be read."""

    history: IncidentHistory | None
    trouble: str = ""


def read_history(folder: Path, chosen: str) -> HistoryNews:
    """Read the tables in `folder`, with the report of the chosen incident, or else of the latest."""
    from paired_servicebus.pipeline.report.report_queries import read_incidents, report_of
    from paired_servicebus.pipeline.table_store.table_reader import Tables

    try:
        with Tables.open(folder) as tables:
            chains = read_incidents(tables)[-MAX_INCIDENTS:][::-1]
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


def _incident(chain: Sequence[IncidentEpisode]) -> Incident:
    began = min(one.began_at for one in chain)
    over = not any(one.open for one in chain)
    return Incident(
        episode=chain[0].id,
        began_at=began,
        lasted=max(one.ended_at for one in chain) - began if over else None,
        entities=tuple(dict.fromkeys(one.entity for one in chain)),
        parked=sum(one.parked for one in chain),
    )


def _sentences(report: Report) -> Iterator[str]:
    """Yield the report as paragraphs, without the width of its tables."""
    from paired_servicebus.pipeline.report.markdown_report import percent, seconds, sentences

    yield from (sentence.replace("**", "") for sentence in sentences(report))
    for one in report.episodes:
        steps = (
            ("detected within", one.to_detect),
            ("failed over after", one.to_divert),
            ("back after", one.to_recover),
            ("backlog empty after", one.to_drain),
        )
        took = [f"{step} {seconds(time)}" for step, time in steps if time is not None]
        yield f"{one.entity} {clock(one.began_at)}: {', '.join([*took, plural(one.pings, 'ping')])}"
    for met in report.availability:
        yield (
            f"{met.entity}: {percent(met.share)} of attempts accepted, {met.failed:,} failed, "
            f"{seconds(met.longest_without)} at most without an accepted send"
        )
    for parked in report.dwell:
        home = f"{parked.home:,} of {parked.parked:,} parked are home"
        yield f"{parked.entity}: {home}, half within {seconds(parked.middle)}, all within {seconds(parked.longest)}"
    yield from report.warnings

"""The values of a report. Times are seconds since the epoch, durations seconds; None: unknown, or not yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paired_servicebus.pipeline.report.incident import Chain, Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The tables that a report is made from, or the journal."""

    kind: Literal["tables", "journal"]
    folders: tuple[str, ...]
    """That of the tables, or all of the journals."""
    batch: int
    written_at: float
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBoot:
    """The journal of one start of an engine, as far as it is there."""

    pairing: str
    engine: str
    boot: str
    started_at: float | None
    last_at: float | None
    records: int
    missing: int
    complete_to: float | None
    """The time of the last record before the first gap; None: the first record is missing."""
    ended: str
    """stopped, restarted, silent or running."""
    end_reason: str
    primary: str
    secondary: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """The results of sends to entities that shared a fate, or to those that stayed on the primary."""

    entities: tuple[str, ...]
    stayed: bool
    """Whether they did not fail over."""
    primary_accepted: int
    backlog_accepted: int
    failed: int
    """Attempts, on either route."""
    failures: dict[str, int]
    """Failed attempts by kind, the most frequent first."""
    blocked: float
    """Seconds at most, at one engine, from a first failed attempt to the next accepted send, summed up."""
    longest_without: float | None
    """Seconds between two accepted sends, at most, while some were tried."""
    refused: int | None
    """Messages whose caller was refused; None: refusals are not recorded without journal = "all"."""

    @property
    def share(self) -> float | None:
        """Of attempts that were accepted, by either route."""
        accepted = self.primary_accepted + self.backlog_accepted
        return accepted / (accepted + self.failed) if accepted + self.failed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dwell:
    """How long messages were parked, of those that have come home."""

    entities: tuple[str, ...]
    parked: int
    home: int
    middle: float | None
    most: float | None
    """The 95th of a hundred."""
    longest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCost:
    """Billed operations of one cause: all in the incident's minutes, and those beyond the rate before."""

    cause: str
    operations: int
    caused: int
    bytes: int
    """Caused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentCost:
    """The operations that the incident caused."""

    minutes: int
    """Of the incident, in whole ones."""
    base_minutes: int
    """Minutes before it that the base rate is from; 0: unknown, and nothing is subtracted."""
    causes: tuple[CauseCost, ...]

    @property
    def operations(self) -> int:
        """Caused by the incident."""
        return sum(one.caused for one in self.causes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Messages of one fate by name."""

    status: str
    total: int
    named: tuple[str, ...]
    """The oldest, each with its entity."""
    oldest_age: float | None = None
    reasons: tuple[str, ...] = ()
    """Of fates that are unknown or missing, and of dead letters; the most frequent ones."""


VerdictWord = Literal["nothing lost", "lost", "unknown", "not judged", "not recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on the incident's messages, with its evidence."""

    verdict: VerdictWord
    incident: dict[str, int]
    """Messages first seen in the report's time, by status; `accepted`, `direct`, `diverted`, `home`, `duplicates` and
    `out_of_order` beside."""
    recorded: dict[str, int]
    """The same for all that is recorded of these pairings: the sums of table verdicts."""
    findings: tuple[Finding, ...]
    """Of the incident."""
    receivers: tuple[str, ...]
    """Entities whose receivers report."""
    silent: tuple[str, ...]
    """Entities that are judged by the destinations' answers."""
    rests_on: tuple[str, ...]
    """A sentence a pairing."""
    journals: int
    journals_complete: int
    complete_to: float | None
    judged_at: float | None
    syphon_known: bool
    """Whether a journal of an engine with a syphon, or of a drain, is here. Others do not show what left it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An operator's act, at one engine or several."""

    at: float
    by: str
    what: str
    targets: tuple[str, ...]
    why: str
    engines: tuple[str, ...]
    outcomes: dict[str, int]
    """Each with the number of targets and engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """A line of the timeline, for all that it happened to within seconds."""

    at: float
    until: float
    """Of its last repetition."""
    about: tuple[str, ...]
    """Entities or backlog queues; empty: the engine itself."""
    engines: tuple[str, ...]
    text: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A value for each of the report's buckets; None: unknown."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment to mark in the plots."""

    at: float
    kind: Literal["order", "state"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot over time."""

    name: str
    """A short name, also of a file."""
    title: str
    unit: str
    series: tuple[Series, ...]
    away: tuple[tuple[float, float], ...] = ()
    """Times in which the entities were failed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The data of the plots."""

    since: float
    """A whole multiple of `bucket`."""
    bucket: float
    """Whole seconds."""
    buckets: int
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...]

    @property
    def until(self) -> float:
        """The end of the last bucket."""
        return self.since + self.bucket * self.buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report."""

    source: Source
    pairings: tuple[str, ...]
    others: tuple[str, ...]
    """Other pairings in the tables."""
    environment: str
    """Empty: unknown."""
    since: float
    until: float
    episodes: Chain
    fates: tuple[Fate, ...]
    recovered: int
    """Times that an entity was suspect and recovered without a failover."""
    engines: tuple[EngineBoot, ...]
    """Those with records in this time, and those whose journals are incomplete."""
    callers: tuple[Callers, ...]
    dwell: tuple[Dwell, ...]
    cost: IncidentCost
    judgement: Judgement
    acts: tuple[Act, ...]
    timeline: tuple[TimelineEntry, ...]
    curves: Curves
    unknowns: tuple[str, ...]
    """The facts that the tables lack, with the reasons."""

    @property
    def entities(self) -> tuple[str, ...]:
        """Those that failed over, in that order."""
        return tuple(dict.fromkeys(entity for fate in self.fates for entity in fate.entities))

    @property
    def open(self) -> bool:
        """Whether a failover is not over."""
        return any(one.open for one in self.episodes)

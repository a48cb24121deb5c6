"""The values of a report. Times are seconds since the epoch, durations seconds; None: unknown, or not yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from paired_servicebus.pipeline.report.verdict import Judgement

TOGETHER: Final = 120.0
"""Seconds between two episodes that still make one incident."""
OPEN: Final = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentEpisode:
    """One failover of one entity at one engine, from suspect to home."""

    id: str
    pairing: str
    engine: str
    boot: str
    entity: str
    outcome: str
    """open, recovered, failed back, pinned, engine ended, or engine silent."""
    end_reason: str
    """A sentence; empty: none is known."""
    forced: bool
    cause: str
    began_at: float
    last_good_at: float | None
    """The last send that the primary accepted before."""
    suspected_at: float | None
    failed_over_at: float | None
    first_diverted_at: float | None
    """The first message that a backlog queue accepted."""
    first_ping_at: float | None
    failed_back_at: float | None
    backlog_empty_at: float | None
    last_at: float
    """The time of its latest event."""
    parked: int | None
    """None: not judged yet."""
    moved: int
    dead_lettered: int
    pings: int
    """Sent."""
    pings_accepted: int = 0

    @property
    def open(self) -> bool:
        """Whether it is not over."""
        return self.outcome == OPEN

    @property
    def ended_at(self) -> float:
        """Return the time when the backlog was empty, or the latest known time."""
        return max(at for at in (self.backlog_empty_at, self.failed_back_at, self.last_at) if at is not None)

    @property
    def closed_at(self) -> float | None:
        """Return when its sends had their usual way again, or its engine ended; None: not yet."""
        return None if self.open else self.failed_back_at or self.last_at

    @property
    def to_detect(self) -> float | None:
        """Return the longest possible delay of detection: from the last good send to the first counted failure."""
        return _between(self.last_good_at, self.suspected_at)

    @property
    def to_divert(self) -> float | None:
        """From the first failure to the failover."""
        return _between(self.suspected_at, self.failed_over_at)

    @property
    def to_recover(self) -> float | None:
        """From the failover to the failback."""
        return _between(self.failed_over_at, self.failed_back_at)

    @property
    def to_drain(self) -> float | None:
        """From the failback to an empty backlog."""
        return _between(self.failed_back_at, self.backlog_empty_at)


def _between(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else max(0.0, until - since)


Chain = tuple[IncidentEpisode, ...]
"""The episodes of one incident, in order of their begin."""


def incidents(episodes: Iterable[IncidentEpisode]) -> list[Chain]:
    """Return the episodes of a pairing that overlap or nearly touch, together; the oldest incident first."""
    found: list[list[IncidentEpisode]] = []
    current: dict[str, tuple[list[IncidentEpisode], float]] = {}
    for episode in sorted(episodes, key=lambda one: (one.began_at, one.id)):
        chain, end = current.get(episode.pairing, ([], 0.0))
        if not chain or episode.began_at > end + TOGETHER:
            chain, end = [], 0.0
            found.append(chain)
        chain.append(episode)
        current[episode.pairing] = chain, max(end, episode.ended_at)
    return [tuple(chain) for chain in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Figures of a time: messages of an incident's entities, and operations of all engines of its pairing.

    None: no record covers it.
    """

    since: float
    until: float
    to_primary: int | None = None
    to_backlog: int | None = None
    failed: int | None = None
    """Attempts that failed, on any route."""
    operations: int | None = None
    added: int | None = None
    """Operations besides sends to the primary."""

    @property
    def seconds(self) -> float:
        return max(0.0, self.until - self.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """An incident beside the minutes around it."""

    before: Stretch
    during: Stretch
    after: Stretch | None
    """None: it goes on, or ended a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The failovers of one entity in a report, at all engines."""

    entity: str
    engines: tuple[str, ...]
    times: int
    """At one engine, at most."""
    forced: bool
    """Whether operators forced all of them."""
    outcome: str
    """Of the last one; open, if any is."""
    end_reasons: tuple[str, ...]
    causes: tuple[str, ...]
    suspected_at: float | None
    """The earliest; so is `failed_over_at`."""
    failed_over_at: float | None
    first_ping_at: float | None
    """The latest; so is `failed_back_at`. None: one engine's last failover has none."""
    failed_back_at: float | None
    backlog_empty_at: float | None
    to_detect: float | None
    """The longest of all; so are `to_divert` and `to_drain`."""
    to_divert: float | None
    away: float | None
    """Seconds at one engine, all its failovers together, at most."""
    to_drain: float | None
    parked: int | None
    pings: int


def failovers(chain: Chain) -> tuple[Failover, ...]:
    """Return the failovers of each entity, in order of their first ones."""
    found: dict[str, list[IncidentEpisode]] = {}
    for episode in chain:
        found.setdefault(episode.entity.casefold(), []).append(episode)
    return tuple(sorted(map(_failover, found.values()), key=lambda one: one.failed_over_at or 0.0))


def _failover(episodes: Sequence[IncidentEpisode]) -> Failover:
    engines: dict[str, list[IncidentEpisode]] = {}
    for episode in episodes:
        engines.setdefault(episode.engine, []).append(episode)
    lasts = [mine[-1] for mine in engines.values()]
    judged = [one.parked for one in episodes if one.parked is not None]
    away = [[one.to_recover for one in mine if one.to_recover is not None] for mine in engines.values()]
    return Failover(
        entity=episodes[0].entity,
        engines=tuple(sorted(engines)),
        times=max(map(len, engines.values())),
        forced=all(one.forced for one in episodes),
        outcome=OPEN if any(one.open for one in episodes) else lasts[-1].outcome,
        end_reasons=tuple(dict.fromkeys(one.end_reason for one in lasts if one.end_reason)),
        causes=tuple(dict.fromkeys(one.cause for one in episodes if one.cause)),
        suspected_at=min((one.suspected_at for one in episodes if one.suspected_at is not None), default=None),
        failed_over_at=min((one.failed_over_at for one in episodes if one.failed_over_at is not None), default=None),
        first_ping_at=_latest(one.first_ping_at for one in lasts),
        failed_back_at=_latest(one.failed_back_at for one in lasts),
        backlog_empty_at=_latest(one.backlog_empty_at for one in lasts),
        to_detect=_longest(one.to_detect for one in episodes),
        to_divert=_longest(one.to_divert for one in episodes),
        away=max((sum(mine) for mine in away if mine), default=None),
        to_drain=_longest(one.to_drain for one in episodes),
        parked=sum(judged) if judged else None,
        pings=sum(one.pings for one in episodes),
    )


def _latest(times: Iterable[float | None]) -> float | None:
    """Return the latest time; None: one of them is unknown."""
    found = list(times)
    return None if None in found else max(at for at in found if at is not None)


def _longest(durations: Iterable[float | None]) -> float | None:
    return max((one for one in durations if one is not None), default=None)


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
class EntityRow:
    """The results of sends to one entity, and the fates of its messages."""

    entity: str
    """In lower case."""
    failover: Failover | None = None
    """None: it stayed on the primary."""
    primary_accepted: int = 0
    backlog_accepted: int = 0
    failed: int = 0
    """Attempts, on either route."""
    failures: dict[str, int] = field(default_factory=dict)
    """Failed attempts by kind, the most frequent first."""
    blocked: float | None = None
    """Seconds at most, at one engine, from a first failed attempt to the next accepted send, summed up."""
    longest_without: float | None = None
    """Seconds between two accepted sends, at most, while some were tried."""
    refused: int | None = None
    """Messages refused to their callers; None: refusals are not recorded without journal = "all"."""
    parked: int = 0
    home: int = 0
    middle: float | None = None
    """Seconds that half of the parked messages waited at most; `most`: 95 of 100; `longest`: all that are home."""
    most: float | None = None
    longest: float | None = None
    lost: int = 0
    """Lost or missing; `undelivered`: expired or dead-lettered; `unknown`: also unexpected ones."""
    undelivered: int = 0
    unknown: int = 0

    @property
    def share(self) -> float | None:
        """Of attempts that were accepted, by either route."""
        accepted = self.primary_accepted + self.backlog_accepted
        return accepted / (accepted + self.failed) if accepted + self.failed else None

    @property
    def is_touched(self) -> bool:
        """Whether its senders or messages met anything but the usual."""
        numbers = (self.failed, self.refused, self.parked, self.lost, self.undelivered, self.unknown)
        return self.failover is not None or any(numbers)


@dataclass(frozen=True, slots=True)
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
class TimelineEntry:
    """A line of the timeline, for all that it happened to within seconds."""

    at: float
    until: float
    """Of its last repetition."""
    about: tuple[str, ...]
    """Entities or backlog queues; empty: the engine itself."""
    engines: tuple[str, ...]
    text: str
    is_order: bool = False
    """Whether an operator gave it; its text has the outcome."""
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
    recovered: int
    """Times that an entity was suspect and recovered without a failover."""
    engines: tuple[EngineBoot, ...]
    """Those with records in this time, and those with incomplete journals."""
    entities: tuple[EntityRow, ...]
    """Those that failed over first, then those with the most failures."""
    cost: IncidentCost
    judgement: Judgement
    timeline: tuple[TimelineEntry, ...]
    curves: Curves
    unknowns: tuple[str, ...]
    """The facts that the tables lack, with the reasons."""

    @property
    def failovers(self) -> tuple[Failover, ...]:
        """Those of its entities, in order of time."""
        return failovers(self.episodes)

    @property
    def failed_over(self) -> tuple[str, ...]:
        """The entities that failed over, in that order."""
        return tuple(one.entity for one in self.failovers)

    @property
    def open(self) -> bool:
        """Whether a failover is not over."""
        return any(one.open for one in self.episodes)

    @property
    def began(self) -> float:
        """When the first episode began; without one, the begin of the report's time."""
        return min((one.began_at for one in self.episodes), default=self.since)

    @property
    def ended(self) -> float | None:
        """When the last entity was back on the primary; None: not all of them are, or how is unknown."""
        backs = [one.failed_back_at for one in self.episodes if one.failed_back_at is not None]
        return None if self.open else max(backs, default=None)

    def namespaces(self, role: Literal["primary", "secondary"]) -> tuple[str, ...]:
        """Return the names of the primary or the secondary namespaces of its engines."""
        return tuple(dict.fromkeys(name for one in self.engines if (name := getattr(one, role))))

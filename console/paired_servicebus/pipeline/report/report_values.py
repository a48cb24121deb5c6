"""The values of a report. Times are seconds since the epoch, durations seconds; None: unknown, or not yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from paired_servicebus.pipeline.report.verdict import Judgement

# The values of an incident: its episodes, and the groups of entities that shared a fate.
#
# Times are seconds since the epoch, durations seconds; None: unknown, or not yet.

TOGETHER: Final = 120.0
"""Seconds between two episodes that still make one incident."""
ALIKE: Final = 30.0
"""Seconds by which the times of one fate may differ."""
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

    @property
    def open(self) -> bool:
        """Whether it is not over."""
        return self.outcome == OPEN

    @property
    def ended_at(self) -> float:
        """Return the time when the backlog was empty, or the latest known time."""
        return max(at for at in (self.backlog_empty_at, self.failed_back_at, self.last_at) if at is not None)

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
Range = tuple[float, float]


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
class Fate:
    """Entities, at one engine or several, that failed over and returned together."""

    entities: tuple[str, ...]
    engines: tuple[str, ...]
    times: tuple[int, int]
    """The fewest and the most failovers of an entity at an engine."""
    forced: bool
    outcome: str
    """Of the last episode."""
    end_reasons: tuple[str, ...]
    causes: tuple[str, ...]
    suspected_at: Range | None
    """The earliest and the latest of the first episodes; so are `failed_over_at`, `to_detect` and `to_divert`."""
    failed_over_at: Range | None
    first_ping_at: Range | None
    failed_back_at: Range | None
    """Of the last episodes; so are `first_ping_at` and `backlog_empty_at`."""
    backlog_empty_at: Range | None
    to_detect: Range | None
    to_divert: Range | None
    away: Range | None
    """Seconds that an entity was failed over at an engine, all its episodes together."""
    to_drain: Range | None
    parked: int | None
    dead_lettered: int
    pings: int


def shared_fates(chain: Chain) -> tuple[Fate, ...]:
    """Return the groups of entities that shared a fate, in order of their first failovers.

    A fate is shared if cause by force, number of failovers (one or several), and outcome are equal, and the first
    failovers and the last failbacks are at most ALIKE apart.
    """
    threads: dict[tuple[str, str], list[IncidentEpisode]] = {}
    for episode in chain:
        threads.setdefault((episode.engine, episode.entity.casefold()), []).append(episode)
    groups: list[list[list[IncidentEpisode]]] = []
    for thread in sorted(threads.values(), key=lambda one: (one[0].failed_over_at or one[0].began_at, one[0].id)):
        group = next((found for found in groups if _is_shared(found[0], thread)), None)
        if group is None:
            groups.append([thread])
        else:
            group.append(thread)
    return tuple(_fate(group) for group in groups)


def _is_shared(one: Sequence[IncidentEpisode], other: Sequence[IncidentEpisode]) -> bool:
    return (
        _kind(one) == _kind(other)
        and _is_near(one[0].failed_over_at, other[0].failed_over_at)
        and _is_near(one[-1].failed_back_at, other[-1].failed_back_at)
    )


def _kind(thread: Sequence[IncidentEpisode]) -> tuple[bool, bool, str]:
    return len(thread) > 1, thread[0].forced, thread[-1].outcome


def _is_near(one: float | None, other: float | None) -> bool:
    return one == other if one is None or other is None else abs(one - other) <= ALIKE


def _fate(group: Sequence[Sequence[IncidentEpisode]]) -> Fate:
    episodes = [episode for thread in group for episode in thread]
    firsts, lasts = [thread[0] for thread in group], [thread[-1] for thread in group]
    drained = all(one.backlog_empty_at is not None for one in lasts)
    judged = [one.parked for one in episodes if one.parked is not None]
    return Fate(
        entities=tuple(sorted({one.entity for one in firsts}, key=str.casefold)),
        engines=tuple(sorted({one.engine for one in firsts})),
        times=(min(map(len, group)), max(map(len, group))),
        forced=firsts[0].forced,
        outcome=lasts[0].outcome,
        end_reasons=tuple(dict.fromkeys(one.end_reason for one in lasts if one.end_reason)),
        causes=tuple(dict.fromkeys(one.cause for one in episodes if one.cause)),
        suspected_at=_range(one.suspected_at for one in firsts),
        failed_over_at=_range(one.failed_over_at for one in firsts),
        first_ping_at=_range(one.first_ping_at for one in lasts),
        failed_back_at=_range(one.failed_back_at for one in lasts),
        backlog_empty_at=_range(one.backlog_empty_at for one in lasts) if drained else None,
        to_detect=_range(one.to_detect for one in firsts),
        to_divert=_range(one.to_divert for one in firsts),
        away=_range(_away(thread) for thread in group),
        to_drain=_range(one.to_drain for one in lasts),
        parked=sum(judged) if judged else None,
        dead_lettered=sum(one.dead_lettered for one in episodes),
        pings=sum(one.pings for one in episodes),
    )


def _away(thread: Sequence[IncidentEpisode]) -> float | None:
    found = [one.to_recover for one in thread if one.to_recover is not None]
    return sum(found) if found else None


def _range(values: Iterable[float | None]) -> Range | None:
    found = [value for value in values if value is not None]
    return (min(found), max(found)) if found else None


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
    """What senders to one entity met, and how long its messages were parked."""

    entity: str
    """In lower case."""
    failed_over_at: float | None = None
    """The first failover of this report; None: it stayed on the primary."""
    failed_back_at: float | None = None
    """The last failback; None: not back yet, or never away."""
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
    """Messages whose caller was refused; None: refusals are not recorded without journal = "all"."""
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
        return self.failed_over_at is not None or any(numbers)


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
    entities: tuple[EntityRow, ...]
    """Those that failed over first, then those with the most failures."""
    cost: IncidentCost
    judgement: Judgement
    acts: tuple[Act, ...]
    timeline: tuple[TimelineEntry, ...]
    curves: Curves
    unknowns: tuple[str, ...]
    """The facts that the tables lack, with the reasons."""

    @property
    def failed_over(self) -> tuple[str, ...]:
        """The entities that failed over, in that order."""
        return tuple(dict.fromkeys(entity for fate in self.fates for entity in fate.entities))

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

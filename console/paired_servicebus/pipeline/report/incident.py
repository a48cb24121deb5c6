"""The values of a report. Times are seconds since the epoch, durations seconds; None: not known, or not yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

TOGETHER: Final = 120.0
"""Seconds between two episodes that still make one incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentEpisode:
    """One entity's way from suspect to home."""

    id: str
    engine: str
    entity: str
    outcome: str
    open: bool
    forced: bool
    cause: str
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
    """The latest thing that is known of it."""
    parked: int
    moved: int
    dead_lettered: int
    pings: int

    @property
    def began_at(self) -> float:
        """When it was first noticed."""
        return min(at for at in (self.suspected_at, self.failed_over_at, self.last_at) if at is not None)

    @property
    def ended_at(self) -> float:
        """Return the time when the backlog was empty, or the latest known time."""
        return max(at for at in (self.backlog_empty_at, self.failed_back_at, self.last_at) if at is not None)

    @property
    def to_detect(self) -> float | None:
        """Return the longest possible delay of detection: from the last good send to the first counted failure.

        In seconds.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """The results for callers of one entity within the report's time."""

    entity: str
    primary_accepted: int
    backlog_accepted: int
    failed: int
    """Attempts, on either route."""
    failures: dict[str, int]
    """By kind."""
    longest_without: float
    """Seconds between two accepted sends, at most, while some were tried."""

    @property
    def share(self) -> float | None:
        """Of attempts that were accepted, by whichever route."""
        accepted = self.primary_accepted + self.backlog_accepted
        return accepted / (accepted + self.failed) if accepted + self.failed else None

    @property
    def primary_share(self) -> float | None:
        """Of messages that the primary took."""
        accepted = self.primary_accepted + self.backlog_accepted
        return self.primary_accepted / accepted if accepted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dwell:
    """How long messages were parked, of those that have come home."""

    entity: str
    parked: int
    home: int
    middle: float | None
    most: float | None
    """The 95th of a hundred."""
    longest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Billed operations of one cause."""

    cause: str
    operations: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """A line of the timeline."""

    at: float
    about: str
    """An entity, a backlog queue, or empty: the engine."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineAct:
    """An operator's action."""

    at: float
    by: str
    what: str
    target: str
    why: str
    outcome: str


Verdict = Literal["nothing lost", "messages lost", "not judged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The audit's figures over the whole record, its verdict, and its evidence."""

    verdict: Verdict
    figures: dict[str, int]
    receivers_told: bool
    evidence: tuple[str, ...]
    in_flight_age: float | None = None
    """Seconds that the oldest message has waited for a receiver, of those that are not counted as lost yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Something over time for a plot: a value for each of the report's buckets."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The data of the plots. Rates are messages a second."""

    since: float
    bucket: float
    """Seconds."""
    sends: dict[str, tuple[Series, ...]]
    """By entity: to the primary, to the backlog, failed."""
    parked: Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report."""

    batch: int
    written_at: float
    read_at: float
    since: float
    until: float
    episodes: tuple[IncidentEpisode, ...]
    recovered: int
    """Times that an entity was suspect and recovered without a failover."""
    availability: tuple[Availability, ...]
    dwell: tuple[Dwell, ...]
    cost: tuple[Cost, ...]
    audit: Audit
    acts: tuple[TimelineAct, ...]
    timeline: tuple[TimelineEntry, ...]
    curves: Curves
    warnings: tuple[str, ...]
    """The facts that the tables lack, with the reasons."""

    @property
    def entities(self) -> tuple[str, ...]:
        """Those that failed over, in that order."""
        return tuple(dict.fromkeys(one.entity for one in self.episodes if one.failed_over_at is not None))


def incidents(episodes: Sequence[IncidentEpisode]) -> list[tuple[IncidentEpisode, ...]]:
    """Episodes that overlap or nearly touch, together; oldest first."""
    found: list[list[IncidentEpisode]] = []
    end = 0.0
    for episode in sorted(episodes, key=lambda one: (one.began_at, one.id)):
        if found and episode.began_at <= end + TOGETHER:
            found[-1].append(episode)
        else:
            found.append([episode])
            end = 0.0
        end = max(end, episode.ended_at)
    return [tuple(chain) for chain in found]


Row = dict[str, Any]
LONGEST: Final = 160
"""Characters of a reason."""


def timeline_of(rows: Sequence[Row]) -> tuple[TimelineEntry, ...]:
    """Return a sentence for each event row, in order of time; repeats without news are merged with their number."""
    moments: list[TimelineEntry] = []
    repeats: dict[str, int] = {}
    latest: dict[str, int] = {}
    for row in rows:
        tell = _TELLS.get(row["kind"])
        text = tell(row) if tell is not None else None
        if text is None:
            continue
        about = _about(row)
        key = f"{about}\0{text}" if row["kind"] in _REPEATING else ""
        if key and latest.get(about) is not None and moments[latest[about]].text.split(" (again")[0] == text:
            repeats[key] = repeats.get(key, 1) + 1
            index = latest[about]
            told = moments[index]
            moments[index] = TimelineEntry(at=told.at, about=about, text=f"{text} (again, {repeats[key]} times in all)")
            continue
        repeats.pop(key, None)
        latest[about] = len(moments)
        moments.append(TimelineEntry(at=row["ts"] / 1e6, about=about, text=text))
    return tuple(moments)


def _about(row: Row) -> str:
    if row.get("entity"):
        return str(row["entity"])
    return f"backlog/{row['queue']}" if row.get("queue") is not None else ""


def _short(text: object) -> str:
    said = " ".join(str(text or "").split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def _state(row: Row) -> str:
    by = f" (by {row['by']})" if row["by"] else ""
    return f"{row['was']} → {row['now']}: {_short(row['why'])}{by}"


def _hand(what: str) -> Callable[[Row], str]:
    def tell(row: Row) -> str:
        why = f': "{_short(row["why"])}"' if row["why"] else ""
        return f"{what} by {row['by']}{why}"

    return tell


def _ping_accepted(row: Row) -> str:
    return "a ping was accepted"


def _ping_failed(row: Row) -> str:
    return f"a ping was {'throttled' if row['throttled'] else 'not accepted'}: {_short(row['reason'])}"


def _dead_lettered(row: Row) -> str:
    return f"dead-lettered: {_short(row['reason'])}"


_TELLS: Final[dict[str, Callable[[Row], str | None]]] = {
    "engine-started": lambda row: f"the engine started with {row['backlog_queues']} backlog queues",
    "engine-stopped": lambda row: f"the engine stopped: {_short(row['reason'])}",
    "state-changed": _state,
    "ping-accepted": _ping_accepted,
    "ping-failed": _ping_failed,
    "queue-pulled": lambda row: f"left the rotation: {_short(row['reason'])}",
    "queue-restored": lambda row: "is in the rotation again",
    "dead-lettered": _dead_lettered,
    "destination-failed": lambda row: f"the syphon could not deliver: {_short(row['reason'])}",
    "destination-healed": lambda row: "the syphon delivers again",
    "pump-stopped": lambda row: f"its pump stopped: {_short(row['reason'])}",
    "forced": _hand("forced"),
    "pinned": _hand("pinned"),
    "released": _hand("released"),
    "syphon-paused": _hand("the syphon was paused"),
    "syphon-resumed": _hand("the syphon was resumed"),
    "warned": lambda row: f"warning about {row['about']}: {_short(row['text'])}",
}
_REPEATING: Final = frozenset({"ping-accepted", "ping-failed", "dead-lettered", "destination-failed", "pump-stopped"})

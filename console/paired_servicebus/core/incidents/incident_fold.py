"""Folds an engine's events into incidents: the entities' episodes that overlap or nearly touch, with their figures.

An episode is one entity's way from its first failure to home. One that never failed over is none. Figures compare the
minutes before, the incident, and the minutes after. What the events do not cover is None, never 0. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import DIVERTING, State

TOGETHER_SECONDS: Final = 120.0
"""Seconds between two episodes that still make one incident."""
AROUND_SECONDS: Final = 300.0
"""Seconds before and after an incident that it is compared with, at most."""
LEAST_SECONDS: Final = 5.0
"""Seconds that a rate needs."""
COUNT_SECONDS: Final = 1.0
"""Seconds before its time that a count is of."""
ENGINE_ENDED: Final = "the engine ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One entity's episode. Times are seconds since the epoch; None: not yet, or not known."""

    entity: str
    began_at: float
    failed_over_at: float
    back_at: float | None = None
    """When it ended."""
    cause: str = ""
    """The sentence of its first failure, or of its order."""
    end: str = ""
    """Why it ended, if the entity did not come home."""
    pings: int = 0
    pings_accepted: int = 0
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Figures of a stretch of time: messages of the incident's entities, and operations of the whole engine.

    None: the events do not cover it.
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
class IncidentRecord:
    """One incident."""

    began_at: float
    ended_at: float | None
    """When its last entity was home; None: it goes on."""
    episodes: tuple[Episode, ...]
    before: Stretch
    during: Stretch
    after: Stretch | None
    """None: it goes on, or ended a moment ago."""

    @property
    def entities(self) -> tuple[str, ...]:
        """Its entities, in the order of their failure."""
        return tuple(dict.fromkeys(one.entity for one in self.episodes))

    @property
    def id(self) -> str:
        """A name that stays the same while it goes on."""
        return f"{self.began_at:.3f} {self.episodes[0].entity}"


@dataclass(slots=True)
class _Open:
    """An episode that goes on."""

    began_at: float
    cause: str
    failed_over_at: float | None = None
    pings: int = 0
    accepted: int = 0
    forced: bool = False


@dataclass(slots=True)
class _Counts:
    """Sums over time, in the order of time."""

    times: list[float] = field(default_factory=list)
    values: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, at: float, *values: int) -> None:
        self.times.append(at)
        self.values.append(values)

    def total(self, since: float, until: float) -> tuple[int, ...] | None:
        """Return the sums after `since` up to `until`; None: no count falls into it."""
        found = self.values[bisect_right(self.times, since) : bisect_right(self.times, until)]
        return tuple(map(sum, zip(*found, strict=True))) if found else None


class IncidentFold:
    """Takes events in the order of time; `incidents` returns those so far."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._done: list[Episode] = []
        self._sends: dict[str, _Counts] = {}
        self._operations = _Counts()
        self._first_at: float | None = None
        self._last_at = 0.0

    def add(self, event: e.Event) -> None:
        """Take one event; kinds without a bearing are ignored."""
        self._first_at = event.at - COUNT_SECONDS if self._first_at is None else self._first_at
        self._last_at = max(self._last_at, event.at)
        match event:
            case e.StateChanged():
                self._turn(event)
            case e.PingAccepted() | e.PingFailed() if (one := self._open.get(event.entity)) is not None:
                one.pings += 1
                one.accepted += isinstance(event, e.PingAccepted)
            case e.SendsCounted():
                primary = event.accepted if event.route == "primary" else 0
                counts = self._sends.setdefault(event.entity, _Counts())
                counts.add(event.at, primary, event.accepted - primary, event.failed)
            case e.OperationsCounted():
                added = event.parked + event.pings + event.receives + event.moves + event.settlements
                self._operations.add(event.at, event.sends + added, added)
            case e.EngineStarted() | e.EngineStopped():
                for entity in tuple(self._open):
                    self._close(entity, event.at, end=ENGINE_ENDED)

    def _turn(self, event: e.StateChanged) -> None:
        one = self._open.get(event.entity)
        if event.now == State.SUSPECT and one is None:
            self._open[event.entity] = _Open(event.at, event.why)
        elif event.now in DIVERTING:
            one = self._open.setdefault(event.entity, _Open(event.at, event.why))
            one.failed_over_at = one.failed_over_at or event.at
            one.forced = one.forced or event.now == State.FORCED
        elif event.now != State.SUSPECT and one is not None:
            self._close(event.entity, event.at, end="" if event.now == State.HEALTHY else f"it is {event.now}")

    def _close(self, entity: str, at: float, *, end: str) -> None:
        one = self._open.pop(entity)
        if one.failed_over_at is not None:
            self._done.append(_episode(entity, one, at, end))

    def incidents(self) -> tuple[IncidentRecord, ...]:
        """Return the incidents, oldest first."""
        still = [_episode(entity, one, None) for entity, one in self._open.items() if one.failed_over_at is not None]
        chains: list[list[Episode]] = []
        for episode in sorted((*self._done, *still), key=lambda one: (one.began_at, one.entity)):
            end = _end(chains[-1]) if chains else 0.0
            if chains and (end is None or episode.began_at <= end + TOGETHER_SECONDS):
                chains[-1].append(episode)
            else:
                chains.append([episode])
        followers = [chain[0].began_at for chain in chains[1:]]
        ends = (*followers, self._last_at)
        return tuple(self._record(chain, then) for chain, then in zip(chains, ends, strict=False))

    def _record(self, chain: Sequence[Episode], then: float) -> IncidentRecord:
        """Return the incident of a chain; `then`: when the next one began, or the latest event."""
        began, ended, entities = chain[0].began_at, _end(chain), {one.entity for one in chain}
        first = self._first_at if self._first_at is not None else began
        after = None
        if ended is not None and then - ended >= LEAST_SECONDS:
            after = self._stretch(ended, min(then, ended + AROUND_SECONDS), entities)
        return IncidentRecord(
            began_at=began,
            ended_at=ended,
            episodes=tuple(chain),
            before=self._stretch(max(first, began - AROUND_SECONDS), began, entities),
            during=self._stretch(began, self._last_at if ended is None else ended, entities),
            after=after,
        )

    def _stretch(self, since: float, until: float, entities: Iterable[str]) -> Stretch:
        if until - since < LEAST_SECONDS:
            return Stretch(since=since, until=until)
        each = [self._sends[entity].total(since, until) for entity in entities if entity in self._sends]
        sends = [one for one in each if one is not None]
        primary, backlog, failed = map(sum, zip(*sends, strict=True)) if sends else (None, None, None)
        operations, added = self._operations.total(since, until) or (None, None)
        return Stretch(
            since=since,
            until=until,
            to_primary=primary,
            to_backlog=backlog,
            failed=failed,
            operations=operations,
            added=added,
        )


def _episode(entity: str, one: _Open, back_at: float | None, end: str = "") -> Episode:
    assert one.failed_over_at is not None, "it is an episode since it failed over"
    return Episode(
        entity=entity,
        began_at=one.began_at,
        failed_over_at=one.failed_over_at,
        back_at=back_at,
        cause=one.cause,
        end=end,
        pings=one.pings,
        pings_accepted=one.accepted,
        forced=one.forced,
    )


def _end(chain: Sequence[Episode]) -> float | None:
    """Return when the last of them was home; None: one is not."""
    ends = [one.back_at for one in chain]
    return None if None in ends else max(at for at in ends if at is not None)

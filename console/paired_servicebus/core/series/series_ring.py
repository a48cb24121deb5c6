"""The curves that an engine keeps, from its snapshots: a ring of fixed length for the totals and for each entity. Pure.

Values are single-precision numbers in arrays; an entity needs 3.6 kB. Only entities with sends in the last fifteen
minutes have a ring, and MOST_ENTITIES at most: one more gets a ring when another's sends are over.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Final

from paired_servicebus.core.accounting.send_times import Buckets, joined, percentile
from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.series.graphs import (
    KEPT,
    MOST_ENTITIES,
    MOST_MARKS,
    NAMES,
    OF_ENTITY,
    RATES,
    STEP_SECONDS,
    Curves,
    Graphs,
    Mark,
)

Values = dict[str, float]
"""One value of each curve; not-a-number is unknown."""
_NO_CALLS: Final[Buckets] = {}


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counters of a snapshot: messages accepted, parked and refused by entity; and moved."""

    at: float
    by_entity: Mapping[str, tuple[int, int, int]]
    moved: int


class _Ring:
    """The curves of one subject."""

    __slots__ = ("_curves", "quiet")

    def __init__(self, names: Sequence[str], length: int) -> None:
        self._curves = {name: array("f", [0.0 if name in RATES else nan] * length) for name in names}
        self.quiet = 0
        """Steps since the last message."""

    def add(self, values: Values) -> None:
        for name, curve in self._curves.items():
            curve.append(values.get(name, nan))
            if len(curve) > KEPT:
                del curve[0]
        self.quiet = 0 if any(values.get(name, 0.0) > 0 for name in RATES) else self.quiet + 1

    def curves(self, length: int = KEPT) -> Curves:
        """Return the newest `length` values of each curve."""
        return Curves(**{name: tuple(map(_known, curve[-length:])) for name, curve in self._curves.items()})


class SeriesRing:
    """The curves of one engine. `add` is called each STEP_SECONDS."""

    def __init__(self) -> None:
        self._total = _Ring(NAMES, 0)
        self._entities: dict[str, _Ring] = {}
        self._length = 0
        self._before: _Counts | None = None
        self._crowded = False
        self._marks: deque[Mark] = deque(maxlen=MOST_MARKS)
        self._new_marks: list[Mark] = []

    def mark(self, mark: Mark) -> None:
        """Note a change or an order."""
        self._marks.append(mark)
        self._new_marks = [*self._new_marks, mark][-MOST_MARKS:]

    def add(self, snapshot: Snapshot, times: Mapping[str, Buckets]) -> Graphs | None:
        """Add one value to each curve, and return these values; None for the first snapshot, which begins the count.

        times: the calls since the snapshot before, by entity.
        """
        before, now = self._before, _counts(snapshot)
        self._before = now
        if before is None:
            return None
        seconds = now.at - before.at
        missed = min(KEPT, max(0, round(seconds / STEP_SECONDS) - 1))
        for _ in range(missed):
            self._add_step({}, {})
        entities = _of_entities(before, now, times, seconds)
        self._add_step(_of_engine(entities, before, now, snapshot, joined(times.values()), seconds), entities)
        marks, self._new_marks = tuple(self._new_marks), []
        kept = {path: ring.curves(1) for path, ring in self._entities.items() if ring.quiet == 0}
        return self._graphs(now.at, self._total.curves(1), kept, marks, whole=False)

    def whole(self) -> Graphs | None:
        """Return all curves; None before the second snapshot."""
        if self._before is None or not self._length:
            return None
        kept = {path: ring.curves() for path, ring in self._entities.items()}
        return self._graphs(self._before.at, self._total.curves(), kept, tuple(self._marks), whole=True)

    def _graphs(
        self, at: float, total: Curves, entities: Mapping[str, Curves], marks: tuple[Mark, ...], *, whole: bool
    ) -> Graphs:
        return Graphs(at=at, whole=whole, total=total, entities=entities, marks=marks, crowded=self._crowded)

    def _add_step(self, total: Values, entities: Mapping[str, Values]) -> None:
        self._total.add(total)
        for path in [path for path, ring in self._entities.items() if ring.quiet >= KEPT]:
            del self._entities[path]
        self._crowded = False
        for path, values in entities.items():
            if path in self._entities or not any(values[name] for name in RATES):
                continue
            if len(self._entities) >= MOST_ENTITIES:
                self._crowded = True
                break
            self._entities[path] = _Ring(OF_ENTITY, self._length)
        for path, ring in self._entities.items():
            ring.add(entities.get(path, {}))
        self._length = min(KEPT, self._length + 1)


def _counts(snapshot: Snapshot) -> _Counts:
    counts = {entity.path: (entity.accepted, entity.diverted, entity.refused) for entity in snapshot.entities}
    return _Counts(snapshot.at, counts, snapshot.syphon.moved)


def _of_entities(before: _Counts, now: _Counts, times: Mapping[str, Buckets], seconds: float) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for path, counts in now.by_entity.items():
        was = before.by_entity.get(path, (0, 0, 0))
        rates = (_rate(new - old, seconds) for new, old in zip(counts, was, strict=True))
        found[path] = dict(zip(RATES, rates, strict=True)) | _percentiles(times.get(path, _NO_CALLS))
    return found


def _of_engine(
    entities: Mapping[str, Values],
    before: _Counts,
    now: _Counts,
    snapshot: Snapshot,
    calls: Buckets,
    seconds: float,
) -> Values:
    sums = {name: sum(values[name] for values in entities.values()) for name in RATES}
    moved = _rate(now.moved - before.moved, seconds)
    return {**sums, **_percentiles(calls), "parked": _parked(snapshot), "moved": moved}


def _percentiles(calls: Buckets) -> Values:
    shares = {"p50": percentile(calls, 0.5), "p99": percentile(calls, 0.99)}
    return {name: nan if found is None else found * 1000 for name, found in shares.items()}


def _parked(snapshot: Snapshot) -> float:
    """Return the parked messages; not-a-number while a depth is unread or old."""
    sums = sum_backlog(snapshot)
    return float(sums.messages) if sums.queues and sums.known == sums.queues and not sums.old else nan


def _rate(messages: int, seconds: float) -> float:
    return max(0, messages) / seconds if seconds > 0 else nan


def _known(value: float) -> float | None:
    """Return the value with one decimal; None: unknown."""
    return None if isnan(value) else round(value, 1)

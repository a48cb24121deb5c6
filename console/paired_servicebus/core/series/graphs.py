"""Fifteen minutes of figures, one each five seconds, as a console has them. Frozen values, pure functions.

The engine sends all of them once, and then each new value. None is unknown. All curves of one `Graphs` are equally
long; its newest value ends at `at`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isnan, nan
from typing import Final

from paired_servicebus.core.accounting.send_times import Buckets, joined, percentile
from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.snapshot import Snapshot

STEP_SECONDS: Final = 5.0
KEPT: Final = 180
"""Values of a curve."""
MOST_MARKS: Final = 60
MOST_ENTITIES: Final = 250
"""Entities with curves of their own: 0.9 MB in the engine."""

Curve = tuple[float | None, ...]
"""Values from the oldest to the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The curves of one entity, or of the engine."""

    to_primary: Curve = ()
    """Messages a second that the primary accepted."""
    to_backlog: Curve = ()
    """Messages a second that backlog queues accepted."""
    refused: Curve = ()
    """Messages a second of calls that ended in an error at their caller."""
    p50: Curve = ()
    """Milliseconds of a send call, from its start to its end, accepted or refused: the median. None: no call."""
    p99: Curve = ()
    parked: Curve = ()
    """Messages in the backlog queues, and those the syphon moved a second: of the engine only."""
    moved: Curve = ()


NAMES: Final = tuple(each.name for each in fields(Curves))
RATES: Final = ("to_primary", "to_backlog", "refused")
OF_ENTITY: Final = (*RATES, "p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that changed the curves: an entity's new state, or an operator's order."""

    at: float
    what: str
    """The state, or the order."""
    subject: str
    order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """The curves of an engine: all of them, or those of the newest step."""

    at: float
    whole: bool
    total: Curves
    entities: Mapping[str, Curves] = field(default_factory=dict)
    """By path: those with sends within the time of the curves, MOST_ENTITIES at most."""
    marks: tuple[Mark, ...] = ()
    crowded: bool = False
    """Whether there are more entities with sends than it keeps."""
    step: float = STEP_SECONDS

    @property
    def length(self) -> int:
        """The number of values of each curve."""
        return len(self.total.to_primary)

    def of(self, path: str) -> Curves | None:
        """Return the curves of an entity; None: it had no sends, or too many entities have."""
        folded = path.casefold()
        return next((curves for name, curves in self.entities.items() if name.casefold() == folded), None)


def follow(before: Graphs | None, new: Graphs) -> Graphs:
    """Return the curves after a step; steps that did not arrive are unknown."""
    if new.whole or before is None or new.step != before.step or new.at <= before.at:
        return replace(new, whole=True)
    missed = min(KEPT, max(0, round((new.at - before.at) / new.step) - new.length))
    length = min(KEPT, before.length + missed + new.length)
    entities: dict[str, Curves] = {}
    for path in before.entities.keys() | new.entities.keys():
        old = before.entities.get(path) or _idle(before.length, OF_ENTITY)
        step = new.entities.get(path) or _idle(new.length, OF_ENTITY)
        grown = _extended(old, step, missed, length)
        if path in new.entities or any(any(getattr(grown, name)) for name in RATES):
            entities[path] = grown
    marks = tuple(mark for mark in (*before.marks, *new.marks) if mark.at > new.at - KEPT * new.step)
    return replace(
        new,
        whole=True,
        total=_extended(before.total, new.total, missed, length),
        entities=entities,
        marks=marks[-MOST_MARKS:],
    )


def _idle(length: int, names: tuple[str, ...]) -> Curves:
    """Return the curves of an entity without sends."""
    return Curves(**{name: (0.0 if name in RATES else None,) * length for name in names})


def _extended(old: Curves, new: Curves, missed: int, length: int) -> Curves:
    gap: Curve = (None,) * missed
    found: dict[str, Curve] = {}
    for name in NAMES:
        step: Curve = getattr(new, name)
        if step:
            found[name] = (getattr(old, name) + gap + step)[-length:]
    return Curves(**found)


# The curves that an engine keeps, from its snapshots: a ring of fixed length for the totals and for each entity. Pure.
#
# Values are single-precision numbers in arrays; an entity needs 3.6 kB. Only entities with sends in the last fifteen
# minutes have a ring, and MOST_ENTITIES at most: one more gets a ring when another's sends are over.

Values = dict[str, float]
"""One value of each curve; not-a-number is unknown."""
_NO_CALLS: Final[Buckets] = {}


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
        self._before: Snapshot | None = None
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
        before, self._before = self._before, snapshot
        if before is None:
            return None
        seconds = snapshot.at - before.at
        missed = min(KEPT, max(0, round(seconds / STEP_SECONDS) - 1))
        for _ in range(missed):
            self._add_step({}, {})
        entities = _of_entities(before, snapshot, times, seconds)
        self._add_step(_of_engine(entities, before, snapshot, joined(times.values()), seconds), entities)
        marks, self._new_marks = tuple(self._new_marks), []
        kept = {path: ring.curves(1) for path, ring in self._entities.items() if ring.quiet == 0}
        return self._graphs(snapshot.at, self._total.curves(1), kept, marks, whole=False)

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


def _counts(snapshot: Snapshot) -> dict[str, tuple[int, int, int]]:
    """Return the messages accepted, parked and refused by entity."""
    return {entity.path: (entity.accepted, entity.diverted, entity.refused) for entity in snapshot.entities}


def _of_entities(before: Snapshot, now: Snapshot, times: Mapping[str, Buckets], seconds: float) -> dict[str, Values]:
    found: dict[str, Values] = {}
    earlier = _counts(before)
    for path, counts in _counts(now).items():
        was = earlier.get(path, (0, 0, 0))
        rates = (_rate(new - old, seconds) for new, old in zip(counts, was, strict=True))
        found[path] = dict(zip(RATES, rates, strict=True)) | _percentiles(times.get(path, _NO_CALLS))
    return found


def _of_engine(
    entities: Mapping[str, Values], before: Snapshot, now: Snapshot, calls: Buckets, seconds: float
) -> Values:
    sums = {name: sum(values[name] for values in entities.values()) for name in RATES}
    moved = _rate(now.syphon.moved - before.syphon.moved, seconds)
    return {**sums, **_percentiles(calls), "parked": _parked(now), "moved": moved}


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

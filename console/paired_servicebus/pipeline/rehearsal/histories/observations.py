"""Observations of an entity in a journal: the primary's answers, sends, and sends in doubt; its outages and load.

An outage began between the last good observation and the first bad one. It ended between the last bad one and the first
good one. If counts of one second have both, the outage affected a share of the requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import median
from typing import Final

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import (
    CONDITIONS,
    OfferedLoad,
    Outage,
    RateStep,
    TimeBounds,
    kind_of_reason,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of the primary: requested at `asked`, answered at `told`. A `window` has both counts."""

    asked: float
    told: float
    good: int
    bad: int
    reason: str = ""
    window: bool = False


@dataclass(slots=True)
class EntityObservations:
    """All that was seen of one entity."""

    path: str
    sightings: list[Observation] = field(default_factory=list)
    accepted: list[tuple[float, float, int]] = field(default_factory=list)
    """From, to and how many, by any route."""
    refusing: list[list[float]] = field(default_factory=list)
    """Return the start and end of each period without an accepted send."""
    kinds: list[tuple[float, FailureKind]] = field(default_factory=list)
    """Failures that were counted, by when."""
    doubts: dict[str, list[float]] = field(default_factory=dict)
    """When each message was in doubt."""

    def served(self, since: float) -> None:
        """Record an accepted send after `since`; before the first refusal it does not mark the end of one."""
        if self.refusing and self.refusing[-1][1] == inf and since >= self.refusing[-1][0]:
            self.refusing[-1][1] = since


def is_unanswered(sight: Observation) -> bool:
    """Return whether no send was answered."""
    return kind_of_reason(sight.reason) is FailureKind.TIMEOUT


WINDOW: Final = 1.0
"""Seconds by which counted sends may be recorded late."""


@dataclass(slots=True)
class Spell:
    """Bad sightings with no good one between them."""

    began: TimeBounds
    last_bad: float
    ended: TimeBounds | None = None
    reasons: list[str] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    """Of the windows inside, where both are known."""


def outages_of(seen: EntityObservations, last: float) -> list[Outage]:
    """Return the outages of one entity; `last` is when the record ends."""
    spells: list[Spell] = []
    good_at: float | None = None
    clean = True
    """Whether a window without a failure lies between the latest spell and now."""
    for sight in sorted(seen.sightings, key=lambda one: one.told):
        spell = spells[-1] if spells and spells[-1].ended is None else None
        if sight.window and sight.good and sight.bad:
            _mixed(spells, spell, sight)
        elif sight.bad:
            if spell is None:
                spell = _opened(spells, sight, good_at, merge=not clean)
                clean = False
            spell.last_bad = max(spell.last_bad, sight.asked if is_unanswered(sight) else sight.told)
            spell.bad += sight.bad if sight.window else 0
            spell.reasons += [sight.reason] if sight.reason else []
        elif spell is None or sight.asked >= spell.last_bad or not sight.window:
            good_at = sight.told
            clean = clean or sight.window
            if spell is not None:
                spell.ended = TimeBounds(min(spell.last_bad, sight.told), sight.told)
    found = (_outage(seen, spell, last) for spell in spells)
    return [outage for outage in found if outage.failure in CONDITIONS]  # the others are of single messages


def _mixed(spells: list[Spell], spell: Spell | None, sight: Observation) -> None:
    """Add a second with both: the edge of a spell, inside of one, or a whole one."""
    if spell is not None:
        if sight.asked > spell.began.latest:
            spell.good, spell.bad = spell.good + sight.good, spell.bad + sight.bad
            spell.last_bad = max(spell.last_bad, sight.asked)
    elif not spells or sight.asked >= (spells[-1].ended or spells[-1].began).latest:
        found = Spell(TimeBounds(sight.asked, sight.told), sight.told, good=sight.good, bad=sight.bad)
        found.ended = TimeBounds(sight.told, sight.told)
        spells.append(found)


def _opened(spells: list[Spell], sight: Observation, good_at: float | None, *, merge: bool) -> Spell:
    """Open a new spell, or the latest again if every second between them had a failure."""
    if merge and spells:
        spell = spells[-1]
        spell.ended = None
        spell.good += 1
        return spell
    earliest = sight.asked if good_at is None else min(good_at, sight.told)
    latest = max(earliest, sight.asked) if is_unanswered(sight) else sight.told
    spells.append(Spell(TimeBounds(earliest, latest), sight.asked))
    return spells[-1]


def _outage(seen: EntityObservations, spell: Spell, last: float) -> Outage:
    ended = spell.ended or TimeBounds(min(spell.last_bad, last), last)
    share = spell.bad / (spell.good + spell.bad) if spell.good and spell.bad else 1.0
    return Outage(seen.path, _kind(seen, spell, ended), spell.began, ended, round(share, 3))


def _kind(seen: EntityObservations, spell: Spell, ended: TimeBounds) -> FailureKind:
    """Return the most frequent failure kind.

    An older journal counts none: a failure without a state change or doubt was throttling.
    """
    found = Counter(kind for kind in map(kind_of_reason, spell.reasons) if kind is not None)
    found.update(kind for at, kind in seen.kinds if spell.began.earliest <= at <= ended.latest + WINDOW)
    return found.most_common(1)[0][0] if found else FailureKind.BUSY


BUCKETS: Final = 60
"""The load is read in about so many parts."""
SHORTEST_BUCKET, LONGEST_BUCKET = 5.0, 60.0
MOST: Final = 5
"""Entities whose load is described one by one."""
COVERED: Final = 0.2
"""The least part of a step that must be free of refusals to measure its load; otherwise the previous step counts."""


def loads_of(seen: EntityObservations, first: float, seconds: float, *, waits: bool) -> Iterable[OfferedLoad]:
    """Return the load offered to an entity: from one caller, or from the observed number if callers wait."""
    callers = max(1, min(len(seen.doubts), _at_once(seen))) if waits else 1
    steps = tuple(_steps(seen, first, seconds))
    shared = tuple(step._replace(rate=step.rate / callers) for step in steps)
    return [OfferedLoad(path=seen.path, steps=shared, waits=waits)] * callers


def _at_once(seen: EntityObservations) -> int:
    """How many different messages were in doubt in the time of one refusal, at most."""
    return max(
        (
            sum(1 for times in seen.doubts.values() if any(since <= at <= until for at in times))
            for since, until in seen.refusing
        ),
        default=1,
    )


def _steps(seen: EntityObservations, first: float, seconds: float) -> Iterable[RateStep]:
    width = min(max(seconds / BUCKETS, SHORTEST_BUCKET), LONGEST_BUCKET)
    counts = [0.0] * (int(seconds / width) + 1)
    for since, until, count in seen.accepted:
        counts[int(max(0.0, (since + until) / 2 - first) / width)] += count
    rate: float | None = None
    for index, counted in enumerate(counts):
        since = first + index * width
        until = min(since + width, first + seconds)
        free = until - since - _refused(seen, since, until)
        if free >= COVERED * width:
            now = round(counted / free, 3)
            if now != rate:
                yield RateStep(since - first, now)
            rate = now


def _refused(seen: EntityObservations, since: float, until: float) -> float:
    return sum(max(0.0, min(until, to) - max(since, at)) for at, to in seen.refusing)


def refusal(seen: Sequence[EntityObservations]) -> float:
    """Return the median duration of refused pings. Sends take the same path, and theirs is not measured."""
    took = [
        sight.told - sight.asked
        for one in seen
        for sight in one.sightings
        if sight.reason and sight.told > sight.asked and not is_unanswered(sight)
    ]
    return round(median(took), 3) if took else 0.0


def insistence(seen: Sequence[EntityObservations]) -> float | None:
    """Return the seconds until callers retried a refused message; None without an observed retry."""
    gaps = [later - at for one in seen for times in one.doubts.values() for at, later in pairwise(times)]
    return round(median(gaps), 3) if gaps else None


def bounds(loads: Sequence[OfferedLoad]) -> str:
    """Return the uncertainty of a forecast when a later load differs from this one."""
    parts: dict[str, list[float]] = {}
    for path in {load.path for load in loads}:
        mine = [load for load in loads if load.path == path]
        parts[path] = [sum(load.rate_at(step.at) for load in mine) for step in mine[0].steps if step.rate > 0.0]
    told = [
        f"{min(rates):.3g} to {max(rates):.3g} a second to {path}" for path, rates in sorted(parts.items()) if rates
    ]
    if not told:
        return ""
    return (
        f"future load: here it was {', '.join(told[:MOST])}; parked, duplicate and reordered messages grow and shrink "
        "with it"
    )

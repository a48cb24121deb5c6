"""The load offered to an entity, from its observations: rate, number of callers, and their reaction to a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from paired_servicebus.pipeline.rehearsal.histories.observations import EntityObservations, is_unanswered
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import OfferedLoad, RateStep

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

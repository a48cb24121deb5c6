"""How long calls took, as counts in buckets: a percentile within 7 %, whatever their number. Pure.

An octave has eight buckets, from a hundredth of a millisecond to an hour, so there are at most some 230 counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import frexp, ldexp
from typing import Final

SHORTEST_SECONDS: Final = 1e-5
LONGEST_SECONDS: Final = 3600.0

Buckets = Mapping[int, int]
"""Calls by bucket."""


class SendTimes:
    """The calls of one entity since they were taken last."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """Count a call that ended after `seconds`, accepted or refused."""
        if not SHORTEST_SECONDS < seconds < LONGEST_SECONDS:
            seconds = LONGEST_SECONDS if seconds >= LONGEST_SECONDS else SHORTEST_SECONDS
        part, octave = frexp(seconds)
        bucket = (octave << 3) + int(part * 16) - 8
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + 1

    def take(self) -> Buckets:
        """Return the counts, and begin anew."""
        taken, self._counts = self._counts, {}
        return taken


def joined(parts: Iterable[Buckets]) -> Buckets:
    """Return the sum of several counts."""
    total: Counter[int] = Counter()
    for part in parts:
        total.update(part)
    return total


def percentile(counts: Buckets, share: float) -> float | None:
    """Return the seconds within which `share` of the calls ended, from 0 to 1; None: there was no call."""
    number = sum(counts.values())
    rank, passed = share * number, 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed >= rank:
            return ldexp(((bucket & 7) + 8.5) / 16, bucket >> 3)
    return None

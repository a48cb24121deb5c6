"""How long calls took, as counts in buckets: a percentile within 7 %, whatever their number. Pure.

An octave has eight buckets, from a hundredth of a millisecond to an hour, so there are at most some 230 counts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import frexp, ldexp
from typing import Final

# Calls of a sender, and the times that follow from them: detection of a failure, and the first diverted send.


@dataclass(frozen=True, slots=True)
class SendAttempt:
    """One call of a sender; times are seconds since the epoch."""

    entity: str
    began: float
    ended: float
    is_accepted: bool


def detection_start(attempts: Sequence[SendAttempt], failed_over_at: float) -> float | None:
    """Return the beginning of the first of the failures that led to a failover; None: no attempt led to it.

    An accepted send ends a suspicion (SPEC.md section 6), so earlier failures do not count. With `failover_interval` 0
    and with `hold_until_failover`, the failing call itself goes on to the backlog: it began before the failover and
    ended after it.
    """
    accepted = [one.ended for one in attempts if one.is_accepted and one.ended < failed_over_at]
    last_accepted = max(accepted, default=0.0)
    led = [one.began for one in attempts if one.ended > last_accepted and one.began <= failed_over_at]
    return min(led, default=None)


def diversion_seconds(attempts: Sequence[SendAttempt], failed_over_at: float) -> float | None:
    """Return the seconds from the first call after a failover to the first accepted one; None: none was accepted."""
    later = [one for one in attempts if one.began >= failed_over_at]
    accepted = [one.ended for one in later if one.is_accepted]
    return min(accepted) - min(one.began for one in later) if accepted else None


SHORTEST_SECONDS: Final = 1e-5
LONGEST_SECONDS: Final = 3600.0
WINDOW_SECONDS: Final = 60
MAX_NEW: Final = 256
"""Calls that are sorted into buckets together."""

Buckets = Mapping[int, int]
"""Calls by bucket."""


class SendTimes:
    """The calls of one entity: those since they were taken last, and those of the last minute."""

    __slots__ = ("_counted", "_counts", "_new", "_recent", "_taken", "_window")

    def __init__(self) -> None:
        self._new: list[float] = []
        """Seconds of calls that are in no bucket yet, so that a call's end costs little."""
        self._counts: dict[int, int] = {}
        """All calls so far."""
        self._taken: Buckets = {}
        self._counted: Buckets = {}
        self._window: deque[Buckets] = deque()
        self._recent: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a call that ended after `seconds`, accepted or refused."""
        self._new.append(seconds)
        if len(self._new) >= MAX_NEW:
            self._sort()

    def _sort(self) -> None:
        for seconds in self._new:
            self._put(seconds)
        self._new.clear()

    def _put(self, seconds: float) -> None:
        if not SHORTEST_SECONDS < seconds < LONGEST_SECONDS:
            seconds = LONGEST_SECONDS if seconds >= LONGEST_SECONDS else SHORTEST_SECONDS
        part, octave = frexp(seconds)
        bucket = (octave << 3) + int(part * 16) - 8
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + 1

    def take(self) -> Buckets:
        """Return the counts since the last call of this."""
        self._sort()
        before, self._taken = self._taken, dict(self._counts)
        return _difference(self._taken, before)

    def count(self) -> None:
        """Move the window of the last minute; called once a second."""
        self._sort()
        before = self._counted
        if self._counts != before:
            self._counted = dict(self._counts)
        elif not self._window:
            return
        self._window.append(_difference(self._counted, before))
        self._recent.update(self._window[-1])
        if len(self._window) > WINDOW_SECONDS:
            self._recent.subtract(self._window.popleft())
        if not any(self._window):
            self._window.clear()
            self._recent.clear()

    @property
    def p99(self) -> float | None:
        """The seconds within which 99 of 100 calls of the last minute ended; None: there was none."""
        return percentile(+self._recent, 0.99)


def _difference(counts: Buckets, before: Buckets) -> Buckets:
    return {bucket: count - before.get(bucket, 0) for bucket, count in counts.items() if count != before.get(bucket, 0)}


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

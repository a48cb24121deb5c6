"""Rounds in which several ways of doing the same take turns, and the ratios of their rates.

Other load on the machine changes every rate. A ratio of two rates is read beside the A/A band: the ratios of two equal
ways in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeVar

MICROSECONDS: Final = 1e6

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One turn of a way. cpu_seconds: of this whole process."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Return messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """Return microseconds of CPU a message."""
        return MICROSECONDS * self.cpu_seconds / self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Medians of the laps of a way; `low`, `high`: its slowest and its fastest rate."""

    messages: int
    per_second: float
    low: float
    high: float
    cpu_us: float

    @classmethod
    def of(cls, laps: Sequence[Lap]) -> Throughput:
        """Return the medians of one or more laps."""
        rates = [lap.per_second for lap in laps]
        return cls(
            messages=laps[0].messages,
            per_second=round(median(rates), 1),
            low=round(min(rates), 1),
            high=round(max(rates), 1),
            cpu_us=round(median(lap.cpu_us for lap in laps), 2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Lowest and highest ratio of two equal ways in this run."""

    low: float
    high: float

    @classmethod
    def of(cls, first: Sequence[Lap], second: Sequence[Lap]) -> Band:
        """Compare two equal ways, round by round."""
        ratios = [a.per_second / b.per_second for a, b in zip(first, second, strict=True)]
        return cls(low=round(min(ratios), 3), high=round(max(ratios), 3))


def ratio(ours: Sequence[Lap], theirs: Sequence[Lap]) -> float:
    """Return the median of the ratios of rounds, so that a busy moment affects both ways."""
    return round(median(a.per_second / b.per_second for a, b in zip(ours, theirs, strict=True)), 3)


def in_turn(ways: Sequence[T], number: int) -> list[T]:
    """Return the ways in the order of round `number`: each goes first once, so that no way gains by its place."""
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]

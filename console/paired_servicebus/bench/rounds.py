"""Rounds in which several ways of doing the same take turns, and what can be said of them afterwards: ratios.

This machine is never alone, so a rate means little and a ratio of two rates only something beside the band in which
the ratio of two equal things lay in the same run (A/A).
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
    """One way's turn. cpu_seconds: of this process, whatever else it did."""

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds a message."""
        return MICROSECONDS * self.cpu_seconds / self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Medians of one way's laps; `low` and `high` are its slowest and its fastest."""

    messages: int
    per_second: float
    low: float
    high: float
    cpu_us: float

    @classmethod
    def of(cls, laps: Sequence[Lap]) -> Throughput:
        """Of one or more laps."""
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
    """Between what the ratio of two equal ways lay in this run."""

    low: float
    high: float

    @classmethod
    def of(cls, first: Sequence[Lap], second: Sequence[Lap]) -> Band:
        """Round by round."""
        ratios = [a.per_second / b.per_second for a, b in zip(first, second, strict=True)]
        return cls(low=round(min(ratios), 3), high=round(max(ratios), 3))


def ratio(ours: Sequence[Lap], theirs: Sequence[Lap]) -> float:
    """How much faster ours is: the median of the rounds' ratios, so that a busy moment meets both."""
    return round(median(a.per_second / b.per_second for a, b in zip(ours, theirs, strict=True)), 3)


def in_turn(ways: Sequence[T], number: int) -> list[T]:
    """The ways in the order of round `number`: each goes first once, so that none gains by its place."""
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]

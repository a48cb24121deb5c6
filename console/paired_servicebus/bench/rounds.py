"""Rounds in which several ways of doing the same take turns, and the ratios of their rates.

Other load on the machine changes every rate. A ratio of two rates is read beside the A/A band: the ratios of two equal
ways in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final, TypeVar

MICROSECONDS: Final = 1e6
Targets = dict[str, tuple[float, bool]]
"""Target of each figure that has one, and whether it is reached."""

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


class Figures:
    """The figures of a bench: a dataclass."""

    __slots__ = ()

    @property
    def targets(self) -> Targets:
        """By the name of the figure."""
        raise NotImplementedError

    @property
    def reached(self) -> bool:
        """Whether every target is reached."""
        return all(reached for _, reached in self.targets.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        dataclass: Any = self
        return asdict(dataclass)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures(Figures):
    """The figures of a bench whose ways take turns.

    paces: of each way. ratios: ours to theirs, in messages a second. aa_low, aa_high: the band of two equal ways.
    wanted: of each ratio that has a target, at least. cpu_limit_us: of the first way, for a message; None: no limit.
    """

    size: int
    latency_ms: float
    rounds: int
    paces: Mapping[str, Throughput]
    ratios: Mapping[str, float]
    wanted: Mapping[str, float]
    cpu_limit_us: float | None = None
    aa_low: float
    aa_high: float

    @property
    def targets(self) -> Targets:
        """Targets of ratios are at least, that of the CPU is at most."""
        found = {name: (least, self.ratios[name] >= least) for name, least in self.wanted.items()}
        if self.cpu_limit_us is not None:
            first = next(iter(self.paces.values()))
            found["cpu_us"] = self.cpu_limit_us, first.cpu_us <= self.cpu_limit_us
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        kept = {name: getattr(self, name) for name in ("size", "latency_ms", "rounds", "aa_low", "aa_high")}
        return kept | {name: asdict(pace) for name, pace in self.paces.items()} | dict(self.ratios)


def compare(
    laps: Mapping[str, Sequence[Lap]], pairs: Mapping[str, tuple[str, str]], equals: tuple[str, str], **facts: Any
) -> RoundFigures:
    """Return the figures of all laps. Ways without laps are left out.

    Args:
        pairs: each ratio's ways, ours and theirs.
        equals: two equal ways, which give the band; the second is in no other figure.
        facts: the other fields of RoundFigures.
    """
    band = Band.of(*(laps[name] for name in equals))
    run = {name: some for name, some in laps.items() if some and name != equals[1]}
    return RoundFigures(
        paces={name: Throughput.of(some) for name, some in run.items()},
        ratios={name: ratio(run[a], run[b]) for name, (a, b) in pairs.items() if a in run and b in run},
        aa_low=band.low,
        aa_high=band.high,
        **facts,
    )

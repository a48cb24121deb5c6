"""The axes of a plot: times in UTC and values, with ticks at round numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from paired_servicebus.core.text.time_format import DAY, written
from paired_servicebus.pipeline.report.report_words import seconds

TIME_STEPS: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
"""Seconds between two ticks."""
DURATIONS: Final = (*TIME_STEPS[:-2], 172_800, 432_000)


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis with its label."""

    value: float
    label: str


def time_ticks(since: float, until: float, most: int) -> list[Tick]:
    """Return at most `most` + 1 ticks at whole multiples of a step; midnight has its date."""
    span = max(1.0, until - since)
    step = next((one for one in TIME_STEPS if span / one <= most), ceil(span / most / DAY) * DAY)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < DAY else "%m-%d"
    first = ceil(since / step)
    ticks = [number * step for number in range(first, floor(until / step) + 1)]
    return [Tick(at, written(at, "%m-%d" if at % DAY == 0 and span > step else form)) for at in ticks]


def value_ticks(most: float, unit: str, count: int = 4) -> list[Tick]:
    """Return ticks from 0 to at least `most`; the unit "seconds" has durations as labels."""
    if unit == "seconds":
        step = next((one for one in DURATIONS if most / one <= count), ceil(most / count / DAY) * DAY)
        return [Tick(at * step, _duration(at * step)) for at in range(max(1, ceil(most / step)) + 1)]
    raw = max(most, 1e-9) / count
    size = 10.0 ** floor(log10(raw))
    least = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    wanted = least if unit == "messages a second" else max(1.0, ceil(least))
    return [Tick(at * wanted, _number(at * wanted)) for at in range(max(1, ceil(most / wanted - 1e-9)) + 1)]


def _duration(value: float) -> str:
    for size, unit in ((DAY, "d"), (3600, "h"), (60, "min")):
        if value and value % size == 0:
            return f"{value / size:g} {unit}"
    return "0" if not value else f"{value:g} s" if value < 60 else seconds(value)


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:,.6g} M"
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"

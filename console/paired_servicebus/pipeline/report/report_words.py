"""The words of a report for times, durations, shares and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Final

from paired_servicebus.core.text.time_format import DAY, is_possible, written
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.incident import Range

DASH: Final = "–"
MAX_NAME: Final = 160
"""Characters of a name in a sentence."""
FEW: Final = 6
"""Names that a sentence lists."""
ROOM: Final = 120
"""Characters of a list of names."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Writes times of one report: the time of day in UTC, with the date if the report has several days."""

    since: float
    until: float

    def __call__(self, at: float | None, *, exact: bool = False) -> str:
        """Return HH:MM:SS, with the date before it or milliseconds behind it where needed; a dash for None."""
        if at is None:
            return DASH
        form = "%H:%M:%S" if self.since // DAY == self.until // DAY else "%m-%d %H:%M:%S"
        return written(at, f"{form}.%f")[:-3] if exact and is_possible(at) else written(at, form)

    def span(self, times: Range | None) -> str:
        """Return the earliest and the latest time, or the only one."""
        if times is None:
            return DASH
        first, last = self(times[0]), self(times[1])
        return first if first == last else f"{first}–{last}"


def seconds(value: float | None) -> str:
    """Return a duration: tenths below a minute, whole minutes and seconds below an hour, then hours and minutes."""
    if value is None or not isfinite(value):
        return DASH
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole % 3600 // 60, whole % 60
    if days:
        return f"{days} d {hours:02d} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def seconds_span(times: Range | None) -> str:
    """Return the shortest and the longest duration, or the only one."""
    if times is None:
        return DASH
    first, last = seconds(times[0]), seconds(times[1])
    return first if first == last else f"{first} to {last}"


def percent(share: float | None) -> str:
    """Never rounded up to all."""
    if share is None:
        return DASH
    return "100 %" if share >= 1.0 else f"{min(share, 0.9999):.2%}".replace("%", " %")


def listed(words: Iterable[str]) -> str:
    """Join words as in "a, b and c"."""
    found = list(words)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)


def few(names: Sequence[str], most: int = FEW, *, room: int = ROOM) -> str:
    """List at most `most` names, as many as `room` characters have space for, and the number of the others."""
    shown = [one_line(name, most=MAX_NAME) for name in names]
    fitting = max(1, sum(1 for end in accumulate(len(name) + 2 for name in shown) if end <= room + 2))
    if len(shown) <= min(most, fitting):
        return listed(shown)
    kept = max(1, min(most - 1, fitting))
    return f"{', '.join(shown[:kept])} and {len(shown) - kept:,} more"


def times(count: int) -> str:
    """Return how often."""
    return "once" if count == 1 else f"{count:,} times"


def count_span(numbers: tuple[int, int]) -> str:
    """Return the fewest and the most, or the only number."""
    return f"{numbers[0]:,}" if numbers[0] == numbers[1] else f"{numbers[0]:,} to {numbers[1]:,}"

"""Numbers and times for screens and previews, each in a known number of cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from paired_servicebus.core.text.time_format import clock, is_possible, written

# Indices of queues, and lists of names, in sentences.

MAX_NAMES: Final = 3
"""Maximum names in a sentence; the others are counted."""


def format_indices(indices: Iterable[int]) -> str:
    """Format indices with consecutive ones as a range: "0, 2 to 4"."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(_run(run) for run in runs) or "none"


def join_names(names: Iterable[str], most: int = MAX_NAMES) -> str:
    """Join names with commas, but only count those after the first `most`: "a, b, c and 2 more"."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _run(run: list[int]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))


NOT_KNOWN: Final = "–"
DAY: Final = 24 * 3600.0
BARS: Final = "▁▂▃▄▅▆▇█"
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def time_or_day(at: float | None, now: float) -> str:
    """Return a clock time (UTC) in 8 cells, or the day if it is over a day old; a dash if it is unknown or invalid."""
    if at is None or not is_possible(at):
        return NOT_KNOWN
    if abs(now - at) < DAY:
        return clock(at)
    return written(at, "%d %b")


def count(number: int | None) -> str:
    """Return a number with separated thousands; a dash if it is unknown."""
    return NOT_KNOWN if number is None else f"{number:,}"


def short_count(number: int | None, width: int) -> str:
    """Return a number in at most `width` cells (4 or more): in full if it fits, else in thousands, millions, …"""
    full = count(number)
    if number is None or len(full) <= width:
        return full
    for size, unit in _UNITS:
        if number >= size:
            for digits in (1, 0):
                text = f"{number / size:.{digits}f}{unit}"
                if len(text) <= width:
                    return text
    return full


def rate(per_second: float) -> str:
    """Return a rate: whole from 10 on, one decimal below, so that a trickle differs from 0."""
    if per_second >= 9.95:
        return f"{per_second:,.0f}"
    return "0" if per_second < 0.05 else f"{per_second:.1f}"


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units: "3 min 12 s"."""
    whole = round(seconds)
    if seconds < 10 and seconds != whole:
        return f"{seconds:.1f} s"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    parts = [(hours, "h"), (minutes, "min"), (left, "s")]
    largest = next((place for place, (number, _) in enumerate(parts) if number), 2)
    return " ".join(f"{number} {unit}" for number, unit in parts[largest : largest + 2] if number) or "0 s"


def in_time(seconds: float) -> str:
    """Return an estimated length of time: in days from two days on, "years" from 1,000 days on."""
    days = seconds / DAY
    return duration(seconds) if days < 2 else f"{days:.0f} days" if days < 1000 else "years"


def milliseconds(seconds: float | None) -> str:
    """Return a short time: `12 ms`, `1.2 s`; a dash if it is unknown."""
    if seconds is None:
        return NOT_KNOWN
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)


def percent(part: float | None, whole: float | None) -> str:
    """Return a percentage, with a decimal where it is small; a dash if it is unknown."""
    if part is None or not whole:
        return NOT_KNOWN
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %" if percent >= 0.1 else "<0.1 %"


def size(number: float | None) -> str:
    """Return bytes in powers of 1024: `1.2 GB`; a dash if the number is unknown."""
    if number is None:
        return NOT_KNOWN
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if abs(number) >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number:.0f} B"


def time_from_now(seconds: float | None, now: float) -> str:
    """Return the time after `seconds`: a clock time, from a day on "in 3 d"; a dash if it is unknown."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < DAY:
        return clock(now + seconds)
    days = seconds / DAY
    return f"in {days:.0f} d" if days < 1000 else "in years"


def plural(number: int, noun: str, many: str = "") -> str:
    """Return `1 message`, `2 messages`; `many` is an irregular plural."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as bars, newest on the right. Zero is the lowest bar, all else is above it."""
    shown = values[-width:] if width > 0 else ()
    top = max(shown, default=0.0)
    bars = (BARS[0] if value <= 0 else BARS[max(1, round(value / top * (len(BARS) - 1)))] for value in shown)
    return "".join(bars).rjust(max(0, width))

"""Moments as people read them, UTC: the same in sentences, on screens and in reports.

A time may be a stranger's. One that no calendar has is said to be so, and breaks nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from typing import Final

END: Final = 253_402_300_800.0
"""Seconds since the epoch at which the calendar ends: the first of the year 10000."""
DAY: Final = 24 * 3600
IMPOSSIBLE: Final = "an impossible time"


def is_possible(at: float) -> bool:
    """Return whether a calendar has the time: not before 1970, not after 9999, and a number."""
    return 0 <= at < END


def clock(at: float) -> str:
    """HH:MM:SS."""
    return written(at, "%H:%M:%S")


def day_and_clock(at: float) -> str:
    """YYYY-MM-DD HH:MM:SS."""
    return written(at, "%Y-%m-%d %H:%M:%S")


def written(at: float, form: str) -> str:
    """Write a time as strftime does."""
    return datetime.fromtimestamp(at, UTC).strftime(form) if is_possible(at) else IMPOSSIBLE


def age(seconds: float) -> str:
    """Write how long something lasts: `43 s`, `1m43s`, `12 min`, `5h02m`, `3 days`; coarser the longer it lasts, so
    that an old one costs nothing to show."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 2 * DAY:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // DAY:,} days"


def roughly(seconds: float) -> str:
    """Write how long something lasts that nobody waits for: as `age`, in minutes at the least."""
    return "<1 min" if seconds < 60 else f"{int(seconds) // 60} min" if seconds < 600 else age(seconds)


def until(at: float, now: float) -> str:
    """Write how soon a moment comes: `in 4 s`; `now` once it is there."""
    left = ceil(at - now)
    return f"in {age(left)}" if left > 0 else "now"

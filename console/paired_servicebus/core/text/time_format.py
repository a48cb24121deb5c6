"""The formats of times and durations, in UTC: the same in sentences, on screens and in reports.

Times may be untrusted. A time outside the calendar is written as IMPOSSIBLE and raises nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from typing import Final

END: Final = 253_402_300_800.0
"""Seconds since the epoch at the end of the calendar: the first of the year 10000."""
DAY: Final = 24 * 3600
IMPOSSIBLE: Final = "an impossible time"


def is_possible(at: float) -> bool:
    """Return whether the calendar contains the time: a number from 1970 to 9999."""
    return 0 <= at < END


def clock(at: float) -> str:
    """Format a time as HH:MM:SS."""
    return written(at, "%H:%M:%S")


def day_and_clock(at: float) -> str:
    """Format a time as YYYY-MM-DD HH:MM:SS."""
    return written(at, "%Y-%m-%d %H:%M:%S")


def written(at: float, form: str) -> str:
    """Format a time like strftime."""
    return datetime.fromtimestamp(at, UTC).strftime(form) if is_possible(at) else IMPOSSIBLE


def age(seconds: float) -> str:
    """Format a duration: `43 s`, `1m43s`, `12 min`, `5h02m`, `3 days`.

    Longer ones are coarser, so that they rarely need a redraw.
    """
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
    """Format a duration like `age`, but in whole minutes below ten minutes."""
    return "<1 min" if seconds < 60 else f"{int(seconds) // 60} min" if seconds < 600 else age(seconds)


def until(at: float, now: float) -> str:
    """Format the time left: `in 4 s`; `now` from that time on."""
    left = ceil(at - now)
    return f"in {age(left)}" if left > 0 else "now"

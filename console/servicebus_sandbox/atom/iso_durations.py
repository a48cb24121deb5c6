"""Durations and times in Service Bus XML: ISO 8601, with one duration for unlimited.

`None` means TimeSpan.MaxValue, about 10,675,199 days. A client in another language may round its last digits, so every
duration from that many days on is read as unlimited. Pure functions.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

FOR_EVER = "P10675199DT2H48M5.4775807S"
_DAYS_OF_FOR_EVER = 10_675_199
_PATTERN = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,12})H)?(?:(?P<minutes>\d{1,12})M)?(?:(?P<seconds>\d{1,12}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)


def read_duration(text: str) -> timedelta | None:
    """Return the duration in `text` (days and smaller units), None for unlimited. Raises ValueError."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None or text.strip().endswith(("P", "T")):
        raise ValueError(f"'{text}' is not an ISO 8601 duration in days, hours, minutes and seconds, such as PT1M")
    parts = {unit: float(match[unit] or 0) for unit in ("hours", "minutes", "seconds")}
    days = int(match["days"] or 0)
    if days >= _DAYS_OF_FOR_EVER and not match["sign"]:
        return None
    try:
        duration = timedelta(days=days, **parts)
    except OverflowError as error:
        raise ValueError(f"the duration '{text}' is out of range") from error
    return -duration if match["sign"] else duration


def write_duration(duration: timedelta | None) -> str:
    """Return the shortest ISO 8601 form: PT1M, P1DT2H, PT0.5S, PT0S."""
    if duration is None or duration.days >= _DAYS_OF_FOR_EVER:
        return FOR_EVER
    sign, length = ("-", -duration) if duration < timedelta(0) else ("", duration)
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{length.microseconds:06d}".rstrip("0") if length.microseconds else ""
    time = "".join(
        f"{value}{fraction if unit == 'S' else ''}{unit}"
        for value, unit in ((hours, "H"), (minutes, "M"), (seconds, "S"))
        if value or (unit == "S" and fraction)
    )
    date = f"{length.days}D" if length.days else ""
    if not date and not time:
        return "PT0S"
    return f"{sign}P{date}{'T' if time else ''}{time}"


def write_time(epoch_seconds: float) -> str:
    """Return a time in UTC, to the microsecond: 2026-01-02T03:04:05.600000Z."""
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

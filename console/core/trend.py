"""Growing, steady or draining: what a few readings of a backlog queue say about where it goes.

The rules: a trend is the slope of the least-squares line through the latest readings; fewer than three of them, or
none over some seconds, say nothing. What moves less than a message in ten seconds is steady. An empty queue does not
grow: it was emptied since, whatever the readings before the last say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LEAST_READINGS: Final = 3
LEAST_SPAN: Final = 5.0
"""Seconds."""
STEADY: Final = 0.1
"""Messages a second, either way."""


class Trend(StrEnum):
    """The words on the screen."""

    GROWING = "growing"
    STEADY = "steady"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Reading:
    """One queue's counts at `at`."""

    at: float
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A second's change; negative while it drains."""

    messages: float
    size_bytes: float


def growth(readings: Sequence[Reading]) -> Growth | None:
    """What the readings say, oldest first; None: too few, or all of one moment."""
    if len(readings) < LEAST_READINGS or readings[-1].at - readings[0].at < LEAST_SPAN:
        return None
    times = [reading.at for reading in readings]
    messages = _slope(times, [reading.messages for reading in readings])
    size_bytes = _slope(times, [reading.size_bytes for reading in readings])
    if readings[-1].messages:
        return Growth(messages, size_bytes)
    return Growth(min(0.0, messages), min(0.0, size_bytes))


def trend(per_second: float | None) -> Trend | None:
    """A growth in messages a second, as a word; None: not known."""
    if per_second is None:
        return None
    if abs(per_second) < STEADY:
        return Trend.STEADY
    return Trend.GROWING if per_second > 0 else Trend.DRAINING


def seconds_until(now: float, goal: float, per_second: float | None) -> float | None:
    """Seconds until `now` has become `goal` at that speed; None where it goes elsewhere, or nowhere.

    All three in the same unit, messages or bytes.
    """
    if per_second is None or per_second == 0:
        return None
    seconds = (goal - now) / per_second
    return seconds if seconds > 0 else None


def _slope(times: Sequence[float], values: Sequence[float]) -> float:
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - middle) ** 2 for time in times)
    return sum((time - middle) * (value - mean) for time, value in zip(times, values, strict=True)) / spread

"""The trend of a backlog queue from a few readings: growing, steady or draining.

A trend is the slope of the least-squares line through the readings since the last turn. Fewer than three readings, or a
span of a few seconds, give none. Less than a message in ten seconds is steady. An empty queue is always steady, since
its depth cannot fall further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.model.snapshot import UnusedQueue

# The backlog queues used by other engines, and growth in unused ones (SPEC.md section 4.3).
#
# Queues are named by their real indices, which may have gaps, so a number of queues does not identify them.


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """The backlog queues that other known engines of the same namespaces use, by index."""

    used: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    """Queues that a syphon moves messages out of."""
    busy: frozenset[int] = frozenset()
    """Queues that a syphon moves messages out of now, or holds messages of for unavailable destinations."""

    def __or__(self, other: QueueUsage) -> QueueUsage:
        """Return the usage by the engines of both."""
        return QueueUsage(self.used | other.used, self.moved | other.moved, self.busy | other.busy)


class GrowthDetector:
    """A detector for unused queues with growing depth.

    A throttling namespace may count zeros. So a higher count proves growth only if the queue was active in between.
    """

    def __init__(self) -> None:
        self._least: dict[int, UnusedQueue] = {}
        """The reading of each queue with the fewest messages; of equal ones the latest."""
        self.indices: frozenset[int] = frozenset()
        """The queues that grew and were not emptied since."""

    def read(self, queues: Sequence[UnusedQueue]) -> frozenset[int]:
        """Compare a reading with earlier ones; return the queues that began to grow."""
        before = self.indices
        self._least = {queue.index: self._fewer(queue) for queue in queues}
        self.indices = frozenset(queue.index for queue in queues if self._grew(queue))
        return self.indices - before

    def _fewer(self, queue: UnusedQueue) -> UnusedQueue:
        least = self._least.get(queue.index)
        if least is None or queue.messages is None or least.messages is None:
            return least if least is not None and least.messages is not None else queue
        return queue if queue.messages <= least.messages else least

    def _grew(self, queue: UnusedQueue) -> bool:
        least = self._least[queue.index]
        if queue.messages is None or least.messages is None:
            return queue.index in self.indices
        was_active = queue.last_active is None or queue.last_active != least.last_active
        return queue.messages > least.messages and was_active


MIN_READINGS: Final = 3
MIN_SPAN_SECONDS: Final = 5.0
STEADY: Final = 0.1
"""Messages a second, in either direction."""
NOISE: Final = 0.02
"""Share of the greatest depth. A change against the trend up to this or LEAST_TURN messages is no turn."""
MIN_TURN_MESSAGES: Final = 2.0


class Trend(StrEnum):
    """The words on the screen."""

    GROWING = "growing"
    STEADY = "steady"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class DepthReading:
    """One queue's counts at `at`."""

    at: float
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DepthGrowth:
    """Change per second; negative while draining."""

    messages: float
    size_bytes: float


def growth(readings: Sequence[DepthReading]) -> DepthGrowth | None:
    """Return the growth by the readings, oldest first; None: too few, or too short a span."""
    if len(readings) < MIN_READINGS:
        return None
    if not readings[-1].messages:
        return DepthGrowth(0.0, 0.0) if readings[-1].at - readings[0].at >= MIN_SPAN_SECONDS else None
    readings = since_turn(readings)
    if readings[-1].at - readings[0].at < MIN_SPAN_SECONDS:
        return None
    times = [reading.at for reading in readings]
    messages = _slope(times, [reading.messages for reading in readings])
    size_bytes = _slope(times, [reading.size_bytes for reading in readings])
    return DepthGrowth(messages, size_bytes)


def since_turn(readings: Sequence[DepthReading]) -> Sequence[DepthReading]:
    """Return the readings since the last peak or trough, inclusive; all of them without a turn."""
    noise = max(MIN_TURN_MESSAGES, NOISE * max(reading.messages for reading in readings))
    now, low, high = readings[-1].messages, readings[-1], readings[-1]
    for reading in reversed(readings):
        for turn in (low, high):
            before, after = reading.messages - turn.messages, now - turn.messages
            if before * after > 0 and min(abs(before), abs(after)) > noise:
                return readings[readings.index(turn) :]
        low = min(low, reading, key=lambda one: one.messages)
        high = max(high, reading, key=lambda one: one.messages)
    return readings


def reading_now(last: DepthReading, messages: int, at: float) -> DepthReading:
    """Return a reading for now from the count of parked messages, with the last reading's mean size."""
    each = last.size_bytes / last.messages if last.messages else 0.0
    return DepthReading(at, messages, round(each * messages) if last.messages else last.size_bytes)


def trend(per_second: float | None) -> Trend | None:
    """Return the trend for a growth in messages a second; None: unknown."""
    if per_second is None:
        return None
    if abs(per_second) < STEADY:
        return Trend.STEADY
    return Trend.GROWING if per_second > 0 else Trend.DRAINING


LONGEST_ESTIMATE: Final = 7 * 24 * 3600.0
"""Seconds beyond which an estimate is no use to anybody."""


def seconds_until(now: float, goal: float, per_second: float | None) -> float | None:
    """Return the seconds until `now` reaches `goal` at that speed; None: it never does.

    All three have the same unit, messages or bytes.
    """
    if per_second is None or per_second == 0:
        return None
    seconds = (goal - now) / per_second
    return seconds if seconds > 0 else None


def _slope(times: Sequence[float], values: Sequence[float]) -> float:
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - middle) ** 2 for time in times)
    return sum((time - middle) * (value - mean) for time, value in zip(times, values, strict=True)) / spread


# The interval for reading backlog depths, by its present uses (SPEC.md section 12).
#
# A reading lists the secondary's queues, and so uses credits that messages may need. Each row below names a use; the
# first matching row counts. Without a match no depths are read.


class PollReason(StrEnum):
    """The uses of backlog depths."""

    WATCHED = "a console is attached and shows them"
    SCRAPED = "figures are scraped"
    SYPHON = "this engine runs a syphon"
    DIVERTING = "an entity is failed over or forced"
    PARKED = "messages are parked, or were since the last reading"
    LYING = "messages lie there that this engine does not hold aside"
    UNMOVED = "messages lie there that no known syphon moves"


EVERY: Final[tuple[tuple[frozenset[PollReason], float], ...]] = (
    (frozenset({PollReason.WATCHED, PollReason.PARKED}), 5.0),
    (frozenset({PollReason.WATCHED, PollReason.DIVERTING}), 5.0),
    (frozenset({PollReason.WATCHED}), 15.0),
    (frozenset({PollReason.SCRAPED}), 30.0),
    (frozenset({PollReason.SYPHON, PollReason.LYING}), 30.0),  # the rule "stuck" compares two readings
    (frozenset({PollReason.SYPHON, PollReason.DIVERTING}), 30.0),
    (frozenset({PollReason.DIVERTING}), 60.0),  # so that "parked" has a figure in the journal
    (frozenset({PollReason.SYPHON}), 300.0),  # detects a pump that receives nothing despite messages
    (frozenset({PollReason.UNMOVED}), 300.0),  # the rule "has not fallen for 15 min"
)
"""Combinations of uses, with the seconds between two readings."""


def every(reasons: frozenset[PollReason]) -> float | None:
    """Return the seconds between two readings; None: no use."""
    return next((seconds for row, seconds in EVERY if row <= reasons), None)

"""How many messages are parked now: one figure for every screen, verb and metric.

The rules, for each backlog queue and for their sum:

    known                          the figure
    a reading, and our own counts  the reading + what we parked since - what we took out since, never below zero
    no reading, own counts         what we parked and did not take out: at least so many
    more set aside than when read  at least so many as were set aside since
    neither                        not known

QueueCounters are taken so that doubt makes the figure smaller for a moment, never larger for good: what had left the queue
only nearly when it was read counts as taken out afterwards.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.snapshot import ParkedView

DRAIN_PAUSE_SECONDS: Final = 5.0
"""Seconds without a fall after which the backlog drains no longer."""
MIN_DRAIN_SECONDS: Final = 1.0
"""Seconds of draining that make a speed."""
MIN_DRAIN_RATE: Final = 0.1
"""Messages a second; what is slower has no end that could be told."""


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """What this engine did with one backlog queue since it started, in messages."""

    added: int = 0
    """Accepted by the queue from this engine's senders."""
    removed: int = 0
    """Moved out of it or dead-lettered by this engine's pump."""
    leaving: int = 0
    """Of these: the queue has not confirmed yet that they left."""
    aside: int = 0
    """Held in it by this engine's pump."""


NOTHING: Final = QueueCounters()


@dataclass(frozen=True, slots=True)
class DepthRead:
    """A depth that was read at `at`, with this engine's counts when it was asked for and when the answer came."""

    at: float
    messages: int
    before: QueueCounters = NOTHING
    after: QueueCounters = NOTHING


class QueueDepthEstimate:
    """The figure of one backlog queue."""

    def __init__(self) -> None:
        self.messages = 0
        self.read: DepthRead | None = None
        self.others_at: float | None = None
        """The latest reading that was smaller than this engine can explain: somebody else took messages out."""
        self._counted = 0
        self._added = 0
        self._removed = 0

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the queue."""
        return self.read is not None or self.messages > 0

    def look(self, read: DepthRead | None, counts: QueueCounters) -> None:
        """Take in the newest reading, which may be one that was seen before, and this engine's counts now."""
        if read is not None and read != self.read:
            self._compare(read)
            self.read, self._counted = read, read.messages
            self._added, self._removed = read.after.added, read.before.removed - read.before.leaving
        changed = counts.added - self._added - (counts.removed - self._removed)
        self._added, self._removed = counts.added, counts.removed
        held = counts.aside - (self.read.after.aside if self.read is not None else 0)
        self._counted = max(0, self._counted + changed)
        self.messages = max(self._counted, held)

    def _compare(self, read: DepthRead) -> None:
        if self.read is None:
            return
        taken = read.after.removed - (self.read.before.removed - self.read.before.leaving)
        if read.messages < self.read.messages - taken:
            self.others_at = read.at


class DrainRate:
    """Since when the figure falls, and how fast since then: moments before that, in which nothing moved, do not
    count."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._began_with = 0
        self._messages = 0
        self._fell_at = 0.0
        self._looked_at = 0.0
        self._read_at = 0.0
        self._removed = 0
        self._pause = DRAIN_PAUSE_SECONDS

    def look(self, at: float, messages: int, *, removed: int, read_at: float, every: float, held_up: bool) -> None:
        """Follow the figure.

        Args:
            removed: messages that this engine took out since it started.
            read_at: the oldest reading; every: seconds until the next one.
            held_up: some of the messages wait for a destination that takes none.
        """
        by_us = removed != self._removed
        if messages < self._messages and not held_up:
            if self.since is None:
                self.since = self._looked_at if by_us or not self._read_at else self._read_at
                self._began_with = self._messages
            self._fell_at, self._pause = at, DRAIN_PAUSE_SECONDS if by_us else max(DRAIN_PAUSE_SECONDS, 2.5 * every)
        is_over = not messages or held_up or messages > self._began_with or at - self._fell_at > self._pause
        if is_over:
            self.since = None
        self._messages, self._looked_at, self._removed, self._read_at = messages, at, removed, read_at

    @property
    def per_second(self) -> float | None:
        """Messages a second since it began; None: it does not drain, or not for long enough."""
        if self.since is None or self._fell_at - self.since < MIN_DRAIN_SECONDS:
            return None
        return max(0.0, (self._began_with - self._messages) / (self._fell_at - self.since))


def parked_view(
    figures: Collection[QueueDepthEstimate], drained: DrainRate, *, at: float, oldest: float
) -> ParkedView | None:
    """Give the sum of all queues; None: nothing is known of any.

    Args:
        oldest: seconds that a reading may be old to tell when the backlog is empty.
    """
    if not any(one.is_known for one in figures):
        return None
    read = [one.read.at for one in figures if one.read is not None]
    messages, speed = sum(one.messages for one in figures), drained.per_second
    is_sure = len(read) == len(figures) and at - min(read) <= oldest
    ends = at + messages / speed if speed is not None and speed >= MIN_DRAIN_RATE and is_sure and messages else None
    return ParkedView(
        messages=messages,
        read_at=min(read, default=None),
        known=len(read),
        queues=len(figures),
        draining_since=drained.since,
        drained_per_second=round(speed, 2) if speed is not None else None,
        empty_at=ends,
    )

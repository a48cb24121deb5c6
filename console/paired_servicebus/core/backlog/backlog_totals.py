"""Parked messages and the time when they are gone: the one figure that every page and `paired status` show.

The engine's figure (core.backlog.parked_count) includes messages diverted and moved since the depths were read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Final

from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.model.snapshot import ParkedView, QueueView, Snapshot, UnusedView

# The number of parked messages: one figure for every screen, verb and metric.
#
# The rules, for each backlog queue and for the sum:
#
#     known                            figure
#     a reading and own counts         reading + parked since - removed since, never below zero
#     own counts only                  parked - removed: a minimum
#     more held back than at reading   at least the number held back since
#     neither                          unknown
#
# In doubt a count makes the figure too small for a moment, never too large for good. A message that was leaving during
# the reading counts as removed afterwards.

DRAIN_PAUSE_SECONDS: Final = 5.0
"""Seconds without a fall after which the backlog no longer drains."""
MIN_DRAIN_SECONDS: Final = 1.0
"""Minimum seconds of draining for a rate."""
MIN_DRAIN_RATE: Final = 0.1
"""Messages a second; a slower drain has no predictable end."""


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """The engine's counts for one backlog queue since it started, in messages."""

    added: int = 0
    """Accepted by the queue from this engine's senders."""
    removed: int = 0
    """Moved or dead-lettered by this engine's pump."""
    leaving: int = 0
    """Messages within `removed` that the queue has not yet confirmed."""
    aside: int = 0
    """Held back in it by this engine's pump."""


NOTHING: Final = QueueCounters()


@dataclass(frozen=True, slots=True)
class DepthRead:
    """A queue's counts, read at `at`."""

    at: float
    depth: Depth
    before: QueueCounters = NOTHING
    """This engine's work on the queue when the request began; `after`: when the answer arrived."""
    after: QueueCounters = NOTHING


class QueueDepthEstimate:
    """The estimated depth of one backlog queue."""

    def __init__(self) -> None:
        self.messages = 0
        self.read: DepthRead | None = None
        self.others_at: float | None = None
        """Time of the latest reading below this engine's own estimate: another engine removed messages."""
        self._counted = 0
        self._added = 0
        self._removed = 0

    @property
    def is_known(self) -> bool:
        """Return whether there is any reading or count."""
        return self.read is not None or self.messages > 0

    def look(self, read: DepthRead | None, counts: QueueCounters) -> None:
        """Apply the newest reading, possibly a known one, and this engine's present counts."""
        if read is not None and read != self.read:
            self._compare(read)
            self.read, self._counted = read, read.depth.messages
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
        if read.depth.messages < self.read.depth.messages - taken:
            self.others_at = read.at


class DrainRate:
    """The rate of the falling depth; idle moments before the fall are excluded."""

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
            removed: messages that this engine removed since it started.
            read_at: the oldest reading; every: seconds until the next one.
            held_up: whether some messages wait for an unavailable destination.
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
        """Return messages a second since the start of the drain; None: no drain, or too short."""
        if self.since is None or self._fell_at - self.since < MIN_DRAIN_SECONDS:
            return None
        return max(0.0, (self._began_with - self._messages) / (self._fell_at - self.since))


def parked_view(
    figures: Collection[QueueDepthEstimate], drained: DrainRate, *, at: float, oldest: float
) -> ParkedView | None:
    """Return the sum over all queues; None: no queue has a figure.

    Args:
        oldest: maximum age in seconds of a reading that may predict the end of the backlog.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTotals(ParkedView):
    """The parked messages, with the dead letters and the age of the readings."""

    dead_lettered: int
    old: bool
    """Whether a reading is older than twice the interval."""
    growth: float | None = None
    """Messages a second, negative while the backlog drains; None: unknown."""

    @property
    def is_known(self) -> bool:
        """Whether `messages` is a reading or a count."""
        return self.known > 0 or self.messages > 0


def sum_backlog(snapshot: Snapshot) -> BacklogTotals:
    """Return the engine's figure, with the dead letters of the readings."""
    read = [queue for queue in snapshot.queues if queue.depth is not None]
    counted = snapshot.parked or ParkedView(messages=0, read_at=None, known=0, queues=len(snapshot.queues))
    return BacklogTotals(
        **{field.name: getattr(counted, field.name) for field in fields(ParkedView)},
        dead_lettered=sum(queue.dead_lettered or 0 for queue in read),
        old=any(is_old(queue, snapshot.at) for queue in read),
        growth=_growth(snapshot),
    )


FULL_SHARE: Final = 0.8
"""Used share of a backlog queue, or of all, above which somebody should make room."""


def share_used(queue: QueueView) -> float:
    """Return the used share of a queue's size, 0 to 1; 0 if unknown."""
    return queue.size_bytes / queue.limit_bytes if queue.size_bytes is not None and queue.limit_bytes else 0.0


def is_old(queue: QueueView, now: float) -> bool:
    """Return whether the queue's depth is older than twice the interval."""
    return queue.read_at is None or now - queue.read_at > 2 * queue.read_every


def empty_at(snapshot: Snapshot) -> float | None:
    """Return when the backlog is empty at this rate; None while an entity diverts, or a depth is old or unknown."""
    return snapshot.parked.empty_at if snapshot.parked is not None else None


def stranded_messages(unused: UnusedView) -> dict[int, int]:
    """Return the messages and dead letters in queues that no known engine uses or empties, by the queue's index."""
    queues = [queue for queue in unused.queues if not queue.is_moved]
    counts = {queue.index: (queue.messages or 0) + (queue.dead_lettered or 0) for queue in queues}
    return {index: number for index, number in counts.items() if number}


def oldest_for(snapshot: Snapshot, path: str) -> tuple[float | None, bool]:
    """Return since when a message for this destination is parked, and whether none is known to be older.

    A peek shows the first message of a queue only: those behind it may be for the same destination, and are newer.
    """
    first = [(queue.oldest.enqueued_at, queue.oldest.destination.casefold()) for queue in snapshot.queues]
    own = min((at for at, destination in first if at is not None and destination == path.casefold()), default=None)
    filled = any(queue.depth != 0 and queue.oldest.enqueued_at is None for queue in snapshot.queues)
    return own, own is not None and not filled and all(at is None or at >= own for at, _ in first)


def _growth(snapshot: Snapshot) -> float | None:
    counted = snapshot.parked
    if counted is not None and counted.drained_per_second is not None:
        return -counted.drained_per_second
    if counted is not None and counted.draining_since is not None:
        return None
    known = [queue.growth for queue in snapshot.queues if queue.growth is not None]
    return sum(known) if known else None

"""Parked messages and the time when they are gone: the one figure that every page and `paired status` show.

The engine's figure (core.backlog.parked_count) includes messages diverted and moved since the depths were read.
"""

from __future__ import annotations

from dataclasses import dataclass

from paired_servicebus.core.model.snapshot import ParkedView, QueueView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTotals:
    """The contents of the backlog queues. `known` counts the queues with a depth."""

    messages: int
    dead_lettered: int
    known: int
    queues: int
    read_at: float | None
    """The oldest reading. None: no queue was read; `messages` counts this engine's diverted messages only."""
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
        messages=counted.messages,
        dead_lettered=sum(queue.dead_lettered or 0 for queue in read),
        known=counted.known,
        queues=counted.queues,
        read_at=counted.read_at,
        old=any(is_old(queue, snapshot.at) for queue in read),
        growth=_growth(snapshot),
    )


def is_old(queue: QueueView, now: float) -> bool:
    """Return whether the queue's depth is older than twice the interval."""
    return queue.read_at is None or now - queue.read_at > 2 * queue.read_every


def empty_at(snapshot: Snapshot) -> float | None:
    """Return when the backlog is empty at this rate; None while an entity diverts, or a depth is old or unknown."""
    return snapshot.parked.empty_at if snapshot.parked is not None else None


def stranded_messages(snapshot: Snapshot) -> dict[int, int]:
    """Return the messages and dead letters in unused backlog queues by the queue's index, without empty queues."""
    counts = {queue.index: (queue.messages or 0) + (queue.dead_lettered or 0) for queue in snapshot.unused.queues}
    return {index: number for index, number in counts.items() if number}


def _growth(snapshot: Snapshot) -> float | None:
    counted = snapshot.parked
    if counted is not None and counted.drained_per_second is not None:
        return -counted.drained_per_second
    if counted is not None and counted.draining_since is not None:
        return None
    known = [queue.growth for queue in snapshot.queues if queue.growth is not None]
    return sum(known) if known else None

"""Parked messages and the time when they are gone: the one figure that every page and `paired status` show.

The engine's figure (core.backlog.parked_count) includes messages diverted and moved since the depths were read. An
older engine sends no such figure; then it is the sum of the depths, each as old as its reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import QueueView, Snapshot


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
    """Return the engine's figure, else the sum over the backlog queues."""
    read = [queue for queue in snapshot.queues if queue.depth is not None]
    oldest = min((queue.read_at for queue in read if queue.read_at is not None), default=None)
    counted = snapshot.parked
    return BacklogTotals(
        messages=sum(queue.depth or 0 for queue in read) if counted is None else counted.messages,
        dead_lettered=sum(queue.dead_lettered or 0 for queue in read),
        known=len(read) if counted is None else counted.known,
        queues=len(snapshot.queues) if counted is None else counted.queues,
        read_at=oldest if counted is None else counted.read_at,
        old=any(is_old(queue, snapshot.at) for queue in read),
        growth=_growth(snapshot),
    )


def messages_in(queue: QueueView) -> int | None:
    """Return the messages parked in one queue; its depth if the engine does not count them."""
    return queue.parked if queue.parked is not None else queue.depth


def is_old(queue: QueueView, now: float) -> bool:
    """Return whether the queue's depth is older than twice the interval."""
    return queue.read_at is None or now - queue.read_at > 2 * queue.read_every


def empty_at(snapshot: Snapshot) -> float | None:
    """Return when the backlog is empty at this rate; None while an entity diverts, or a depth is old or unknown."""
    if snapshot.parked is not None:
        return snapshot.parked.empty_at
    sums = sum_backlog(snapshot)
    recent = snapshot.syphon.history[-10:]
    per_second = sum(recent) / len(recent) if recent else snapshot.syphon.per_second
    diverting = any(entity.state in DIVERTING for entity in snapshot.entities)
    if diverting or sums.old or sums.known < sums.queues or sums.read_at is None or not sums.messages:
        return None
    if per_second < 0.1:
        return None
    eta = sums.read_at + sums.messages / per_second
    return eta if eta > snapshot.at else None


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

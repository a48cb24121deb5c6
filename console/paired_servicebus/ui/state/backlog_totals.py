"""How much is parked, and when that is gone: one figure for summary, backlog, syphon line and `paired status`.

The engine's own figure counts what it diverted and moved since the depths were read (paired_servicebus.core.backlog.parked_count). An older
engine tells none: there it is the sum of the depths, each as old as its reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from paired_servicebus.core.model.entity_state import DIVERTING
from paired_servicebus.core.model.snapshot import QueueView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTotals:
    """What the backlog queues contain. `known` says how many of the queues' depths were read at all."""

    messages: int
    dead_lettered: int
    known: int
    queues: int
    read_at: float | None
    """The oldest of the readings. None: there is none, and `messages` are what this engine diverted, at least."""
    old: bool
    """Older than twice the interval of reading."""
    growth: float | None = None
    """Messages a second, negative while it drains; None: not known."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of what is parked."""
        return self.known > 0 or self.messages > 0


def parked(snapshot: Snapshot) -> BacklogTotals:
    """Return the engine's figure, else the sum over the backlog queues."""
    read = [queue for queue in snapshot.queues if queue.depth is not None]
    oldest = min((queue.read_at for queue in read if queue.read_at is not None), default=None)
    told = snapshot.parked
    return BacklogTotals(
        messages=sum(queue.depth or 0 for queue in read) if told is None else told.messages,
        dead_lettered=sum(queue.dead_lettered or 0 for queue in read),
        known=len(read) if told is None else told.known,
        queues=len(snapshot.queues) if told is None else told.queues,
        read_at=oldest if told is None else told.read_at,
        old=any(is_old(queue, snapshot.at) for queue in read),
        growth=_growth(snapshot),
    )


def parked_in(queue: QueueView) -> int | None:
    """Return what is parked in one queue now; from an engine that tells no figure, its depth."""
    return queue.parked if queue.parked is not None else queue.depth


def is_old(queue: QueueView, now: float) -> bool:
    """Return whether the queue's depth was read longer ago than twice the interval."""
    return queue.read_at is None or now - queue.read_at > 2 * queue.read_every


def empty_at(snapshot: Snapshot) -> float | None:
    """Return when the backlog is empty if the syphon goes on as now; None where that would be a guess: while an entity
    still diverts, or a depth is old or not known."""
    if snapshot.parked is not None:
        return snapshot.parked.empty_at
    sums = parked(snapshot)
    recent = snapshot.syphon.history[-10:]
    per_second = sum(recent) / len(recent) if recent else snapshot.syphon.per_second
    diverting = any(entity.state in DIVERTING for entity in snapshot.entities)
    if diverting or sums.old or sums.known < sums.queues or sums.read_at is None or not sums.messages:
        return None
    if per_second < 0.1:
        return None
    eta = sums.read_at + sums.messages / per_second
    return eta if eta > snapshot.at else None


def stranded(snapshot: Snapshot) -> dict[int, int]:
    """Return the messages in unused backlog queues, dead letters included, by the queue's index; none where empty."""
    counts = {queue.index: (queue.messages or 0) + (queue.dead_lettered or 0) for queue in snapshot.unused.queues}
    return {index: number for index, number in counts.items() if number}


def _growth(snapshot: Snapshot) -> float | None:
    told = snapshot.parked
    if told is not None and told.drained_per_second is not None:
        return -told.drained_per_second
    if told is not None and told.draining_since is not None:
        return None
    known = [queue.growth for queue in snapshot.queues if queue.growth is not None]
    return sum(known) if known else None

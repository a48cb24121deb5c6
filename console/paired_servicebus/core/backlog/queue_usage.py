"""The backlog queues used by other engines, and growth in unused ones (SPEC.md section 4.3).

Queues are named by their real indices, which may have gaps, so a number of queues does not identify them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paired_servicebus.core.model.snapshot import UnusedQueue
from paired_servicebus.core.text.index_ranges import format_indices


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


def growth_alarm(indices: frozenset[int]) -> str:
    """Return the alarm for growing unused queues; empty: none grows."""
    if not indices:
        return ""
    subject, grow = ("queue {} is", "grows") if len(indices) == 1 else ("queues {} are", "grow")
    return (
        f"backlog {subject.format(format_indices(indices))} unused by this engine and {grow}: an application parks "
        f"there and no syphon known here moves it; set backlog_queue_count to {max(indices) + 1} or more here, or "
        "move the messages by order (paired move-stranded)"
    )

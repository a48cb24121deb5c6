"""Which backlog queues other engines use, and which unused ones grow all the same (SPEC.md section 4.3).

Queues are named by their real indices, which may have gaps: a number of queues says nothing of which they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paired_servicebus.core.model.snapshot import UnusedQueue
from paired_servicebus.core.text.index_ranges import format_indices


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """The backlog queues of the same namespaces that other known engines use, by index."""

    used: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    """Of these: a syphon moves messages out of them."""
    busy: frozenset[int] = frozenset()
    """Of these: it moves some now, or holds them for destinations that take none."""


class GrowthDetector:
    """Finds the unused queues that hold more messages than before.

    A namespace that throttles counts zeros. So a count that rose proves growth only if the queue was active meanwhile.
    """

    def __init__(self) -> None:
        self._least: dict[int, UnusedQueue] = {}
        """The reading of each queue with the fewest messages, the latest of equal ones."""
        self.indices: frozenset[int] = frozenset()
        """The queues that grew since then and were not emptied."""

    def read(self, queues: Sequence[UnusedQueue]) -> frozenset[int]:
        """Compare a reading with the earlier ones; the queues that began to grow."""
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
    """What to do about unused queues that grow; empty if none does."""
    if not indices:
        return ""
    subject, grow = ("queue {} is", "grows") if len(indices) == 1 else ("queues {} are", "grow")
    return (
        f"backlog {subject.format(format_indices(indices))} unused by this engine and {grow}: an application parks there and "
        f"no syphon known here moves it; set backlog_queue_count to {max(indices) + 1} or more here, or move the "
        "messages by order (paired move-stranded)"
    )

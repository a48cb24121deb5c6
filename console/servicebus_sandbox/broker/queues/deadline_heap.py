"""What is due when: a heap whose dead entries are skipped, not searched for.

An entry dies silently when its key gets another deadline or none; `current` is asked whenever an entry comes up. So
setting, moving and forgetting a deadline cost next to nothing, which is what a million messages with locks need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=int | str)

_COMPACT_FROM = 4096


class Deadlines(Generic[Key]):
    """Deadlines in epoch seconds, one for each key; `current(key)` tells the one that counts, or None."""

    __slots__ = ("_compact_at", "_current", "_heap")

    def __init__(self, current: Callable[[Key], float | None]) -> None:
        self._current = current
        self._heap: list[tuple[float, Key]] = []
        self._compact_at = _COMPACT_FROM

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, key: Key) -> None:
        heappush(self._heap, (when, key))
        if len(self._heap) > self._compact_at:
            self._compact()

    def due(self, now: float) -> Iterator[Key]:
        """Remove and yield the keys whose deadline is at or before `now`; the loop may add new ones."""
        while self._heap and self._heap[0][0] <= now:
            when, key = heappop(self._heap)
            if self._current(key) == when:
                yield key

    def next(self) -> float | None:
        """The earliest deadline that still counts."""
        while self._heap:
            when, key = self._heap[0]
            if self._current(key) == when:
                return when
            heappop(self._heap)
        return None

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._current(entry[1]) == entry[0]]
        heapify(self._heap)
        self._compact_at = max(_COMPACT_FROM, 2 * len(self._heap))


def earliest(*deadlines: float | None) -> float | None:
    """The smallest of those that are not None."""
    return min((when for when in deadlines if when is not None), default=None)

"""A heap of deadlines that skips outdated entries instead of removing them.

An entry is outdated when its key has another deadline or none; `current` is called when an entry comes up. So setting,
moving and cancelling cost little, as a million locked messages need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=int | str)

_COMPACT_FROM = 4096


class Deadlines(Generic[Key]):
    """Deadlines in epoch seconds, one for each key; `current(key)` returns the valid one, or None."""

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
        """Return the earliest valid deadline."""
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
    """Return the smallest value that is not None."""
    return min((when for when in deadlines if when is not None), default=None)

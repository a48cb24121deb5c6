"""What a pump has set aside in its backlog queue: deferred messages by destination, known by their numbers alone.

No list of it has to survive: peeking finds deferred messages again. What is set aside for a destination goes before
anything newer for it, oldest first, so newer ones join it as long as there is any. Which messages are asked for when,
and how they are settled, is the pump's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class DeferredMessages:
    """The messages of one destination that are set aside.

    numbers: those known to be deferred, ascending once `take` was called. deferring: how many are on their way there.
    asked: how many were asked for and have not come yet. in_hand: how many of those that were asked for, came or not,
    are not settled yet.
    """

    path: str
    numbers: list[int] = field(default_factory=list)
    deferring: int = 0
    asked: int = 0
    in_hand: int = 0
    is_sorted: bool = True

    @property
    def has_older(self) -> bool:
        """Whether a message that comes now has to wait behind others."""
        return bool(self.numbers) or self.asked > 0 or self.deferring > 0

    @property
    def count(self) -> int:
        """Messages set aside."""
        return len(self.numbers) + self.deferring + self.in_hand

    def add(self, number: int) -> None:
        """A message is deferred now."""
        self.is_sorted = self.is_sorted and (not self.numbers or number > self.numbers[-1])
        self.numbers.append(number)

    def take(self, most: int) -> list[int]:
        """The oldest, at most so many, of one partition: the upper 16 bits of a number say which it lies in."""
        if not self.is_sorted:
            self.numbers = sorted(set(self.numbers))
            self.is_sorted = True
        if not self.numbers:
            return []
        ends = bisect_right(self.numbers, self.numbers[0] | 2**48 - 1)
        taken, self.numbers = self.numbers[: min(most, ends)], self.numbers[min(most, ends) :]
        return taken


class DeferredMessage:
    """Everything that one pump has set aside, by destination key."""

    def __init__(self) -> None:
        self.by_key: dict[str, DeferredMessages] = {}

    def has_older(self, key: str) -> bool:
        """Whether a message for this destination that comes now has to wait behind others."""
        found = self.by_key.get(key)
        return found is not None and found.has_older

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def of(self, path: str, key: str) -> DeferredMessages:
        """The destination's; a new one if it has none."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = DeferredMessages(path)
        return found

    def count(self) -> int:
        """Messages set aside."""
        return sum(aside.count for aside in self.by_key.values())

    def paths(self) -> list[str]:
        """Whom they are for."""
        return [aside.path for aside in self.by_key.values()]

    def numbers(self) -> set[int]:
        """All messages that are known to be deferred."""
        return {number for aside in self.by_key.values() for number in aside.numbers}

    def found(self, seen: Iterable[tuple[str, str, int]]) -> None:
        """A search met these, which were not known: path, key, number."""
        for path, key, number in seen:
            aside = self.of(path, key)
            aside.add(number)
            aside.is_sorted = False  # it may be on its way here already, and then it comes once more

    def drop_empty(self, key: str) -> bool:
        """Forget a destination that has nothing set aside any more; whether that is so."""
        found = self.by_key.get(key)
        if found is None or not found.count:
            self.by_key.pop(key, None)
            return True
        return False

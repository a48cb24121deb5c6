"""A pump's deferred messages in its backlog queue, by destination; only their numbers are known.

The list need not survive: peeking finds deferred messages again. A destination's deferred messages precede newer ones,
oldest first, so newer ones are deferred too while any exist.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class DeferredMessages:
    """The deferred messages of one destination.

    numbers: known to be deferred, ascending after `take`. deferring: messages being deferred now. asked: requested
    messages that have not arrived. in_hand: requested messages, arrived or not, that are not settled. in_vain:
    requested messages in a row that did not come. under_way: the numbers of `deferring`. oldest: no older
    message waits than this number; infinity: none since the last request.
    """

    path: str
    numbers: list[int] = field(default_factory=list)
    deferring: int = 0
    asked: int = 0
    in_hand: int = 0
    in_vain: int = 0
    is_sorted: bool = True
    under_way: set[int] = field(default_factory=set)
    oldest: float = inf

    @property
    def has_older(self) -> bool:
        """Whether a new message has to wait behind others."""
        return bool(self.numbers) or self.asked > 0 or self.deferring > 0

    @property
    def count(self) -> int:
        """Deferred messages."""
        return len(self.numbers) + self.deferring + self.in_hand

    def add(self, number: int) -> None:
        """Add a message that is now deferred."""
        self.is_sorted = self.is_sorted and (not self.numbers or number > self.numbers[-1])
        if number < self.oldest:
            self.oldest = number
        self.numbers.append(number)

    def began(self, number: int) -> None:
        """Handle the begin of a message's deferral."""
        self.deferring += 1
        if number < self.oldest:
            self.oldest = number
        self.under_way.add(number)

    def ended(self, number: int) -> None:
        """Handle the end of a message's deferral."""
        self.deferring -= 1
        self.under_way.discard(number)

    def take(self, most: int, *, requested: Set[int] = frozenset()) -> list[int]:
        """Remove and return the oldest, at most `most`, of one partition (a number's upper 16 bits).

        None is newer than one that is being deferred, which will be known only then. `requested` ones stay: a number of
        a new queue may be on its way as another destination's message of the queue before.
        """
        if not self.is_sorted:
            self.numbers = sorted(set(self.numbers))
            self.is_sorted = True
        first = min(self.under_way, default=inf)
        ends = bisect_right(self.numbers, min(first, self.numbers[0] | 2**48 - 1)) if self.numbers else 0
        taken, self.numbers = self.numbers[: min(most, ends)], self.numbers[min(most, ends) :]
        if requested and not requested.isdisjoint(taken):
            self.numbers = [number for number in taken if number in requested] + self.numbers
            taken = [number for number in taken if number not in requested]
        self.oldest = min(first, self.numbers[0] if self.numbers else inf)
        return taken


class DeferredByDestination:
    """All deferred messages of one pump, by destination key."""

    def __init__(self) -> None:
        self.by_key: dict[str, DeferredMessages] = {}

    def has_older(self, key: str) -> bool:
        """Return whether a new message for this destination has to wait behind others."""
        found = self.by_key.get(key)
        return found is not None and found.has_older

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def of(self, path: str, key: str) -> DeferredMessages:
        """Return the destination's messages; create them if absent."""
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = DeferredMessages(path)
        return found

    def count(self) -> int:
        """Return the number of deferred messages."""
        return sum(aside.count for aside in self.by_key.values())

    def counts(self) -> dict[str, int]:
        """Return the number of deferred messages by destination."""
        return {aside.path: aside.count for aside in self.by_key.values() if aside.count}

    def paths(self) -> list[str]:
        """Return their destinations."""
        return [aside.path for aside in self.by_key.values()]

    def numbers(self) -> set[int]:
        """Return the numbers of all known deferred messages."""
        return {number for aside in self.by_key.values() for number in aside.numbers}

    def found(self, seen: Iterable[tuple[str, str, int]]) -> None:
        """Add messages that a search found: path, key, number."""
        for path, key, number in seen:
            aside = self.of(path, key)
            aside.add(number)
            aside.is_sorted = False  # it may be a duplicate of one that is being deferred

    def drop_empty(self, key: str) -> bool:
        """Forget a destination without deferred messages; return whether it had none."""
        found = self.by_key.get(key)
        if found is None or not found.count:
            self.by_key.pop(key, None)
            return True
        return False

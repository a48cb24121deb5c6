"""What a pump may take in: as much as it has room for, or less, where somebody bounds it.

A drain's pumps are bounded in number, by how many may be in hand, and by a rate that leaves live traffic its share;
those of a syphon by the engine's pace, which all of them share (console.core.pace).
Time is passed in; asking costs nothing, and changes nothing but what time has added.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from console.core.pace import Pace

BURST: Final = 1.0
"""Seconds of a rate that may be taken at once, after as long a pause."""


class Ration(Protocol):
    """How much a pump may take in."""

    def left(self, in_hand: int) -> float:
        """How many more messages may come now, with so many in hand."""

    def took(self) -> None:
        """One came."""

    def gave_back(self) -> None:
        """One that came is put aside, since its destination takes nothing now."""


class Unrationed:
    """As many as the pump has room for."""

    def left(self, in_hand: int) -> float:
        """No bound."""
        return inf

    def took(self) -> None:
        """Nobody counts."""

    def gave_back(self) -> None:
        """Nobody counts."""


class Paced:
    """What the engine's pace leaves, for all of its pumps together."""

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self.took = pace.took
        self.gave_back = pace.gave_back

    def left(self, in_hand: int) -> float:
        """However many are in hand."""
        return max(0.0, self._pace.left(self._clock()))


class Bounded:
    """A number of messages in all, a number in hand, a rate.

    Args:
        messages: in all.
        in_hand: at a time.
        rate: messages a second; None: no bound.
        clock: seconds.
    """

    def __init__(
        self, *, messages: int, in_hand: float = inf, rate: float | None = None, clock: Callable[[], float]
    ) -> None:
        self._messages = messages
        self._most_in_hand = in_hand
        self._rate = rate
        self._clock = clock
        self._saved = 1.0
        self._at = clock()

    @property
    def is_spent(self) -> bool:
        """Whether no more may come at all."""
        return self._messages <= 0

    def left(self, in_hand: int) -> float:
        """How many more messages may come now, with so many in hand."""
        return max(0.0, min(self._messages, self._most_in_hand - in_hand, self._by_rate()))

    def took(self) -> None:
        """One came."""
        self._messages -= 1
        self._saved -= 1

    def gave_back(self) -> None:
        """It came all the same: only the rate is for those that move on."""
        self._saved += 1

    def _by_rate(self) -> float:
        if self._rate is None:
            return inf
        now = self._clock()
        self._saved = min(self._saved + self._rate * (now - self._at), max(1.0, self._rate * BURST))
        self._at = now
        return self._saved

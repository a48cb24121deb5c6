"""What a pump may take in: as much as it has room for, or less, where somebody bounds it.

The pumps of a syphon are bounded by the engine's pace, which all of them share (paired_servicebus.core.pump.syphon_rate_limit); those of a drain
also in number, and by how many may be in hand. Asking costs nothing, and changes nothing but what time has added.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from paired_servicebus.core.pump.syphon_rate_limit import SyphonRateLimit


class IntakeLimit(Protocol):
    """How much a pump may take in."""

    def left(self, in_hand: int) -> float:
        """How many more messages may come now, with so many in hand."""

    def took(self) -> None:
        """One came."""

    def gave_back(self) -> None:
        """One that came is put aside, since its destination takes nothing now."""


class UnlimitedIntake:
    """As many as the pump has room for."""

    def left(self, in_hand: int) -> float:
        """No bound."""
        return inf

    def took(self) -> None:
        """Nobody counts."""

    def gave_back(self) -> None:
        """Nobody counts."""


class RateLimitedIntake:
    """What the engine's pace leaves, for all of its pumps together."""

    def __init__(self, pace: SyphonRateLimit, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self.took = pace.took
        self.gave_back = pace.gave_back

    def left(self, in_hand: int) -> float:
        """However many are in hand; less than one message is none."""
        left = self._pace.left(self._clock())
        return left if left >= 1 else 0.0


class BoundedIntake:
    """A number of messages in all, a number in hand, and the pace.

    Args:
        messages: in all.
        in_hand: at a time.
        clock: seconds.
    """

    def __init__(
        self, pace: SyphonRateLimit, clock: Callable[[], float], *, messages: int, in_hand: float = inf
    ) -> None:
        self._paced = RateLimitedIntake(pace, clock)
        self._messages = messages
        self._most_in_hand = in_hand

    @property
    def is_spent(self) -> bool:
        """Whether no more may come at all."""
        return self._messages <= 0

    def left(self, in_hand: int) -> float:
        """How many more messages may come now, with so many in hand."""
        return max(0.0, min(self._messages, self._most_in_hand - in_hand, self._paced.left(in_hand)))

    def took(self) -> None:
        """One came."""
        self._messages -= 1
        self._paced.took()

    def gave_back(self) -> None:
        """It came all the same: only the pace is for those that move on."""
        self._paced.gave_back()

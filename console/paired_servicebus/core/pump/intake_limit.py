"""Limits of a pump's intake.

The pumps of a syphon share the engine's rate limit (paired_servicebus.core.pump.syphon_rate_limit); those of a drain
also have a limit of messages in total and in hand. Reading a limit changes nothing but the refill over time.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

from paired_servicebus.core.pump.syphon_rate_limit import SyphonRateLimit


class IntakeLimit(Protocol):
    """A limit of a pump's intake."""

    def left(self, in_hand: int, at: float) -> float:
        """Return how many more messages may come now, with this number in hand."""

    def took(self) -> None:
        """Count one message."""

    def gave_back(self) -> None:
        """Count back one message that is deferred, since its destination accepts nothing now."""


class UnlimitedIntake:
    """No limit besides the pump's room."""

    def left(self, in_hand: int, at: float) -> float:
        """Return infinity."""
        return inf

    def took(self) -> None:
        """Do nothing."""

    def gave_back(self) -> None:
        """Do nothing."""


class RateLimitedIntake:
    """The engine's rate limit, shared by all of its pumps."""

    def __init__(self, pace: SyphonRateLimit) -> None:
        self._pace = pace
        self.took = pace.took
        self.gave_back = pace.gave_back

    def left(self, in_hand: int, at: float) -> float:
        """Return the rest of the rate limit; less than one message counts as 0."""
        left = self._pace.left(at)
        return left if left >= 1 else 0.0


class BoundedIntake:
    """A number of messages in total, a number in hand, and the rate limit.

    Args:
        messages: in total.
        in_hand: at a time.
    """

    def __init__(self, pace: SyphonRateLimit, *, messages: int, in_hand: float = inf) -> None:
        self._paced = RateLimitedIntake(pace)
        self._messages = messages
        self._max_in_hand = in_hand

    @property
    def is_spent(self) -> bool:
        """Whether the total is used up."""
        return self._messages <= 0

    def left(self, in_hand: int, at: float) -> float:
        """Return how many more messages may come now, with this number in hand."""
        return max(0.0, min(self._messages, self._max_in_hand - in_hand, self._paced.left(in_hand, at)))

    def took(self) -> None:
        """Count one message."""
        self._messages -= 1
        self._paced.took()

    def gave_back(self) -> None:
        """Count the message back in the rate limit only: the total includes deferred messages."""
        self._paced.gave_back()

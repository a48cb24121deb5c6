"""An engine's estimate of the namespace's clock, from the times of messages on the boards.

A message that appears between two readings was enqueued between them. So its enqueued time bounds the offset of our
clock from both sides, without a post of our own, and nobody but the namespace dates messages.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Final

OFF_BY: Final = 60.0
"""Seconds of offset that deserve a remark."""


class NamespaceClock:
    """The offset of our clock: seconds that it is ahead of the namespace's."""

    def __init__(self) -> None:
        self._low, self._high = -inf, inf

    def bound(self, *, enqueued_at: float, after: float | None, before: float) -> None:
        """Learn that the namespace enqueued a message between two times of our clock; after None: any time before."""
        if not isfinite(enqueued_at):
            return
        low = -inf if after is None else after - enqueued_at
        high = before - enqueued_at
        if low > self._high or high < self._low:  # a clock was set, or drifted: the newest evidence counts
            self._low, self._high = low, high
            return
        self._low, self._high = max(low, self._low), min(high, self._high)

    @property
    def offset(self) -> float | None:
        """Return the smallest offset that fits the evidence; None: there is none from both sides."""
        return self._least if isfinite(self._low) and isfinite(self._high) else None

    @property
    def _least(self) -> float:
        return max(self._low, min(self._high, 0.0))

    def namespace_time(self, at: float) -> float:
        """Return the namespace's time at a time of our clock."""
        return at - self._least

    def earliest(self, at: float) -> float:
        """Return a time that the namespace's clock has certainly reached: what ended before it is over."""
        return at - self._high if isfinite(self._high) else -inf

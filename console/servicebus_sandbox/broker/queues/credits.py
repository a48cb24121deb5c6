"""Throttling by credits, as the page "Throttling operations on Azure Service Bus" describes the standard tier.

At the start of each second the namespace gets its credits. Sends, receives and peeks cost one for each message,
operations on entities ten, and each filter that a send is compared with one. Without credits an operation is refused
until the next second.

The page lists nothing else, so settlements, renewals, session states and tokens are free here. It does not say what an
operation above the balance does. Here it is accepted, and the debt is paid by the next seconds.
"""

from __future__ import annotations

from typing import Final

from servicebus_sandbox.broker.broker_errors import Throttled

MESSAGE_COST: Final = 1
MANAGEMENT_COST: Final = 10
FILTER_COST: Final = 1


class CreditBucket:
    """The credits of one namespace; times are seconds of any clock that does not go back."""

    __slots__ = ("_period", "_started_at", "balance", "per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self.balance = per_second
        self._started_at = now
        self._period = 0

    def spend(self, cost: int, now: float) -> bool:
        """Take the cost if credits are left; return False if none are."""
        period = int(now - self._started_at)
        if period > self._period:
            gained = (period - self._period) * self.per_second
            self.balance = min(self.per_second, self.balance + gained)
            self._period = period
        if self.balance <= 0:
            return False
        self.balance -= cost
        return True

    def charge(self, cost: int, now: float) -> None:
        """Take the cost. Raises Throttled if no credits are left."""
        if not self.spend(cost, now):
            raise Throttled

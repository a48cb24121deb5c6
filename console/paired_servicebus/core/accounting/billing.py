"""Billed operations: the pairing's own share of the bill (SPEC.md section 8, "Cost").

The meter counts real operations; the projections estimate standing costs. They differ in one respect: the model of a
parked message has only sends and receives, but the service also bills the settlement of a locked message. A message
that was parked and moved is three of the model's four operations in the pairing's meters, plus a settlement. The fourth
is the application's own receive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.policy import PingKind

SEARCH_INTERVAL_SECONDS: Final = 15 * 60.0
"""Seconds between two searches of a pump for messages that another engine deferred, while it misses none itself. So
another engine finds a dead engine's deferred messages within this time, or immediately when it attaches."""
PARKED_MESSAGE_OPERATIONS: Final = 4
"""Sent to the backlog, received from it, sent to the primary, received from it."""
DAY: Final = 24 * 3600.0
MONTH_DAYS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a million billed operations, set by the owner, since it depends on tier, region and contract."""

    million_operations: float
    currency: str

    def of(self, operations: float) -> float:
        """Return the cost in `currency`, without the tier's free operations."""
        return operations / 1_000_000 * self.million_operations


def idle_receives(*, backlog_queues: int, window: float, engines: int, seconds: float) -> float:
    """Return the receive calls of idle syphons: one per pump and receive window (seconds)."""
    return backlog_queues * engines * seconds / window


def probes_a_day(*, interval: float, ping: PingKind) -> int:
    """Return the maximum operations a day for probing one entity, reached without any sends.

    Opening a link is not billed.
    """
    return 0 if ping == "link" else round(DAY / interval)

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


@dataclass(slots=True)
class Meter:
    """Operations by cause, since the engine started."""

    sends: int = 0
    """Attempts on the primary."""
    parked: int = 0
    pings: int = 0
    receives: int = 0
    """Messages that the syphon received from backlog queues, calls without a message (the three below), and each peek
    into a backlog queue."""
    waits: int = 0
    """Receive windows without a message, within `receives`."""
    searches: int = 0
    """Peeks for deferred messages, within `receives`."""
    attaches: int = 0
    """Attached links, within `receives`; includes links attached again after an idle detach."""
    moves: int = 0
    """Attempts of the syphon on destinations."""
    settlements: int = 0
    """Messages that the syphon completed, deferred or dead-lettered."""
    sent_bytes: int = 0
    """Bytes of bodies accepted by the primary."""
    parked_bytes: int = 0
    """Bytes of bodies accepted by backlog queues."""
    received_bytes: int = 0
    """Bytes of messages that the syphon received: whole ones by our own AMQP, but only forwarded bodies by the SDK."""
    moved_bytes: int = 0
    """Bytes of messages sent to destinations by the syphon."""

    @property
    def total(self) -> int:
        return self.sends + self.parked + self.pings + self.receives + self.moves + self.settlements

    def waited(self) -> None:
        """Count a receive window without a message."""
        self.receives += 1
        self.waits += 1

    def searched(self) -> None:
        """Count a peek for deferred messages."""
        self.receives += 1
        self.searches += 1

    def attached(self) -> None:
        """Count a link attached to a backlog queue."""
        self.receives += 1
        self.attaches += 1

    def carried(self, queue: int | None, size: int) -> None:
        """Count accepted bodies of `size` bytes; `queue` None: accepted by the primary."""
        if queue is None:
            self.sent_bytes += size
        else:
            self.parked_bytes += size


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


def idle_searches(*, backlog_queues: int, engines: int, seconds: float) -> float:
    """Return the maximum searches of idle syphons, one peek each."""
    return backlog_queues * engines * seconds / SEARCH_INTERVAL_SECONDS


def probes_a_day(*, interval: float, ping: PingKind) -> int:
    """Return the maximum operations a day for probing one entity, reached without any sends.

    Opening a link is not billed.
    """
    return 0 if ping == "link" else round(DAY / interval)

"""Billed operations: what the pairing itself adds to the bill (SPEC.md section 8, "Cost").

The meter counts what really happens; the projections say what standing arrangements will cost. They differ in one
thing: the model of a parked message is its sends and receives alone, while the price list of the service bills settling
a message that was received with a lock as well. So a message that was parked and moved is three of the model's four
operations in the meters of the pairing (the fourth is the application's own receive), and a settlement besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paired_servicebus.core.model.policy import PingKind

SEARCH_INTERVAL_SECONDS: Final = 15 * 60.0
"""Seconds between two searches of a pump for what somebody else set aside, as long as it misses nothing itself. What an
engine that died had set aside is found by another one within this time, and at once by one that attaches."""
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
    """Attempts on backlog queues."""
    pings: int = 0
    receives: int = 0
    """Messages that the syphon received from backlog queues, and its calls that brought none: the three below. Each
    peek into a backlog queue, for whoever looks at it."""
    waits: int = 0
    """Of those: receive windows without a message."""
    searches: int = 0
    """Of those: peeks for what is set aside."""
    attaches: int = 0
    """Of those: links that were attached, again after an idle cut as well."""
    moves: int = 0
    """The syphon's attempts on destinations."""
    settlements: int = 0
    """Of messages that the syphon received: completed, set aside, dead-lettered."""
    sent_bytes: int = 0
    """Of the bodies that the primary accepted."""
    parked_bytes: int = 0
    """Of the bodies that backlog queues accepted."""
    received_bytes: int = 0
    """Of the messages that backlog queues gave the syphon: all of each by our own AMQP; through the SDK, the bodies of
    those that were sent on."""
    moved_bytes: int = 0
    """Of the messages that destinations were sent by the syphon."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.sends + self.parked + self.pings + self.receives + self.moves + self.settlements

    def waited(self) -> None:
        """A receive window brought no message."""
        self.receives += 1
        self.waits += 1

    def searched(self) -> None:
        """A backlog queue was peeked into for what is set aside."""
        self.receives += 1
        self.searches += 1

    def attached(self) -> None:
        """The syphon attached a link to a backlog queue."""
        self.receives += 1
        self.attaches += 1

    def carried(self, queue: int | None, size: int) -> None:
        """Bodies of `size` bytes were accepted: by a backlog queue, or by the primary (None)."""
        if queue is None:
            self.sent_bytes += size
        else:
            self.parked_bytes += size


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million billed operations cost; the owner names it, since it depends on tier, region and contract."""

    million_operations: float
    currency: str

    def of(self, operations: float) -> float:
        """Their cost, in `currency`; what a tier includes for nothing is not taken off."""
        return operations / 1_000_000 * self.million_operations


def idle_receives(*, backlog_queues: int, window: float, engines: int, seconds: float) -> float:
    """Receive calls that idle syphons make: each pump asks once a receive window (seconds)."""
    return backlog_queues * engines * seconds / window


def idle_searches(*, backlog_queues: int, engines: int, seconds: float) -> float:
    """Searches that idle syphons make at most, one peek each."""
    return backlog_queues * engines * seconds / SEARCH_INTERVAL_SECONDS


def probes_a_day(*, interval: float, ping: PingKind) -> int:
    """Operations a day that probing one entity costs at most: all of them, if nothing is ever sent to it. A link that
    is only opened is not billed."""
    return 0 if ping == "link" else round(DAY / interval)

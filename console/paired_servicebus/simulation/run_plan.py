"""What one run is made of: a policy, entities, queues, engines, calls, faults, crashes and operators' acts.

All values, times in seconds since the beginning. plan_generator.py takes them from chance; a recorded history could state
them as well. Every fault ends by `heals_at`; nothing new goes wrong after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS
from paired_servicebus.core.model.policy import Policy

LOCK: Final = 60.0
"""Seconds a backlog message stays locked: as the pairing creates its queues."""
RESCAN: Final = SEARCH_INTERVAL_SECONDS
"""Seconds between two of a pump's searches for what somebody else set aside."""
MISSED: Final = 60.0
"""Seconds until the next one, where a message that was set aside could not be received."""
LATEST: Final = 15 * 60.0
"""Seconds that an accepted message may take to appear (SPEC.md section 1)."""


class InjectedCondition(Enum):
    """What a fault makes of a request."""

    REFUSED = auto()
    """The connection is refused: nothing arrives."""
    RESET = auto()
    """The connection is lost; the request may have arrived."""
    BLACK_HOLE = auto()
    """No answer, and nothing arrives."""
    ACK_LOST = auto()
    """It arrives, and the answer does not."""
    LANDS_LATE = auto()
    """It arrives after the caller has given up."""
    SLOW = auto()
    """Answers come about when the caller gives up."""
    HIDDEN = auto()
    """Accepted; visible only later, up to 15 minutes."""
    INTERNAL = auto()
    BUSY = auto()
    DISABLED = auto()
    DELETED = auto()
    UNAUTHORIZED = auto()
    FULL = auto()
    AWAY = auto()
    """The entity's receivers are away: it fills, and what expires expires."""


class InjectedFault(NamedTuple):
    """From `at` to `ends`, requests to `targets` (an entity's path, a backlog queue's index) meet `condition`, each
    with the probability `share`."""

    at: float
    ends: float
    targets: tuple[str | int, ...]
    condition: InjectedCondition
    share: float = 1.0


class PlannedCall(NamedTuple):
    """One call of an application: so many messages, to be sent again so often when it fails."""

    at: float
    engine: int
    sender: int
    path: str
    messages: int
    timeout: float | None = None
    retries: int = 0


class Crash(NamedTuple):
    """An engine dies at `at` and another is in its place at `back`."""

    at: float
    back: float
    engine: int


Verb = Literal["force", "pin", "release", "pause", "resume"]


class OperatorAct(NamedTuple):
    """An operator's act on one engine."""

    at: float
    engine: int
    verb: Verb
    path: str = ""


class Stranger(NamedTuple):
    """Somebody else puts a message into a backlog queue: without a readable destination, or for one that never is."""

    at: float
    queue: int
    malformed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """An entity of the primary."""

    path: str
    detects_duplicates: bool = False
    capacity: int = 10_000
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A backlog queue; one with a delivery limit is its owner's choice."""

    capacity: int = 10_000
    delivery_limit: int = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    policy: Policy
    entities: tuple[EntityPlan, ...]
    queues: tuple[QueuePlan, ...]
    syphons: tuple[bool, ...]
    """One engine each, and whether it moves messages."""
    calls: tuple[PlannedCall, ...]
    faults: tuple[InjectedFault, ...] = ()
    crashes: tuple[Crash, ...] = ()
    acts: tuple[OperatorAct, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    heals_at: float
    ends_at: float

    @property
    def back_within(self) -> float:
        """Seconds in which a healed primary is back (SPEC.md section 3); waits that throttling or `cool_down` ask for
        come on top."""
        policy = self.policy
        stated = policy.failback_pings * (policy.ping_timeout + policy.ping_primary_interval)
        cool = policy.cool_down + policy.ping_primary_interval if policy.cool_down else 0.0
        return stated + cool + policy.throttle_wait

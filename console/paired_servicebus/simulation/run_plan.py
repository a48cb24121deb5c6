"""The values of one run: a policy, entities, queues, engines, calls, faults, crashes and operators' acts.

Times are seconds since the beginning. A recorded history or a seed supplies them.
Every fault ends by `heals_at`, and none begins after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal, NamedTuple

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS
from paired_servicebus.core.model.policy import Policy

LOCK: Final = 60.0
"""Seconds of a backlog message's lock, as the pairing creates its queues."""
RESCAN: Final = SEARCH_INTERVAL_SECONDS
"""Seconds between two searches of a pump for messages that another engine deferred."""
MAX_HIDDEN: Final = 15 * 60.0
"""Maximum seconds until an accepted message appears (SPEC.md section 1)."""


class InjectedCondition(Enum):
    """The effect of a fault on a request."""

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
    """Answers arrive around the caller's time-out."""
    HIDDEN = auto()
    """Accepted; visible only later, up to 15 minutes."""
    INTERNAL = auto()
    BUSY = auto()
    DISABLED = auto()
    DELETED = auto()
    UNAUTHORIZED = auto()
    FULL = auto()
    AWAY = auto()
    """The entity has no receivers: it fills, and messages expire."""


class InjectedFault(NamedTuple):
    """A condition of requests to `targets`, from `at` to `ends`, with the probability `share`.

    A target is an entity's path or a backlog queue's index.
    """

    at: float
    ends: float
    targets: tuple[str | int, ...]
    condition: InjectedCondition
    share: float = 1.0


class PlannedCall(NamedTuple):
    """One call of an application: the number of messages and of retries."""

    at: float
    engine: int
    sender: int
    path: str
    messages: int
    timeout: float | None = None
    retries: int = 0


class Crash(NamedTuple):
    """An engine dies at `at` and restarts at `back`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """An entity of the primary."""

    path: str
    detects_duplicates: bool = False
    capacity: int = 10_000
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """A backlog queue; a delivery limit is its owner's choice."""

    capacity: int = 10_000
    delivery_limit: int = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run."""

    policy: Policy
    entities: tuple[EntityPlan, ...]
    queues: tuple[QueuePlan, ...]
    syphons: tuple[bool, ...]
    """One engine each, and whether it runs a syphon."""
    faults: tuple[InjectedFault, ...] = ()
    crashes: tuple[Crash, ...] = ()
    acts: tuple[OperatorAct, ...] = ()
    apart: bool = False
    """Whether each pump delivers by itself, as over the SDK, and not through lanes of its engine."""
    heals_at: float
    ends_at: float

    @property
    def back_within(self) -> float:
        """Return the seconds within which a healed primary is used again (SPEC.md section 3).

        Waits for throttling and `cool_down` are not included.
        """
        policy = self.policy
        stated = policy.failback_pings * (policy.ping_timeout + policy.ping_primary_interval)
        cool = policy.cool_down + policy.ping_primary_interval if policy.cool_down else 0.0
        return stated + cool + policy.throttle_wait

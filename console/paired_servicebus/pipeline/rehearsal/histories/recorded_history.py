"""What is known of some time in the life of a pairing: its load, its outages, what people and crashes did meanwhile.

Times are seconds since the history's beginning. A record says of the primary only what somebody asked it: so an outage
began between the last answer that was good and the first that was not, and `TimeBounds` holds both. While an entity is
failed over, its pings alone ask: what happened between two of them nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_plan import Crash, InjectedCondition, OperatorAct

Target = str | int
"""An entity's path, or a backlog queue's index."""


class TimeBounds(NamedTuple):
    """A time that is known to lie between two others, both included."""

    earliest: float
    latest: float

    @property
    def width(self) -> float:
        """Seconds that are not known."""
        return self.latest - self.earliest


class Outage(NamedTuple):
    """Requests to `target` met `failure`, each with the probability `share`."""

    target: Target
    failure: FailureKind
    began: TimeBounds
    ended: TimeBounds
    share: float = 1.0


class RateStep(NamedTuple):
    """From `at` on, `rate` messages a second are sent."""

    at: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """One caller of an entity; `steps` by time."""

    path: str
    steps: tuple[RateStep, ...]
    waits: bool = False
    """It sends its next message only after it was told what became of the one before."""

    def rate_at(self, at: float) -> float:
        """Messages a second at a time."""
        rate = 0.0
        for step in self.steps:
            if step.at > at:
                break
            rate = step.rate
        return rate

    def spans(self, until: float) -> Iterator[tuple[float, float, float]]:
        """From, to and rate of each step up to `until`."""
        ends = [step.at for step in self.steps[1:]] + [until]
        for step, end in zip(self.steps, ends, strict=True):
            if min(end, until) > step.at and step.rate > 0.0:
                yield step.at, min(end, until), step.rate


def calls_before(at: float, rate: float, phase: float) -> int:
    """How many calls of a step fall into its first `at` seconds; call k is due at (k + phase) / rate."""
    return max(0, ceil(at * rate - phase))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedHistory:
    """Everything a rehearsal needs to know of what happened."""

    source: str
    """Where it is from, for a person."""
    began_at: float | None = None
    """When it began, seconds since the epoch; None: never."""
    seconds: float
    entities: tuple[str, ...]
    queues: int
    loads: tuple[OfferedLoad, ...]
    outages: tuple[Outage, ...] = ()
    crashes: tuple[Crash, ...] = ()
    acts: tuple[OperatorAct, ...] = ()
    refusal: float = 0.0
    """Seconds that a refusal takes: what clients try by themselves before they give up."""
    insists: float | None = None
    """Seconds after which a caller that was refused sends the same message again; None: it does not."""
    unknown: tuple[str, ...] = ()
    """What the record cannot tell, a sentence each."""

    @property
    def messages(self) -> int:
        """About how many messages were offered."""
        return round(sum((to - since) * rate for load in self.loads for since, to, rate in load.spans(self.seconds)))


CONDITIONS: Final[dict[FailureKind, tuple[InjectedCondition, ...]]] = {
    FailureKind.TIMEOUT: (InjectedCondition.BLACK_HOLE, InjectedCondition.ACK_LOST),
    FailureKind.CONNECTION: (InjectedCondition.REFUSED, InjectedCondition.RESET),
    FailureKind.COMMUNICATION: (InjectedCondition.REFUSED, InjectedCondition.RESET),
    FailureKind.DETACHED: (InjectedCondition.REFUSED, InjectedCondition.RESET),
    FailureKind.INTERNAL: (InjectedCondition.INTERNAL,),
    FailureKind.UNEXPLAINED: (InjectedCondition.INTERNAL,),
    FailureKind.DISABLED: (InjectedCondition.DISABLED,),
    FailureKind.NOT_FOUND: (InjectedCondition.DELETED,),
    FailureKind.FULL: (InjectedCondition.FULL,),
    FailureKind.BUSY: (InjectedCondition.BUSY,),
    FailureKind.UNAUTHENTICATED: (InjectedCondition.UNAUTHORIZED,),
    FailureKind.UNAUTHORIZED: (InjectedCondition.UNAUTHORIZED,),
}
"""What may have been behind a failure. Where there are two, a message that failed may have arrived or not: the record
does not say which, and a seed draws one."""


def kind_of_reason(reason: str) -> FailureKind | None:
    """The kind that a written reason begins with."""
    return max((kind for kind in FailureKind if reason.startswith(kind)), key=len, default=None)


FOREVER: Final = inf

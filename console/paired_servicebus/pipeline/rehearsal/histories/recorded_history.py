"""The recorded facts about a period of a pairing: load, outages, operator actions and crashes.

Times are seconds since the history's beginning. A record shows the primary only at each request. So an outage began
between the last good answer and the first bad one, and `TimeBounds` holds both. While an entity is failed over, only
its pings reach the primary: the state between two of them is unknown.
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
    """Whether a caller waits for each answer before its next message."""

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
    """The input of a rehearsal."""

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
    """Seconds until a refusal: the duration of the client's own retries."""
    insists: float | None = None
    """Seconds after which a caller that was refused sends the same message again; None: it does not."""
    unknown: tuple[str, ...] = ()
    """Limits of the record, a sentence each."""

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
    FailureKind.REVOKED: (InjectedCondition.UNAUTHORIZED,),
}
"""The possible causes of a failure. If there are two, the failed message may have arrived: the seed draws one."""


def kind_of_reason(reason: str) -> FailureKind | None:
    """Return the kind that a written reason begins with."""
    return max((kind for kind in FailureKind if reason.startswith(kind)), key=len, default=None)


FOREVER: Final = inf


ENTITIES: Final = ("orders", "payments", "audit")
SECONDS: Final = 3600.0
_SILENT: Final = tuple(
    Outage(path, FailureKind.TIMEOUT, TimeBounds(1500.0, 1502.0), TimeBounds(1620.0, 1860.0)) for path in ENTITIES
)
_FLAPS: Final = tuple(
    Outage("orders", FailureKind.CONNECTION, TimeBounds(at, at + 5.0), TimeBounds(at + 10.0, at + 35.0))
    for at in (2700.0, 2760.0, 2820.0)
)

HOUR: Final = RecordedHistory(
    source="a made-up hour",
    seconds=SECONDS,
    entities=ENTITIES,
    queues=10,
    loads=tuple(OfferedLoad(path=path, steps=(RateStep(0.0, 1.0),)) for path in ENTITIES),
    outages=(
        Outage("orders", FailureKind.INTERNAL, TimeBounds(300.0, 360.0), TimeBounds(380.0, 480.0)),
        Outage("audit", FailureKind.CONNECTION, TimeBounds(600.0, 900.0), TimeBounds(902.0, 910.0)),
        Outage("payments", FailureKind.BUSY, TimeBounds(1000.0, 1060.0), TimeBounds(1080.0, 1200.0), 0.5),
        *_SILENT,
        *_FLAPS,
    ),
    unknown=("anything of your own namespaces: nothing that failed was recorded, so the hour is made up",),
)
"""A synthetic hour, for a journal without failures: three entities with one message a second each.

It has the kinds of outage in SPEC.md section 1: a node restart, throttling, a silent data centre, an unstable entity.
Every seed draws the start and end of each within its bounds.
"""

"""The route of one send: primary, backlog queue, wait, or error to the caller (SPEC.md sections 5 to 7).

`SendRouter` reads the entity's state and the rotation and changes neither. It has no clock and no randomness: `at` and
`draw` are arguments.

    primary ──accepted──▶ done
       │ counts, entity diverts now (or interval 0) ──▶ backlog queue, the sender's own ──accepted──▶ done
       │ counts, still suspect ──▶ raise, or hold until the state changes       │ counts: another queue; none: raise
       │ busy ──▶ wait ten seconds, or until the state changes                  │ busy: another queue, then wait
       │                                                                        │ unauthorized: as counts
       └ the caller's own ──▶ raise                                             └ the caller's own ──▶ raise
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from paired_servicebus.core.failover.rotation import Rotation
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Route:
    """A target of an attempt: the primary, or a backlog queue by index."""

    queue: int | None = None

    def __str__(self) -> str:
        return "primary" if self.queue is None else f"backlog/{self.queue}"


PRIMARY: Final = Route()
BACKLOG_TRIES: Final = 2
"""Multiple of `send_timeout` for the backlog if the caller set no limit. One queue may use up its time; another has as
much."""
MIN_ATTEMPT_SECONDS: Final = 1.0
MIN_ATTEMPT_SHARE: Final = 0.2
"""Minimum share of `send_timeout` for an attempt after a rest for "server busy"; MIN_ATTEMPT_SECONDS if that is less. A
shorter attempt would time out, and throttling would cause a failover."""
_PROVEN: Final = frozenset({State.HEALTHY})
"""States in which a held call retries the primary, since another send has succeeded."""


@dataclass(frozen=True, slots=True)
class Try:
    """Attempt the send on `route`, for at most `timeout` seconds."""

    route: Route
    timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at `until`, or when the entity's state or the rotation has changed."""

    until: float


class GiveUp(StrEnum):
    """The reason why a call ends without acceptance."""

    FAILED = "the failure goes to the caller"
    NO_BACKLOG = "no backlog queue took it"
    BUSY = "the namespace is busy"


Next = Try | Wait | GiveUp


@dataclass(slots=True)
class SenderMemory:
    """The state that one paired sender keeps between calls."""

    queue: int | None = None
    """The sender's backlog queue, first chosen at random."""
    busy: dict[Route, float] = field(default_factory=dict)
    """Routes that answered "server busy", each with the time until which this sender avoids it."""

    def rests(self, route: Route, at: float) -> bool:
        """Return whether this sender must still avoid `route`."""
        return self.busy.get(route, at) > at

    def lapse(self, at: float) -> None:
        """Forget the routes whose rest is over."""
        for route in [route for route, until in self.busy.items() if until <= at]:
            del self.busy[route]


class SendRouter:
    """The route of one send call.

    Args:
        sender: the paired sender's backlog queue and throttled routes.
        policy: times are seconds.
        at: when the call began.
        timeout: the caller's limit for the whole call; None: `send_timeout` at the primary, then twice that at the
            backlog.
    """

    __slots__ = ("_budget", "_deadline", "_last", "_on_backlog", "_policy", "_refused", "_rested", "_sender")

    def __init__(self, sender: SenderMemory, policy: Policy, *, at: float, timeout: float | None = None) -> None:
        self._sender = sender
        self._policy = policy
        self._budget = timeout
        self._deadline = at + (policy.send_timeout if timeout is None else timeout)
        self._on_backlog = False
        self._last: Verdict | None = None
        self._rested = False
        """Whether the call has waited for a busy route."""
        self._refused = False
        """Whether the primary caused the latest counted failure. The caller never sees a backlog queue's."""
        sender.lapse(at)

    def next(self, entity: Entity, rotation: Rotation, *, at: float, draw: float) -> Next:
        """Return the next step."""
        if entity.diverting:
            return self._backlog(rotation, at, draw)
        if self._refused and not (self._policy.hold_until_failover and entity.state in _PROVEN):
            return Wait(self._deadline) if self._may_hold(entity, at) else GiveUp.FAILED
        return self._attempt(PRIMARY, at)

    def ended(self, route: Route, verdict: Verdict, *, at: float) -> None:
        """Record that an attempt on `route` failed with `verdict` at `at`."""
        self._last = verdict
        self._refused = verdict is Verdict.COUNTS and route == PRIMARY
        if verdict is Verdict.THROTTLED:
            self._sender.busy[route] = at + self._policy.throttle_wait
        elif self._sender.queue == route.queue:
            self._sender.queue = None

    def _may_hold(self, entity: Entity, at: float) -> bool:
        """Return whether to hold the call: only a suspect entity changes by itself."""
        return self._policy.hold_until_failover and entity.state is State.SUSPECT and at < self._deadline

    def _backlog(self, rotation: Rotation, at: float, draw: float) -> Next:
        if not self._on_backlog:
            self._on_backlog = True
            if self._budget is None:
                self._deadline = at + BACKLOG_TRIES * self._policy.send_timeout
        queue = self._sender.queue
        if queue is None or not rotation.holds(queue) or self._sender.rests(Route(queue), at):
            resting = [route.queue for route in self._sender.busy if self._sender.rests(route, at)]
            queue = rotation.pick(draw, avoid=[index for index in resting if index is not None])
        if queue is None:
            return self._wait_for_queue(rotation, at)
        self._sender.queue = queue
        return self._attempt(Route(queue), at)

    def _wait_for_queue(self, rotation: Rotation, at: float) -> Next:
        """Return a wait for a busy queue, or give up if no queue is merely busy."""
        busy = [until for route, until in self._sender.busy.items() if until > at and self._in(rotation, route)]
        if not busy:
            return GiveUp.NO_BACKLOG
        return Wait(min(*busy, self._deadline)) if at < self._deadline else GiveUp.BUSY

    @staticmethod
    def _in(rotation: Rotation, route: Route) -> bool:
        return route.queue is not None and rotation.holds(route.queue)

    def _attempt(self, route: Route, at: float) -> Next:
        if at >= self._deadline:
            if self._last is Verdict.THROTTLED or self._sender.rests(route, at):
                return GiveUp.BUSY
            return GiveUp.NO_BACKLOG if route.queue is not None else GiveUp.FAILED
        if self._sender.rests(route, at):
            self._rested = True
            return Wait(min(self._sender.busy[route], self._deadline))
        left = min(self._policy.send_timeout, self._deadline - at)
        if self._rested and left < min(MIN_ATTEMPT_SECONDS, MIN_ATTEMPT_SHARE * self._policy.send_timeout):
            return GiveUp.BUSY
        return Try(route, left)

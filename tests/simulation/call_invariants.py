"""The rules of SPEC.md sections 5 to 7 for one call of a sender, checked from outside by its steps and their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.failover.send_router import GiveUp, Next, Route, Try
from paired_servicebus.core.model.entity_state import Entity, State
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_record import TOLERANCE, CallEvents
from paired_servicebus.simulation.sim_namespaces import SimBacklogQueue
from tests.simulation.invariants import InvariantChecker

RETRIES: Final = 3
LONGEST_PAUSE: Final = 6.4
"""Seconds before the last of RETRIES over a fresh link."""
PROBE: Final = 5.0
"""Seconds of one attempt at a backlog queue while all queues are out."""


@dataclass(slots=True)
class CallChecker(CallEvents):
    """The checker of one call."""

    engine: str
    watch: InvariantChecker
    policy: Policy
    queues: Sequence[SimBacklogQueue]
    began: float
    timeout: float | None
    attempts: int = 0
    """Failed attempts."""
    lost_links: int = 0
    """Attempts at the primary that ended with a lost link, in a row."""
    on_backlog_at: float | None = None
    tried: dict[int, float] = field(default_factory=dict)
    """The end of its latest attempt at each backlog queue."""

    def decided(self, step: Next, entity: Entity, at: float) -> None:
        """Check a step."""
        if entity.diverting and self.on_backlog_at is None:
            self.on_backlog_at = at
        if isinstance(step, Try):
            self._check_time_enough(step)
        elif step is GiveUp.FAILED:
            self._check_made_again(entity, at)
        elif step is GiveUp.NO_BACKLOG and self.on_backlog_at is not None:
            self._check_healthy_queues(self.on_backlog_at, at)

    def ended(self, route: Route, failure: FailureKind | None, at: float, *, is_unhindered: bool) -> None:
        """Record the end of an attempt. is_unhindered: no fault was in its way."""
        self.attempts += failure is not None
        if route.queue is None:
            self.lost_links = self.lost_links + 1 if failure is FailureKind.CONNECTION else 0
            return
        self.tried[route.queue] = at
        if failure is FailureKind.TIMEOUT and is_unhindered and self.attempts > 1:
            self.watch.fail("time enough", f"{self.engine}: {route} had too little time, and was healthy")

    def _check_time_enough(self, step: Try) -> None:
        """Check that a route is tried only with time enough to be answered; a call's first attempt is its caller's."""
        enough = min(1.0, 0.2 * self.policy.send_timeout)
        if self.attempts and step.timeout < enough - TOLERANCE:
            self.watch.fail("time enough", f"{self.engine}: {step.route} is tried for {step.timeout:.3f} s")

    def _check_made_again(self, entity: Entity, at: float) -> None:
        """Check that a failure over a lost link is raised only after the retries, or for want of time."""
        if not 0 < self.lost_links <= RETRIES or entity.state is State.HEALTHY:
            return
        left = self.began + (self.policy.send_timeout if self.timeout is None else self.timeout) - at
        if left > LONGEST_PAUSE + 1.0 and not self.policy.hold_until_failover:
            self.watch.fail("made again", f"{self.engine}: a lost link is raised after {self.lost_links} attempts")

    def _check_healthy_queues(self, since: float, at: float) -> None:
        """Check that no call is refused beside a queue that was healthy throughout it, and for a round before."""
        ends = since + 2 * self.policy.send_timeout if self.timeout is None else self.began + self.timeout
        if ends - at < 1.0:  # too little time for an attempt
            return
        for queue in self.queues:
            healthy_for = at - queue.healed_at
            is_healthy = queue.fault is None and healthy_for > PROBE * len(self.queues) + 2.0
            if is_healthy and queue.index not in self.tried:
                self.watch.fail("a send is the probe", f"{self.engine}: refused, and backlog/{queue.index} is healthy")

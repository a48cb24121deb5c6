"""Mistakes in the World's adapters: what the same mistakes would do in the shipped adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

from paired_servicebus.core.failover.pairing_machine import SendPing
from paired_servicebus.core.failover.send_router import Try
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Event, PingAccepted, PingFailed, StateChanged
from paired_servicebus.core.model.verdict import FailureKind, Judgement
from paired_servicebus.simulation.sim_engine import SimEngine
from paired_servicebus.simulation.sim_namespaces import SimMessage
from paired_servicebus.simulation.sim_pump import Lane, SimBacklogMessage, SimDelivery, SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import Steps
from paired_servicebus.simulation.world import WorldParts
from tests.simulation.planted_bugs.bug import Bug


class TakesTimeoutForAccepted(SimSender):
    def attempt(self, target: Any, messages: list[SimMessage], timeout: float) -> Any:
        failure = yield from super().attempt(target, messages, timeout)
        return None if failure is FailureKind.TIMEOUT else failure


class FreshIdOnResend(SimSender):
    def at_primary(self, left: list[SimMessage], timeout: float) -> Any:
        failure = yield from super().at_primary(left, timeout)
        left[:] = [replace(message, message_id=f"{message.message_id}-again") for message in left]
        return failure


class ParksAllAgain(SimSender):
    """A sender that repeats accepted packs after a failure."""

    def deliver(self, left: list[SimMessage], timeout: float | None) -> Steps:
        self.whole = list(left)
        yield from super().deliver(left, timeout)

    def at_backlog(self, queue: int, left: list[SimMessage], timeout: float) -> Any:
        failure = yield from super().at_backlog(queue, left, timeout)
        if failure is not None:
            left[:] = self.whole
        return failure


class DiesOfBusy(SimSender):
    """A sender whose call ends without an answer when its namespace is busy."""

    is_dead = False

    def failed(self, step: Try, failure: FailureKind, left: Sequence[SimMessage]) -> Judgement:
        self.is_dead = failure is FailureKind.BUSY
        return super().failed(step, failure, left)

    def deliver(self, left: list[SimMessage], timeout: float | None) -> Steps:
        yield from super().deliver(left, timeout)
        if left and self.is_dead:
            yield from self.clock.sleep(inf)


class CompletesAfterTimeout(SimDelivery):
    def _attempt(self, key: str, tried: Sequence[SimBacklogMessage]) -> Any:
        failures = yield from super()._attempt(key, tried)
        return [None if failure is FailureKind.TIMEOUT else failure for failure in failures]


class StaysSilent(SimDelivery):
    """A delivery that never forgets that a destination owed an answer."""

    def _try(self, path: str, key: str, lane: Lane, tried: Sequence[SimBacklogMessage]) -> Steps:
        stalled = self.engine.machine.destinations.stalled
        yield from super()._try(path, key, lane, tried)
        if self.clock.now - lane.began > 1.0:
            stalled.add(key)


class RepeatsRefusedRecalls(SimPump):
    """A pump whose client repeats a refused request for deferred messages, as the SDK does by default."""

    def _try(self, act: Any, unanswered: Callable[[], None] | None) -> Any:
        failure, answer = yield from super()._try(act, unanswered)
        if failure is None and answer is None:  # one of them is gone or locked
            yield from self.clock.sleep(self.clock.now + SDK_RETRIES)
        return failure, answer


class ForgetsCounted(SimEngine):
    def accepted(self, path: str, queue: int | None, messages: int) -> None:
        if queue is not None or path.casefold() not in self.machine.settled:
            super().accepted(path, queue, messages)


class PingsWhileHealthy(SimEngine):
    def _announced(self, event: Event) -> None:
        super()._announced(event)
        if isinstance(event, StateChanged) and event.now == State.HEALTHY:
            self.clock.start(self.ping(SendPing(event.entity, 1)), self.processes)


class ThrottledPingCounts(SimEngine):
    def tell(self, event: Event) -> None:
        if isinstance(event, PingFailed) and event.throttled:
            event = PingAccepted(at=event.at, entity=event.entity, number=event.number, took=event.took)
        super().tell(event)


SDK_RETRIES: Final = 4.8
"""Seconds of the SDK's pauses between the tries of one request that may take 10 s."""

ADAPTER_BUGS: Final = (
    Bug("a sender counts a timeout as acceptance", WorldParts(sending=TakesTimeoutForAccepted)),
    Bug("a message gets a fresh id when it is sent again", WorldParts(sending=FreshIdOnResend)),
    Bug("parked messages are parked again after a failure", WorldParts(sending=ParksAllAgain)),
    Bug("a request to a busy namespace gets no reply", WorldParts(sending=DiesOfBusy)),
    Bug("a pump counts a timeout as acceptance", WorldParts(delivery=CompletesAfterTimeout)),
    Bug("a destination that was silent once counts as silent ever since", WorldParts(delivery=StaysSilent)),
    Bug("a request for deferred messages that another engine has is retried", WorldParts(moving=RepeatsRefusedRecalls)),
    Bug("sends that are only counted are no evidence", WorldParts(engine=ForgetsCounted)),
    Bug("a healthy entity is pinged", WorldParts(engine=PingsWhileHealthy)),
    Bug("a throttled ping counts as an accepted one", WorldParts(engine=ThrottledPingCounts)),
)

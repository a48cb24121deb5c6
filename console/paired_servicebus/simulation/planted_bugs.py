"""Deliberate mistakes, to show that the checks can fail. Each replaces one part of a World; shipped code knows none.

Each must be caught within `WITHIN` seeds; the rules as shipped must pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.failover.effects import Effect, SendPing
from paired_servicebus.core.failover.inactivity import InactivityTimer
from paired_servicebus.core.failover.rotation import Rotation
from paired_servicebus.core.failover.send_router import SendRouter, Try
from paired_servicebus.core.model import entity_state as life
from paired_servicebus.core.model.entity_state import State, Trigger
from paired_servicebus.core.model.envelope import SESSION_ID, EnvelopeProperties
from paired_servicebus.core.model.pairing_events import Event, PingAccepted, PingFailed, StateChanged
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind, Judgement, Verdict
from paired_servicebus.core.pump.destination_circuits import Circuit, DestinationCircuits
from paired_servicebus.simulation.sim_engine import CountingMachine, SimEngine
from paired_servicebus.simulation.sim_messages import SimMessage
from paired_servicebus.simulation.sim_namespaces import HeldMessage
from paired_servicebus.simulation.sim_pump import Load, Locked, SimPump
from paired_servicebus.simulation.sim_sender import SimSender
from paired_servicebus.simulation.virtual_clock import Steps
from paired_servicebus.simulation.world import WorldParts

WITHIN: Final = 200


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake in one sentence, with the parts that contain it."""

    what: str
    parts: WorldParts


# -- senders -------------------------------------------------------------------------------------------------------


class TakesTimeoutForAccepted(SimSender):
    def attempt(self, target: Any, messages: list[SimMessage], timeout: float) -> Any:
        failure = yield from super().attempt(target, messages, timeout)
        return None if failure is FailureKind.TIMEOUT else failure


class FreshIdOnResend(SimSender):
    def at_primary(self, left: list[SimMessage], timeout: float) -> Any:
        failure = yield from super().at_primary(left, timeout)
        left[:] = [replace(message, message_id=f"{message.message_id}-again") for message in left]
        return failure


class LosesSession(SimSender):
    def wrap_message(self, message: SimMessage) -> SimMessage:
        parked = super().wrap_message(message)
        parked.properties.pop(SESSION_ID, None)
        return parked


class ForgetsThrottling(SimSender):
    def ended(self, router: SendRouter, step: Try, verdict: Verdict) -> None:
        super().ended(router, step, verdict)
        self.memory.busy.clear()


class RefusesWhatIsInDoubt(SimSender):
    def answer(self, message: SimMessage) -> SendOutcome:
        return SendOutcome.REFUSED


class StaysWithPrimary(SimSender):
    def at_backlog(self, queue: int, left: list[SimMessage], timeout: float) -> Any:
        return self.at_primary(left, timeout)


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


# -- pumps ---------------------------------------------------------------------------------------------------------


class CompletesFirst(SimPump):
    def deliver_pack(self, path: str, pack: Sequence[Load]) -> Any:
        yield from self.settle(pack)
        return (yield from super().deliver_pack(path, pack))


class CompletesAfterTimeout(SimPump):
    def deliver_pack(self, path: str, pack: Sequence[Load]) -> Any:
        failure = yield from super().deliver_pack(path, pack)
        return None if failure is FailureKind.TIMEOUT else failure


class DropsUnreadable(SimPump):
    def dead_letter(self, locked: Sequence[Locked], reason: str) -> Steps:
        yield from self.request(partial(self.queue.complete, locked))


class IgnoresFailover(SimPump):
    def may_deliver(self, path: str) -> bool:
        return self.engine.machine.destinations.available(path, self.clock.now)


class TriesEveryMessage(SimPump):
    def may_deliver(self, path: str) -> bool:
        return not self.engine.machine.entity(path, at=self.clock.now).diverting


class BuriesMissingAtOnce(SimPump):
    def undeliverable(self, path: str) -> bool:
        circuits = self.engine.machine.destinations.circuits()
        return any(circuit.path == path and circuit.missing_since is not None for circuit in circuits)


class Abandons(SimPump):
    def defer(self, path: str, load: Sequence[Load]) -> Steps:
        yield from self.request(partial(self.queue.abandon, [locked for locked, _ in load]))
        yield from self.clock.sleep(self.clock.now + 1.0)


class NeverLooksForSetAside(SimPump):
    def find_set_aside(self) -> Steps:
        yield from self.clock.sleep(self.clock.now)


class NewerFirst(SimPump):
    def cycle(self) -> Steps:
        if self.queue.readable:
            yield from self.move((yield from self.request(partial(self.queue.receive, 5))))
        else:
            yield from super().cycle()

    def move(self, received: Sequence[Locked]) -> Steps:
        for path, load in (yield from self.sorted(received)).items():
            yield from self.deliver(path, load)


class LosesTimeToLive(SimPump):
    def open_envelope(self, held: HeldMessage) -> EnvelopeProperties:
        return replace(super().open_envelope(held), time_to_live=None)


# -- the machine ---------------------------------------------------------------------------------------------------


class TimerStartsAnew(CountingMachine):
    def _move(self, entity: life.Entity, trigger: Trigger, at: float, why: str, by: str = "") -> Any:
        if entity.state is State.SUSPECT and trigger is Trigger.SEND_FAILED:
            entity = replace(entity, fails_over_at=at + self.policy.failover_interval)
        return super()._move(entity, trigger, at, why, by)


class FailsBackUnasked(CountingMachine):
    def _ping_if_due(self, key: str, at: float) -> list[Effect]:
        entity = self._entities[key]
        if entity.state is State.FAILED_OVER and entity.ping_due is not None and entity.ping_due <= at:
            effects: list[Effect] = self._move(entity, Trigger.PINGS_ENOUGH, at, "it has been a while")
            return effects
        return super()._ping_if_due(key, at)


class OnePingIsEnough(CountingMachine):
    def _enough(self, entity: life.Entity, at: float) -> bool:
        return True


class PingsTwiceAsOften(CountingMachine):
    def _schedule_ping(
        self, entity: life.Entity, event: PingAccepted | PingFailed, *, good: bool, text: str
    ) -> life.Entity:
        after = super()._schedule_ping(entity, event, good=good, text=text)
        return replace(after, ping_due=event.at + self.policy.ping_primary_interval / 2)


class ForcedFailsBack(CountingMachine):
    def _move(self, entity: life.Entity, trigger: Trigger, at: float, why: str, by: str = "") -> Any:
        if entity.state is State.FORCED and trigger is Trigger.PINGS_ENOUGH:
            entity = replace(entity, state=State.FAILED_OVER)
        return super()._move(entity, trigger, at, why, by)


class NoProbes(Rotation):
    def probes_due(self, at: float) -> list[int]:
        super().probes_due(at)
        return []


class NeverProbes(CountingMachine):
    def __init__(self, policy: Policy, *, queues: Iterable[int]) -> None:
        super().__init__(policy, queues=queues)
        self.rotation = NoProbes(queues, probe_interval=policy.ping_primary_interval)


class NeverLooks(InactivityTimer):
    def next(self) -> float | None:
        return None


class HealthyForEver(CountingMachine):
    def __init__(self, policy: Policy, *, queues: Iterable[int]) -> None:
        super().__init__(policy, queues=queues)
        self.quiet = NeverLooks()


class HealthyByRelease(CountingMachine):
    def _move(self, entity: life.Entity, trigger: Trigger, at: float, why: str, by: str = "") -> Any:
        is_unknown = trigger is Trigger.RELEASE_UNKNOWN
        return super()._move(entity, Trigger.RELEASE if is_unknown else trigger, at, why, by)


class OldSuccesses(DestinationCircuits):
    def delivered(self, path: str, *, at: float) -> bool:
        return self._open.pop(path.casefold(), None) is not None


class OldSuccessEndsWait(CountingMachine):
    def __init__(self, policy: Policy, *, queues: Iterable[int]) -> None:
        super().__init__(policy, queues=queues)
        self.destinations = OldSuccesses(
            throttle_wait=policy.throttle_wait, undeliverable_after=policy.undeliverable_after
        )


class OldMisses(DestinationCircuits):
    def failed(self, path: str, *, at: float, kind: FailureKind, reason: str) -> Circuit:
        before = self.circuit(path)
        since = None if before is None else before.missing_since
        circuit = super().failed(path, at=at, kind=kind, reason=reason)
        if kind is FailureKind.NOT_FOUND and since is not None:
            circuit.missing_since = since
        return circuit


class OldMissesCount(CountingMachine):
    def __init__(self, policy: Policy, *, queues: Iterable[int]) -> None:
        super().__init__(policy, queues=queues)
        self.destinations = OldMisses(
            throttle_wait=policy.throttle_wait, undeliverable_after=policy.undeliverable_after
        )


# -- the engine around it ------------------------------------------------------------------------------------------


class ForgetsCounted(SimEngine):
    def accepted(self, path: str, queue: int | None, messages: int) -> None:
        if queue is not None or path.casefold() not in self.machine.settled:
            super().accepted(path, queue, messages)


class CountsThrottling(SimEngine):
    def judge(self, failure: FailureKind) -> Judgement:
        return super().judge(FailureKind.COMMUNICATION if failure is FailureKind.BUSY else failure)


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


BUGS: Final = (
    Bug("a sender counts a timeout as acceptance", WorldParts(sending=TakesTimeoutForAccepted)),
    Bug("a message gets a fresh id when it is sent again", WorldParts(sending=FreshIdOnResend)),
    Bug("the envelope loses the session", WorldParts(sending=LosesSession)),
    Bug("a sender forgets that it was throttled", WorldParts(sending=ForgetsThrottling)),
    Bug("a message in doubt is reported as refused", WorldParts(sending=RefusesWhatIsInDoubt)),
    Bug("a sender stays with the primary after a failover", WorldParts(sending=StaysWithPrimary)),
    Bug("parked messages are parked again after a failure", WorldParts(sending=ParksAllAgain)),
    Bug("a pump completes before it sends", WorldParts(moving=CompletesFirst)),
    Bug("a pump counts a timeout as acceptance", WorldParts(moving=CompletesAfterTimeout)),
    Bug("messages to dead-message are dropped", WorldParts(moving=DropsUnreadable)),
    Bug("a pump sends to a destination that is failed over", WorldParts(moving=IgnoresFailover)),
    Bug("a failed destination is tried for every message", WorldParts(moving=TriesEveryMessage)),
    Bug("messages for a missing destination are dead-lettered immediately", WorldParts(moving=BuriesMissingAtOnce)),
    Bug("messages are abandoned instead of deferred", WorldParts(moving=Abandons)),
    Bug("messages deferred before a crash are never searched for", WorldParts(moving=NeverLooksForSetAside)),
    Bug("newer messages overtake deferred ones", WorldParts(moving=NewerFirst)),
    Bug("the time to live is lost in the backlog", WorldParts(moving=LosesTimeToLive)),
    Bug("later failures restart the failover timer", WorldParts(pairing=TimerStartsAnew)),
    Bug("an entity fails back without a ping", WorldParts(pairing=FailsBackUnasked)),
    Bug("one ping is enough, and there is no cool-down", WorldParts(pairing=OnePingIsEnough)),
    Bug("pings come twice as often", WorldParts(pairing=PingsTwiceAsOften)),
    Bug("a forced entity fails back by itself", WorldParts(pairing=ForcedFailsBack)),
    Bug("a pulled queue never returns", WorldParts(pairing=NeverProbes)),
    Bug("a success that began before a failure ends its wait", WorldParts(pairing=OldSuccessEndsWait)),
    Bug("not found long ago counts as not found ever since", WorldParts(pairing=OldMissesCount)),
    Bug("an entity without sends stays healthy forever", WorldParts(pairing=HealthyForEver)),
    Bug("a released entity without any answer becomes healthy", WorldParts(pairing=HealthyByRelease)),
    Bug("sends that are only counted are no evidence", WorldParts(engine=ForgetsCounted)),
    Bug("throttling counts as a failure", WorldParts(engine=CountsThrottling)),
    Bug("a healthy entity is pinged", WorldParts(engine=PingsWhileHealthy)),
    Bug("a throttled ping counts as an accepted one", WorldParts(engine=ThrottledPingCounts)),
)

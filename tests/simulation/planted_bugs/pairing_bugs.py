"""Mistakes in the shipped rules of senders, entities and backlog queues (core.failover and core.model)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from paired_servicebus.core.failover.inactivity import InactivityTimer
from paired_servicebus.core.failover.pairing_machine import Effect, PairingMachine
from paired_servicebus.core.failover.send_router import (
    PRIMARY,
    GiveUp,
    Next,
    Rotation,
    Route,
    SenderMemory,
    SendRouter,
    Try,
    Turn,
    Wait,
)
from paired_servicebus.core.model import entity_state, verdict
from paired_servicebus.core.model.entity_state import Entity, State, Trigger
from paired_servicebus.core.model.pairing_events import PingAccepted, PingFailed
from paired_servicebus.core.model.verdict import FailureKind, Verdict
from paired_servicebus.simulation.world import WorldParts
from tests.simulation.planted_bugs.bug import Bug, Patch

# -- the machine ---------------------------------------------------------------------------------------------------


class TimerStartsAnew(PairingMachine):
    def _move(self, entity: Entity, trigger: Trigger, at: float, why: str, by: str = "") -> Any:
        if entity.state is State.SUSPECT and trigger is Trigger.SEND_FAILED:
            entity = replace(entity, fails_over_at=at + self.policy.failover_interval)
        return super()._move(entity, trigger, at, why, by)


class FailsBackUnasked(PairingMachine):
    def _ping_if_due(self, key: str, at: float) -> list[Effect]:
        entity = self._entities[key]
        if entity.state is State.FAILED_OVER and entity.ping_due is not None and entity.ping_due <= at:
            effects: list[Effect] = self._move(entity, Trigger.PINGS_ENOUGH, at, "it has been a while")
            return effects
        return super()._ping_if_due(key, at)


class OnePingIsEnough(PairingMachine):
    def _enough(self, entity: Entity, at: float) -> bool:
        return at - entity.since >= self.policy.cool_down


class NoCoolDown(PairingMachine):
    def _enough(self, entity: Entity, at: float) -> bool:
        return entity.pings_in_a_row >= self.policy.failback_pings


class PingsTwiceAsOften(PairingMachine):
    def _schedule_ping(self, entity: Entity, event: PingAccepted | PingFailed, *, good: bool, text: str) -> Entity:
        after = super()._schedule_ping(entity, event, good=good, text=text)
        return replace(after, ping_due=event.at + self.policy.ping_primary_interval / 2)


class NoRestForPings(PairingMachine):
    def _schedule_ping(self, entity: Entity, event: PingAccepted | PingFailed, *, good: bool, text: str) -> Entity:
        after = super()._schedule_ping(entity, event, good=good, text=text)
        due = max(event.at - event.took + self.policy.ping_primary_interval, event.at)
        return replace(after, ping_due=due, ping_rests_until=None)


# -- senders -------------------------------------------------------------------------------------------------------

shipped_next: Final = SendRouter.next
shipped_attempt: Final = SendRouter._attempt
shipped_backlog: Final = SendRouter._backlog
shipped_pick: Final = Rotation.pick
shipped_probes_due: Final = Rotation.probes_due
shipped_probed: Final = Rotation.probed


def stays_with_primary(self: SendRouter, entity: Entity, rotation: Rotation, *, at: float, draw: float) -> Next:
    if entity.diverting:
        return self._attempt(PRIMARY, at) if self._last is None else GiveUp.FAILED
    return shipped_next(self, entity, rotation, at=at, draw=draw)


def whole_time(self: SendRouter, route: Route, at: float, **bounds: Any) -> Next:
    step = shipped_attempt(self, route, at, **bounds)
    return Try(step.route, self._policy.send_timeout) if isinstance(step, Try) else step


def renewed_deadline(self: SendRouter, rotation: Rotation, at: float, draw: float) -> Next:
    self._on_backlog = False
    return shipped_backlog(self, rotation, at, draw)


def only_waits(self: SendRouter, entity: Entity, at: float, draw: float) -> Next:
    return Wait(self._deadline) if at < self._deadline else GiveUp.FAILED


def gives_up_unasked(self: SendRouter, rotation: Rotation, at: float, resting: Collection[int]) -> Next:
    return GiveUp.NO_BACKLOG


def keeps_the_turn(self: Turn, call: object) -> bool:
    return False


def without_time(self: SendRouter, route: Route, at: float, **bounds: Any) -> Next:
    self._enough = 0.0
    return shipped_attempt(self, route, at, **bounds)


def any_queue(self: Rotation, draw: float, *, avoid: Collection[int] = ()) -> int | None:
    choice = [index for index in self.indices if index not in avoid]
    return choice[int(draw * len(choice))] if choice else None


def only_own_queue(self: Rotation, draw: float, *, avoid: Collection[int] = ()) -> int | None:
    return None if avoid else shipped_pick(self, draw)


def any_probe(self: Rotation, index: int, *, at: float, accepted: bool, reason: str = "") -> bool:
    return shipped_probed(self, index, at=at, accepted=True)


def no_probes(self: Rotation, at: float) -> list[int]:
    shipped_probes_due(self, at)
    return []


def _machine(what: str, pairing: type[PairingMachine]) -> Bug:
    return Bug(what, WorldParts(pairing=pairing))


def _patched(what: str, owner: Any, name: str, value: Any) -> Bug:
    return Bug(what, patches=(Patch(owner, name, value),))


def _state(what: str, state: State, trigger: Trigger, now: State) -> Bug:
    return Bug(what, patches=(Patch(entity_state, "TABLE", now, (state, trigger)),))


def _verdict(what: str, table: str, kind: FailureKind, now: Verdict) -> Bug:
    return Bug(what, patches=(Patch(verdict, table, now, kind),))


PAIRING_BUGS: Final = (
    _machine("later failures restart the failover timer", TimerStartsAnew),
    _machine("an entity fails back without a ping", FailsBackUnasked),
    _machine("one ping is enough", OnePingIsEnough),
    _machine("there is no cool-down", NoCoolDown),
    _machine("pings come twice as often", PingsTwiceAsOften),
    _machine("a throttled ping does not rest", NoRestForPings),
    _state("a forced entity fails back by itself", State.FORCED, Trigger.PINGS_ENOUGH, State.HEALTHY),
    _state("a released entity without an answer becomes healthy", State.FORCED, Trigger.RELEASE_UNKNOWN, State.HEALTHY),
    _state("an accepted send does not end a suspicion", State.SUSPECT, Trigger.SEND_ACCEPTED, State.SUSPECT),
    _state("a send in flight at the failover ends it", State.FAILED_OVER, Trigger.SEND_ACCEPTED, State.HEALTHY),
    _state("a pinned entity becomes suspect", State.PINNED, Trigger.SEND_FAILED, State.SUSPECT),
    _state("the first failure of an unknown entity is ignored", State.UNKNOWN, Trigger.SEND_FAILED, State.UNKNOWN),
    _verdict("throttling counts as a failure", "VERDICTS", FailureKind.BUSY, Verdict.COUNTS),
    _verdict("a full entity is the caller's error", "VERDICTS", FailureKind.FULL, Verdict.CALLERS),
    _verdict("missing rights cause a failover", "VERDICTS", FailureKind.UNAUTHORIZED, Verdict.COUNTS),
    _verdict("a busy backlog queue is pulled", "BACKLOG_VERDICTS", FailureKind.BUSY, Verdict.COUNTS),
    _verdict("a backlog queue without rights stays in", "BACKLOG_VERDICTS", FailureKind.UNAUTHORIZED, Verdict.CALLERS),
    _patched("a message in doubt is reported as refused", verdict, "DOUBTFUL", frozenset()),
    _patched("a sender forgets that it was throttled", SenderMemory, "rests", lambda *_: False),
    _patched("a sender stays with the primary after a failover", SendRouter, "next", stays_with_primary),
    _patched("the last attempt of a call outlives its limit", SendRouter, "_attempt", whole_time),
    _patched("each attempt at the backlog renews the call's time", SendRouter, "_backlog", renewed_deadline),
    _patched("held calls only wait", SendRouter, "_hold", only_waits),
    _patched("all queues are out, and no send probes them", SendRouter, "_probe", gives_up_unasked),
    _patched("a call that ends keeps the turn to probe", Turn, "release", keeps_the_turn),
    _patched("a route is tried without time for an answer", SendRouter, "_attempt", without_time),
    _patched("an attempt over a lost link is not made again", verdict, "LOST_LINKS", frozenset()),
    _patched("a pulled queue is used", Rotation, "pick", any_queue),
    _patched("a call waits for a busy queue though another is free", Rotation, "pick", only_own_queue),
    _patched("a pulled queue never returns", Rotation, "probes_due", no_probes),
    _patched("any answer of a probe returns a pulled queue", Rotation, "probed", any_probe),
    _patched("an entity without sends stays healthy forever", InactivityTimer, "next", lambda _: None),
    _patched("no send or ping ends a silence", InactivityTimer, "heard", lambda *_, **__: None),
)

"""The pairing as one pure state machine: `step(event) -> effects`.

Events carry their time. `Ticked` handles deadlines (failover interval, pings, queue probes); `next_deadline` names the
next one. Effects are requests to the runtime: send a ping, probe a queue, announce an event. The machine has no clock
and no network.

An impossible event raises `IllegalEventError` and changes nothing. A ping's answer that arrives after a failback is
legal but late: it is announced and changes no state.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from paired_servicebus.core.accounting.billing import probes_a_day
from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.failover.inactivity import DELETED, QUIET_AFTER, SILENCE, EntityProbes, InactivityTimer
from paired_servicebus.core.failover.send_router import PRIMARY, Rotation, Turn
from paired_servicebus.core.model import entity_state as life
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.entity_state import Entity, State, Trigger
from paired_servicebus.core.model.pairing_events import Event, SyphonPaused, SyphonResumed
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import BACKLOG_VERDICTS, VERDICTS, FailureKind, Verdict
from paired_servicebus.core.pump.destination_circuits import DestinationCircuits
from paired_servicebus.core.pump.intake_limit import SyphonRateLimit
from paired_servicebus.core.text.number_format import format_indices

DEADLINES_PER_TICK: Final = 50
"""Maximum deadlines per `Ticked`; the rest stay due, so that sends are handled in between."""


# The state machine's requests to its runtime.


@dataclass(frozen=True, slots=True)
class SendPing:
    """Send ping `number` to the primary's entity; answer with PingAccepted or PingFailed."""

    entity: str
    number: int


@dataclass(frozen=True, slots=True)
class ProbeQueue:
    """Try a pulled backlog queue; answer with QueueProbed."""

    queue: int


@dataclass(frozen=True, slots=True)
class ProbeEntity:
    """Send a ping to an entity of the primary without sends; answer with EntityProbed."""

    entity: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Journal and show the event; wake the tasks that wait for a change."""

    event: Event


Effect = SendPing | ProbeQueue | ProbeEntity | Announce


# An operator's pauses of the syphon: all of it, a backlog queue, a destination.


class SyphonPauses:
    """The pauses in force. Resuming the whole syphon keeps the pauses of single queues and destinations."""

    def __init__(self) -> None:
        self.whole: SyphonPaused | None = None
        """The pause of the whole syphon; None: it is not paused."""
        self.queues: set[int] = set()
        self.destinations: dict[str, str] = {}
        """The path as the operator wrote it, by casefolded path."""

    @property
    def all(self) -> bool:
        """Return whether the whole syphon is paused."""
        return self.whole is not None

    def pause(self, event: SyphonPaused) -> None:
        """Add a pause. Raises IllegalEventError: already paused."""
        if self._has(event):
            raise IllegalEventError(f"{_target(event)} is paused already")
        if event.queue is not None:
            self.queues.add(event.queue)
        elif event.destination:
            self.destinations[event.destination.casefold()] = event.destination
        else:
            self.whole = event

    def resume(self, event: SyphonResumed) -> None:
        """Remove a pause. Raises IllegalEventError: not paused."""
        if not self._has(event):
            raise IllegalEventError(f"{_target(event)} is not paused")
        if event.queue is not None:
            self.queues.discard(event.queue)
        elif event.destination:
            del self.destinations[event.destination.casefold()]
        else:
            self.whole = None

    def _has(self, event: SyphonPaused | SyphonResumed) -> bool:
        if event.queue is not None:
            return event.queue in self.queues
        if event.destination:
            return event.destination.casefold() in self.destinations
        return self.all


def _target(event: SyphonPaused | SyphonResumed) -> str:
    if event.queue is not None:
        return f"backlog queue {event.queue}"
    return f"the syphon to {event.destination}" if event.destination else "the syphon"


class PairingMachine:
    """Entities, rotation and syphon of one engine's pairing.

    Args:
        policy: the options in force; seconds.
        queues: the indices of the backlog queues found or created.
    """

    def __init__(self, policy: Policy, *, queues: Iterable[int]) -> None:
        self.policy = policy
        self.rotation = Rotation(queues, probe_interval=policy.ping_primary_interval)
        self.probes = EntityProbes(interval=policy.ping_primary_interval, failover_interval=policy.failover_interval)
        self.quiet = InactivityTimer()
        self.destinations = DestinationCircuits(
            throttle_wait=policy.throttle_wait,
            undeliverable_after=policy.undeliverable_after,
            ping_interval=policy.ping_primary_interval,
        )
        self.pace = SyphonRateLimit(
            rate=policy.syphon_rate, live_share=policy.syphon_live_share, rest=policy.throttle_wait
        )
        self.pauses = SyphonPauses()
        allowed = policy.destinations
        self.allowed = None if allowed is None else frozenset(path.casefold() for path in allowed)
        """Casefolded paths of the destinations that the syphon may deliver to; None: all."""
        self.settled: set[str] = set()
        """Casefolded paths of the entities for which another accepted send changes nothing and need not be reported."""
        self._entities: dict[str, Entity] = {}
        self._trials: defaultdict[str, Turn] = defaultdict(Turn)
        self._deadlines: list[tuple[float, str]] = []

    # -- queries ------------------------------------------------------------------------------------------------

    def entity(self, path: str, *, at: float) -> Entity:
        """Return the entity at `path` (compared without case); a new one is unknown since `at`."""
        key = path.casefold()
        found = self._entities.get(key)
        if found is None:
            found = self._store(Entity(path=path, since=at))
        return found

    def trial(self, path: str) -> Turn:
        """Return the turn of the entity's held calls to try the primary."""
        return self._trials[path.casefold()]

    def probe(self, path: str, *, at: float) -> None:
        """Probe the entity while it has no sends. Off by default, since probes are billed."""
        interval = self.policy.ping_primary_interval
        a_day = probes_a_day(interval=interval, ping=self.policy.ping)
        probed = replace(self.entity(path, at=at), probed_every=interval, probes_a_day=a_day)
        self._store(probed)
        self.probes.start(path.casefold(), at=at)

    def entities(self) -> tuple[Entity, ...]:
        """Return every known entity, in the order of first use."""
        return tuple(self._entities.values())

    def may_deliver(self, path: str, *, at: float) -> bool:
        """Return whether the syphon may try this destination now (SPEC.md sections 6 and 8)."""
        key = path.casefold()
        if key in self.pauses.destinations:
            return False
        found = self._entities.get(key)
        if found is not None and found.diverting:
            return False
        return not self.destinations.open or self.destinations.available(path, at)

    def may_pump(self, queue: int) -> bool:
        """Return whether no operator has paused this backlog queue."""
        return not self.pauses.all and queue not in self.pauses.queues

    @property
    def next_deadline(self) -> float | None:
        """Return the time of the next `Ticked`; None: no deadline is pending."""
        probe = self.rotation.next_probe()
        first = self._deadlines[0][0] if self._deadlines else None
        wanted = (probe, first, self.quiet.next(), self.probes.next())
        return min((due for due in wanted if due is not None), default=None)

    # -- events -------------------------------------------------------------------------------------------------

    def step(self, event: e.Event) -> list[Effect]:
        """Apply `event` and return its effects.

        Raises:
            IllegalEventError: the event is impossible now; nothing has changed.
        """
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise IllegalEventError(f"the state machine does not handle {type(event).__name__}")
        effects = handler(self, event)
        self._drop_stale_deadlines()
        return effects

    def _send_accepted(self, event: e.SendAccepted) -> list[Effect]:
        if event.queue is not None:
            self.quiet.diverted(event.entity.casefold(), at=event.at)
            return self._queue_answered(event.queue, event.at)
        self.pace.live_at = event.at
        self.quiet.heard(event.entity.casefold(), at=event.at)
        entity = self.entity(event.entity, at=event.at)
        if entity.probed_every is not None:
            self.probes.heard(event.entity.casefold(), at=event.at)
        if entity.state is State.HEALTHY and entity.primary_good:
            return []  # the healthy path: no change
        return self._attempt_accepted(entity, event.at)

    def _sends_counted(self, event: e.SendsCounted) -> list[Effect]:
        """Apply sends that were only counted, as one send."""
        if event.route != str(PRIMARY):
            return []
        entity = self._known(event.entity)
        self.quiet.heard(event.entity.casefold(), at=event.at)
        if event.accepted and entity.state is State.UNKNOWN:
            return self._attempt_accepted(entity, event.at)
        return []

    def _attempt_accepted(self, entity: Entity, at: float) -> list[Effect]:
        entity = replace(entity, primary_good=True)
        if entity.state is State.PINNED:  # keeps its state, without the failure
            entity = replace(entity, first_failure="", first_failure_at=None, first_failure_kind=None)
        return self._move(entity, Trigger.SEND_ACCEPTED, at, "a send was accepted by the primary")

    def _send_failed(self, event: e.SendFailed) -> list[Effect]:
        if event.queue is not None:
            self._refuse_unknown_queue(event.queue)
            self.quiet.diverted(event.entity.casefold(), at=event.at)
            verdict = BACKLOG_VERDICTS[event.failure]
            if verdict is Verdict.THROTTLED:  # it is back, and busy
                return self._queue_answered(event.queue, event.at)
            return self._queue_failed(event, event.queue) if verdict is Verdict.COUNTS else []
        self._record_failed_send(event)
        verdict = VERDICTS[event.failure]
        if verdict is Verdict.THROTTLED:  # a probe would add load
            self.probes.heard(event.entity.casefold(), at=event.at)
            self.pace.live_at = event.at
            self.pace.throttled(event.at)
        return self._attempt_failed(event, verdict)

    def _record_failed_send(self, event: e.SendFailed) -> None:
        """Record a failed send as activity, so that an unknown entity is silent from then on."""
        self.quiet.heard(event.entity.casefold(), at=event.at)
        entity = self.entity(event.entity, at=event.at)
        if entity.quiet_since is not None:
            self._store(replace(entity, quiet_since=event.at))

    def _attempt_failed(self, event: e.SendFailed, verdict: Verdict) -> list[Effect]:
        if verdict is Verdict.COUNTS:
            return self._primary_failed(event)
        if verdict is Verdict.THROTTLED:  # no change of state; the why-line shows it
            self._note_failure(event)
        return []

    def _note_failure(self, event: e.SendFailed) -> None:
        entity = self.entity(event.entity, at=event.at)
        self._store(replace(entity, last_failure=event.reason, last_failure_at=event.at))

    def _primary_failed(self, event: e.SendFailed) -> list[Effect]:
        entity = self.entity(event.entity, at=event.at)
        if entity.first_failure_at is None:
            entity = replace(
                entity, first_failure=event.reason, first_failure_at=event.at, first_failure_kind=event.failure
            )
        entity = replace(
            entity,
            primary_good=False,
            last_failure=event.reason,
            last_failure_at=event.at,
            failures_while_pinned=entity.failures_while_pinned + (entity.state is State.PINNED),
        )
        effects = self._move(entity, Trigger.SEND_FAILED, event.at, event.reason)
        return effects + self._end_interval(event.entity, event.at)

    def _queue_failed(self, event: e.SendFailed, queue: int) -> list[Effect]:
        if not self.rotation.pull(queue, at=event.at, reason=event.reason):
            return []
        return [Announce(e.QueuePulled(at=event.at, queue=queue, reason=event.reason))]

    def _queue_answered(self, queue: int, at: float) -> list[Effect]:
        """Restore a queue that answered a send while all queues are out: then a send is the probe."""
        if not self.rotation.is_all_out or not self.rotation.probed(queue, at=at, accepted=True):
            return []
        return [Announce(e.QueueRestored(at=at, queue=queue))]

    def _refuse_unknown_queue(self, queue: int) -> None:
        indices = self.rotation.indices
        if queue not in indices:
            raise IllegalEventError(f"this pairing uses no backlog queue {queue}; it uses {format_indices(indices)}")

    def _queue_probed(self, event: e.QueueProbed) -> list[Effect]:
        self._refuse_unknown_queue(event.queue)
        back = self.rotation.probed(event.queue, at=event.at, accepted=event.accepted, reason=event.reason)
        return [Announce(e.QueueRestored(at=event.at, queue=event.queue))] if back else []

    def _ticked(self, event: e.Ticked) -> list[Effect]:
        effects: list[Effect] = [ProbeQueue(queue) for queue in self.rotation.probes_due(event.at)]
        for _ in range(DEADLINES_PER_TICK):
            if not self._deadlines or self._deadlines[0][0] > event.at:
                break
            _, key = heapq.heappop(self._deadlines)
            effects += self._end_interval(key, event.at)
            effects += self._ping_if_due(key, event.at)
        return effects + self._fallen_quiet(event.at) + self._probes_due(event.at)

    def _fallen_quiet(self, at: float) -> list[Effect]:
        effects: list[Effect] = []
        for key in self.quiet.due(at, most=DEADLINES_PER_TICK):
            effects += self._move(self.quiet.discard_answer(self._entities[key]), Trigger.QUIET, at, SILENCE)
        return effects

    def _probes_due(self, at: float) -> list[Effect]:
        effects: list[Effect] = []
        for key in self.probes.due(at):
            entity = self._entities[key]
            if entity.state in life.PROBED:
                effects.append(ProbeEntity(entity.path))
            else:
                self.probes.later(key, at=at)
        return effects

    def _entity_probed(self, event: e.EntityProbed) -> list[Effect]:
        """Apply a probe's result as a send's."""
        entity = self._known(event.entity)
        if entity.probed_every is None:
            raise IllegalEventError(f"{entity.path} is not probed")
        self.quiet.heard(event.entity.casefold(), at=event.at)
        verdict = VERDICTS[event.failure] if event.failure is not None else None
        began, throttled = event.at - event.took, verdict is Verdict.THROTTLED
        earliest = event.at + (self.policy.throttle_wait if throttled else 0.0)
        self.probes.answered(
            event.entity.casefold(), began=began, good=verdict is not Verdict.COUNTS, earliest=earliest
        )
        if not entity.diverting:  # then the pings' answers stand there
            text = event.reason or f"{event.took * 1000:.0f} ms"
            entity = replace(entity, last_ping_at=event.at, last_ping_good=event.failure is None, last_ping_text=text)
            self._store(entity)
        if event.failure is None or verdict is None:
            return self._attempt_accepted(entity, event.at)
        failed = e.SendFailed(at=event.at, entity=entity.path, failure=event.failure, reason=event.reason, messages=0)
        if verdict is Verdict.CALLERS:  # no change of state; without traffic only the probe reports it
            self._note_failure(failed)
        return self._attempt_failed(failed, verdict)

    def _end_interval(self, path: str, at: float) -> list[Effect]:
        entity = self._entities[path.casefold()]
        if entity.fails_over_at is None or entity.fails_over_at > at:
            return []
        waited = self.policy.failover_interval
        why = f'no send accepted for {waited:g} s after "{entity.first_failure}"' if waited else entity.first_failure
        return self._move(entity, Trigger.INTERVAL_ENDED, at, why)

    def _ping_if_due(self, key: str, at: float) -> list[Effect]:
        entity = self._entities[key]
        if entity.ping_due is None or entity.ping_due > at:
            return []
        number = entity.pings + 1
        self._store(replace(entity, pings=number, ping_due=None, ping_in_flight=True))
        return [SendPing(entity.path, number), Announce(e.PingSent(at=at, entity=entity.path, number=number))]

    def _ping_accepted(self, event: e.PingAccepted) -> list[Effect]:
        entity = self._known(event.entity)
        if self._is_overtaken(entity, event):
            return [Announce(event)]
        self.destinations.pinged(event.entity, at=event.at, is_missing=False)
        entity = self._schedule_ping(entity, event, good=True, text=f"{event.took * 1000:.0f} ms")
        trigger = Trigger.PINGS_ENOUGH if self._enough(entity, event.at) else Trigger.PING_ACCEPTED
        count = entity.pings_in_a_row
        why = "a ping was accepted" if count == 1 else f"{count} pings in a row were accepted"
        return [Announce(event), *self._move(entity, trigger, event.at, why)]

    def _ping_failed(self, event: e.PingFailed) -> list[Effect]:
        entity = self._known(event.entity)
        if self._is_overtaken(entity, event):
            return [Announce(event)]
        entity = self._schedule_ping(entity, event, good=False, text=event.reason)
        is_missing = event.reason == FailureKind.NOT_FOUND  # the reason of that kind is the kind
        is_paused = self.pauses.all or event.entity.casefold() in self.pauses.destinations
        self.destinations.pinged(event.entity, at=event.at, is_missing=is_missing and not is_paused)
        if is_missing:
            missing_since = event.at if entity.missing_since is None else entity.missing_since
            entity = replace(entity, missing_since=missing_since)
            if self._is_gone(entity, missing_since, event.at):
                return [Announce(event), *self._let_go(entity, event.at)]
        else:
            entity = replace(entity, missing_since=None)
        return [Announce(event), *self._move(entity, Trigger.PING_FAILED, event.at, event.reason)]

    def _is_gone(self, entity: Entity, missing_since: float, at: float) -> bool:
        """Return whether an entity is deleted and unused. A probed one stays: an operator asked to watch it."""
        if entity.state is not State.FAILED_OVER or entity.probed_every is not None:
            return False
        return at - max(missing_since, self.quiet.unused_since(entity)) >= QUIET_AFTER

    def _let_go(self, entity: Entity, at: float) -> list[Effect]:
        """Make a deleted entity unknown: its next send tries the primary, and fails over again if it is still gone."""
        silent = replace(entity, primary_good=None, quiet_since=self.quiet.unused_since(entity))
        return self._move(silent, Trigger.GONE, at, DELETED)

    @staticmethod
    def _is_overtaken(entity: Entity, event: e.PingAccepted | e.PingFailed) -> bool:
        """Return whether a failback came between the ping and its answer.

        Numbers restart with each failover, so `began` also identifies a ping: this failover's pings begin at least one
        interval after it.
        """
        left = entity.left_primary_at
        earlier = left is not None and event.at - event.took < left
        return not entity.ping_in_flight or entity.pings != event.number or earlier

    def _schedule_ping(self, entity: Entity, event: e.PingAccepted | e.PingFailed, *, good: bool, text: str) -> Entity:
        """Schedule the next ping one interval after the start of this one, immediately if it took longer.

        A throttled ping delays the next by at least `throttle_wait`.
        """
        throttled = isinstance(event, e.PingFailed) and event.throttled
        earliest = event.at + (self.policy.throttle_wait if throttled else 0.0)
        began = event.at - event.took
        self.quiet.heard(event.entity.casefold(), at=event.at)
        return replace(
            entity,
            ping_in_flight=False,
            ping_due=max(began + self.policy.ping_primary_interval, earliest),
            ping_rests_until=earliest if throttled else None,
            pings_in_a_row=entity.pings_in_a_row + 1 if good else 0,
            missing_since=None if good else entity.missing_since,
            primary_good=good,
            last_ping_at=event.at,
            last_ping_good=good,
            last_ping_text=text,
        )

    def _enough(self, entity: Entity, at: float) -> bool:
        in_a_row = entity.pings_in_a_row >= self.policy.failback_pings
        return in_a_row and at - entity.since >= self.policy.cool_down

    def _released(self, event: e.EntityReleased) -> list[Effect]:
        quiet = self.quiet.is_quiet(event.entity.casefold(), at=event.at)
        return self._by_hand(event, self._known(event.entity).release_trigger(quiet=quiet), "released")

    def _by_hand(self, event: e.Forced | e.Pinned | e.EntityReleased, trigger: Trigger, act: str) -> list[Effect]:
        entity = self._known(event.entity)
        if trigger is Trigger.RELEASE_UNKNOWN:
            entity = self.quiet.discard_answer(entity)
        reason = f' "{event.why}"' if event.why else ""
        entity = replace(entity, by=event.by, by_why=event.why)
        return [Announce(event), *self._move(entity, trigger, event.at, f"{act} by {event.by}{reason}", by=event.by)]

    def _syphon_ordered(self, event: e.SyphonPaused | e.SyphonResumed) -> list[Effect]:
        if event.queue is not None:
            self._refuse_unknown_queue(event.queue)
        if isinstance(event, SyphonPaused):
            self.pauses.pause(event)
        else:
            self.pauses.resume(event)
        return [Announce(event)]

    def _known(self, path: str) -> Entity:
        found = self._entities.get(path.casefold())
        if found is None:
            known = ", ".join(entity.path for entity in self.entities()) or "none"
            raise IllegalEventError(f"unknown entity {path!r}; this engine has: {known}")
        return found

    # -- transitions -----------------------------------------------------------------------------------------------

    def _move(self, entity: Entity, trigger: Trigger, at: float, why: str, by: str = "") -> list[Effect]:
        was, now = entity.state, life.next_state(entity, trigger)
        if now is not was:
            entity = life.enter(entity, now, at=at, ping_interval=self.policy.ping_primary_interval)
            if now is State.SUSPECT:
                entity = replace(entity, fails_over_at=at + self.policy.failover_interval)
            self.quiet.entered(entity.path.casefold(), now)
        key = entity.path.casefold()
        before = self._entities.get(key)
        self._store(entity)
        for due in (entity.fails_over_at, entity.ping_due):
            if due is not None and (before is None or due not in (before.fails_over_at, before.ping_due)):
                heapq.heappush(self._deadlines, (due, key))
        if now is was:
            return []
        return [Announce(e.StateChanged(at=at, entity=entity.path, was=was, now=now, why=why, by=by))]

    def _store(self, entity: Entity) -> Entity:
        key = entity.path.casefold()
        self._entities[key] = entity
        if entity.settled:
            self.settled.add(key)
        else:
            self.settled.discard(key)
        return entity

    def _drop_stale_deadlines(self) -> None:
        """Drop outdated deadlines from the front of the heap."""
        while self._deadlines:
            due, key = self._deadlines[0]
            entity = self._entities[key]
            if due in (entity.fails_over_at, entity.ping_due):
                return
            heapq.heappop(self._deadlines)


_HANDLERS: dict[type[e.Event], Callable[[PairingMachine, Any], list[Effect]]] = {
    e.Ticked: PairingMachine._ticked,
    e.SendAccepted: PairingMachine._send_accepted,
    e.SendFailed: PairingMachine._send_failed,
    e.SendsCounted: PairingMachine._sends_counted,
    e.QueueProbed: PairingMachine._queue_probed,
    e.EntityProbed: PairingMachine._entity_probed,
    e.PingAccepted: PairingMachine._ping_accepted,
    e.PingFailed: PairingMachine._ping_failed,
    e.Forced: lambda machine, event: machine._by_hand(event, Trigger.FORCE, "forced"),
    e.Pinned: lambda machine, event: machine._by_hand(event, Trigger.PIN, "pinned"),
    e.EntityReleased: PairingMachine._released,
    e.SyphonPaused: PairingMachine._syphon_ordered,
    e.SyphonResumed: PairingMachine._syphon_ordered,
}

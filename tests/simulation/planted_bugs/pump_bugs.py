"""Mistakes in the shipped rules of pumps (paired_servicebus.core.pump) and in the envelope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any, Final

from paired_servicebus.core.failover.pairing_machine import PairingMachine, SyphonPauses
from paired_servicebus.core.model import envelope
from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.pairing_events import SyphonPaused, SyphonResumed
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.core.pump import dead_letter_rules, destination_circuits
from paired_servicebus.core.pump.dead_letter_rules import FATES, Fate, not_allowed
from paired_servicebus.core.pump.destination_circuits import Circuit, DestinationCircuits
from paired_servicebus.core.pump.intake_limit import SyphonRateLimit
from paired_servicebus.core.pump.pump_events import (
    Complete,
    DeferredFound,
    DeferredMessages,
    Deliver,
    LocksLost,
    MessageArrived,
    MessagesAccepted,
    MessagesSettled,
    MessagesWithdrawn,
    Outcome,
    Publish,
    RecallEnded,
)
from paired_servicebus.core.pump.pump_machine import PumpMachine, SearchSchedule
from paired_servicebus.simulation.world import WorldParts
from tests.simulation.planted_bugs.bug import Bug, Patch

Machine = PumpMachine[Any]
Effects = Sequence[Any]


# -- receipts and identity -----------------------------------------------------------------------------------------


class CompletesFirst(Machine):
    def step(self, event: Any) -> Effects:
        effects = super().step(event)
        early = [Complete([one.message]) for one in effects if isinstance(one, Deliver)]
        return [*early, *effects]


class NoReceipt(Machine):
    def step(self, event: Any) -> Effects:
        effects = super().step(event)
        if isinstance(event, MessagesAccepted):
            return [one for one in effects if not isinstance(one, Publish)]
        return effects


class NoReceiptOfDeadLetters(Machine):
    def _dead_letter(self, message: Any, reason: str, at: float) -> Effects:
        return super()._dead_letter(message, reason, at)[1:]


class ForgetsMoved(Machine):
    def step(self, event: Any) -> Effects:
        self._moved.clear()
        return super().step(event)


class NumberIsIdentity(Machine):
    def step(self, event: Any) -> Effects:
        if isinstance(event, MessageArrived) and event.message.number in self._moved:
            self._moved[event.message.number] = event.message.message_id
        return super().step(event)


class RelocksByNumber(Machine):
    def step(self, event: Any) -> Effects:
        if isinstance(event, MessageArrived):
            held = self._in_hand.get(event.message.number)
            if held is not None:
                return self._relock(held, event.message)
        return super().step(event)


class ComparesPathsWithCase(Machine):
    def step(self, event: Any) -> Effects:
        allowed = self._rules.allowed
        if isinstance(event, MessageArrived) and allowed is not None and event.message.path not in allowed:
            event = event._replace(fault=event.fault or not_allowed(event.message.path))
        return super().step(event)


# -- deferred messages ---------------------------------------------------------------------------------------------


class NewerFirst(Machine):
    def _may_go(self, message: Any, at: float) -> bool:
        return self._accepts(message.path, message.key, at)


class ForgetsLostLocks(Machine):
    def step(self, event: Any) -> Effects:
        if not isinstance(event, LocksLost):
            return super().step(event)
        for message in event.messages:
            self._forget(message)
        return ()


class ForgetsUnansweredDeferrals(Machine):
    def step(self, event: Any) -> Effects:
        if isinstance(event, MessagesSettled) and event.outcome is Outcome.DEFERRED and event.is_done is None:
            for message in event.messages:
                self.deferred.of(message.path, message.key).ended(message.number)
            return ()
        return super().step(event)


class DeferralsNeverEnd(Machine):
    def step(self, event: Any) -> Effects:
        effects = super().step(event)
        if isinstance(event, MessagesSettled) and event.outcome is Outcome.DEFERRED:
            for message in event.messages:
                self.deferred.of(message.path, message.key).deferring += 1
        return effects


class DropsNumbersOnFailure(Machine):
    def step(self, event: Any) -> Effects:
        effects = super().step(event)
        if isinstance(event, RecallEnded) and event.failed:
            found = self.deferred.by_key.get(event.key)
            if found is not None:
                found.numbers = [number for number in found.numbers if number not in event.missing]
        return effects


class ForgetsWhatWasFound(Machine):
    def step(self, event: Any) -> Effects:
        return () if isinstance(event, DeferredFound) else super().step(event)


class SearchListsInHand(Machine):
    def known(self) -> set[int]:
        return self._asked.keys() | self.deferred.numbers()


class NeverRecalls(Machine):
    def recallable(self, at: float) -> list[str]:
        return []


class ReleasesDeferred(Machine):
    def step(self, event: Any) -> Effects:
        if isinstance(event, MessagesWithdrawn):
            return [effect for message in event.messages for effect in self._release(message)]
        return super().step(event)


class DefersWhilePaused(Machine):
    def _wait(self, message: Any) -> Effects:
        return self._defer(message)


class OneSilentHoldsAll(Machine):
    def _accepts(self, path: str, key: str, at: float) -> bool:
        return not self._rules.destinations.stalled and super()._accepts(path, key, at)


def newest_first(self: DeferredMessages, most: int, **_: Any) -> list[int]:
    self.numbers = sorted(set(self.numbers))
    taken, self.numbers = self.numbers[-most:], self.numbers[:-most]
    self.oldest = inf
    return taken


def without_deferring(self: DeferredMessages) -> bool:
    return bool(self.numbers) or self.asked > 0


def without_asked(self: DeferredMessages) -> bool:
    return bool(self.numbers) or self.deferring > 0


def never_again(self: SearchSchedule, now: float, *, took: float) -> None:
    self.due_at = inf


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


# -- destinations --------------------------------------------------------------------------------------------------

shipped_failed: Final = DestinationCircuits.failed
shipped_time_left: Final = dead_letter_rules.time_left
shipped_resume: Final = SyphonPauses.resume
shipped_unwrap: Final = envelope.unwrap
shipped_wrap: Final = envelope.wrap


def old_success(self: DestinationCircuits, path: str, *, at: float, sent_at: float) -> bool:
    return self.open.pop(path.casefold(), None) is not None


def old_miss(self: DestinationCircuits, path: str, *, at: float, kind: FailureKind, reason: str) -> Circuit:
    before = self.open.get(path.casefold())
    since = None if before is None else before.missing_since
    circuit = shipped_failed(self, path, at=at, kind=kind, reason=reason)
    if kind is FailureKind.NOT_FOUND and since is not None:
        circuit.missing_since = since
    return circuit


def short_rest(self: DestinationCircuits, path: str, *, at: float, kind: FailureKind, reason: str) -> Circuit:
    kind = FailureKind.INTERNAL if kind is FailureKind.BUSY else kind
    return shipped_failed(self, path, at=at, kind=kind, reason=reason)


def missing_at_once(self: DestinationCircuits, path: str, at: float) -> str:
    circuit = self.open.get(path.casefold())
    return "" if circuit is None or circuit.missing_since is None else "not found"


def at_any_size(kind: FailureKind, *, alone: bool) -> bool:
    return FATES[kind] is Fate.DEAD_LETTERED


def always_elapsed(enclosed: EnvelopeProperties, *, parked_at: float, now: float, elapsed: bool) -> timedelta | None:
    return shipped_time_left(enclosed, parked_at=parked_at, now=now, elapsed=True)


def never_expired(enclosed: EnvelopeProperties, *, parked_at: float, now: float, elapsed: bool) -> timedelta | None:
    if enclosed.time_to_live is None or not elapsed:
        return enclosed.time_to_live
    return envelope.remaining(enclosed.time_to_live, passed=now - parked_at) or timedelta(seconds=1)


def counted_from_arrival(
    enclosed: EnvelopeProperties, *, parked_at: float, now: float, elapsed: bool
) -> timedelta | None:
    return shipped_time_left(replace(enclosed, scheduled=None), parked_at=parked_at, now=now, elapsed=elapsed)


def whole_time(time_to_live: timedelta, *, passed: float) -> timedelta | None:
    return time_to_live


def may_deliver_diverted(self: PairingMachine, path: str, *, at: float) -> bool:
    return path.casefold() not in self.pauses.destinations and self.destinations.available(path, at)


def may_deliver_paused(self: PairingMachine, path: str, *, at: float) -> bool:
    found = self._entities.get(path.casefold())
    return (found is None or not found.diverting) and self.destinations.available(path, at)


def may_pump_paused(self: PairingMachine, queue: int) -> bool:
    return not self.pauses.all


def resume_all(self: SyphonPauses, event: SyphonResumed | SyphonPaused) -> None:
    shipped_resume(self, event)  # type: ignore[arg-type]
    self.queues.clear()
    self.destinations.clear()


# -- the envelope --------------------------------------------------------------------------------------------------


def unwrap_without(name: str) -> Callable[[Any], envelope.EnvelopeProperties]:
    def unwrap(properties: Any) -> envelope.EnvelopeProperties:
        without: dict[str, Any] = {name: None}
        return replace(shipped_unwrap(properties), **without)

    return unwrap


def wrap_without(name: str) -> Callable[[envelope.EnvelopeProperties], dict[str, envelope.Value]]:
    def wrap(enclosed: envelope.EnvelopeProperties) -> dict[str, envelope.Value]:
        return {key: value for key, value in shipped_wrap(enclosed).items() if key != name}

    return wrap


def _machine(what: str, pump: type[Machine], *, rare: int = 1) -> Bug:
    return Bug(what, WorldParts(pump=pump), rare=rare)


def _patched(what: str, owner: Any, name: str, value: Any, row: Any = None, *, rare: int = 1) -> Bug:
    return Bug(what, patches=(Patch(owner, name, value, row),), rare=rare)


PUMP_BUGS: Final = (
    _machine("a pump completes before it sends", CompletesFirst),
    _machine("a moved message is completed without a receipt", NoReceipt),
    _machine("a message is dead-lettered without a receipt", NoReceiptOfDeadLetters),
    _machine("a moved message is sent again although only its completion was lost", ForgetsMoved),
    _machine("a number stands for the message that was moved under it, in a new queue too", NumberIsIdentity),
    _machine("a number stands for the message in hand, in a new queue too", RelocksByNumber),
    _machine("the owner's list of destinations is compared with its case", ComparesPathsWithCase),
    _machine("newer messages overtake deferred ones", NewerFirst),
    _machine("a deferred message is forgotten with its lost lock", ForgetsLostLocks, rare=463),
    _machine("a deferral without an answer is forgotten", ForgetsUnansweredDeferrals),
    _machine("newer messages wait for deferrals that have ended", DeferralsNeverEnd),
    _machine("a failed request forgets the deferred messages it asked for", DropsNumbersOnFailure),
    _machine("deferred messages that a search found are forgotten", ForgetsWhatWasFound),
    _machine("a search lists messages that are in hand", SearchListsInHand),
    _machine("deferred messages are never received again", NeverRecalls),
    _machine("a paused pump releases its deferred messages", ReleasesDeferred),
    _machine("a paused queue's messages are deferred, though others could move them", DefersWhilePaused, rare=54),
    _machine("one silent destination holds up all others", OneSilentHoldsAll, rare=110),
    _patched(
        "newer messages overtake those that are being deferred",
        DeferredMessages,
        "has_older",
        property(without_deferring),
        rare=149,
    ),
    _patched(
        "newer messages overtake those that are being received again",
        DeferredMessages,
        "has_older",
        property(without_asked),
    ),
    _patched("deferred messages are received again newest first", DeferredMessages, "take", newest_first),
    _patched("a pump searches once and never again", SearchSchedule, "ended", never_again),
    _patched("no search follows a deferred message that did not come", SearchSchedule, "missed", nothing),
    _patched("messages that wait use up the rate limit", SyphonRateLimit, "gave_back", nothing),
    _patched("the rate limit counts no messages", SyphonRateLimit, "took", nothing),
    _patched("a failed destination is tried for every message", DestinationCircuits, "available", lambda *_: True),
    _patched("a success that began before a failure ends its wait", DestinationCircuits, "delivered", old_success),
    _patched("not found long ago counts as not found ever since", DestinationCircuits, "failed", old_miss),
    _patched("a throttled destination is tried again after a second", DestinationCircuits, "failed", short_rest),
    _patched("the wait for a failed destination grows without end", destination_circuits, "MAX_BACKOFF_SECONDS", 1e6),
    _patched(
        "messages for a missing destination are dead-lettered immediately",
        DestinationCircuits,
        "undeliverable",
        missing_at_once,
    ),
    _patched("messages for a missing destination wait for ever", DestinationCircuits, "undeliverable", lambda *_: ""),
    _patched(
        "messages for a throttled destination are dead-lettered",
        dead_letter_rules,
        "FATES",
        Fate.WAITS_A_WHILE,
        FailureKind.BUSY,
        rare=68,
    ),
    _patched(
        "a message that its destination refuses is kept", dead_letter_rules, "FATES", Fate.WAITS, FailureKind.ARGUMENT
    ),
    _patched(
        "a message that is too large dead-letters its neighbours", dead_letter_rules, "is_messages_fault", at_any_size
    ),
    _patched("the time in the backlog counts, whatever the policy", dead_letter_rules, "time_left", always_elapsed),
    _patched("an expired message is delivered", dead_letter_rules, "time_left", never_expired),
    _patched("a time to live begins before its schedule", dead_letter_rules, "time_left", counted_from_arrival),
    _patched("the time in the backlog is not subtracted", envelope, "remaining", whole_time),
    _patched("a pump sends to a destination that is failed over", PairingMachine, "may_deliver", may_deliver_diverted),
    _patched("a pause of a destination stops no delivery", PairingMachine, "may_deliver", may_deliver_paused, rare=35),
    _patched("a pause of a backlog queue stops no pump", PairingMachine, "may_pump", may_pump_paused),
    _patched("a pause of the whole syphon stops no pump", SyphonPauses, "all", property(lambda _: False)),
    _patched("resuming one target resumes every other", SyphonPauses, "resume", resume_all),
    _patched("the envelope loses the session", envelope, "wrap", wrap_without(envelope.SESSION_ID)),
    _patched("the envelope loses the scheduled time", envelope, "wrap", wrap_without(envelope.SCHEDULED)),
    _patched("the time to live is lost in the backlog", envelope, "unwrap", unwrap_without("time_to_live")),
)

"""The record of one run: its messages for the balance, and the events that a check may judge.

The World reports every event to its record. This one keeps what the balance needs (SPEC.md section 11) and ignores the
rest; tests/simulation derives checks from these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from paired_servicebus.core.accounting.ledger import Arrival, Ledger, SendOutcome, balance
from paired_servicebus.core.failover.send_router import Next, Route
from paired_servicebus.core.model.entity_state import Entity
from paired_servicebus.core.model.pairing_events import Event, StateChanged
from paired_servicebus.core.model.verdict import FailureKind
from paired_servicebus.simulation.run_plan import Plan
from paired_servicebus.simulation.sim_namespaces import HeldMessage, SimBacklogQueue, SimDestination, SimMessage

TOLERANCE: Final = 1e-3
"""Seconds within which two times are equal: sums of floats around 1.7e9 are not exact."""


class StateEvents:
    """The events of one engine's entities during one boot."""

    def send_leaves(self, path: str) -> None:
        """Record that a send at the primary begins."""

    def holds(self, path: str, call: object, at: float) -> None:
        """Record that a call is held."""

    def goes_on(self, path: str, call: object) -> None:
        """Record that a call is held no longer."""

    def send_answered(self, path: str, at: float, failure: FailureKind | None) -> None:
        """Record that a send at the primary has its result; None: accepted."""

    def failed(self, path: str, failure: FailureKind) -> None:
        """Record that the machine has got a failure of a send at the primary."""

    def changed(self, change: StateChanged) -> None:
        """Record that the machine announces a change of state."""

    def ping_leaves(self, path: str, at: float) -> None:
        """Record that a ping is sent."""

    def ping_answered(self, path: str, began: float, at: float, failure: FailureKind | None) -> None:
        """Record that a ping that was sent at `began` has its result; None: accepted."""

    def check_end(self, at: float) -> None:
        """Record that the boot ends."""


class RotationEvents:
    """The events of one engine's backlog queues during one boot."""

    def attempted(self, queue: int) -> None:
        """Record that a send to a backlog queue begins."""

    def answered(self, queue: int) -> None:
        """Record that a queue has answered a send: accepted, or busy."""

    def failed(self, queue: int, failure: FailureKind, *, is_unhindered: bool) -> None:
        """Record that the machine has got a failure of a backlog queue. is_unhindered: no fault was in the way."""

    def pulled(self, queue: int, failure: FailureKind) -> None:
        """Record that the machine pulls a queue."""

    def restored(self, queue: int) -> None:
        """Record that the machine restores a queue."""

    def probed(self, queue: int, accepted: bool) -> None:
        """Record that a probe of a queue has its result."""


class CallEvents:
    """The events of one call of a sender."""

    def decided(self, step: Next, entity: Entity, at: float) -> None:
        """Record the router's next step."""

    def ended(self, route: Route, failure: FailureKind | None, at: float, *, is_unhindered: bool) -> None:
        """Record that an attempt ends. is_unhindered: no fault was in its way."""


class PumpEvents:
    """The events of one pump during one boot. search_seconds: duration of its latest search."""

    search_seconds = 0.0

    def receives(self) -> None:
        """Record that the pump receives from its queue."""

    def recalls(self, numbers: Iterable[int]) -> None:
        """Record that the pump requests deferred messages by number."""

    def took(self, held: HeldMessage, lock: int) -> None:
        """Record that the pump has got a locked message."""

    def gives(self, held: HeldMessage) -> None:
        """Record that the pump hands a message over for delivery."""

    def accepted(self, held: HeldMessage) -> None:
        """Record that the destination has accepted a message."""

    def published(self, events: Iterable[Event]) -> None:
        """Record that the pump publishes events, among them its receipts."""

    def leaves(self, held: HeldMessage, message_id: str) -> None:
        """Record that the pump settles a message for the last time."""

    def lost(self, messages: Iterable[HeldMessage]) -> None:
        """Record that the locks of messages are lost."""

    def recalled(self, key: str, missing: Collection[int], *, asked: int, failed: bool) -> None:
        """Record that a request for `asked` deferred messages has ended."""

    def found(self, unknown: Iterable[HeldMessage]) -> None:
        """Record that a search has found deferred messages that the pump does not know."""

    def releases(self, held: HeldMessage) -> None:
        """Record that the pump releases a message."""

    def defers(self, held: HeldMessage, key: str, *, is_recalling: bool) -> None:
        """Record that the pump defers a message."""

    def deferred(self, held: HeldMessage, key: str, is_done: bool | None) -> None:
        """Record that a deferral has ended. is_done: None: neither confirmed nor refused."""


class RunRecord:
    """The record of one run. trace: gets a line for each step; None: no trace."""

    def __init__(self, plan: Plan, clock: Callable[[], float], trace: list[str] | None) -> None:
        self.plan = plan
        self.trace = trace
        self.answers: dict[str, SendOutcome] = {}
        self.open_calls = 0
        self._clock = clock
        self._arrivals: list[Arrival] = []
        self._expired: list[str] = []

    # -- messages ---------------------------------------------------------------------------------------------------

    def offered(self, messages: Sequence[SimMessage]) -> None:
        """Record messages handed over by a caller; until an answer they are in doubt."""
        for message in messages:
            self.answers[message.body] = SendOutcome.IN_DOUBT

    def told(self, message: SimMessage, answer: SendOutcome) -> None:
        self.answers[message.body] = answer

    def received(self, message: SimMessage) -> None:
        self._arrivals.append(Arrival(message.body, message.stream, message.number))

    def expired(self, message: SimMessage) -> None:
        """Record a message that expired before it was received."""
        self._expired.append(message.body)

    def stuck(self, queues: Sequence[SimBacklogQueue]) -> int:
        """Return the number of messages left in backlog queues and of calls without an end."""
        return sum(len(queue.held) for queue in queues) + self.open_calls

    def balance(self, queues: Sequence[SimBacklogQueue]) -> Ledger:
        """Return the ledger."""
        dead = [message.body for queue in queues for message, _ in queue.dead]
        deleted = [message.body for queue in queues for message in queue.deleted]
        return balance(
            answers=self.answers,
            arrivals=self._arrivals,
            parked=[held.letter.body for queue in queues for held in queue.held.values()],
            dead_lettered=[*dead, *deleted],
            expired=self._expired,
        )

    # -- events for checks ------------------------------------------------------------------------------------------

    def log(self, text: str) -> None:
        """Record a step for the trace."""

    def landed(self, destination: SimDestination, message: SimMessage) -> None:
        """Record that a destination accepts a message."""

    def unanswered(self, messages: Sequence[SimMessage]) -> None:
        """Messages land, but their sender gets no answer."""

    def lock_ended(self, queue: int, held: HeldMessage) -> None:
        """Record that a lock ends unsettled."""

    def deferred_unheard(self, queue: int, locked: Sequence[tuple[HeldMessage, int]]) -> None:
        """Messages are deferred, but their pump gets no answer."""

    def hidden(self, queue: int, messages: Sequence[SimMessage]) -> None:
        """Messages will appear late in a backlog queue, or return to it."""

    def attempted(self, who: tuple[object, ...], where: str, what: str, *, diverting: bool) -> None:
        """Record that an attempt begins. `who` is the engine, boot and part; `diverting` is the engine's own state."""

    def delivers(self, engine: Any, key: str, what: str) -> None:
        """Record that a syphon's attempt at a destination begins."""

    def answered(
        self,
        who: tuple[object, ...],
        where: str,
        failure: FailureKind | None,
        *,
        tried: float = 0.0,
        is_alone: bool = True,
    ) -> None:
        """Record that an attempt ends. tried: start of a syphon's attempt. is_alone: it had one message."""

    def heard(self, engine: str, path: str, failure: FailureKind | None) -> None:
        """Record that a syphon has a destination's result."""

    def dead_lettered(self, engine: str, held: HeldMessage) -> None:
        """Record that a pump dead-letters a message."""

    def waits(self, sender: Any, *, diverting: bool) -> None:
        """Record that a call waits before its next attempt."""

    def call_ended(self, engine: str, took: float, timeout: float | None) -> None:
        """Record that a call's deliveries have ended after `took` seconds."""

    def ended(self, engine: Any) -> None:
        """Record that the run ends with this engine."""

    # -- the records of parts ---------------------------------------------------------------------------------------

    def states_of(self, engine: str) -> StateEvents:
        """Return the record of an engine's entities."""
        return StateEvents()

    def rotation_of(self, engine: str) -> RotationEvents:
        """Return the record of an engine's backlog queues."""
        return RotationEvents()

    def call_of(self, sender: Any, timeout: float | None) -> CallEvents:
        """Return the record of a call that begins now."""
        return CallEvents()

    def pump_of(self, engine: Any, queue: SimBacklogQueue) -> PumpEvents:
        """Return the record of a pump."""
        return PumpEvents()

    def rate_of(self, engine: Any) -> Any:
        """Return the check of an engine's rate limit; None: there is none."""
        return None

"""Auto-forwarding: what enters one queue goes on to another entity of the namespace.

A destination that is full is tried again; what can never arrive (no such entity, too large, no session id where one is
needed, too many hops) goes to the transfer dead-letter queue of where it was. A destination's status does not matter:
the service forwards to disabled entities too. How an entity takes a forwarded message in is `intake`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from servicebus_sandbox.broker.broker_errors import BrokerError, EntityNotFound, QuotaExceeded
from servicebus_sandbox.broker.message import Message, StoredMessage, Travel
from servicebus_sandbox.broker.queues.agenda import Agenda

MAX_HOPS = 4
RETRY_SECONDS = 1.0
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
_NO_TRAVEL = Travel()

Send = Callable[[str, Message], None]
"""Has the entity at a path take a message in. Raises BrokerError."""


class ForwardingQueue(Protocol):
    """The part of a message queue that forwarding needs."""

    path: str

    def __len__(self) -> int: ...
    def put_dead(self, stored: StoredMessage, reason: str, description: str) -> None: ...
    def waiting(self) -> list[StoredMessage]: ...
    def let_go(self, stored: StoredMessage) -> None: ...


class Forwarder:
    """Passes on what enters `queue`, as long as it has a `target`, the path of an entity.

    `source` is told with messages that come out of a dead-letter queue: the path of the entity they failed in.
    """

    def __init__(
        self, queue: ForwardingQueue, agenda: Agenda, send: Send, failed: ForwardingQueue, *, source: str | None = None
    ) -> None:
        self.target: str | None = None
        self.alarm: float | None = None
        self._queue = queue
        self._agenda = agenda
        self._send = send
        self._failed = failed
        self._source = source

    def aim(self, target: str | None) -> None:
        """Forward there from now on, also what is in the queue already; None ends it."""
        if target is not None and target != self.target and len(self._queue):
            self._agenda.call_at(self._agenda.clock(), self)
        self.target = target

    def pass_on(self, stored: StoredMessage) -> bool:
        """Send a message on its way; False if it has to stay, because it goes nowhere or its destination is full."""
        if self.target is None or self.alarm is not None:
            return False  # while others wait, it waits behind them
        before = stored.message.travel or _NO_TRAVEL
        if before.hops >= MAX_HOPS:
            self._failed.put_dead(stored, TOO_MANY_HOPS, f"forwarded {MAX_HOPS} times before '{self._queue.path}'")
            return True
        travel = Travel(
            hops=before.hops + 1,
            first_number=before.first_number or stored.sequence_number,
            dead_letter_source=self._source or before.dead_letter_source,
            added=stored.added,
        )
        try:
            self._send(self.target, replace(stored.message, travel=travel))
        except QuotaExceeded:
            self._agenda.call_at(self._agenda.clock() + RETRY_SECONDS, self)
            return False
        except BrokerError as error:
            reason = "DestinationNotFound" if isinstance(error, EntityNotFound) else "DestinationRefused"
            self._failed.put_dead(stored, reason, str(error))
        return True

    def run_due(self, now: float) -> float | None:
        """Try again what had to stay, in order, up to the first that still has to."""
        for stored in self._queue.waiting():
            if not self.pass_on(stored):
                return None  # `pass_on` has asked to be called again, if there is reason to
            self._queue.let_go(stored)
        return None

"""Auto-forwarding from one queue to another entity of the namespace.

A full destination is retried. A message that can never arrive (no such entity, too large, no session id, too many hops)
goes to the source's transfer dead-letter queue. The destination's status is ignored: the service forwards to disabled
entities too. `intake` accepts forwarded messages.
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
"""A call that puts a message into the entity at a path. Raises BrokerError."""


class ForwardingQueue(Protocol):
    """The part of a message queue that forwarding needs."""

    path: str

    def __len__(self) -> int: ...
    def put_dead(self, stored: StoredMessage, reason: str, description: str) -> None: ...
    def waiting(self) -> list[StoredMessage]: ...
    def let_go(self, stored: StoredMessage) -> None: ...


class Forwarder:
    """The forwarding of `queue` to the entity at the path `target`, if that is set.

    `source` is set for a dead-letter queue: the path of the entity where the messages failed.
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
        """Forward all messages there, including those already in the queue; None ends it."""
        if target is not None and target != self.target and len(self._queue):
            self._agenda.call_at(self._agenda.clock(), self)
        self.target = target

    def pass_on(self, stored: StoredMessage) -> bool:
        """Forward a message; return False if it stays, because there is no target or it is full."""
        if self.target is None or self.alarm is not None:
            return False  # keep the order behind waiting messages
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
        """Retry the waiting messages in order, up to the first that still has to wait."""
        for stored in self._queue.waiting():
            if not self.pass_on(stored):
                return None  # `pass_on` has scheduled the retry, if one is needed
            self._queue.let_go(stored)
        return None

"""A server's coordinator of transactions: declares, discharges, what is open, and the rule of a transaction's entities.

A session whose first link is a coordinator may span entities: its first link to one names the entity of its receivers,
and its senders may be of others. Every other transaction has one entity. A transaction ends with its discharge, with
its coordinator, or with its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from uuid import uuid4

from servicebus_amqp.encoding.message_sections import read_value, split
from servicebus_amqp.encoding.performatives import (
    Declare,
    DeliveryState,
    Discharge,
    TransactionalState,
    read_composite,
)
from servicebus_amqp.nodes.request_ends import AmqpRefusal, bad_argument
from servicebus_amqp.protocol.links import DeliveryReceived, ReceiverLink
from servicebus_amqp.protocol_errors import DecodeError

TIMEOUT_SECONDS: Final = 120.0
"""The service's: "The server Transaction timeout is: 00:02:00" (azure-sdk-for-net issue 6540)."""
MAX_MESSAGES: Final = 100
"""The service's quota of messages sent in one transaction."""
MAX_OPEN: Final = 1000
"""Transactions of one connection. The service documents no limit."""
MAX_BYTES: Final = 64 * 1024
"""Of one message to a coordinator."""
CREDIT: Final = 100
"""Messages that a client may send to a coordinator before it is granted more."""


def unknown_transaction() -> AmqpRefusal:
    """Return the refusal of an id that is not open on this connection, in the service's words."""
    text = (
        "Transaction hasn't been declared yet, or has already been discharged. It may have timed out: the server "
        "Transaction timeout is: 00:02:00"
    )
    return AmqpRefusal("amqp:transaction:unknown-id", text, 400)


def beyond_limit(text: str) -> AmqpRefusal:
    """Return the refusal of more transactions, messages or bytes than are allowed."""
    return AmqpRefusal("amqp:resource-limit-exceeded", text, 403)


@dataclass(slots=True)
class EntityScope:
    """The entities of a client's session, or of a transaction.

    entity: the top-level entity of its first link or act, in lower case; None before it. spans_entities: sends may be
    to others; None: the session has no link yet.
    """

    spans_entities: bool | None = None
    entity: str | None = None

    def begin(self, *, with_coordinator: bool) -> None:
        """Note a link; the first one of a session decides whether it may span entities."""
        if self.spans_entities is None:
            self.spans_entities = with_coordinator

    def admit(self, entity: str, *, is_send: bool) -> None:
        """Note the entity of a link or an act. Raises AmqpRefusal: it is one too many."""
        if self.entity is None:
            self.entity = entity
        elif self.entity != entity and not (self.spans_entities and is_send):
            text = (
                f"a transaction cannot span multiple top-level entities such as queue or topic: it has "
                f"'{self.entity}' already, this is '{entity}'; let the client enable cross-entity transactions, and "
                f"receive from one entity"
            )
            raise AmqpRefusal("amqp:not-allowed", text, 400)


class CoordinatorEnd:
    """A client's coordinator, which is attached by it. scope: its session, if that may span entities.

    A client attaches one also before its token: each act needs rights of its own.
    """

    def __init__(self, link: ReceiverLink, session: EntityScope) -> None:
        session.begin(with_coordinator=True)
        self.link = link
        self.scope = session if session.spans_entities else None
        self._taken = 0
        link.accept_attach(max_message_size=MAX_BYTES)
        link.flow(CREDIT)

    def read(self, event: DeliveryReceived) -> Declare | Discharge | AmqpRefusal:
        """Return the body of a message, or the refusal of another; renew the credit."""
        self._taken += 1
        if 2 * self._taken >= CREDIT:
            self._taken = 0
            self.link.flow(CREDIT)
        try:
            body = read_value(split(event.payload).body, read_composite)
        except DecodeError as error:
            return bad_argument(f"the message to the coordinator cannot be read: {error}")
        if isinstance(body, Declare) and body.global_id is not None:
            return AmqpRefusal(
                "amqp:not-implemented", "a transaction with a global id is not served; leave it out", 501
            )
        return (
            body if isinstance(body, Declare | Discharge) else bad_argument("a coordinator takes declare and discharge")
        )


A = TypeVar("A")


@dataclass(eq=False, slots=True)
class OpenTransaction(Generic[A]):
    """An open transaction. ends_at: by its connection's clock. acts: what the server reserved, or sent on, for it."""

    id: bytes
    ends_at: float
    coordinator: CoordinatorEnd
    acts: A
    _own_scope: EntityScope = field(default_factory=EntityScope)

    def admit(self, entity: str, *, is_send: bool) -> None:
        """Note the top-level entity of an act. Raises AmqpRefusal: it is one too many.

        The rule is its session's once that has a link to an entity, and its own before.
        """
        session = self.coordinator.scope
        (self._own_scope if session is None or session.entity is None else session).admit(entity, is_send=is_send)


class OpenTransactions(Generic[A]):
    """The open transactions of one connection, oldest first.

    Args:
        begin: returns the acts of a new one.
        end: ends the acts of one that is not discharged in time, or whose coordinator is gone.
        clock: the time in seconds.
        call_at: gets the time of the next `run_due`.
    """

    def __init__(
        self,
        begin: Callable[[CoordinatorEnd], A],
        end: Callable[[A], object],
        clock: Callable[[], float],
        call_at: Callable[[float, OpenTransactions[A]], object],
    ) -> None:
        self.alarm: float | None = None
        """Kept by the one that calls `run_due`."""
        self._begin = begin
        self._end = end
        self._clock = clock
        self._call_at = call_at
        self._open: dict[bytes, OpenTransaction[A]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def declare(self, coordinator: CoordinatorEnd) -> bytes:
        """Open a transaction; return its id. Raises AmqpRefusal."""
        if len(self._open) >= MAX_OPEN:
            raise beyond_limit(f"this connection has {MAX_OPEN} open transactions; discharge some first")
        name, ends_at = f"txn:{uuid4().hex}_G0".encode(), self._clock() + TIMEOUT_SECONDS
        self._open[name] = OpenTransaction(name, ends_at, coordinator, self._begin(coordinator))
        self._call_at(ends_at, self)
        return name

    def find(self, state: DeliveryState | None) -> OpenTransaction[A]:
        """Return the transaction of a state. Raises AmqpRefusal: it has ended, or belongs to another connection."""
        found = self._open.get(state.txn_id or b"") if isinstance(state, TransactionalState) else None
        if found is None:
            raise unknown_transaction()
        return found

    def discharge(self, name: bytes | None) -> A:
        """Return the acts of a transaction that ends now. Raises AmqpRefusal as `find`."""
        found = self.find(TransactionalState(txn_id=name))
        del self._open[found.id]
        return found.acts

    def end_those_of(self, coordinator: CoordinatorEnd) -> None:
        """End the transactions of a coordinator that is gone."""
        self._end_all(lambda each: each.coordinator is coordinator)

    def run_due(self, now: float) -> float | None:
        """End what has taken too long; return the next deadline."""
        self._end_all(lambda each: each.ends_at <= now)
        return next((each.ends_at for each in self._open.values()), None)

    def _end_all(self, which: Callable[[OpenTransaction[A]], bool]) -> None:
        for each in [each for each in self._open.values() if which(each)]:
            del self._open[each.id]
            self._end(each.acts)

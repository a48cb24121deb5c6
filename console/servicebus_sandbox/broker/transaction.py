"""Transactions: acts that are reserved one by one, then done in one turn, or not at all.

An act is checked and reserved when it is requested. The commit checks all acts again and then does all, in their order;
if one cannot be done any more, none is. A rollback, the loss of the coordinator and two minutes end the reservations:
sends vanish, locks go on, and no delivery is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    TransactionLimit,
    TransactionRolledBack,
    TransactionUnknown,
)

TIMEOUT_SECONDS: Final = 120.0
"""The service's: "The server Transaction timeout is: 00:02:00" (azure-sdk-for-net issue 6540)."""
MAX_MESSAGES: Final = 100
"""The service's quota of messages sent in one transaction."""
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_OPEN: Final = 1000
"""Transactions of one connection. The service documents neither this limit nor that of bytes."""


@dataclass(frozen=True, slots=True)
class Act:
    """A reserved act. size, messages: bytes and number of messages that it sends.

    check: raises BrokerError if the act cannot be done any more. perform: does it, after `check`, and cannot fail.
    release: ends the reservation instead.
    """

    check: Callable[[], object]
    perform: Callable[[], object]
    release: Callable[[], object]
    size: int = 0
    messages: int = 0


@dataclass(slots=True)
class Transaction:
    """An open transaction. ends_at: epoch seconds. owner: the coordinator that declared it.

    spans_entities, entity: for the rule of its entities, which the layer above has.
    """

    id: bytes
    ends_at: float
    owner: object
    spans_entities: bool | None = False
    entity: str | None = None
    _acts: list[Act] = field(default_factory=list)
    _messages: int = 0
    _size: int = 0

    def include(self, hold: Callable[[], Act]) -> None:
        """Reserve an act. Raises TransactionLimit, and as `hold`."""
        act = hold()
        if self._messages + act.messages > MAX_MESSAGES:
            excess = f"Can't send more than {MAX_MESSAGES} messages in a single transaction"
        elif self._size + act.size > MAX_BYTES:
            excess = f"a transaction sends at most {MAX_BYTES:,} bytes"
        else:
            self._acts.append(act)
            self._messages += act.messages
            self._size += act.size
            return
        act.release()
        raise TransactionLimit(f"{excess}; commit it, and send the rest in another one")

    def commit(self) -> None:
        """Do all acts, in their order. Raises TransactionRolledBack: one cannot be done, and none was."""
        try:
            for act in self._acts:
                act.check()
        except BrokerError as error:
            self.roll_back()
            raise TransactionRolledBack(error) from error
        acts, self._acts = self._acts, []
        for act in acts:
            act.perform()

    def roll_back(self) -> None:
        """End all reservations."""
        acts, self._acts = self._acts, []
        for act in acts:
            act.release()


class TransactionAgenda(Protocol):
    """The namespace's agenda, as transactions use it."""

    clock: Callable[[], float]

    def new_id(self) -> UUID: ...
    def run_due(self) -> None: ...
    def call_at(self, when: float, owner: Transactions) -> None: ...


class Transactions:
    """The open transactions of one connection, oldest first."""

    def __init__(self, agenda: TransactionAgenda) -> None:
        self.alarm: float | None = None
        self._agenda = agenda
        self._open: dict[bytes, Transaction] = {}

    def __len__(self) -> int:
        return len(self._open)

    def declare(self, owner: object) -> Transaction:
        """Open a transaction. Raises TransactionLimit."""
        if len(self._open) >= MAX_OPEN:
            raise TransactionLimit(f"this connection has {MAX_OPEN} open transactions; discharge some first")
        name = f"txn:{self._agenda.new_id().hex}_G0".encode()
        ends_at = self._agenda.clock() + TIMEOUT_SECONDS
        found = self._open[name] = Transaction(name, ends_at, owner)
        self._agenda.call_at(ends_at, self)
        return found

    def find(self, name: bytes | None) -> Transaction:
        """Return an open transaction. Raises TransactionUnknown: it has ended, or belongs to another connection."""
        self._agenda.run_due()  # locks and transactions that have ended on the clock end first
        found = None if name is None else self._open.get(name)
        if found is None:
            raise TransactionUnknown
        return found

    def discharge(self, name: bytes | None, *, fail: bool) -> None:
        """End a transaction: commit it, or roll it back. Raises TransactionUnknown, TransactionRolledBack."""
        found = self.find(name)
        del self._open[found.id]
        if fail:
            found.roll_back()
        else:
            found.commit()

    def end_those_of(self, owner: object) -> None:
        """Roll back the transactions of a coordinator that is gone."""
        self._roll_back(lambda each: each.owner is owner)

    def run_due(self, now: float) -> float | None:
        """Roll back what has taken too long; return the next deadline."""
        self._roll_back(lambda each: each.ends_at <= now)
        return next((each.ends_at for each in self._open.values()), None)

    def _roll_back(self, which: Callable[[Transaction], bool]) -> None:
        for each in [each for each in self._open.values() if which(each)]:
            del self._open[each.id]
            each.roll_back()

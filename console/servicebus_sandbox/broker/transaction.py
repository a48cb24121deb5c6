"""Transactions: acts that are reserved one by one, then done in one turn, or not at all.

An act is checked and reserved when it is requested. The commit checks all acts again and then does all, in their order;
if one cannot be done any more, none is. A rollback, the loss of the coordinator and two minutes end the reservations:
sends vanish, locks go on, and no delivery is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    TransactionLimit,
    TransactionRolledBack,
)

MAX_MESSAGES: Final = 100
"""The service's quota of messages sent in one transaction."""
MAX_BYTES: Final = 256 * 1024 * 1024
"""The service documents no such limit."""


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
    """The acts of an open transaction. The layer above has its id, its end and the rule of its entities."""

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

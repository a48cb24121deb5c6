"""Experiments about transactions: the coordinator's answers, and how a transaction ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.errors import WireError, WireLinkError
from paired_servicebus.pairing.amqp_client.reconnecting import peek
from paired_servicebus.trials.trial import Experiment, Observation, Trial, TrialSender, letter
from servicebus_amqp.encoding.codec import described
from servicebus_amqp.encoding.performatives import (
    Coordinator,
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Rejected,
    TransactionalState,
    write_composite,
)

UNKNOWN: Final = "amqp:transaction:unknown-id"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
TIMEOUT_SECONDS: Final = 125.0
"""The service documents two minutes."""
_VALUE: Final = 0x77


class _Transactions:
    """A coordinator and a sender of one connection."""

    def __init__(self, path: str, coordinator: TrialSender, sender: TrialSender) -> None:
        self.path, self.coordinator, self.sender = path, coordinator, sender
        self.id = b""

    @classmethod
    async def open(cls, trial: Trial) -> _Transactions:
        """Attach both to a queue of their own. Raises WireError: the namespace has no transactions."""
        path, wire = await trial.queue(), trial.wire()
        coordinator = await TrialSender.attach(wire, path, Coordinator())
        return cls(path, coordinator, await TrialSender.attach(wire, path))

    async def declare(self) -> str:
        """Declare a transaction; return the answer."""
        found = await self.coordinator.ask(described(_VALUE, write_composite(Declare())))
        if isinstance(found, Declared):
            self.id = found.txn_id
        return _text(found)

    async def discharge(self, *, fail: bool = False) -> str:
        """End the transaction; return the answer."""
        body = write_composite(Discharge(txn_id=self.id, fail=fail))
        return _text(await self.coordinator.ask(described(_VALUE, body)))

    async def send(self, message_id: str) -> str:
        """Send in the transaction; return the answer."""
        return _text(await self.sender.ask(letter(message_id), state=TransactionalState(txn_id=self.id)))


def _text(state: DeliveryState | WireError | None) -> str:
    if isinstance(state, WireError):
        return "the link ended"
    if isinstance(state, Rejected):
        return "rejected" if state.error is None else state.error.condition
    return type(state).__name__.lower()


async def commit_and_roll_back(trial: Trial) -> Observation:
    """Commit one transaction, roll another one back, and discharge it again."""
    try:
        transactions = await _Transactions.open(trial)
    except WireError as error:
        condition = error.condition if isinstance(error, WireLinkError) else None
        return Observation(condition == NOT_IMPLEMENTED, f"the coordinator is refused: {error}")
    seen = []
    for fail in (False, True):
        answers = [await transactions.declare(), await transactions.send(f"{fail}")]
        before = len(await _left(trial, transactions))
        answers.append(await transactions.discharge(fail=fail))
        seen.append((*answers, len(await _left(trial, transactions)) - before))
    again = await transactions.discharge()
    late = await transactions.send("late")
    rest = len(await _left(trial, transactions))
    done = ("declared", "transactionalstate", "accepted")
    holds = seen == [(*done, 1), (*done, 0)] and again == late == UNKNOWN and rest == 1
    return Observation(
        holds,
        f"commit and rollback: {seen}; a second discharge: {again}; a send after the end: {late}; {rest} messages",
    )


async def time_out(trial: Trial) -> Observation:
    """Discharge a transaction after more than two minutes."""
    transactions = await _Transactions.open(trial)
    answers = [await transactions.declare(), await transactions.send("1")]
    await asyncio.sleep(TIMEOUT_SECONDS)
    ended = await transactions.discharge()
    count = len(await _left(trial, transactions))
    return Observation(
        (ended, count) == (UNKNOWN, 0),
        f"{', '.join(answers)}; the discharge {TIMEOUT_SECONDS:g} s later: {ended}; {count} messages arrived",
    )


async def _left(trial: Trial, transactions: _Transactions) -> Sequence[object]:
    return await peek(trial.wire(), transactions.path, from_number=0, count=10)


TRANSACTION_EXPERIMENTS: Final[Sequence[Experiment]] = (
    Experiment(
        name="transactions",
        assumption="a coordinator commits and rolls back; an id that has ended is unknown; Basic refuses the link",
        why="the sandbox does so, and programs with transactions are tested on it",
        run=commit_and_roll_back,
    ),
    Experiment(
        name="transaction-end",
        assumption="a transaction is unknown after two minutes, and its messages never arrive",
        why="the sandbox ends one so; no page names the condition",
        run=time_out,
        deadline=TIMEOUT_SECONDS + 60,
        is_slow=True,
    ),
)

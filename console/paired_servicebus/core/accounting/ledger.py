"""The ledger (SPEC.md section 11): the fate of every message id, from lists kept outside of the system.

accepted = delivered, parked, dead-lettered, expired or LOST, each id once. UNEXPECTED = delivered, though never
attempted or definitely refused. Duplicates and out-of-order arrivals are counted and do not unbalance it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class SendOutcome(StrEnum):
    """The final result of a message for its caller."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    IN_DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One delivery of a message to a receiver.

    `stream` is the unit of order: an entity, or one of its sessions. `number` is the sender's own count within it.
    """

    message_id: str
    stream: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The balance. The numbers count message ids, except that duplicates and out_of_order count deliveries."""

    attempted: int
    accepted: int
    refused: int
    in_doubt: int
    recovered: int
    delivered: int
    dead_lettered: int
    expired: int
    parked: int
    lost: int
    unexpected: int
    duplicates: int
    out_of_order: int
    lost_ids: tuple[str, ...] = field(default=(), repr=False)
    unexpected_ids: tuple[str, ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> Literal["balanced", "unbalanced"]:
        """Return "balanced" if nothing is lost or unexpected."""
        return "unbalanced" if self.lost or self.unexpected else "balanced"


def balance(
    *,
    answers: Mapping[str, SendOutcome],
    arrivals: Sequence[Arrival],
    parked: Iterable[str] = (),
    dead_lettered: Iterable[str] = (),
    expired: Iterable[str] = (),
) -> Ledger:
    """Compare the senders' results with the receivers' deliveries.

    Args:
        answers: every attempted message id, with the final result for its caller.
        arrivals: every delivery, in the order of receipt.
        parked, dead_lettered, expired: ids found there in the final state.
    """
    results = Counter(answers.values())
    received = Counter(arrival.message_id for arrival in arrivals)
    delivered = set(received)
    in_parked, in_dead, in_expired = set(parked), set(dead_lettered), set(expired)
    accepted = {key for key, answer in answers.items() if answer is SendOutcome.ACCEPTED}
    lost = accepted - delivered - in_parked - in_dead - in_expired
    unexpected = {key for key in delivered if answers.get(key, SendOutcome.REFUSED) is SendOutcome.REFUSED}
    return Ledger(
        attempted=len(answers),
        accepted=results[SendOutcome.ACCEPTED],
        refused=results[SendOutcome.REFUSED],
        in_doubt=results[SendOutcome.IN_DOUBT],
        recovered=sum(1 for key in delivered if answers.get(key) is SendOutcome.IN_DOUBT),
        delivered=len(delivered),
        dead_lettered=len(in_dead - delivered),
        expired=len(in_expired - delivered - in_dead),
        parked=len(in_parked - delivered - in_dead - in_expired),
        lost=len(lost),
        unexpected=len(unexpected),
        duplicates=received.total() - len(received),
        out_of_order=_out_of_order(arrivals),
        lost_ids=tuple(sorted(lost)),
        unexpected_ids=tuple(sorted(unexpected)),
    )


def _out_of_order(arrivals: Sequence[Arrival]) -> int:
    """Count deliveries after a later one of their stream; a repeated message is a duplicate, not out of order."""
    newest: dict[str, int] = {}
    seen: set[str] = set()
    late = 0
    for arrival in arrivals:
        if arrival.message_id in seen:
            continue
        seen.add(arrival.message_id)
        if arrival.number < newest.get(arrival.stream, arrival.number):
            late += 1
        newest[arrival.stream] = max(arrival.number, newest.get(arrival.stream, arrival.number))
    return late

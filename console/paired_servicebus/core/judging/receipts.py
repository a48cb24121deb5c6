"""Receipts: the journalled facts about each message, summed (SPEC.md section 11).

A receipt is of one pairing, entity (its case ignored), message and subscription; a sender's has no subscription. Times
are microseconds since the epoch (UTC). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paired_servicebus.core.judging.engine_boots import micros
from paired_servicebus.core.model import pairing_events as e

# The limits of the audit, in microseconds. SQL and the pure functions share them.

SECOND: Final = 1_000_000
IN_FLIGHT: Final = 900 * SECOND
"""A message that its destination accepted is in flight for this long at least: Service Bus itself may be as late, and
a prefetching receiver holds messages until their locks end (section 10)."""
PASS_MARGIN: Final = 60 * SECOND
"""A receiver got past a message when it received one that the same engine delivered this much later: an engine's own
sends overlap."""
CLOCK_MARGIN: Final = 900 * SECOND
"""The same for a message that another engine delivered: their clocks differ."""
LOCK_CYCLES: Final = 3600 * SECOND
"""A message may be held so long by receivers that let locks end: Service Bus dead-letters it after ten locks of at most
five minutes, by default."""
RECEIVER_FORGOTTEN: Final = 24 * 3600 * SECOND
"""A receiver without a message for so long, while others of the entity had some, does not hold others back."""
READING_MARGIN: Final = 60 * SECOND
"""A backlog queue's reading counts for messages that were diverted this long before it."""
ORDER_MARGIN: Final = 1 * SECOND
"""Messages without a sender's number are out of order if their sender had accepted answers this far apart."""


Key = tuple[str, str, str]
"""An entity and a subscription, both folded, around the message's id."""


@dataclass(slots=True, kw_only=True)
class Receipt:
    """The sums of one message, or of one subscription's deliveries of it."""

    pairing: str = ""
    entity: str
    message_id: str
    subscription: str | None = None
    stream: str | None = None
    number: int | None = None
    session: str | None = None
    key: str | None = None
    direct: int = 0
    diverted: int = 0
    in_doubt: int = 0
    refused: int = 0
    moved: int = 0
    dead_lettered: int = 0
    received: int = 0
    redelivered: int = 0
    """Deliveries of a copy that a receiver had before."""
    scheduled: int = 0
    """1 if it was sent for a later time."""
    queue: int | None = None
    reason: str | None = None
    diverted_by: str | None = None
    diverted_boot: str | None = None
    diverted_seq: int | None = None
    reached_by: str | None = None
    reached_boot: str | None = None
    reached_seq: int | None = None
    first_at: int = 0
    accepted_at: int | None = None
    diverted_at: int | None = None
    moved_at: int | None = None
    dead_lettered_at: int | None = None
    reached_at: int | None = None
    """The last acceptance by the destination, direct or by the syphon."""
    received_at: int | None = None
    """The first delivery to a receiver."""
    received_by: str | None = None
    received_boot: str | None = None
    received_seq: int | None = None
    last_at: int = 0

    def note_diverted(self, record: e.Record, at: int, event: e.Diverted) -> None:
        self.diverted += 1
        self._accepted(at)
        if self.diverted_at is None or at < self.diverted_at:
            self.diverted_at = at
            self.diverted_by, self.diverted_boot, self.diverted_seq = record.engine, record.boot, record.seq
        self.queue = _greatest(self.queue, event.queue)
        self.key = _greatest(self.key, event.key)
        self.scheduled = max(self.scheduled, int(bool(event.is_scheduled)))

    def note_delivered(self, record: e.Record, at: int, event: e.Delivered) -> None:
        self.direct += 1
        self._accepted(at)
        self._reached(record, at)
        self.key = _greatest(self.key, event.key)
        self.scheduled = max(self.scheduled, int(bool(event.is_scheduled)))

    def note_in_doubt(self, record: e.Record, at: int, event: e.InDoubt) -> None:
        self.in_doubt += 1
        self.key = _greatest(self.key, event.key)

    def note_refused(self, record: e.Record, at: int, event: e.Refused) -> None:
        self.refused += 1
        self.key = _greatest(self.key, event.key)

    def note_moved(self, record: e.Record, at: int, event: e.Moved) -> None:
        self.moved += 1
        self.moved_at = _greatest(self.moved_at, at)
        self._reached(record, at)
        self.queue = _greatest(self.queue, event.queue)

    def note_dead_lettered(self, record: e.Record, at: int, event: e.DeadLettered) -> None:
        self.dead_lettered += 1
        self.dead_lettered_at = _greatest(self.dead_lettered_at, at)
        self.queue = _greatest(self.queue, event.queue)
        self.reason = _greatest(self.reason, event.reason)

    def note_received(self, record: e.Record, at: int, event: e.MessageReceived) -> None:
        self.received += 1
        self.redelivered += bool(event.delivery_count and event.delivery_count > 0)
        self.stream = _greatest(self.stream, event.stream or None)
        self.number = _greatest(self.number, event.number)
        self.session = _greatest(self.session, event.session)
        if self.received_at is None or at < self.received_at:
            self.received_at = at
            self.received_by, self.received_boot, self.received_seq = record.engine, record.boot, record.seq

    def add(self, other: Receipt) -> None:
        """Add another boot's receipt of the same message."""
        self.entity = max(self.entity, other.entity)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _GREATEST:
            setattr(self, name, _greatest(getattr(self, name), getattr(other, name)))
        for names, (at, pick) in _OF_A_TIME.items():
            mine, theirs = getattr(self, at), getattr(other, at)
            if theirs is not None and (mine is None or pick(theirs, mine)):
                for column in (at, *names):
                    setattr(self, column, getattr(other, column))
        if other.accepted_at is not None:
            self._accepted(other.accepted_at)
        self.first_at = min(self.first_at, other.first_at)
        self.last_at = max(self.last_at, other.last_at)

    def _accepted(self, at: int) -> None:
        self.accepted_at = at if self.accepted_at is None else min(at, self.accepted_at)

    def _reached(self, record: e.Record, at: int) -> None:
        if self.reached_at is None or at > self.reached_at:
            self.reached_at = at
            self.reached_by, self.reached_boot, self.reached_seq = record.engine, record.boot, record.seq


_SUMS: Final = (
    "direct", "diverted", "in_doubt", "refused", "moved", "dead_lettered", "received", "redelivered",
)  # fmt: skip
_GREATEST: Final = (
    "subscription", "stream", "number", "session", "key", "scheduled", "queue", "reason", "moved_at",
    "dead_lettered_at",
)  # fmt: skip
_OF_A_TIME: Final[Mapping[tuple[str, ...], tuple[str, Callable[[int, int], bool]]]] = {
    ("diverted_by", "diverted_boot", "diverted_seq"): ("diverted_at", int.__lt__),
    ("reached_by", "reached_boot", "reached_seq"): ("reached_at", int.__gt__),
    ("received_by", "received_boot", "received_seq"): ("received_at", int.__lt__),
}
"""Columns of the record with the earliest, or the latest, of a time."""
_NOTES: Final[Mapping[type[e.Event], Callable[[Receipt, e.Record, int, Any], None]]] = {
    e.Diverted: Receipt.note_diverted,
    e.Delivered: Receipt.note_delivered,
    e.InDoubt: Receipt.note_in_doubt,
    e.Refused: Receipt.note_refused,
    e.Moved: Receipt.note_moved,
    e.DeadLettered: Receipt.note_dead_lettered,
    e.MessageReceived: Receipt.note_received,
}


class ReceiptFold:
    """Takes records in any order, each once; `receipts` returns the sums so far."""

    def __init__(self) -> None:
        self._boots: dict[tuple[str, str], dict[Key, Receipt]] = {}

    def add(self, record: e.Record) -> None:
        """Take one record; kinds that are no receipts are ignored."""
        event: Any = record.event
        note = _NOTES.get(event.__class__)
        if note is None:
            return
        subscription = getattr(event, "subscription", None) or None
        key = (event.entity.lower(), event.message_id, (subscription or "").lower())
        found = self._boots.setdefault((record.engine, record.boot), {})
        at = micros(event.at)
        receipt = found.get(key)
        if receipt is None:
            receipt = found[key] = Receipt(
                entity=event.entity, message_id=event.message_id, subscription=subscription, first_at=at, last_at=at
            )
        else:
            receipt.entity = max(receipt.entity, event.entity)
            receipt.subscription = _greatest(receipt.subscription, subscription)
            receipt.first_at, receipt.last_at = min(receipt.first_at, at), max(receipt.last_at, at)
        note(receipt, record, at, event)

    def receipts(self, pairings: Mapping[tuple[str, str], str]) -> list[Receipt]:
        """Return the receipts of all boots, of which each has a pairing. They end this fold's use."""
        sums: dict[tuple[str, Key], Receipt] = {}
        for boot, found in self._boots.items():
            pairing = pairings[boot]
            for key, receipt in found.items():
                known = sums.get((pairing, key))
                if known is None:
                    receipt.pairing = pairing
                    sums[pairing, key] = receipt
                else:
                    known.add(receipt)
        return list(sums.values())


def _greatest(one: Any, other: Any) -> Any:
    """Return the greater value; None is less than any."""
    return other if one is None else one if other is None else max(one, other)

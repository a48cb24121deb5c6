"""A message's facts, from its receipts: the answer to its sender, where it went, and whether it came in order.

The receipts of a topic's message, one for each subscription that records, are one message. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paired_servicebus.core.judging.audit_limits import ORDER_MARGIN
from paired_servicebus.core.judging.engine_boots import EngineBoot
from paired_servicebus.core.judging.receipts import Receipt

Answer = Literal["accepted", "in doubt", "refused", "never attempted"]


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """One message. `sums`: its receipts added up. `again`: deliveries after the first of each subscription."""

    sums: Receipt
    again: int
    out_of_order: bool

    @property
    def answer(self) -> Answer:
        sums = self.sums
        if sums.direct + sums.diverted:
            return "accepted"
        if sums.in_doubt:
            return "in doubt"
        return "refused" if sums.refused else "never attempted"

    @property
    def has_reached(self) -> bool:
        """Return whether its destination accepted it."""
        return self.sums.direct + self.sums.moved > 0

    @property
    def is_dead(self) -> bool:
        """Return whether the syphon dead-lettered it, and did not move it later."""
        sums = self.sums
        if not sums.dead_lettered or sums.direct or sums.received or sums.diverted > sums.moved + sums.dead_lettered:
            return False
        return sums.moved_at is None or sums.dead_lettered_at is None or sums.moved_at <= sums.dead_lettered_at

    def is_in_backlog(self, *, recorded: bool) -> bool:
        """Return whether a copy of it is parked, as far as its receipts go. `recorded`: whether receivers record."""
        sums = self.sums
        is_parked = sums.received == 0 and sums.diverted > sums.moved + sums.dead_lettered
        return is_parked and (recorded or not self.has_reached)


def facts_of(receipts: Sequence[Receipt], boots: Iterable[EngineBoot]) -> list[MessageFacts]:
    """Return the facts of each message."""
    late = _late(receipts, boots)
    grouped: dict[tuple[str, str, str], list[Receipt]] = {}
    for receipt in receipts:
        grouped.setdefault((receipt.pairing, receipt.entity.lower(), receipt.message_id), []).append(receipt)
    return [_facts(group, late) for group in grouped.values()]


def _facts(group: list[Receipt], late: set[int]) -> MessageFacts:
    again = sum(max(one.received - one.redelivered - 1, 0) for one in group)
    out_of_order = any(id(one) in late for one in group)
    sums = group[0]
    if len(group) > 1:
        sums = _copy(sums)
        for other in group[1:]:
            sums.add(other)
    return MessageFacts(sums, again, out_of_order)


def _copy(receipt: Receipt) -> Receipt:
    copy = Receipt(pairing=receipt.pairing, entity=receipt.entity, message_id=receipt.message_id)
    copy.first_at = receipt.first_at
    copy.add(receipt)
    return copy


def _late(receipts: Iterable[Receipt], boots: Iterable[EngineBoot]) -> set[int]:
    """Return the receipts, by identity, of deliveries after a later message of their stream.

    Deliveries to one engine are in the order of its boots and their numbers. Messages without a number of their sender
    are compared with others that the same boot sent, by its records' numbers, if it sent them ORDER_MARGIN apart.
    """
    begins = {(one.pairing, one.engine, one.boot): one.first_at for one in boots}
    streams: dict[tuple[object, ...], list[tuple[tuple[int, str, int], Receipt]]] = {}
    for one in receipts:
        place = _place(one)
        if not one.received or place is None:
            continue
        sender = " " if one.number is not None else one.diverted_boot or one.reached_boot or ""
        subscription = (one.subscription or "").lower()
        key = (one.pairing, one.entity.lower(), subscription, one.stream, one.received_by, sender)
        begin = begins.get((one.pairing, one.received_by or "", one.received_boot or ""), 0)
        order = (begin, one.received_boot or "", one.received_seq or 0)
        streams.setdefault(key, []).append((order, one))
    return {id(one) for stream in streams.values() for one in _late_in(stream)}


def _late_in(stream: list[tuple[tuple[int, str, int], Receipt]]) -> list[Receipt]:
    stream.sort(key=lambda item: item[0])
    found, newest, accepted = [], -1, None
    for _, one in stream:
        place = _place(one)
        assert place is not None, "streams hold only those with a place"
        if place < newest and (one.number is not None or _is_apart(one.accepted_at, accepted)):
            found.append(one)
        newest = max(newest, place)
        if one.accepted_at is not None:
            accepted = one.accepted_at if accepted is None else max(accepted, one.accepted_at)
    return found


def _is_apart(at: int | None, newest: int | None) -> bool:
    return at is not None and newest is not None and at + ORDER_MARGIN < newest


def _place(one: Receipt) -> int | None:
    for place in (one.number, one.diverted_seq, one.reached_seq):
        if place is not None:
            return place
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityKind:
    """The known facts about an entity, by its receipts."""

    recorded: bool
    """Whether a receiver records what it gets."""
    records_all: bool
    """Whether a sender records direct sends."""
    is_topic: bool
    has_sessions: bool


def entities_of(receipts: Iterable[Receipt]) -> Mapping[tuple[str, str], EntityKind]:
    """Return the kind of each entity, by pairing and name without case."""
    found: dict[tuple[str, str], list[bool]] = {}
    for one in receipts:
        flags = found.setdefault((one.pairing, one.entity.lower()), [False] * 4)
        flags[0] |= one.received > 0
        flags[1] |= one.direct > 0
        flags[2] |= one.subscription is not None
        flags[3] |= one.session is not None
    return {
        key: EntityKind(recorded=recorded, records_all=all_, is_topic=topic, has_sessions=sessions)
        for key, (recorded, all_, topic, sessions) in found.items()
    }

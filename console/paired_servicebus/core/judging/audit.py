"""The audit: the fate of every message, by the rules of SPEC.md section 11.

The rules are those of paired_servicebus.pipeline.judging.audit_sql, which has the statuses; each is the other's oracle
in tests. Times are microseconds since the epoch (UTC). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paired_servicebus.core.judging.engine_boots import EngineBoot, JournalCover, covers_of
from paired_servicebus.core.judging.receipts import (
    CLOCK_MARGIN,
    LOCK_CYCLES,
    ORDER_MARGIN,
    PASS_MARGIN,
    READING_MARGIN,
    RECEIVER_FORGOTTEN,
    Receipt,
)
from paired_servicebus.core.text.time_format import written

# How far an entity's receivers got, by their slowest: the evidence without which no message is lost.
#
# A receiver here is an engine that recorded deliveries of the entity, by its last boot that did. One that has stopped
# while others run holds no messages. Positions are of messages with exactly one acceptance, in the deliveries of each
# engine (by its records' numbers) and by the clock. Pure.

EntityKey = tuple[str, str]
"""A pairing, and an entity without case."""


@dataclass(slots=True)
class _Receiver:
    """The deliveries of an entity to one boot."""

    position: int = 0
    got_at: int = 0
    slowest: int = 0
    """The age of the oldest message that it got."""
    redelivers: bool = False
    """Whether it got a copy that a receiver had before."""
    by_boot: dict[str | None, tuple[int, int]] = field(default_factory=dict)
    """The last number that it received of each delivering boot, and its time."""

    def add(self, receipt: Receipt) -> None:
        assert receipt.reached_at is not None, "it was accepted once"
        assert receipt.reached_seq is not None, "by a record"
        assert receipt.received_at is not None, "it was received"
        self.position = max(self.position, receipt.reached_at)
        self.got_at = max(self.got_at, receipt.received_at)
        self.slowest = max(self.slowest, receipt.received_at - receipt.reached_at)
        self.redelivers = self.redelivers or receipt.redelivered > 0
        known = self.by_boot.get(receipt.reached_boot)
        if known is None or receipt.reached_seq > known[0]:
            self.by_boot[receipt.reached_boot] = receipt.reached_seq, receipt.reached_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverFront:
    """The slowest receiver's place."""

    position: int
    got_at: int
    """When it got its last message."""
    by_boot: Mapping[str | None, tuple[int, int]]
    """By delivering boot: the last number and its time that every receiver got past."""
    slowest: int
    """The age of the oldest message that a receiver got within a day of the last one."""
    redelivers: bool
    """Whether one of those got a copy that a receiver had before."""

    def patience(self, in_flight: int) -> int:
        """Return how long a message may take: prefetched messages whose locks end come in any order."""
        return max(2 * self.slowest, in_flight, LOCK_CYCLES if self.redelivers else 0)

    def is_past(self, receipt: Receipt, in_flight: int) -> bool:
        """Return whether every receiver got past a message, and got something later than its patience after it."""
        at, seq = receipt.reached_at, receipt.reached_seq
        if at is None or seq is None or at + self.patience(in_flight) > self.got_at:
            return False
        same = self.by_boot.get(receipt.reached_boot)
        by_number = same is not None and seq < same[0] and at + PASS_MARGIN < same[1]
        return by_number or at + CLOCK_MARGIN < self.position


def fronts_of(receipts: Iterable[Receipt], boots: Iterable[EngineBoot]) -> Mapping[EntityKey, ReceiverFront]:
    """Return the front of each entity with receivers."""
    newest: dict[tuple[str, str], EngineBoot] = {}
    for one in boots:
        known = newest.get((one.pairing, one.engine))
        if known is None or one.first_at > known.first_at:
            newest[one.pairing, one.engine] = one
    stopped = {name for name, one in newest.items() if one.is_drain or one.ended == "stopped"}
    found: dict[EntityKey, dict[tuple[str, str], _Receiver]] = {}
    for receipt in receipts:
        if receipt.received and receipt.subscription is None and receipt.direct + receipt.moved == 1:
            name = receipt.received_by or "", receipt.received_boot or ""
            entity = found.setdefault((receipt.pairing, receipt.entity.lower()), {})
            entity.setdefault(name, _Receiver()).add(receipt)
    return {
        key: _front(_recent(each), {engine for pairing, engine in stopped if pairing == key[0]})
        for key, each in found.items()
    }


def _recent(receivers: Mapping[tuple[str, str], _Receiver]) -> dict[tuple[str, str], _Receiver]:
    """Return the boots that got something within a day of the last delivery."""
    last = max(one.got_at for one in receivers.values())
    return {name: one for name, one in receivers.items() if one.got_at + RECEIVER_FORGOTTEN >= last}


def _front(boots: Mapping[tuple[str, str], _Receiver], stopped: set[str]) -> ReceiverFront:
    by_engine: dict[str, _Receiver] = {}
    for (engine, _), one in boots.items():
        if engine not in by_engine or one.got_at > by_engine[engine].got_at:
            by_engine[engine] = one
    running = [one for engine, one in by_engine.items() if engine not in stopped]
    counted = running or list(by_engine.values())
    shared = set.intersection(*(set(one.by_boot) for one in counted))
    return ReceiverFront(
        position=min(one.position for one in counted),
        got_at=min(one.got_at for one in counted),
        by_boot={
            boot: (min(one.by_boot[boot][0] for one in counted), min(one.by_boot[boot][1] for one in counted))
            for boot in shared
        },
        slowest=max(one.slowest for one in boots.values()),
        redelivers=any(one.redelivers for one in boots.values()),
    )


# The last readings of the backlog queues, beside the number that they should hold by the receipts.
#
# Queues are summed, since one queue's surplus may be another's deficit. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogReading:
    """A queue's reading. `held`: its messages, with scheduled and dead-lettered ones."""

    pairing: str
    queue: int
    read_at: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogShortage:
    """A queue of a pairing whose queues hold less than their receipts say.

    is_named: whether all its `expected` messages are missing. unnamed: those of the pairing's parked messages that are
    missing, too, and are not known by name.
    """

    read_at: int
    held: int
    expected: int
    is_named: bool
    unnamed: int

    def concerns(self, sums: Receipt) -> bool:
        """Return whether a parked message was there long enough before the reading."""
        return _is_before(sums, self.read_at)


def readings_to(cover: JournalCover, now: int, in_flight: int) -> int:
    """Return the latest reading after which no journal is behind by more than `in_flight`."""
    if cover.until is None:
        return now
    return cover.until - in_flight if cover.until >= now - in_flight else now - in_flight


def shortages_of(
    parked: Iterable[Receipt],
    readings: Iterable[BacklogReading],
    covers: Mapping[str, JournalCover],
    *,
    now: int,
    in_flight: int,
) -> Mapping[tuple[str, int], BacklogShortage]:
    """Return the queues with a shortage, by pairing and queue.

    Args:
        parked: the receipts of messages that are parked as far as the journals go.
    """
    last: dict[tuple[str, int], BacklogReading] = {}
    for one in readings:
        cover, key = covers.get(one.pairing), (one.pairing, one.queue)
        if cover is None or one.read_at > readings_to(cover, now, in_flight):
            continue
        known = last.get(key)
        if known is None or (one.read_at, one.held) > (known.read_at, known.held):
            last[key] = one
    expected: Counter[tuple[str, int]] = Counter()
    for sums in parked:
        reading = last.get((sums.pairing, sums.queue)) if sums.queue is not None else None
        if reading is not None and _is_before(sums, reading.read_at):
            expected[reading.pairing, reading.queue] += 1
    found: dict[tuple[str, int], BacklogShortage] = {}
    for pairing in {pairing for pairing, _ in expected}:
        found |= _of_pairing({key: last[key] for key in last if key[0] == pairing}, expected)
    return found


def _of_pairing(
    last: Mapping[tuple[str, int], BacklogReading], expected: Counter[tuple[str, int]]
) -> dict[tuple[str, int], BacklogShortage]:
    short = sum(expected[key] for key in last) - sum(one.held for one in last.values())
    if short <= 0:
        return {}
    of_empty = sum(expected[key] for key, one in last.items() if one.held == 0)
    can_name = of_empty <= short
    return {
        key: BacklogShortage(
            read_at=one.read_at,
            held=one.held,
            expected=expected[key],
            is_named=can_name and one.held == 0,
            unnamed=short - of_empty if can_name else short,
        )
        for key, one in last.items()
        if expected[key]
    }


def _is_before(sums: Receipt, read_at: int) -> bool:
    return sums.diverted_at is not None and sums.diverted_at + READING_MARGIN < read_at


# A message's facts, from its receipts: the answer to its sender, where it went, and whether it came in order.
#
# The receipts of a topic's message, one for each subscription that records, are one message. Pure.

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


Status = Literal[
    "delivered",
    "accepted",
    "in flight",
    "parked",
    "dead-lettered",
    "missing",
    "lost",
    "unknown",
    "refused",
    "in doubt",
    "unexpected",
]
ELSEWHERE = "lost, or in a journal that is not here: "


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """One message, as the table `audit` has it."""

    pairing: str
    entity: str
    message_id: str
    status: Status
    answer: Answer
    key: str | None
    queue: int | None
    reason: str | None
    stream: str | None
    number: int | None
    direct: int
    diverted: int
    in_doubt: int
    refused: int
    moved: int
    dead_lettered: int
    received: int
    duplicates: int
    out_of_order: bool
    first_at: int
    accepted_at: int | None
    diverted_at: int | None
    moved_at: int | None
    reached_at: int | None
    received_at: int | None
    last_at: int
    dwell: float | None
    age: float | None
    receivers_told: bool
    among_missing: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """The evidence about one message: from all receipts, the journals and the queues."""

    covers: Mapping[str, JournalCover]
    entities: Mapping[tuple[str, str], EntityKind]
    fronts: Mapping[tuple[str, str], ReceiverFront]
    shortages: Mapping[tuple[str, int], BacklogShortage]
    now: int
    in_flight: int

    def patience(self, sums: Receipt) -> int:
        """Return how long a message of an entity may take to its receiver."""
        front = self.fronts.get((sums.pairing, sums.entity.lower()))
        return self.in_flight if front is None else front.patience(self.in_flight)


def audit(
    receipts: Sequence[Receipt],
    boots: Sequence[EngineBoot],
    readings: Iterable[BacklogReading],
    *,
    now: int,
    in_flight: int,
) -> list[MessageFate]:
    """Return the fate of each message.

    Args:
        readings: of the backlog queues, any number of each.
        now: the journals' end; this machine's clock, if that is earlier.
        in_flight: the time that a message is in flight at least.
    """
    covers, entities = covers_of(boots), entities_of(receipts)
    facts = facts_of(receipts, boots)
    parked = [
        one.sums
        for one in facts
        if one.is_in_backlog(recorded=entities[one.sums.pairing, one.sums.entity.lower()].recorded)
    ]
    evidence = _Evidence(
        covers=covers,
        entities=entities,
        fronts=fronts_of(receipts, boots),
        shortages=shortages_of(parked, readings, covers, now=now, in_flight=in_flight),
        now=now,
        in_flight=in_flight,
    )
    return [_judge(one, evidence) for one in facts]


def _judge(facts: MessageFacts, evidence: _Evidence) -> MessageFate:
    sums = facts.sums
    kind = evidence.entities[sums.pairing, sums.entity.lower()]
    recorded, cover = kind.recorded, evidence.covers.get(sums.pairing)
    shortage = evidence.shortages.get((sums.pairing, sums.queue)) if sums.queue is not None else None
    if shortage is not None and not (facts.is_in_backlog(recorded=recorded) and shortage.concerns(sums)):
        shortage = None
    at = sums.reached_at if sums.reached_at is not None else sums.accepted_at
    age = None if at is None else (evidence.now - at) / 1e6
    status = _status(facts, kind, cover, shortage, age, evidence)
    return MessageFate(
        pairing=sums.pairing,
        entity=sums.entity,
        message_id=sums.message_id,
        status=status,
        answer=facts.answer,
        key=sums.key,
        queue=sums.queue,
        reason=_reason(status, facts, kind, cover, shortage),
        stream=sums.stream,
        number=sums.number,
        direct=sums.direct,
        diverted=sums.diverted,
        in_doubt=sums.in_doubt,
        refused=sums.refused,
        moved=sums.moved,
        dead_lettered=sums.dead_lettered,
        received=sums.received,
        duplicates=facts.again if recorded else max(sums.direct + sums.moved - 1, 0),
        out_of_order=facts.out_of_order,
        first_at=sums.first_at,
        accepted_at=sums.accepted_at,
        diverted_at=sums.diverted_at,
        moved_at=sums.moved_at,
        reached_at=sums.reached_at,
        received_at=sums.received_at,
        last_at=sums.last_at,
        dwell=None if sums.moved_at is None or sums.diverted_at is None else (sums.moved_at - sums.diverted_at) / 1e6,
        age=age,
        receivers_told=recorded,
        among_missing=(shortage.unnamed or None) if status == "parked" and shortage is not None else None,
    )


def _status(
    facts: MessageFacts,
    kind: EntityKind,
    cover: JournalCover | None,
    shortage: BacklogShortage | None,
    age: float | None,
    evidence: _Evidence,
) -> Status:
    sums = facts.sums
    if sums.received:
        patience = evidence.patience(sums)
        return "unexpected" if _is_unexpected(facts, kind, cover, patience) else "delivered"
    if facts.is_in_backlog(recorded=kind.recorded):
        return _parked_status(sums, cover, shortage, evidence.in_flight)
    if facts.is_dead:
        return "dead-lettered"
    if facts.has_reached:
        return _reached_status(facts, kind, cover, age, evidence) if kind.recorded else "accepted"
    answer = facts.answer
    return "dead-lettered" if answer == "never attempted" else answer


def _is_unexpected(facts: MessageFacts, kind: EntityKind, cover: JournalCover | None, patience: int) -> bool:
    """Return whether a received message was refused, or had no sender though all senders' journals are here."""
    if facts.answer == "refused":
        return True
    is_unsent = facts.answer == "never attempted" and not facts.sums.moved
    return is_unsent and kind.records_all and _is_covered(facts.sums, cover, patience)


def _is_covered(sums: Receipt, cover: JournalCover | None, patience: int) -> bool:
    at = sums.reached_at if sums.reached_at is not None else sums.received_at
    return cover is not None and cover.covers(at, None if at is None else at + patience)


def _parked_status(
    sums: Receipt, cover: JournalCover | None, shortage: BacklogShortage | None, in_flight: int
) -> Status:
    if shortage is None or not shortage.is_named or cover is None:
        return "parked"
    is_known = cover.syphon_known and cover.covers(sums.diverted_at, shortage.read_at + in_flight)
    return "missing" if is_known else "unknown"


def _reached_status(
    facts: MessageFacts, kind: EntityKind, cover: JournalCover | None, age: float | None, evidence: _Evidence
) -> Status:
    """Judge a message that its destination accepted and no receiver reported, where receivers record."""
    sums = facts.sums
    if age is None or age < evidence.in_flight / 1e6:
        return "in flight"
    if not kind.is_topic:
        front = evidence.fronts.get((sums.pairing, sums.entity.lower()))
        if front is None or not front.is_past(sums, evidence.in_flight):
            return "in flight"
    may_wait = kind.is_topic or kind.has_sessions or sums.scheduled
    if may_wait or facts.answer == "never attempted" or not _is_covered(sums, cover, evidence.patience(sums)):
        return "unknown"
    return "lost"


def _reason(
    status: Status,
    facts: MessageFacts,
    kind: EntityKind,
    cover: JournalCover | None,
    shortage: BacklogShortage | None,
) -> str | None:
    sums = facts.sums
    if status == "missing" and shortage is not None:
        return f"queue {sums.queue} held none of its {shortage.expected} at {minute_of(shortage.read_at)}"
    if status != "unknown":
        return sums.reason
    if facts.is_in_backlog(recorded=kind.recorded) and not (cover and cover.syphon_known):
        return "not in its queue: missing, or moved by an engine whose journal is not here"
    if kind.is_topic:
        return "no subscription that records deliveries got it; a filter may have kept it out"
    if sums.scheduled:
        return "it was scheduled for a later time"
    if kind.has_sessions:
        return "its session may wait for a receiver"
    if facts.answer == "never attempted":
        return f"{ELSEWHERE}its sender has none here"
    return ELSEWHERE + _weakness(sums, cover)


def _weakness(sums: Receipt, cover: JournalCover | None) -> str:
    """Return which journal is incomplete."""
    if cover is None:
        return f"{sums.pairing} recorded nothing after that"
    at = sums.reached_at if sums.reached_at is not None else sums.diverted_at
    if cover.since is not None and at is not None and at <= cover.since:
        return f"{cover.gap_engine} lacks records before {minute_of(cover.since)}"
    until = "that" if cover.until is None else minute_of(cover.until)
    return f"{cover.late_engine or sums.pairing} recorded nothing after {until}"


def minute_of(at: int) -> str:
    """Format a time to the minute."""
    return written(at / 1e6, "%Y-%m-%d %H:%M")

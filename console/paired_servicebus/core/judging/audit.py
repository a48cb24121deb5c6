"""The audit: the fate of every message, by the rules of SPEC.md section 11.

The rules are those of paired_servicebus.pipeline.judging.audit_sql, which has the statuses; each is the other's oracle
in tests. Times are microseconds since the epoch (UTC). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paired_servicebus.core.judging.backlog_checks import BacklogReading, BacklogShortage, shortages_of
from paired_servicebus.core.judging.engine_boots import EngineBoot, JournalCover, covers_of
from paired_servicebus.core.judging.message_fates import Answer, EntityKind, MessageFacts, entities_of, facts_of
from paired_servicebus.core.judging.receipts import Receipt
from paired_servicebus.core.judging.receiver_fronts import ReceiverFront, fronts_of
from paired_servicebus.core.text.time_format import written

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

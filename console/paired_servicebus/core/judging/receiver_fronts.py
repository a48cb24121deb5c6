"""How far an entity's receivers got, by their slowest: the evidence without which no message is lost.

A receiver here is an engine that recorded deliveries of the entity, by its last boot that did. One that has stopped
while others run holds no messages. Positions are of messages with exactly one acceptance, in the deliveries of each
engine (by its records' numbers) and by the clock. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paired_servicebus.core.judging.audit_limits import CLOCK_MARGIN, LOCK_CYCLES, PASS_MARGIN, RECEIVER_FORGOTTEN
from paired_servicebus.core.judging.engine_boots import EngineBoot
from paired_servicebus.core.judging.receipts import Receipt

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

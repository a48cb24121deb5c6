"""How far an entity's receivers got, by their slowest: the evidence without which no message is lost.

A receiver here is an engine's boot that recorded deliveries of the entity. One that was restarted, or has stopped while
others run, holds no messages. Positions are of messages with exactly one acceptance, in the deliveries of each engine
(by its records' numbers) and by the clock. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paired_servicebus.core.judging.audit_limits import CLOCK_MARGIN, PASS_MARGIN, RECEIVER_FORGOTTEN
from paired_servicebus.core.judging.engine_boots import EngineBoot
from paired_servicebus.core.judging.receipts import Receipt

EntityKey = tuple[str, str]
"""A pairing, and an entity without case."""


@dataclass(slots=True)
class _Receiver:
    """What one boot received of an entity."""

    position: int = 0
    got_at: int = 0
    by_boot: dict[str | None, tuple[int, int]] = field(default_factory=dict)
    """The last number that it received of each delivering boot, and its time."""

    def add(self, receipt: Receipt) -> None:
        assert receipt.reached_at is not None, "it was accepted once"
        assert receipt.reached_seq is not None, "by a record"
        assert receipt.received_at is not None, "it was received"
        self.position = max(self.position, receipt.reached_at)
        self.got_at = max(self.got_at, receipt.received_at)
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

    def is_past(self, receipt: Receipt, in_flight: int) -> bool:
        """Return whether every receiver got past a message, and got something later than `in_flight` after it."""
        at, seq = receipt.reached_at, receipt.reached_seq
        if at is None or seq is None or at + in_flight > self.got_at:
            return False
        same = self.by_boot.get(receipt.reached_boot)
        by_number = same is not None and seq < same[0] and at + PASS_MARGIN < same[1]
        return by_number or at + CLOCK_MARGIN < self.position


def fronts_of(receipts: Iterable[Receipt], boots: Iterable[EngineBoot]) -> Mapping[EntityKey, ReceiverFront]:
    """Return the front of each entity with receivers."""
    ends = {(one.pairing, one.engine, one.boot): "stopped" if one.is_drain else one.ended for one in boots}
    found: dict[EntityKey, dict[tuple[str, str], _Receiver]] = {}
    for receipt in receipts:
        if receipt.received and receipt.subscription is None and receipt.direct + receipt.moved == 1:
            name = receipt.received_by or "", receipt.received_boot or ""
            if ends.get((receipt.pairing, *name)) == "restarted":
                continue
            entity = found.setdefault((receipt.pairing, receipt.entity.lower()), {})
            entity.setdefault(name, _Receiver()).add(receipt)
    return {key: _front(_counted(key[0], each, ends)) for key, each in found.items()}


def _counted(
    pairing: str, receivers: dict[tuple[str, str], _Receiver], ends: Mapping[tuple[str, str, str], str]
) -> list[_Receiver]:
    """Return the receivers that may hold messages."""
    running = {name for name in receivers if ends.get((pairing, *name), "running") != "stopped"}
    newest = max(one.got_at for one in receivers.values())
    return [
        one
        for name, one in receivers.items()
        if (name in running or not running) and one.got_at + RECEIVER_FORGOTTEN >= newest
    ]


def _front(receivers: list[_Receiver]) -> ReceiverFront:
    shared = set.intersection(*(set(one.by_boot) for one in receivers)) if receivers else set()
    return ReceiverFront(
        position=min((one.position for one in receivers), default=0),
        got_at=min((one.got_at for one in receivers), default=0),
        by_boot={
            boot: (min(one.by_boot[boot][0] for one in receivers), min(one.by_boot[boot][1] for one in receivers))
            for boot in shared
        },
    )

"""What a demo ends with: the JSON object of its last line, and the same for a person."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from console.core.ledger import Ledger
from console.demo.script import Holds


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's numbers."""

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

    @classmethod
    def of(cls, ledger: Ledger) -> Messages:
        """The numbers of a ledger."""
        return cls(**{name: getattr(ledger, name) for name in cls.__struct_fields__})


class EntityResult(msgspec.Struct, frozen=True, kw_only=True):
    """One entity's failovers."""

    failovers: int
    failbacks: int
    seconds_failed_over: float


class Pings(msgspec.Struct, frozen=True, kw_only=True):
    """Pings of all entities."""

    sent: int
    accepted: int


class SyphonResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the syphon moved."""

    moved: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A demo's outcome."""

    scenario: str
    seed: int
    messages: Messages
    entities: dict[str, EntityResult]
    pings: Pings
    syphon: SyphonResult
    billed_operations: int
    verdict: str
    lost_ids: list[str] = []
    unexpected_ids: list[str] = []
    broken: list[str] = []
    """What had to hold in this scenario and did not, a sentence each; beside the balance, which the verdict is."""

    @property
    def balanced(self) -> bool:
        """Nothing lost, nothing unexpected."""
        return self.verdict == "balanced"


def what_broke(holds: Holds, entities: Mapping[str, EntityResult], messages: Messages) -> list[str]:
    """What had to hold and did not, a sentence each."""
    said: list[str] = []
    for name, entity in entities.items():
        must = name in holds.fails_over
        if must != bool(entity.failovers):
            said.append(f"{name} had {'to fail over and did not' if must else 'no reason to fail over and did'}")
        if entity.failovers != entity.failbacks:
            said.append(f"{name} failed over {entity.failovers} times and back {entity.failbacks} times")
    if messages.parked:
        said.append(f"{messages.parked} messages are still parked")
    if messages.dead_lettered != holds.dead_lettered:
        said.append(f"{messages.dead_lettered} messages are dead-lettered instead of {holds.dead_lettered}")
    return said


def for_a_person(result: Result) -> str:
    """The result in a few lines."""
    messages = result.messages
    lines = [
        f"{result.scenario}, seed {result.seed}: {result.verdict}",
        f"  {messages.attempted} messages attempted, {messages.accepted} accepted, {messages.refused} refused, "
        f"{messages.in_doubt} in doubt",
        f"  {messages.delivered} delivered, {messages.parked} parked, {messages.dead_lettered} dead-lettered; "
        f"{messages.lost} lost, {messages.unexpected} unexpected, {messages.duplicates} duplicates, "
        f"{messages.out_of_order} out of order",
    ]
    for name, entity in result.entities.items():
        lines.append(
            f"  {name}: {entity.failovers} failovers, {entity.failbacks} failbacks, "
            f"{entity.seconds_failed_over:.1f} s failed over"
        )
    lines.append(f"  the syphon moved {result.syphon.moved}; {result.billed_operations} billed operations")
    lines += [f"  DID NOT HOLD: {sentence}" for sentence in result.broken]
    lines += [f"  LOST {name}" for name in result.lost_ids]
    lines += [f"  UNEXPECTED {name}" for name in result.unexpected_ids]
    return "\n".join(lines)

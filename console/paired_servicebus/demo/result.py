"""The result of a demo: the JSON object of its last line, and its text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.demo.fleet_result import FleetResult, fleet_lines
from paired_servicebus.demo.languages_result import LanguagesResult, languages_lines
from paired_servicebus.demo.scenario_model import Scenario


class MessageCounts(msgspec.Struct, frozen=True, kw_only=True):
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
    def of(cls, ledger: Ledger) -> MessageCounts:
        """Return the numbers of a ledger."""
        return cls(**{name: getattr(ledger, name) for name in cls.__struct_fields__})


class EntityResult(msgspec.Struct, frozen=True, kw_only=True):
    """One entity's failovers."""

    failovers: int
    failbacks: int
    seconds_failed_over: float


class PingCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Pings of all entities."""

    sent: int
    accepted: int


class SyphonResult(msgspec.Struct, frozen=True, kw_only=True):
    """The syphon's counts."""

    moved: int


class JournalAudit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The audit's counts in the ledger's words, or the reason for its absence."""

    lost: int | None = None
    unexpected: int | None = None
    duplicates: int | None = None
    out_of_order: int | None = None
    """None: the senders number no message."""
    by: str | None = None
    """What made it, for a person."""
    skipped: str | None = None


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """A demo's outcome."""

    scenario: str
    seed: int
    messages: MessageCounts
    entities: dict[str, EntityResult]
    pings: PingCounts
    syphon: SyphonResult
    billed_operations: int
    verdict: str
    lost_ids: list[str] = []
    unexpected_ids: list[str] = []
    broken: list[str] = []
    """The scenario's failed expectations, a sentence each; the balance is in the verdict."""
    audit: JournalAudit | None = None
    """None: not yet."""
    report: str | None = None
    """Path of the incident report."""
    fleet: FleetResult | None = None
    """What became of the order over the fleet, in that scenario."""
    languages: LanguagesResult | None = None
    """What the senders of other languages saw, in that scenario."""

    @property
    def balanced(self) -> bool:
        """Return whether no message was lost or unexpected, and the audit agrees."""
        return self.verdict == "balanced" and (self.audit is None or not differs(self.audit, self.messages))

    @property
    def holds(self) -> bool:
        """Return whether it is balanced; of a fleet, and of senders of any language, everything has to hold."""
        return self.balanced and not ((self.fleet or self.languages) and self.broken)


def what_broke(scenario: Scenario, entities: Mapping[str, EntityResult], messages: MessageCounts) -> list[str]:
    """Return the failed expectations, a sentence each."""
    said: list[str] = []
    for name, entity in entities.items():
        must = name in scenario.fails_over
        if must != bool(entity.failovers):
            said.append(f"{name} had {'to fail over and did not' if must else 'no reason to fail over and did'}")
        if entity.failovers != entity.failbacks:
            said.append(f"{name} failed over {entity.failovers} times and back {entity.failbacks} times")
    if messages.parked:
        said.append(f"{messages.parked} messages are still parked")
    if messages.dead_lettered != scenario.dead_lettered:
        said.append(f"{messages.dead_lettered} messages are dead-lettered instead of {scenario.dead_lettered}")
    return said


def differs(audit: JournalAudit, messages: MessageCounts) -> list[str]:
    """Where the audit of the journal and the application's lists disagree, a sentence each."""
    if audit.skipped is not None:
        return []
    pairs = [(name, getattr(audit, name), getattr(messages, name)) for name in audit.__struct_fields__[:4]]
    return [
        f"the journal's audit counts {by_journal} {name.replace('_', ' ')}, the application's lists {by_lists}"
        for name, by_journal, by_lists in pairs
        if by_journal is not None and by_journal != by_lists
    ]


def as_lines(result: DemoResult) -> str:
    """Return the result in a few lines."""
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
    if result.fleet is not None:
        lines += fleet_lines(result.fleet)
    if result.languages is not None:
        lines += languages_lines(result.languages)
    lines.append(f"  the syphon moved {result.syphon.moved}; {result.billed_operations} billed operations")
    if result.audit is not None:
        by = f" by {result.audit.by}" if result.audit.by else ""
        lines.append(f"  the journal's audit{by}: {result.audit.skipped or _said(result.audit)}")
    if result.report is not None:
        lines.append(f"  the incident report: {result.report}")
    lines += [f"  DID NOT HOLD: {sentence}" for sentence in result.broken]
    lines += [f"  LOST {name}" for name in result.lost_ids]
    lines += [f"  UNEXPECTED {name}" for name in result.unexpected_ids]
    return "\n".join(lines)


def _said(audit: JournalAudit) -> str:
    order = "" if audit.out_of_order is None else f", {audit.out_of_order} out of order"
    return f"{audit.lost} lost, {audit.unexpected} unexpected, {audit.duplicates} duplicates{order}"

"""The result of a demo: the JSON object of its last line, and its text for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from paired_servicebus.core.accounting.ledger import Ledger
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.demo.scenarios import Scenario

# The fleet scenario's figures, and the sentences about what did not hold.
#
# An answer on the boards is what an engine reports. Each host's own account must agree with it.

HOSTS: Final = tuple(f"web-{number}" for number in range(1, 9))
CUT_OFF: Final = "web-7"
READ_ONLY: Final = "web-8"
REFUSAL: Final = "read-only"
"""The reason of a read-only engine contains it."""


class HostResult(msgspec.Struct, frozen=True, kw_only=True):
    """One host by its own account: its messages, and the state of `orders` in its engine."""

    sent: int
    diverted: int
    """Messages that backlog queues accepted."""
    forced_at: float | None
    """When its engine first diverted by an order; None: never."""
    is_forced: bool


class FleetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the order, by the answers on the boards and by the hosts' own accounts."""

    done: list[str]
    """Engines that did it while one was cut off."""
    refused: dict[str, str]
    """Engine and reason."""
    silent: list[str]
    """Addressed engines without an answer while one was cut off."""
    taken_up: dict[str, float]
    """Engines that did it after the network was back, with the time by their own account."""
    released: list[str]
    """Engines that did the release."""
    cut_at: float
    back_at: float
    hosts: dict[str, HostResult]
    broken: list[str] = []
    """Expectations that did not hold, a sentence each."""


def what_fleet_broke(result: FleetResult) -> list[str]:
    """Return the failed expectations, a sentence each."""
    return [*_answers(result), *_accounts(result)]


def _answers(result: FleetResult) -> Iterator[str]:
    """Compare the answers on the boards with the script."""
    meant = [name for name in HOSTS if name not in (CUT_OFF, READ_ONLY)]
    if sorted(result.done) != meant:
        yield f"the order was done by {_list(result.done)} and had to be by {_list(meant)}"
    if list(result.refused) != [READ_ONLY] or REFUSAL not in result.refused[READ_ONLY]:
        reasons = _list([f"{name} ({why})" for name, why in result.refused.items()])
        yield f"the order was refused by {reasons} and had to be by {READ_ONLY} ({REFUSAL})"
    if result.silent != [CUT_OFF]:
        yield f"no answer came from {_list(result.silent)} and had to be missing from {CUT_OFF}"
    if list(result.taken_up) != [CUT_OFF]:
        yield f"the order was taken up by {_list(list(result.taken_up))} and had to be by {CUT_OFF}"
    if sorted(result.released) != sorted(HOSTS):  # a read-only engine has nothing to release, so it is done there too
        yield f"the release was done by {_list(result.released)} and had to be by {_list(list(HOSTS))}"


def _accounts(result: FleetResult) -> Iterator[str]:
    """Compare the hosts' own accounts with the script."""
    for name in HOSTS:
        host = result.hosts[name]
        if not host.sent:
            yield f"{name} sent nothing"
        if host.is_forced:
            yield f"{name} is still forced"
        yield from _forced(result, name, host)


def _forced(result: FleetResult, name: str, host: HostResult) -> Iterator[str]:
    """Check when a host carried the order out, and that its messages took that way. An outage diverts messages too."""
    if name == READ_ONLY:
        if host.forced_at is not None:
            yield f"{name} is read-only, and carried the order out at {clock(host.forced_at)}"
        return
    begins, ends = (result.back_at, float("inf")) if name == CUT_OFF else (result.cut_at, result.back_at)
    if host.forced_at is None:
        yield f"{name} never carried the order out"
    elif not begins <= host.forced_at <= ends:
        back = clock(result.back_at)
        yield f"{name} carried the order out at {clock(host.forced_at)}; the network was back at {back}"
    if not host.diverted:
        yield f"{name} diverted no message"


def fleet_lines(result: FleetResult) -> list[str]:
    """Return the fleet's result in a few lines."""
    refused = [f"{name}: {why}" for name, why in result.refused.items()]
    taken_up = [f"{name} at {clock(at)}" for name, at in result.taken_up.items()]
    forced = [name for name, host in result.hosts.items() if host.is_forced]
    return [
        f"  the order: {len(result.done)} done, {_counted('refused', refused)}, "
        f"{_counted('taken up after it came back', taken_up)} (the network was back at {clock(result.back_at)})",
        f"  the release: {len(result.released)} done, "
        + (f"still forced: {_list(forced)}" if forced else f"all {len(result.hosts)} released"),
        "  diverted: " + ", ".join(f"{name} {host.diverted} of {host.sent}" for name, host in result.hosts.items()),
    ]


def _counted(word: str, items: list[str]) -> str:
    return f"{len(items)} {word}" + (f" ({', '.join(items)})" if items else "")


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"


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

    @classmethod
    def of(cls, views: Sequence[EntityView]) -> EntityResult:
        """Return the sums over an entity's views, one from each engine."""
        return cls(
            failovers=sum(view.failovers for view in views),
            failbacks=sum(view.failbacks for view in views),
            seconds_failed_over=round(sum(view.seconds_failed_over for view in views), 3),
        )


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
    kept: str | None = None
    """The folder that has journals and tables, if the demo was to keep them."""
    fleet: FleetResult | None = None
    """What became of the order over the fleet, in that scenario."""
    languages: dict[str, Any] | None = None
    """What the senders of other languages saw, in that scenario."""
    figures: list[str] = []
    """The same in lines, for a person."""

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
    lines += result.figures
    lines.append(f"  the syphon moved {result.syphon.moved}; {result.billed_operations} billed operations")
    if result.audit is not None:
        by = f" by {result.audit.by}" if result.audit.by else ""
        lines.append(f"  the journal's audit{by}: {result.audit.skipped or _said(result.audit)}")
    if result.report is not None:
        lines.append(f"  the incident report: {result.report}")
    if result.kept is not None:
        query = "select entity, failed_over_at, failed_back_at, cause, parked from episodes"
        lines.append(f"  journals and tables: {result.kept}; COLUMNS.md of the pipeline has each column's meaning")
        lines.append(f'  query them: paired tables query "{query}" --tables {shlex.quote(result.kept)}/tables')
    lines += [f"  DID NOT HOLD: {sentence}" for sentence in result.broken]
    lines += [f"  LOST {name}" for name in result.lost_ids]
    lines += [f"  UNEXPECTED {name}" for name in result.unexpected_ids]
    return "\n".join(lines)


def _said(audit: JournalAudit) -> str:
    order = "" if audit.out_of_order is None else f", {audit.out_of_order} out of order"
    return f"{audit.lost} lost, {audit.unexpected} unexpected, {audit.duplicates} duplicates{order}"

"""The document of a report: impact, groups, callers, parked messages, verdict, cost, timeline, blanks, unknowns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report import sentences
from paired_servicebus.pipeline.report.render.document import (
    Blank,
    Block,
    Bullets,
    Document,
    Figures,
    Grid,
    Paragraph,
    Section,
    Strong,
    Text,
)
from paired_servicebus.pipeline.report.report_values import Act, EngineBoot, Fate, Report, TimelineEntry
from paired_servicebus.pipeline.report.sentences import (
    DASH,
    Clock,
    count_span,
    few,
    listed,
    percent,
    seconds,
    seconds_span,
    times,
)

MAX_ENTRIES: Final = 150
"""Lines of the timeline and of the acts that are shown."""
MAX_FATES: Final = 20
"""Groups of entities that are listed."""
MAX_LABEL: Final = 60
"""Characters of a group's entities in a table; longer ones have a number."""
GROUP: Final = "Group"
MAX_ENGINES: Final = 25
"""Starts of engines that are listed; the incomplete ones first."""
FIGURES: Final = (
    ("attempted", None, "attempted"), ("accepted by a namespace", "accepted", "accepted"),
    ("parked in the backlog", "diverted", None), ("home from the backlog", "home", None),
    ("delivered", "delivered", "delivered"), ("in flight", "in_flight", "in_flight"),
    ("still parked", "parked", "parked"), ("dead-lettered", "dead_lettered", "dead_lettered"),
    ("in doubt", "in_doubt", "in_doubt"), ("refused", "refused", "refused"), ("missing", "missing", "missing"),
    ("lost", "lost", "lost"), ("unknown", "unknown", "unknown"), ("unexpected", "unexpected", "unexpected"),
    ("duplicates", "duplicates", "duplicates"), ("out of order", "out_of_order", "out_of_order"),
)  # fmt: skip
"""Of the verdict's table: the name, the incident's figure, and that of all that is recorded."""


def document_of(report: Report, *, price: Price | None = None) -> Document:
    """Return the report's document.

    Args:
        price: of a million operations; None: unknown.
    """
    sections: tuple[Section, ...] = (
        Section("Impact", tuple(_impact(report))),
        Section("Entities that shared a fate", tuple(_fates(report))),
        Section("What callers met", tuple(_callers(report))),
        Section("Parked messages", tuple(_parked(report))),
        Section("Verdict and evidence", tuple(_verdict(report))),
        Section("Cost of the incident" if report.fates else "Cost of this time", tuple(_cost(report, price))),
        Section("Orders of operators", tuple(_acts(report))),
        Section("Timeline", tuple(_timeline(report))),
        Section("Cause", (Blank("The cause, as found by people"),)),
        Section("Actions", (Grid(("action", "who", "until"), (("", "", ""),) * 3),)),
        Section("Not known", tuple(_unknowns(report))),
    )
    if not report.fates:
        sections = tuple(one for one in sections if one.title not in ("Cause", "Actions"))
    return Document(sentences.headline(report), tuple(one for one in sections if one.blocks))


def _impact(report: Report) -> Iterator[Block]:
    found = list(sentences.impact(report))
    yield Paragraph((" ".join(found[:-1]) + " ", Strong(found[-1])))
    yield Grid(("", ""), tuple(_facts(report)))


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield "pairing", few(report.pairings) or DASH
    yield "environment", report.environment or "not named"
    yield "primary namespace", few(tuple(dict.fromkeys(one.primary for one in report.engines if one.primary))) or DASH
    yield (
        "secondary namespace",
        few(tuple(dict.fromkeys(one.secondary for one in report.engines if one.secondary))) or DASH,
    )
    engines = tuple(dict.fromkeys(one.engine for one in report.engines))
    yield "engines", few(engines, 8) or DASH
    yield "time of this report", f"{day_and_clock(report.since)} to {day_and_clock(report.until)} UTC"
    yield "source", sentences.source_sentence(report)
    if report.others:
        yield "not in this report", f"pairing {few(report.others)}: choose one with --pairing"


def _fates(report: Report) -> Iterator[Block]:
    clock = Clock(report.since, report.until)
    if not report.fates:
        return
    several = len({one.engine for one in report.episodes}) > 1
    labels, shown = _labels(report.fates), report.fates[:MAX_FATES]
    yield Bullets(
        tuple(
            (f"{label}: " if label.startswith(GROUP) else "", Strong(few(fate.entities, 12, room=200)),
             f" {sentences.fate_sentence(fate, clock, several_engines=several)}")
            for label, fate in zip(labels, shown, strict=False)
        )
    )  # fmt: skip
    if len(report.fates) > len(shown):
        yield Paragraph(f"and {len(report.fates) - len(shown):,} more groups; --format json has them")
    yield from _fate_tables(shown, labels, clock)
    yield Paragraph(
        "To detect: from the last good send to the first failure. To divert: to the failover. Away: from failovers to "
        "failbacks. To drain: from the last failback to an empty backlog."
    )
    if report.recovered:
        yield Paragraph(f"Suspect {times(report.recovered)} without failing over: a send succeeded in time.")


def _fate_tables(fates: Sequence[Fate], labels: Sequence[str], clock: Clock) -> Iterator[Block]:
    named = list(zip(labels, fates, strict=False))
    yield Grid(
        ("entities", "first failure", "failed over", "first ping accepted", "failed back", "backlog empty"),
        tuple(
            (label, *map(clock.span, (fate.suspected_at, fate.failed_over_at, fate.first_ping_at, fate.failed_back_at,
             fate.backlog_empty_at)))
            for label, fate in named
        ),
    )  # fmt: skip
    yield Grid(
        ("entities", "engines", "failovers", "to detect, at most", "to divert", "away", "to drain", "pings"),
        tuple(
            (label, f"{len(fate.engines):,}", count_span(fate.times),
             *map(seconds_span, (fate.to_detect, fate.to_divert, fate.away, fate.to_drain)), f"{fate.pings:,}")
            for label, fate in named
        ),
        right=frozenset({1, 2, 7}),
    )  # fmt: skip


def _labels(fates: Sequence[Fate]) -> list[str]:
    """Return the names of the groups in tables: their entities, or numbers if those are long or equal."""
    names = [", ".join(fate.entities) for fate in fates]
    if len(set(names)) == len(names) and all(len(name) <= MAX_LABEL for name in names):
        return [few(fate.entities) for fate in fates]
    return [f"{GROUP} {number}" for number in range(1, len(fates) + 1)]


def _callers(report: Report) -> Iterator[Block]:
    if not report.callers:
        return
    rows = tuple(
        (
            few(one.entities, 12) + (" (stayed on the primary)" if one.stayed and report.fates else ""),
            percent(one.share),
            f"{one.primary_accepted:,}",
            f"{one.backlog_accepted:,}",
            f"{one.failed:,}",
            DASH if one.refused is None else f"{one.refused:,}",
            seconds(one.blocked) if one.failed else DASH,
            seconds(one.longest_without),
            listed(f"{count:,} {one_line(kind, most=80)}" for kind, count in one.failures.items()) or DASH,
        )
        for one in report.callers
    )
    heads = (
        "entities", "attempts accepted", "by the primary", "by the backlog", "attempts failed", "messages refused",
        "refused or slow", "longest without an accepted send", "failures by kind",
    )  # fmt: skip
    yield Grid(heads, rows, right=frozenset({1, 2, 3, 4, 5}))
    yield Paragraph(
        "Refused or slow: from a failed attempt to the next accepted send, summed up for the worst entity at one "
        "engine. Attempts are those on either route; one message may take several."
    )
    yield Figures(tuple(panel.name for panel in report.curves.panels if panel.name.startswith("sends")))


def _parked(report: Report) -> Iterator[Block]:
    if report.dwell:
        yield Grid(
            ("entities", "parked", "home again", "half within", "95 of 100 within", "all within"),
            tuple(
                (few(one.entities, 12), f"{one.parked:,}", f"{one.home:,}", seconds(one.middle), seconds(one.most),
                 seconds(one.longest))
                for one in report.dwell
            ),
            right=frozenset({1, 2}),
        )  # fmt: skip
    names = tuple(panel.name for panel in report.curves.panels if not panel.name.startswith("sends"))
    if names:
        yield Figures(names)


def _verdict(report: Report) -> Iterator[Block]:
    judgement = report.judgement
    yield Paragraph(Strong(sentences.verdict(judgement)))
    told = tuple(sentences.evidence(judgement))
    if told:
        yield Bullets(told)
    if judgement.incident or judgement.recorded:
        yield Grid(
            ("messages", "of this incident" if report.fates else "of this time", "of all that is recorded"),
            tuple(_figures(report)),
            right=frozenset({1, 2}),
        )
    more = (*map(sentences.finding_sentence, judgement.findings), *sentences.explanations(judgement))
    if more:
        yield Bullets(more)
    yield from _engines(report.engines, Clock(report.since, report.until))


def _figures(report: Report) -> Iterator[tuple[str, str, str]]:
    incident, recorded = report.judgement.incident, report.judgement.recorded
    for name, mine, whole in FIGURES:
        here = _delivered(incident) if mine == "delivered" else incident.get(mine or "messages", 0)
        there = recorded.get(whole, 0) if whole is not None else None
        if here or there or name in ("lost", "missing", "unknown"):
            yield name, f"{here:,}" if incident else DASH, DASH if there is None else f"{there:,}"


def _delivered(incident: dict[str, int]) -> int:
    """Return the messages that arrived; without receivers' receipts a direct message is at most accepted."""
    return incident.get("delivered", 0) + (incident.get("accepted_only", 0))


def _engines(engines: tuple[EngineBoot, ...], clock: Clock) -> Iterator[Block]:
    if not engines:
        return
    shown = sorted(engines, key=lambda one: one.missing == 0)[:MAX_ENGINES]
    yield Grid(
        ("engine", "started", "last record", "records", "missing", "complete to", "how it ended"),
        tuple(
            (one_line(one.engine, most=80), clock(one.started_at), clock(one.last_at), f"{one.records:,}",
             f"{one.missing:,}", clock(one.complete_to), _ending(one))
            for one in shown
        ),
        right=frozenset({3, 4}),
    )  # fmt: skip
    if len(engines) > len(shown):
        yield Paragraph(f"{len(engines) - len(shown):,} more starts of engines have complete journals or more gaps.")


def _ending(one: EngineBoot) -> str:
    reason = f": {one_line(one.end_reason, most=160)}" if one.end_reason else ""
    return f"{one.ended or 'unknown'}{reason}"


def _cost(report: Report, price: Price | None) -> Iterator[Block]:
    cost = report.cost
    if not cost.causes:
        return
    total = cost.operations
    money = "" if price is None else f", {price.of(total):,.4f} {price.currency}"
    size = sum(one.bytes for one in cost.causes)
    yield Paragraph((Strong(f"{total:,} billed operations and {size / 1e6:,.1f} MB{money}"), _base(report)))
    rows = tuple(
        (one.cause, f"{one.operations:,}", f"{one.caused:,}", f"{one.bytes / 1e6:,.1f}",
         DASH if price is None else f"{price.of(one.caused):,.4f}")
        for one in cost.causes
    )  # fmt: skip
    heads = ("cause", "operations in these minutes", "beyond the usual rate", "MB beyond", _money(price))
    if report.fates:
        yield Grid(heads, rows, right=frozenset({1, 2, 3, 4}))
    else:
        yield Grid(("cause", "operations", "MB", _money(price)), tuple((*row[:2], *row[3:]) for row in rows),
                   right=frozenset({1, 2, 3}))  # fmt: skip
    if price is None:
        yield Paragraph("The price of a million operations is not set: set it in console.toml, under prices.")


def _money(price: Price | None) -> str:
    return "price" if price is None else price.currency


def _base(report: Report) -> str:
    cost = report.cost
    length = f" in {plural(cost.minutes, 'minute')}"
    if not report.fates:
        return f"{length}."
    if not cost.base_minutes:
        return f"{length}. Nothing is recorded before, so the usual rate is unknown and nothing is subtracted."
    return (
        f"{length}, beyond the rate of the {plural(cost.base_minutes, 'minute')} before. Sends to the primary are not "
        "counted as caused: the application makes them anyway."
    )


def _acts(report: Report) -> Iterator[Block]:
    if not report.acts:
        yield Paragraph("No operator gave an order.")
        return
    clock = Clock(report.since, report.until)
    yield Grid(
        ("when", "who", "order", "on", "engines", "why", "outcome"),
        tuple(_act(act, clock) for act in report.acts[:MAX_ENTRIES]),
    )
    if len(report.acts) > MAX_ENTRIES:
        yield Paragraph(f"and {len(report.acts) - MAX_ENTRIES:,} more")


def _act(act: Act, clock: Clock) -> tuple[str, ...]:
    outcomes = [
        (f"{count:,} × " if len(act.outcomes) > 1 else "") + one_line(outcome, most=160)
        for outcome, count in act.outcomes.items()
    ]
    targets = tuple(target or "everything" for target in act.targets)
    return (
        clock(act.at), one_line(act.by, most=80), one_line(act.what, most=80), few(targets, 8), few(act.engines, 4),
        one_line(act.why, most=300) or DASH, "; ".join(outcomes),
    )  # fmt: skip


def _timeline(report: Report) -> Iterator[Block]:
    clock = Clock(report.since, report.until)
    shown = report.timeline[:MAX_ENTRIES]
    several = len({engine for entry in report.timeline for engine in entry.engines})
    if not shown:
        yield Paragraph("Nothing happened.")
        return
    yield Bullets(tuple(_entry(entry, clock, several if several > 1 else 0) for entry in shown))
    if len(report.timeline) > MAX_ENTRIES:
        yield Paragraph(f"and {len(report.timeline) - MAX_ENTRIES:,} more lines; --format json has them")


def _entry(entry: TimelineEntry, clock: Clock, engines_of: int) -> Text:
    about: Iterable[str | Strong] = (Strong(few(entry.about)), " ") if entry.about else ()
    engines = (
        ""
        if not engines_of
        else f" – at all {len(entry.engines)} engines"
        if len(entry.engines) == engines_of
        else f" – at {few(entry.engines, 3)}"
    )
    until = f"–{clock(entry.until)}" if clock(entry.until) != clock(entry.at) else ""
    spread = max(1, len(entry.about)) * len(entry.engines)
    again = f" ({entry.times:,} times)" if entry.times > spread else ""
    return (f"{clock(entry.at)}{until}  ", *about, f"{entry.text}{again}{engines}")


def _unknowns(report: Report) -> Iterator[Block]:
    if report.unknowns:
        yield Bullets(report.unknowns)

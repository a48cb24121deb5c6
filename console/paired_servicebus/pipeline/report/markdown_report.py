"""A report in words: Markdown that also reads well in a terminal. All times are UTC.

Foreign text is escaped, so that it is no heading, link, picture, tag or table. Text that reads the same without an
escape is kept: order_events has no backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from math import isfinite
from typing import Any, Final

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import day_and_clock, is_possible, written
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.incident import Audit, Cost, IncidentEpisode, Report
from paired_servicebus.pipeline.table_store.audit_sql import IN_FLIGHT

MOMENTS: Final = 200
"""Lines of the timeline that are shown; the rest is counted."""
VERDICTS: Final = {
    "nothing lost": "Nothing was lost",
    "messages lost": "MESSAGES WERE LOST, or it is not known where they are",
    "not judged": "Whether anything was lost is not judged yet",
}


def as_markdown(report: Report, *, price: Price | None = None, plots: Mapping[str, str] | None = None) -> str:
    """Return the whole report.

    Args:
        price: of a million operations; None if unknown.
        plots: titles and their picture files.
    """
    report = _plain(report)
    parts = [
        [f"# {headline(report)}", "", as_of(report)],
        ["## In short", "", *(f"- {sentence}" for sentence in sentences(report))],
        _episodes(report),
        _availability(report),
        _dwell(report),
        _audit(report.audit),
        _acts(report),
        _cost(report, price),
        _plots(plots or {}),
        _timeline(report),
        _warnings(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def headline(report: Report) -> str:
    """Return the subject of the report as one line."""
    if not report.entities:
        return f"Report: nothing failed over between {day_and_clock(report.since)} and {clock(report.until)} UTC"
    began = min(one.began_at for one in report.episodes)
    still = " and not over" if any(one.open for one in report.episodes) else ""
    return f"Incident of {day_and_clock(began)} UTC{still}: {listed(report.entities)} failed over"


def as_of(report: Report) -> str:
    """Which tables it is from."""
    written = day_and_clock(report.written_at)
    return f"As of batch {report.batch:,}, written {written}; read at {clock(report.read_at)} UTC."


def sentences(report: Report) -> Iterator[str]:
    """Return the whole story, a sentence or two for each thing in it."""
    for entity in report.entities:
        yield _story(entity, [one for one in report.episodes if one.entity == entity])
    if report.recovered:
        yield f"Suspect {_times(report.recovered)} without failing over: a send succeeded in time."
    yield verdict(report.audit)
    if report.acts:
        yield f"Operators acted {_times(len(report.acts))}: {listed(sorted({act.by for act in report.acts}))}."


def _story(entity: str, episodes: Sequence[IncidentEpisode]) -> str:
    first, last = episodes[0], episodes[-1]
    parked = sum(one.parked for one in episodes)
    times = "" if len(episodes) == 1 else f", the first of {len(episodes)} times"
    cause = "forced by an operator" if first.forced else first.cause
    since = f", {seconds(first.to_divert)} after the first failure" if first.to_divert is not None else ""
    return (
        f"**{entity}** failed over at {clock(first.failed_over_at or first.began_at)}{since} ({cause}){times}; "
        f"{_return(last)}. "
        f"{parked:,} messages were parked."
    )


def _return(last: IncidentEpisode) -> str:
    if last.failed_back_at is None:
        return "it has not come back yet" if last.open else f"how it ended: {last.outcome}"
    drained = f", its backlog empty at {clock(last.backlog_empty_at)}" if last.backlog_empty_at else ""
    return f"back on the primary at {clock(last.failed_back_at)}{drained}"


def verdict(audit: Audit) -> str:
    """Return the audit in a sentence."""
    figures = audit.figures
    if not figures:
        return f"{VERDICTS[audit.verdict]}: {audit.evidence[0]}."
    on_the_way = f"{figures['in_flight']:,} in flight ({in_flight(audit)}), " if figures["in_flight"] else ""
    so_far = " so far" if on_the_way and audit.verdict == "nothing lost" else ""
    return (
        f"**{VERDICTS[audit.verdict]}{so_far}** in all that is recorded: {figures['accepted']:,} accepted, "
        f"{figures['delivered']:,} delivered, {figures['parked']:,} parked, "
        f"{figures['dead_lettered']:,} dead-lettered, {on_the_way}{figures['lost']:,} lost, "
        f"{figures['unexpected']:,} unexpected; {figures['duplicates']:,} duplicates, "
        f"{figures['out_of_order']:,} out of order."
    )


def in_flight(audit: Audit) -> str:
    """How long messages that no receiver reported have been on their way, and for how long they may be."""
    return f"not received yet, the oldest for {seconds(audit.in_flight_age)}; lost after {seconds(IN_FLIGHT)}"


# -- tables --------------------------------------------------------------------------------------------------------


def _episodes(report: Report) -> list[str]:
    if not report.episodes:
        return []
    heads = (
        "entity", "first failure", "failed over", "first ping accepted", "failed back", "backlog empty",
        "to detect", "to divert", "to recover", "to drain", "pings",
    )  # fmt: skip
    rows = [
        (
            one.entity,
            clock(one.suspected_at),
            clock(one.failed_over_at),
            clock(one.first_ping_at),
            clock(one.failed_back_at),
            clock(one.backlog_empty_at),
            f"≤ {seconds(one.to_detect)}" if one.to_detect is not None else "–",
            seconds(one.to_divert),
            seconds(one.to_recover),
            seconds(one.to_drain),
            f"{one.pings:,}",
        )
        for one in report.episodes
    ]
    note = (
        "To detect: from the last good send to the first failure. To divert: to the failover. To recover: to the "
        "failback. To drain: to an empty backlog."
    )
    return ["## Failovers", "", *table(heads, rows), "", note]


def _availability(report: Report) -> list[str]:
    if not report.availability:
        return []
    rows = [
        (
            one.entity,
            percent(one.share),
            percent(one.primary_share),
            f"{one.failed:,}",
            listed(f"{count:,} {kind}" for kind, count in one.failures.items()) or "–",
            seconds(one.longest_without),
        )
        for one in report.availability
    ]
    heads = ("entity", "attempts accepted", "by the primary", "failed", "why", "longest without an accepted send")
    return [f"## What senders met, {clock(report.since)} to {clock(report.until)}", "", *table(heads, rows)]


def _dwell(report: Report) -> list[str]:
    if not report.dwell:
        return []
    rows = [
        (
            one.entity,
            f"{one.parked:,}",
            f"{one.home:,}",
            seconds(one.middle),
            seconds(one.most),
            seconds(one.longest),
        )
        for one in report.dwell
    ]
    heads = ("entity", "parked", "home again", "half within", "95 of 100 within", "all within")
    return ["## Parked messages", "", *table(heads, rows)]


def _audit(audit: Audit) -> list[str]:
    return ["## Audit", "", verdict(audit), "", *(f"- {sentence}" for sentence in audit.evidence)]


def _acts(report: Report) -> list[str]:
    if not report.acts:
        return ["## What operators did", "", "Nothing."]
    rows = [(clock(act.at), act.by, act.what, act.target or "all", act.why or "–", act.outcome) for act in report.acts]
    return ["## What operators did", "", *table(("when", "who", "what", "on what", "why", "outcome"), rows)]


def _cost(report: Report, price: Price | None) -> list[str]:
    if not report.cost:
        return []
    whole = Cost(
        cause="all",
        operations=sum(one.operations for one in report.cost),
        bytes=sum(one.bytes for one in report.cost),
    )
    rows = [
        (one.cause, f"{one.operations:,}", f"{one.bytes / 1e6:,.1f}", _price(one.operations, price))
        for one in (*report.cost, whole)
    ]
    heads = ("cause", "billed operations", "MB", f"{price.currency}" if price else "price")
    note = "" if price else "The price of a million operations is not set: it stands in console.toml, under prices."
    return ["## Cost, in whole minutes", "", *table(heads, rows), *(("", note) if note else ())]


def _price(operations: int, price: Price | None) -> str:
    return "–" if price is None else f"{price.of(operations):,.4f}"


def _plots(plots: Mapping[str, str]) -> list[str]:
    if not plots:
        return []
    return ["## Plots", "", *(f"![{plain(title)}]({file})" for title, file in plots.items())]


def _timeline(report: Report) -> list[str]:
    shown = report.timeline[:MOMENTS]
    lines = [f"- {clock(one.at, exact=True)}  {f'**{one.about}** ' if one.about else ''}{one.text}" for one in shown]
    if len(report.timeline) > MOMENTS:
        lines.append(f"- and {len(report.timeline) - MOMENTS:,} more")
    return ["## Timeline", "", *(lines or ["Nothing happened."])]


def _warnings(report: Report) -> list[str]:
    if not report.warnings:
        return []
    return ["## What the tables cannot tell", "", *(f"- {sentence}" for sentence in report.warnings)]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table, its columns aligned for a terminal."""
    safe = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in [list(heads), *safe]) for index in range(len(heads))]
    lines = [_line(heads, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    return lines + [_line(row, widths) for row in safe]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


# -- words ---------------------------------------------------------------------------------------------------------


def clock(at: float | None, *, exact: bool = False) -> str:
    """HH:MM:SS, to the millisecond where that is wanted."""
    if at is None:
        return "–"
    return written(at, "%H:%M:%S.%f")[:-3] if exact and is_possible(at) else written(at, "%H:%M:%S")


def seconds(value: float | None) -> str:
    """Return a duration: tenths below a minute, whole minutes above."""
    if value is None or not isfinite(value):
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def percent(share: float | None) -> str:
    """Never rounded up to all."""
    if share is None:
        return "–"
    return "100 %" if share >= 1.0 else f"{min(share, 0.9999):.2%}".replace("%", " %")


def listed(words: Iterable[str]) -> str:
    """Join words as in "a, b and c"."""
    found = list(words)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


LONGEST: Final = 1000
"""Characters of one text."""
_SIGNS: Final = re.compile(
    r"[\\`*\[\]#~$]"  # emphasis, code, links and pictures, headings, struck out, formulas
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis again, but not within a word
    r"|^[-+=>](?=\s|$)|(?<=^\d)[.)]|(?<=^\d\d)[.)]"  # lists and quotations, at the beginning alone
    r"|:(?=//)|(?<=\bwww)\."  # what is made a link without being asked
)
_TAGS: Final = re.compile(r"[<>]|&(?=#?\w+;)")
_NAMED: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(text: str) -> str:
    """Give a text as Markdown that shows it. The pipes of a table are escaped by the table."""
    line = _SIGNS.sub(r"\\\g<0>", one_line(masked(text), most=LONGEST))
    return _TAGS.sub(lambda sign: _NAMED[sign.group()], line)


def _plain(value: Any) -> Any:
    """Give a value with every text in it as Markdown that shows it."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, tuple):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dict):
        return {_plain(name) if isinstance(name, str) else name: _plain(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _plain(getattr(value, field.name)) for field in fields(value)})
    return value

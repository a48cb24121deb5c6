"""`paired report`: reads the tables, and prints the report or writes it into a folder, with the lost messages' ids."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from html import unescape
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.fleet_view import engines_away
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import plural, size
from paired_servicebus.core.text.untrusted_text import escape_json, one_line, repeated
from paired_servicebus.pipeline.report import sentences
from paired_servicebus.pipeline.report import verdict as verdicts
from paired_servicebus.pipeline.report.plots import draw_twice
from paired_servicebus.pipeline.report.report_queries import Choice, last_report, report_of, report_since, scope_of
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.report.sentences import Clock
from paired_servicebus.pipeline.report.table_queries import lost_messages, read_pairings
from paired_servicebus.pipeline.table_commands import aligned, csv_lines
from paired_servicebus.pipeline.table_store.table_reader import TableQueries
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.settings import seconds_of

SUFFIXES: Final[dict[Format, str]] = {"text": "txt", "html": "html", "json": "json"}
ID_FILES: Final = {
    "lost-messages.csv": (("lost", "missing", "expired"), "every message that is lost, missing or expired, by its id"),
    "unknown-messages.csv": (("unknown", "unexpected"), "every message of an unknown fate, by its id"),
}
"""The files beside a report: the fates of their messages, and a description. One without messages is not written."""


def report_from(
    tables: TableQueries,
    *,
    choose: Choice,
    wording: Wording,
    out: Path | None,
    environments: Mapping[str, str] = MappingProxyType({}),
    expected: Sequence[str] = (),
) -> int:
    """Print the report of the tables, or write it into `out` and print where.

    Args:
        environments: of pairings, as pairing.toml names them; no journal has them.
        expected: engines whose journals the pairing has, as pairing.toml names them.

    Raises PairedError: nothing of that kind is in the tables, or `out` cannot be written.
    """
    report = choose(tables)
    known = [environments[name] for name in report.pairings if environments.get(name)]
    here = [name for names in read_pairings(tables).values() for name in names]
    judgement = verdicts.without_engines(report.judgement, engines_away(expected, here))
    report = replace(report, environment=verdicts.listed(known), judgement=judgement)
    if out is not None:
        print_lines([str(write_report(tables, report, out, wording))])
    elif wording.format == "json":
        print_object(as_object(report))
    else:
        print_lines(as_text(report, wording).splitlines())
    return 0


def write_report(tables: TableQueries, report: Report, out: Path, wording: Wording) -> Path:
    """Write the report to `out`, and beside it the ids of messages that are lost or unknown; return its path.

    Raises ConfigurationError: it cannot be written there.
    """
    files = {}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, (statuses, description) in ID_FILES.items():
            rows = lost_messages(scope_of(tables, report), statuses)
            if rows:
                lines = csv_lines(list(rows[0]), (tuple(row.values()) for row in rows))
                (out / name).write_text("".join(lines), "utf-8")
                files[name] = description
            else:
                (out / name).unlink(missing_ok=True)
        path = out / f"report-{wording.reader}.{SUFFIXES[wording.format]}"
        path.write_text(as_text(report, wording, files=files), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"the report cannot be written to {out}: {error.strerror or error}") from error
    return path


def as_text(report: Report, wording: Wording, *, files: Mapping[str, str] | None = None) -> str:
    """Return the report in its format. files: those beside it, each with a description."""
    if wording.format == "json":
        return as_object(report) + "\n"
    return rendered(report, wording, files or {})


def as_object(report: Report) -> str:
    """One JSON object: headline, impact and verdict in words, and the report's values by their names."""
    verdict = verdicts.verdict_sentence(report.judgement)
    words = {
        "headline": f"{sentences.headline(report)}. {verdict}",
        "impact": list(sentences.impact(report)),
        "verdict": verdict,
    }
    return escape_json(masked(msgspec.json.encode({**words, **msgspec.to_builtins(report)}).decode()))


def reader_zone(name: str) -> tzinfo | None:
    """Return the zone of a name such as Europe/Berlin; empty: None, this machine's.

    Raises ConfigurationError: no such zone is known here.
    """
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:  # of a folder, of a path, and of an unknown name
        raise ConfigurationError(f"--zone is {repeated(name)!r}, a zone that this machine does not know") from error


def chooser(*, episode: str | None = None, since: str | None = None, pairing: str | None = None) -> Choice:
    """Return the function that makes the chosen report; the latest incident's without a choice.

    Raises ConfigurationError: the choices exclude each other, or a time cannot be read.
    """
    if episode is not None and since is not None:
        raise ConfigurationError("--episode and --since are two reports: give one of them at a time")
    if episode is not None and pairing is not None:
        raise ConfigurationError("--episode names its pairing already: leave --pairing out")
    if episode is not None:
        return lambda tables: report_of(tables, episode)
    if since is not None:
        at = moment(since)
        return lambda tables: report_since(tables, at, pairing=pairing)
    return lambda tables: last_report(tables, pairing=pairing)


def moment(text: str, *, now: float | None = None) -> float:
    """Return a written time as seconds since the epoch: "2h" ago, or a date and time, by default UTC.

    Raises ConfigurationError: it is neither.
    """
    ago = seconds_of(text)
    if ago is not None:
        return (time.time() if now is None else now) - ago
    try:
        found = datetime.fromisoformat(re.sub(r"\s*UTC$", "", text.strip()))
    except ValueError as error:
        raise ConfigurationError(f'--since is {text!r}; it is "2h", or a time such as "2026-11-21 08:30"') from error
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


# Renders a report by its templates: for the boss, for customers or for engineers; as a page, or for a terminal.
#
# A reader's template (boss, customers, engineers) has the words and the order, and names blocks such as `block.table`.
# The blocks are macros of page.html or page.txt. All that a template prints is one harmless, masked line; only macros
# and plots are markup.

Reader = Literal["boss", "customers", "engineers"]
Format = Literal["text", "html", "json"]
LONGEST: Final = 4000
"""Characters of one text."""
WIDTH: Final = 110
"""Columns of a terminal; a wider table has a line for each cell."""
FACT: Final = 22
"""Columns of a fact's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The readers, the format and the zone of a report."""

    reader: Reader = "engineers"
    format: Format = "text"
    zone: tzinfo | None = UTC
    """Of the times in brackets; None: this machine's."""
    price: Price | None = None
    """Of a million operations; None: unknown."""


def rendered(report: Report, wording: Wording, files: Mapping[str, str]) -> str:
    """Return the whole report as text. files: those beside it, each with a description."""
    template = _ENVIRONMENT.get_template(f"{wording.reader}.jinja")
    is_page, curves = wording.format == "html", report.curves
    plots = {panel.name: tuple(map(Markup, draw_twice(curves, panel))) for panel in curves.panels if is_page}
    text = template.render(
        report=report,
        clock=Clock(report.since, report.until, wording.zone),
        price=wording.price,
        files=tuple(files.items()),
        lead=verdicts.LEADS.get(report.judgement.verdict, ""),
        skeleton="page.html" if is_page else "page.txt",
        words=sentences,
        verdict=verdicts.verdict_headline(report.judgement),
        grounds=" ".join(verdicts.verdict_grounds(report.judgement)),
        tone=verdicts.TONES.get(report.judgement.verdict, "doubt"),
        counts=verdicts.count_rows(report.judgement),
        plots=plots,
    )
    if is_page:
        return text
    return re.sub(r"\n{3,}", "\n\n", unescape(text)).strip() + "\n"  # each text was escaped once, and no more


def plain(value: object) -> object:
    """Return a printed value of a template: markup as it is, a number with thousands, a text as one masked line."""
    if isinstance(value, Markup):
        return value
    if value is None or value == "":
        return sentences.DASH
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(masked(str(value)), most=LONGEST)


# Blocks of a terminal: text tables and wrapped paragraphs.


def text_table(heads: Sequence[object], rows: Sequence[Sequence[object]]) -> Markup:
    """Return a table in aligned columns; one wider than WIDTH as a list of names and values for each row."""
    cells = [[str(plain(cell)) for cell in row] for row in (heads, *rows)]
    lines = aligned(cells, [all(isinstance(row[place], int | None) for row in rows) for place in range(len(heads))])
    if max(map(len, lines)) <= WIDTH:
        return Markup.escape("\n".join(lines))
    most = max(map(len, cells[0]))
    blocks = ([_named(*pair, most) for pair in zip(cells[0], row, strict=True)] for row in cells[1:])
    return Markup.escape("\n\n".join("\n".join(block) for block in blocks))


def _named(name: str, cell: str, most: int) -> str:
    return textwrap.fill(f"{name.ljust(most)}  {cell}", WIDTH, subsequent_indent=" " * (most + 2))


def fact(name: object, value: object) -> Markup:
    """Return a name and its value, in lines of at most WIDTH."""
    return Markup.escape(_named(str(plain(name)), str(plain(value)), FACT))


def wrapped(text: object, *, indent: str = "") -> Markup:
    """Return a paragraph in lines of at most WIDTH; all but the first are indented."""
    return Markup.escape(textwrap.fill(str(plain(text)), WIDTH, subsequent_indent=indent, break_on_hyphens=False))


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("paired_servicebus.pipeline.report"),
        extensions=["jinja2.ext.do"],
        autoescape=True,  # for a terminal, too: results of macros are markup, and all else is plain text
        finalize=plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "few": sentences.few, "duration": sentences.duration,
        "percent": sentences.percent, "size": size, "plural": plural, "wrapped": wrapped,
        "finding": sentences.finding_sentence,
    }  # fmt: skip
    made.filters |= filters
    made.globals |= {"text_table": text_table, "fact": fact, "is_number": lambda cell: isinstance(cell, int)}
    return made


_ENVIRONMENT: Final = _environment()

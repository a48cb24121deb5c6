"""`paired report`: reads the tables, and prints the report or writes it into a folder with its plots."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import escape_json
from paired_servicebus.pipeline.report import sentences
from paired_servicebus.pipeline.report.queries.table_source import TableSource
from paired_servicebus.pipeline.report.render.document import as_html, as_markdown
from paired_servicebus.pipeline.report.render.svg_plots import page_plots, plot_files
from paired_servicebus.pipeline.report.report_document import document_of
from paired_servicebus.pipeline.report.report_queries import Choice, last_report, report_of, report_since
from paired_servicebus.pipeline.report.report_values import Report
from paired_servicebus.pipeline.report.sentences import listed
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.settings import seconds_of

Format = Literal["md", "html", "json"]
FILES: Final[dict[Format, str]] = {"md": "report.md", "html": "report.html", "json": "report.json"}


def report_from(
    tables: TableSource,
    *,
    choose: Choice,
    format_: Format,
    out: Path | None,
    price: Price | None,
    environments: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Print the report of the tables, or write it into `out` and print where.

    Args:
        environments: of pairings, as pairing.toml names them; no journal has them.

    Raises PairedError: nothing of that kind is in the tables, or `out` cannot be written.
    """
    report = choose(tables)
    known = [environments[name] for name in report.pairings if environments.get(name)]
    report = replace(report, environment=listed(known))
    if out is not None:
        print_lines([str(write_report(report, out, format_=format_, price=price))])
    elif format_ == "json":
        print_object(as_object(report))
    else:
        print_lines(as_text(report, format_, price=price).splitlines())
    return 0


def write_report(report: Report, out: Path, *, format_: Format = "md", price: Price | None = None) -> Path:
    """Write the report to `out`, Markdown with its plots beside it; return the report's path.

    Raises ConfigurationError: it cannot be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if format_ == "md":
            for _, name, text in plot_files(report).values():
                (out / name).write_text(text, "utf-8")
        path = out / FILES[format_]
        path.write_text(as_text(report, format_, price=price, with_files=True), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"the report cannot be written to {out}: {error.strerror or error}") from error
    return path


def as_text(report: Report, format_: Format, *, price: Price | None = None, with_files: bool = False) -> str:
    """Return the report in a format. `with_files`: the plots' files are beside the Markdown."""
    if format_ == "json":
        return as_object(report) + "\n"
    document = document_of(report, price=price)
    if format_ == "html":
        return as_html(document, page_plots(report))
    plots = {panel.name: (panel.title, f"{panel.name}.svg") for panel in report.curves.panels} if with_files else {}
    return as_markdown(document, plots=plots)


def as_object(report: Report) -> str:
    """One JSON object: headline, impact and verdict in words, and the report's values by their names."""
    values = msgspec.to_builtins(report)
    words = {
        "headline": sentences.headline(report),
        "impact": list(sentences.impact(report)),
        "verdict": sentences.verdict(report.judgement),
    }
    return escape_json(masked(msgspec.json.encode({**words, **values}).decode()))


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

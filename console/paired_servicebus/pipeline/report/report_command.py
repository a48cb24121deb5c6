"""`paired report`: reads the tables, and prints the report or writes it with its plots into a folder."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import escape_json
from paired_servicebus.pipeline.report.incident import Report
from paired_servicebus.pipeline.report.markdown_report import as_markdown
from paired_servicebus.pipeline.report.report_queries import last_report, report_of, report_since
from paired_servicebus.pipeline.report.svg_plots import plots_of
from paired_servicebus.pipeline.table_store.table_reader import Tables
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.settings import seconds_of

Format = Literal["md", "json"]
REPORT: Final = "report.md"
OBJECT: Final = "report.json"


def run_report(
    folder: Path, *, choose: Callable[[Tables], Report], format_: Format, out: Path | None, price: Price | None
) -> int:
    """Print a report, or write it into `out` and print where.

    Raises PairedError: there are no tables, nothing of that kind in them, or `out` cannot be written.
    """
    with Tables.open(folder) as tables:
        report = choose(tables)
    if out is not None:
        print_lines([str(write_report(report, out, format_=format_, price=price))])
    elif format_ == "json":
        print_object(as_object(report))
    else:
        print_lines(as_markdown(report, price=price).splitlines())
    return 0


def write_report(report: Report, out: Path, *, format_: Format = "md", price: Price | None = None) -> Path:
    """Write the report and its plots to `out`; return the report's path.

    Raises ConfigurationError: they cannot be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        plots = plots_of(report)
        for name, text in plots.values():
            (out / name).write_text(text)
        path = out / (REPORT if format_ == "md" else OBJECT)
        names = {title: name for title, (name, _) in plots.items()}
        text = as_markdown(report, price=price, plots=names) if format_ == "md" else as_object(report) + "\n"
        path.write_text(text)
    except OSError as error:
        raise ConfigurationError(f"the report cannot be written to {out}: {error.strerror or error}") from error
    return path


def as_object(report: Report) -> str:
    """One JSON object: the report's values by their names."""
    return escape_json(masked(msgspec.json.encode(report).decode()))


def chooser(*, episode: str | None = None, since: str | None = None) -> Callable[[Tables], Report]:
    """Which report is asked for; the latest incident's where nothing is.

    Raises ConfigurationError: both, or a time that cannot be read.
    """
    if episode is not None and since is not None:
        raise ConfigurationError("--episode and --since are two reports: give one of them at a time")
    if episode is not None:
        return lambda tables: report_of(tables, episode)
    if since is not None:
        at = moment(since)
        return lambda tables: report_since(tables, at)
    return last_report


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

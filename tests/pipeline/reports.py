"""A report of the tables in a folder, as `paired report` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paired_servicebus.pipeline.report.report_command import report_from
from paired_servicebus.pipeline.table_store.table_reader import Tables


def run_report(folder: Path, **options: Any) -> int:
    """Print the report of the tables in `folder`, or write it into `out` and print where."""
    with Tables.open(folder) as tables:
        return report_from(tables, **options)

"""The pipeline's result for a demo: the audit and the incident report.

Spark makes the audit from the engines' journals with the receivers' receipts. The demo's verdict comes from the
application's own lists. Both must agree. Without Spark or Java, or if they fail, duckdb makes the
audit, and the demo gives the reason.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.demo.result import DemoResult, JournalAudit, differs
from paired_servicebus.demo.scenarios import UNNUMBERED
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.report.report_command import Wording, write_report
from paired_servicebus.pipeline.report.report_queries import report_since
from paired_servicebus.pipeline.spark_processes import PipelineOrder, start_pipeline
from paired_servicebus.pipeline.table_store.table_reader import Tables

TABLES_TIMEOUT: Final = 300.0
"""Seconds that the last tables may take; they take some ten on a machine with nothing else to do."""
SPARK: Final = "Spark"
FUNCTIONS: Final = "duckdb"
REPORT_FOLDER: Final = "demo"
NOT_INSTALLED: Final = (
    "Spark is not installed: pip install '.[spark]' (in a clone of this repository) installs it, with a Java"
)


def is_installed() -> bool:
    """Whether Spark is."""
    return find_spec("pyspark") is not None


def judged(result: DemoResult, order: PlayRequest, keep: Path | None = None) -> DemoResult:
    """Return the result with the audit of the journals and the report's path, or with the reason why there is none.

    The engine and a pipeline that followed it have ended. Ctrl-C leaves it at that. Journals, tables and report go to
    `keep`.
    """
    try:
        by, tables = _tables(order)
        with tables:
            audit = _audit(tables, by, numbered=result.scenario not in UNNUMBERED)
            report = write_report(tables, report_since(tables, 0.0), keep or _place(result), Wording(zone=None))
            kept = _kept(tables, order, keep) if keep is not None else None
    except PairedError as error:
        return _skipped(result, str(error))
    except OSError as error:
        return _skipped(result, f"{keep} cannot be written: {error.strerror or error}")
    except KeyboardInterrupt:
        return _skipped(result, "interrupted")
    return msgspec.structs.replace(
        result, audit=audit, report=str(report), kept=kept, broken=[*result.broken, *differs(audit, result.messages)]
    )


def _kept(tables: Tables | JournalTables, order: PlayRequest, keep: Path) -> str:
    """Copy the journals to `keep`, and the tables beside them; return the folder. Raises OSError."""
    for journal in order.journals:
        shutil.copytree(journal, keep / "journals" / journal.name, dirs_exist_ok=True)
    if isinstance(tables, Tables):
        shutil.copytree(
            order.tables, keep / "tables", symlinks=True, ignore=shutil.ignore_patterns("logs", "work", "staging")
        )
    else:
        tables.store(keep / "tables")
    return str(keep)


def _tables(order: PlayRequest) -> tuple[str, Tables | JournalTables]:
    """Return the maker of the tables, for a person, and the tables. Raises PairedError: there are none."""
    reason = NOT_INSTALLED
    if is_installed():
        try:
            make_tables(order)
            return SPARK, Tables.open(order.tables)
        except PairedError as error:
            reason = str(error)
    return f"{FUNCTIONS} ({reason})", JournalTables.open(order.journals)


def make_tables(order: PlayRequest) -> None:
    """Has the pipeline make all tables of the demo's journal. Raises PairedError: it could not."""
    pipeline = start_pipeline(PipelineOrder(journals=order.journals, tables=order.tables, once=True))
    try:
        status = pipeline.wait(TABLES_TIMEOUT)
    finally:
        pipeline.stop(within=0.0)  # tables that are not whole are nobody's
    if status is None:
        raise PairedError(f"the pipeline did not end within {TABLES_TIMEOUT:g} s")
    if status != 0:
        raise PairedError(pipeline.trouble() or f"the pipeline ended with status {status}")


def _audit(tables: Tables | JournalTables, by: str, *, numbered: bool) -> JournalAudit:
    found = tables.verdict()
    if found is None:
        raise PairedError("the tables hold no verdict")
    at_rest = ("lost", "missing", "unknown", "in_flight")  # nothing is on its way any more
    return JournalAudit(
        lost=sum(int(found[name]) for name in at_rest),
        unexpected=int(found["unexpected"]),
        duplicates=int(found["duplicates"]),
        out_of_order=int(found["out_of_order"]) if numbered else None,
        by=by,
    )


def _place(result: DemoResult) -> Path:
    """Where the report goes: outside of the demo's folder, which ends with it."""
    return engine_paths(REPORT_FOLDER).state / "reports" / f"{result.scenario}-{result.seed}"


def _skipped(result: DemoResult, reason: str) -> DemoResult:
    return msgspec.structs.replace(result, audit=JournalAudit(skipped=reason))

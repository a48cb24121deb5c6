"""Journals of a test's own events, and the tables that Spark makes of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.spark_processes import PipelineOrder, PipelineProcess, start_pipeline
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables

MINUTES_OF_SPARK = pytest.mark.skipif(
    not os.environ.get("PAIRED_SPARK"), reason="PAIRED_SPARK=1 runs what needs minutes of Spark"
)
"""Marks what needs Spark, except for the small part that every run has."""
LONG = 900.0
"""Seconds that a pipeline may take here."""


def write_file(path: Path, told: Sequence[Record]) -> Path:
    """Write a whole journal file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records.encode(record) + b"\n" for record in told))
    return path


def take_once(spark: Any, tables: Path, *roots: Path, files: int | None = None) -> None:
    """Make the tables of all files below the roots, as `--once` does; `files` is how many are in one batch."""
    from paired_servicebus.pipeline.ingest.batch_loop import BatchLoop
    from paired_servicebus.pipeline.table_store.lake import Lake

    with Lake(tables) as lake:
        BatchLoop(session_of(spark, files), lake, roots).once()


def session_of(spark: Any, files: int | None) -> Any:
    """A session whose batches have so many files."""
    from paired_servicebus.pipeline.ingest.batch_loop import FILES_SETTING

    session = spark.newSession()
    if files is not None:
        session.conf.set(FILES_SETTING, str(files))
    return session


def begin(*journals: Path, tables: Path, **how: Any) -> PipelineProcess:
    """Start a pipeline, which makes tables once by default."""
    return start_pipeline(PipelineOrder(journals=journals, tables=tables, **{"once": True, **how}))


def finish(pipeline: PipelineProcess) -> None:
    """Wait for the end of a pipeline that makes tables once."""
    try:
        assert pipeline.wait(LONG) == 0, pipeline.log.read_text()[-3000:]
    finally:
        pipeline.stop()


def rows_of(tables: Path, unsteady: Mapping[str, Sequence[str]] = {}) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, sorted. When they were judged is left out, and so are unsteady columns of tables.

    Fractions are rounded: sums depend on their order in the last digits.
    """
    found = {}
    with Tables.open(tables) as opened:
        for table in TABLES:
            left_out = {"judged_at", *unsteady.get(table, ())}
            rows = opened.rows(f"select * from {table}")
            found[table] = sorted((_steady(row, left_out) for row in rows), key=str)
    return found


def _steady(row: dict[str, Any], left_out: set[str]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in left_out}
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in kept.items()}


def below(pid: int) -> list[int]:
    """A process's descendants."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(stat.parent.name)
            found += [child, *below(child)]
    return found


def jvm_of(pid: int) -> list[int]:
    """The JVMs below a process."""
    return [child for child in below(pid) if _name(child) == "java"]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""

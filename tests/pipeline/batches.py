"""Journals of a test's own events, and the tables that Spark makes of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model.pairing_events import Event, Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables

MINUTES_OF_SPARK = pytest.mark.skipif(
    not os.environ.get("PAIRED_SPARK"), reason="PAIRED_SPARK=1 runs what needs minutes of Spark"
)
"""Marks what needs Spark, except for the small part that every run has."""
VIEWS = tuple(table for table in TABLES if table != "verdicts")


def numbered(events: Iterable[Event], *, engine: str = "e1", boot: str = "b1", first: int = 1) -> list[Record]:
    """Events of one boot as records."""
    return [Record(engine=engine, boot=boot, seq=seq, event=event) for seq, event in enumerate(events, start=first)]


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


def rows_of(tables: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, sorted. When they were judged is left out."""
    with Tables.open(tables) as opened:
        found = {view: sorted(opened.rows(f"select * from {view}"), key=str) for view in VIEWS}
        found["verdicts"] = sorted(opened.rows("select * exclude (judged_at) from verdicts"), key=str)
    return found

"""Journal lines as rows, by each of the two engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

from paired_servicebus.pipeline.ingest.journal_lines import load_events

NAME = "f.jsonl"
Row = dict[str, Any]


def duckdb_rows(folder: Path, lines: Sequence[bytes]) -> list[Row]:
    """Every column of every line, in order, as duckdb has it."""
    with _file(folder, lines) as path, duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'; set threads = 1")
        load_events(connection, [path])
        done = connection.execute("select * from events")
        names = [column[0] for column in done.description or ()]
        return [_plain(dict(zip(names, row, strict=True))) for row in done.fetchall()]


def spark_rows(spark: Any, folder: Path, lines: Sequence[bytes]) -> list[Row]:
    """The same, as Spark has it."""
    from paired_servicebus.pipeline.ingest.batch_tables import journal_events
    from paired_servicebus.pipeline.spark.spark_session import spark_path

    with _file(folder, lines) as path:
        read = spark.read.option("lineSep", "\n").text(spark_path(path))
        return [
            _plain(row)
            for row in journal_events(read.select("value", "_metadata.file_name")).drop("date").toArrow().to_pylist()
        ]


@contextmanager
def _file(folder: Path, lines: Sequence[bytes]) -> Iterator[Path]:
    path = folder / NAME
    path.write_bytes(b"\n".join(lines) + b"\n")
    try:
        yield path
    finally:
        path.unlink()


def _plain(row: Row) -> Row:
    return {name: _moment(value) for name, value in row.items() if value is not None}


def _moment(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value

"""Tables without Spark: events put into a Parquet file by duckdb, under a manifest, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import duckdb

from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.manifest import File, Manifest, RecordSpan
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables

ENGINE, BOOT = "e1", "b1"


def as_rows(events: Iterable[Event], *, engine: str = ENGINE, boot: str = BOOT) -> list[dict[str, Any]]:
    """Events as rows of the table `events`, numbered from 1."""
    return [
        {
            "v": 1, "engine": engine, "boot": boot, "seq": seq, "ts": round(event.at * 1e6), "kind": event.kind,
            **{field.name: getattr(event, field.name) for field in fields(event) if field.name != "at"},
        }
        for seq, event in enumerate(events, start=1)
    ]  # fmt: skip


def load(connection: duckdb.DuckDBPyConnection, name: str, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Rows as a table of duckdb's called `name`, with the columns of `table`."""
    columns = TABLES[table]
    listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    connection.execute(f"create table {name}({listed})")
    if rows:
        one = f"({', '.join('?' for _ in columns)})"
        values = [row.get(column) for row in rows for column in columns]
        connection.execute(f"insert into {name} values {', '.join([one] * len(rows))}", values)


def put(path: Path, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """A file of a table."""
    with duckdb.connect(config={"threads": 1}) as connection:
        load(connection, "rows", table, rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        connection.execute(f"copy rows to '{path}' (format parquet)")


def tables_of(folder: Path, events: Sequence[Event], **rows: Sequence[dict[str, Any]]) -> Tables:
    """Tables with these events, and rows of other tables by their names."""
    files: dict[str, tuple[File, ...]] = {}
    last = max((round(event.at * 1e6) for event in events), default=0)
    for table, found in {"events": as_rows(events), **rows}.items():
        put(folder / table / "b1.parquet", table, found)
        files[table] = (File("b1.parquet", len(found), last, 1),)
    seen = (RecordSpan(ENGINE, BOOT, 1, len(events)),) if events else ()
    manifests.write(folder, Manifest(batch=1, written_at=max(1.0, last / 1e6), files=files, seen=seen))
    return Tables.open(folder)

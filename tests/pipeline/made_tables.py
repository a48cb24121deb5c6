"""Tables without Spark: the same files from records in a test's hand, for whoever reads tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import duckdb

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.pipeline.table_store import audit_sql, manifest
from paired_servicebus.pipeline.table_store.manifest import File, Manifest, RecordSpan
from paired_servicebus.pipeline.table_store.schema import TABLES

WRITTEN_AT = 1_700_000_900.0
MICROSECONDS = 1_000_000
Row = Mapping[str, object]


def make_tables(
    folder: Path,
    records: Sequence[Record],
    *,
    episodes: Sequence[Row] = (),
    cost: Sequence[Row] = (),
    judged: bool = True,
    spans: Sequence[RecordSpan] = (),
) -> Path:
    """Tables of batch 7 in `folder`: events and audit from `records`, the others as given."""
    connection = duckdb.connect()
    _table(connection, "events", [_event(record) for record in records])
    _table(connection, "episodes", [{"version": 1, **row} for row in episodes])
    _table(connection, "cost", cost)
    last = max((micros(record.event.at) for record in records), default=0)
    connection.execute(f"create table audit as {audit_sql.PARTIAL.format(events='events')}")
    names = ["events", "episodes", "cost", "audit"]
    if judged:
        merged = audit_sql.MERGE.format(partials="audit")
        connection.execute(f"create view merged as {merged}")
        connection.execute(f"create view judged as {audit_sql.JUDGED.format(merged='merged', now=last)}")
        whole = audit_sql.VERDICT.format(entity="''", judged="judged", group="")
        connection.execute(f"create table verdicts as {whole}")
        names.append("verdicts")
    for name in names:
        (folder / name).mkdir(parents=True)
        connection.execute(f"copy {name} to '{folder / name / 'a.parquet'}' (format parquet)")
    connection.close()
    manifest.write(
        folder,
        Manifest(
            batch=7,
            written_at=WRITTEN_AT,
            judged=7,
            files={name: (File(name="a.parquet", rows=1, last_ts=last, batch=7),) for name in names},
            seen=tuple(spans),
        ),
    )
    return folder


def micros(at: float) -> int:
    """Microseconds since the epoch."""
    return round(at * MICROSECONDS)


def _event(record: Record) -> Row:
    event = record.event
    values = {field.name: getattr(event, field.name) for field in fields(event) if field.name != "at"}
    head = {"v": 1, "engine": record.engine, "boot": record.boot, "seq": record.seq, "ts": micros(event.at)}
    return {**head, "kind": event.kind, **values}


def _table(connection: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Row]) -> None:
    columns = TABLES[name]
    told = ", ".join(f'"{key}" {kind}' for key, kind in columns.items())
    connection.execute(f"create table {name} ({told})")
    if rows:
        marks = ", ".join("?" for _ in columns)
        connection.executemany(
            f"insert into {name} values ({marks})", [[row.get(column) for column in columns] for row in rows]
        )

"""Tables without Spark: any rows as a version of the tables, for tests of what reads tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb

from paired_servicebus.core.model.pairing_events import Event, Record
from paired_servicebus.pipeline.table_store import manifest
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File, RecordSpan
from paired_servicebus.pipeline.table_store.schema import COLUMN_OF, COUNTED_KINDS, DATED, NO_DATE, TABLES
from paired_servicebus.pipeline.table_store.sql_engine import write_rows
from paired_servicebus.pipeline.table_store.table_reader import Tables

ENGINE, BOOT = "e1", "b1"
MICROSECONDS = 1_000_000
TIMES = ("event_time", "minute", "first_at")
"""Columns that a row's date is made of."""
Row = Mapping[str, Any]


def utc(seconds: float) -> datetime:
    """A time in the tables, from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def event_row(record: Record) -> Row:
    """A record as a row of `events`."""
    event = record.event
    values: dict[str, Any] = {
        COLUMN_OF.get(field.name, field.name): getattr(event, field.name)
        for field in fields(event)
        if field.name != "at"
    }
    for name, value in values.items():
        if name.endswith("_at") and value is not None:
            values[name] = utc(value)
    when: datetime | None = None
    with suppress(ValueError, OverflowError):
        when = utc(event.at)
    head = {"v": 1, "engine": record.engine, "boot": record.boot, "seq": record.seq, "event_time": when}
    return {**head, "kind": event.kind, **values}


def files_of(folder: Path, table: str, *, batch: int | None = None) -> list[Path]:
    """The files of a table that the newest commit lists, or the one of a batch."""
    path = manifest.commit_paths(folder)[0] if batch is None else manifest.commit_path(folder, batch)
    return [folder / manifest.DATA / table / file.name for file in manifest.read(path).of(table)]


def event_rows(events: Sequence[Event], *, engine: str = ENGINE, boot: str = BOOT) -> list[Row]:
    """Events of one boot as rows of `events`, numbered from 1."""
    return [
        event_row(Record(engine=engine, boot=boot, seq=seq, event=event)) for seq, event in enumerate(events, start=1)
    ]


def make_version(
    folder: Path, *, seen: Sequence[RecordSpan] = (), judged_at: float = 0.0, **rows: Sequence[Row]
) -> Path:
    """Make the next version of the tables in `folder` of these rows, by table; other tables stay as they are.

    `timeline` follows from `events` unless it is given.
    """
    if "events" in rows and "timeline" not in rows:
        rows["timeline"] = [_timeline(row) for row in rows["events"] if _is_told(row)]
    with Lake(folder) as lake, lake.staged("made") as place:
        batch = lake.manifest.batch + 1
        files = {table: _stage(place, table, found, batch) for table, found in rows.items()}
        judged = {"judged": lake.manifest.batch + 1, "judged_at": judged_at} if judged_at else {}
        lake.commit(lambda _: Change(files=files, fields={**({"seen": tuple(seen)} if seen else {}), **judged}))
    return folder


def _is_told(row: Row) -> bool:
    return row.get("trouble") is None and row.get("kind") not in COUNTED_KINDS


def _timeline(row: Row) -> Row:
    return {name: row.get(name) for name in TABLES["timeline"]}


def _stage(place: Path, table: str, rows: Sequence[Row], batch: int) -> list[Staged]:
    by_date: dict[str, list[Row]] = {}
    for row in rows:
        by_date.setdefault(f"date={_date(row)}/" if table in DATED else "", []).append(row)
    found = []
    for number, (day, some) in enumerate(by_date.items()):
        path = place / f"{table}-{number}.parquet"
        put(path, table, some)
        times = [_micros(row[name]) for row in some for name in TIMES if row.get(name) is not None]
        file = File(
            name=f"{day}made-{batch}.parquet",
            rows=len(some),
            first_at=min(times, default=0),
            last_at=max(times, default=0),
            batch=1,
        )
        found.append(Staged(path, file))
    return found


def _date(row: Row) -> date | str:
    found = next((row[name] for name in TIMES if isinstance(row.get(name), datetime)), None)
    return found.date() if found is not None else NO_DATE


def _micros(at: datetime) -> int:
    return round(at.replace(tzinfo=UTC).timestamp() * MICROSECONDS)


def put(path: Path, table: str, rows: Sequence[Row]) -> None:
    """Write rows as one file of a table."""
    with duckdb.connect(config={"threads": 1}) as connection:
        load(connection, "rows", table, rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rows(connection, path, table, "select * from rows")


def load(connection: duckdb.DuckDBPyConnection, name: str, table: str, rows: Sequence[Row]) -> None:
    """Make a table of duckdb's called `name` with these rows and the columns of `table`."""
    columns = TABLES[table]
    listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    connection.execute(f"create table {name}({listed})")
    if rows:
        one = f"({', '.join('?' for _ in columns)})"
        values = [row.get(column) for row in rows for column in columns]
        connection.execute(f"insert into {name} values {', '.join([one] * len(rows))}", values)


def make_tables(
    folder: Path, records: Sequence[Record], *, seen: Sequence[RecordSpan] = (), **rows: Sequence[Row]
) -> Path:
    """Make tables of records, and rows of other tables by their names."""
    return make_version(folder, seen=seen, events=[event_row(record) for record in records], **rows)


def tables_of(folder: Path, events: Sequence[Event], **rows: Sequence[Row]) -> Tables:
    """Tables with these events, and rows of other tables by their names."""
    seen = (RecordSpan(ENGINE, BOOT, 1, len(events)),) if events else ()
    return Tables.open(make_version(folder, seen=seen, events=event_rows(events), **rows))

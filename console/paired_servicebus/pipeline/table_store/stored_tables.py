"""Writes tables that were made without Spark to a folder, in the pipeline's layout: as its first version."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from paired_servicebus.pipeline.table_store.empty_files import NO_DATE
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File, RecordSpan
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.store_path import Place
from paired_servicebus.pipeline.table_store.table_reader import TableQueries

TIMES: Final = ("event_time", "minute", "first_at")
"""Columns that a file's oldest and newest record are of."""


def store_tables(tables: TableQueries, folder: Path) -> Path:
    """Write every table to `folder`, which has none; return it.

    Raises PipelineError: the folder cannot be used; OSError: the disk refuses.
    """
    with Lake(folder) as lake, lake.staged("stored") as place:
        files = {table: _staged(tables, table, place) for table in TABLES}
        fields = {"seen": _seen(tables), "judged": 1, "judged_at": time.time()}
        lake.commit(lambda _: Change(files=files, fields=fields))
    return folder


def _staged(tables: TableQueries, table: str, place: Place) -> list[Staged]:
    """Write a table's rows, a file for each date."""
    when = next((name for name in TIMES if name in TABLES[table]), "")
    dates = tables.rows(f"select distinct date from {table} order by date") if table in DATED else [{"date": None}]
    found = []
    for number, day in enumerate(row["date"] for row in dates):
        path = place / f"{table}-{number}.parquet"
        where = "" if day is None else f"where date = date '{day}'"
        columns = ", ".join(_instant(name, kind) for name, kind in TABLES[table].items())
        target = str(path).replace("'", "''")
        tables.rows(f"copy (select {columns} from {table} {where}) to '{target}' (format parquet, compression zstd)")
        span = f"min(epoch_us({when})) as first, max(epoch_us({when})) as last" if when else "0 as first, 0 as last"
        (row,) = tables.rows(f"select count(*) as rows, {span} from {table} {where}")
        name = f"date={day or NO_DATE}/stored.parquet" if table in DATED else "stored.parquet"
        file = File(
            name=name, rows=row["rows"], first_at=row["first"] or 0, last_at=row["last"] or 0, batch=1
        )  # fmt: skip
        found.append(Staged(path, file))
    return found


def _instant(name: str, kind: str) -> str:
    """Return a column as files hold it: times are instants."""
    return f'make_timestamptz(epoch_us("{name}")) as "{name}"' if kind == "TIMESTAMP" else f'"{name}"'


def _seen(tables: TableQueries) -> tuple[RecordSpan, ...]:
    """Return the records that are in the tables, so that a pipeline that goes on with them reads none of them again."""
    rows = tables.rows(_SPANS)
    return tuple(
        RecordSpan(row["engine"], row["boot"], row["first"], row["last"], row["first_at"] or 0, row["last_at"] or 0)
        for row in rows
    )


_SPANS: Final = """
select engine, boot, min(seq) as first, max(seq) as last, epoch_us(arg_min(event_time, seq)) as first_at,
       epoch_us(arg_max(event_time, seq)) as last_at
from (select *, seq - row_number() over (partition by engine, boot order by seq) as run
      from (select engine, boot, seq, max(event_time) as event_time from events
            where engine is not null and boot is not null and seq is not null group by engine, boot, seq))
group by engine, boot, run order by engine, boot, first
"""

"""Judgements of a list of records by duckdb."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import duckdb

from paired_servicebus.core.model.pairing_events import Event, Record
from paired_servicebus.pipeline.judging import judge as audit
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.judging.judge import derive
from paired_servicebus.pipeline.table_store.schema import COLUMN_OF, TABLES
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine

Row = dict[str, Any]


def records_of(
    events: Iterable[Event], *, engine: str = "orders@web-1", boot: str = "b1", first: int = 1
) -> list[Record]:
    """A boot's records, numbered from `first`."""
    return [Record(engine=engine, boot=boot, seq=seq, event=event) for seq, event in enumerate(events, first)]


@dataclass(frozen=True)
class Judged:
    """What was made of them: rows by their columns, times in microseconds."""

    receipts: list[Row]
    audit: list[Row]
    verdicts: list[Row]

    def statuses(self) -> dict[str, str]:
        """Each message's status, by its id."""
        return {row["message_id"]: row["status"] for row in self.audit}

    def reasons(self) -> dict[str, str]:
        return {row["message_id"]: row["reason"] for row in self.audit}

    def verdict(self, pairing: str = "", entity: str = "", subscription: str = "") -> Row:
        (row,) = (
            row
            for row in self.verdicts
            if (row["pairing"], row["entity"].lower(), row["subscription"]) == (pairing, entity, subscription)
        )
        return row


def end_of(records: Sequence[Record]) -> int:
    """The newest record's time in microseconds."""
    return max((micros(record.event.at) for record in records), default=0)


def micros(at: float) -> int:
    return round(at * 1_000_000)


def judge(records: Sequence[Record], *, now: int | None = None, in_flight: int = IN_FLIGHT) -> Judged:
    """Judged by duckdb, all at once."""
    at = end_of(records) if now is None else now
    once = list({(one.engine, one.boot, one.seq): one for one in records}.values())
    with duckdb.connect(config={"threads": 1}) as connection:
        engine = DuckdbEngine(connection)
        load(connection, "events", event_rows(once))
        derive(engine)
        audit.judge(engine, now=at, in_flight=in_flight)
        return Judged(*(rows_of(connection, table) for table in ("receipts", "audit", "verdicts")))


def event_rows(records: Sequence[Record]) -> list[Row]:
    return [
        {
            "v": 1, "engine": one.engine, "boot": one.boot, "seq": one.seq, "event_time": micros(one.event.at),
            "kind": one.event.kind,
            **{
                COLUMN_OF.get(field.name, field.name): getattr(one.event, field.name)
                for field in fields(one.event)
                if field.name != "at"
            },
        }
        for one in records
    ]  # fmt: skip


def load(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row], *, name: str = "") -> None:
    """Rows as a table, with its columns; their times are microseconds. name: of the new table, by default the same."""
    columns = TABLES[table]
    shape = {name: "BIGINT" if kind == "TIMESTAMP" else kind for name, kind in columns.items()}
    times = {name for name, kind in columns.items() if kind == "TIMESTAMP"}
    values = [f"make_timestamp(one.{_quoted(n)})" if n in times else f"one.{_quoted(n)}" for n in columns]
    listed = ", ".join(f"{value} as {_quoted(name)}" for name, value in zip(columns, values, strict=True))
    connection.execute(
        f"create or replace table {name or table} as select {listed} from (select unnest(from_json(?, ?)) as one)",
        [json.dumps([{name: row.get(name) for name in columns} for row in rows]), json.dumps([shape])],
    )


def rows_of(connection: duckdb.DuckDBPyConnection, table: str) -> list[Row]:
    """A table's rows, times in microseconds."""
    names = [
        f"epoch_us({_quoted(name)}) as {_quoted(name)}" if kind == "TIMESTAMP" else _quoted(name)
        for name, kind in TABLES[table].items()
    ]
    done = connection.execute(f"select {', '.join(names)} from {table}")
    return [dict(zip(TABLES[table], row, strict=True)) for row in done.fetchall()]


def _quoted(name: str) -> str:
    return f'"{name}"'

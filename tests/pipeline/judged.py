"""Judgements of a list of records: by the SQL in duckdb, and by the pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import duckdb

from paired_servicebus.core.judging.audit import BacklogReading, audit
from paired_servicebus.core.judging.engine_boots import BootFold, pairings_of_engines
from paired_servicebus.core.judging.receipts import IN_FLIGHT, ReceiptFold
from paired_servicebus.core.judging.verdicts import verdicts
from paired_servicebus.core.model.pairing_events import Event, QueueRead, Record
from paired_servicebus.pipeline.judging import audit_sql
from paired_servicebus.pipeline.judging.sql_engine import WORDS
from paired_servicebus.pipeline.judging.verdict_sql import parts_sql, verdicts_sql
from paired_servicebus.pipeline.table_store.schema import TABLES

Row = dict[str, Any]


def records_of(
    events: Iterable[Event], *, engine: str = "orders@web-1", boot: str = "b1", first: int = 1
) -> list[Record]:
    """A boot's records, numbered from `first`."""
    return [Record(engine=engine, boot=boot, seq=seq, event=event) for seq, event in enumerate(events, first)]


@dataclass(frozen=True)
class Judged:
    """What one of the two made of them: rows by their columns, times in microseconds."""

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


def by_functions(
    records: Sequence[Record], *, now: int | None = None, in_flight: int = IN_FLIGHT, **span: Any
) -> Judged:
    """Judged by the pure functions."""
    boots, receipts = BootFold(), ReceiptFold()
    for record in records:
        if boots.add(record):
            receipts.add(record)
    at = end_of(records) if now is None else now
    made, named = boots.boots(), receipts.receipts(boots.pairings())
    fates = audit(named, made, readings_of(records, pairings_of_engines(made)), now=at, in_flight=in_flight)
    found = verdicts(fates, named, made, now=at, **span)
    rows = [{**_row(one), **one.counts} for one in found]
    for row in rows:
        del row["counts"]
    return Judged([_row(one) for one in named], [_row(one) for one in fates], rows)


def by_sql(
    records: Sequence[Record], *, now: int | None = None, in_flight: int = IN_FLIGHT, batches: int = 1, **span: Any
) -> Judged:
    """Judged by the SQL in duckdb; the receipts are added up in some batches, as the pipeline does."""
    at = end_of(records) if now is None else now
    events = event_rows(records)
    boots = BootFold()
    for record in records:
        boots.add(record)
    with duckdb.connect(config={"threads": 1}) as connection:
        for word in WORDS:
            connection.execute(word)
        load(connection, "engines", [_row(one) for one in boots.boots()])
        load(connection, "backlog", backlog_rows(records))
        _make(connection, "receipts", "select null", empty=True)
        for part in range(batches):
            load(connection, "events", events[part::batches])
            new = audit_sql.PARTIAL.format(events="events", engines="engines")
            columns = ", ".join(f'"{name}"' for name in TABLES["receipts"])
            both = f"(select {columns} from receipts union all select {columns} from ({new}))"
            _make(connection, "receipts", audit_sql.MERGE.format(partials=both))
        given = {
            "receipts": "receipts", "engines": "engines", "backlog": "backlog", "now": at, "in_flight": in_flight
        }  # fmt: skip
        for name, query in (part for parts in audit_sql.PARTS for part in parts.items()):
            connection.execute(f"create or replace temp table {name} as {query.format(**given)}")
        _make(connection, "audit", audit_sql.JUDGED.format(**given))
        for name, query in parts_sql(**span).items():
            connection.execute(f"create or replace temp table {name} as {query}")
        _make(connection, "verdicts", verdicts_sql(now=at, **span))
        return Judged(*(rows_of(connection, table) for table in ("receipts", "audit", "verdicts")))


def readings_of(records: Sequence[Record], pairings: Mapping[str, str]) -> list[BacklogReading]:
    """What is read of the queues, as the pipeline's table has it: the last one of each engine's minute."""
    return [
        BacklogReading(
            pairing=pairings[row["engine"]],
            queue=row["queue"],
            read_at=row["read_at"],
            held=row["depth"] + row["scheduled"] + row["dead_lettered"],
        )
        for row in backlog_rows(records)
    ]


def backlog_rows(records: Sequence[Record]) -> list[Row]:
    newest: dict[tuple[str, int, int], Row] = {}
    for record in records:
        event = record.event
        if isinstance(event, QueueRead):
            at = micros(event.at)
            key = (record.engine, event.queue, at // 60_000_000)
            if key not in newest or newest[key]["read_at"] < at:
                newest[key] = {
                    "engine": record.engine, "queue": event.queue, "read_at": at, "depth": event.depth,
                    "scheduled": event.scheduled, "dead_lettered": event.dead_lettered,
                }  # fmt: skip
    return list(newest.values())


def event_rows(records: Sequence[Record]) -> list[Row]:
    return [
        {
            "v": 1, "engine": one.engine, "boot": one.boot, "seq": one.seq, "event_time": micros(one.event.at),
            "kind": one.event.kind,
            **{field.name: getattr(one.event, field.name) for field in fields(one.event) if field.name != "at"},
        }
        for one in records
    ]  # fmt: skip


def load(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row]) -> None:
    """Rows as a table, with its columns; their times are microseconds."""
    columns = TABLES[table]
    connection.execute(
        f"create or replace table {table} ({', '.join(f'{_quoted(n)} {k}' for n, k in columns.items())})"
    )
    shape = {name: "BIGINT" if kind == "TIMESTAMP" else kind for name, kind in columns.items()}
    listed = ", ".join(
        f"make_timestamp(one.{_quoted(name)})" if kind == "TIMESTAMP" else f"one.{_quoted(name)}"
        for name, kind in columns.items()
    )
    connection.execute(
        f"insert into {table} select {listed} from (select unnest(from_json(?::json, ?)) as one)",
        [json.dumps([{name: row.get(name) for name in columns} for row in rows]), json.dumps([shape])],
    )


def _make(connection: duckdb.DuckDBPyConnection, table: str, query: str, *, empty: bool = False) -> None:
    """A table with exactly its columns, of a query that has them."""
    kinds = TABLES[table].items()
    if empty:
        return load(connection, table, [])
    columns = ", ".join(f"cast({_quoted(name)} as {kind}) as {_quoted(name)}" for name, kind in kinds)
    connection.execute(f"create or replace table {table} as select {columns} from ({query})")
    return None


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


def _row(one: Any) -> Row:
    return {field.name: getattr(one, field.name) for field in fields(one)}

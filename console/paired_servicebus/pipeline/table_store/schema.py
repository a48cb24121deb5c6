"""The columns of the tables, with their types for Spark, duckdb and Arrow.

Every table is plain Parquet, right for any reader: one row for each key, times as TIMESTAMP (UTC, microseconds). Tables
in DATED are partitioned by `date`, the day of a row's time; 1970-01-01 has the rows without one.

`events` has a column for every field of every journalled event, from paired_servicebus.core.model.pairing_events: a new
field becomes a new column. Raise manifest.VERSION for a change that makes old files unreadable.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, get_type_hints

from paired_servicebus.core.model.pairing_events import KINDS

Columns = dict[str, str]
"""Names and types: BIGINT, DOUBLE, VARCHAR, BOOLEAN, TIMESTAMP, or DOUBLE[]."""

HEADER: Final[Columns] = {
    "v": "BIGINT", "engine": "VARCHAR", "boot": "VARCHAR", "seq": "BIGINT", "event_time": "TIMESTAMP",
    "kind": "VARCHAR",
}  # fmt: skip
COLUMN_OF: Final = {"primary": "primary_namespace", "secondary": "secondary_namespace", "by": "operator"}
"""Columns whose names differ from their field's, which is a word of SQL."""
_TYPES: Final[dict[object, str]] = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}


def _type_of(hint: object) -> str:
    """Of a field's annotation; an optional one is nullable, as every column is."""
    for option in getattr(hint, "__args__", (hint,)):
        if option in _TYPES:
            return _TYPES[option]
        if isinstance(option, type) and issubclass(option, str):
            return "VARCHAR"
    raise TypeError(f"{hint} is no type of a column; known are {', '.join(map(str, _TYPES))}")


def _event_fields() -> Columns:
    found: Columns = {}
    for kind in KINDS.values():
        hints = get_type_hints(kind)
        for field in fields(kind):
            if field.name == "at":
                continue
            column = "TIMESTAMP" if field.name.endswith("_at") else _type_of(hints[field.name])
            name = COLUMN_OF.get(field.name, field.name)
            if found.setdefault(name, column) != column:
                raise TypeError(f"{kind.__name__}.{field.name} is {column}, elsewhere {found[name]}")
    return found


EVENT_FIELDS: Final = _event_fields()
RECEIPT_KINDS: Final = ("delivered", "diverted", "in-doubt", "refused", "moved", "dead-lettered", "received")
COUNTED_KINDS: Final = ("sends", "failures", "operations", "queue-read", *RECEIPT_KINDS)
"""Kinds that are summed up; all others are in `timeline`."""


def _all(kind: str, *names: str) -> Columns:
    return dict.fromkeys(names, kind)


TABLES: Final[dict[str, Columns]] = {
    "events": {**HEADER, **EVENT_FIELDS, **_all("VARCHAR", "trouble", "line", "file")},
    "timeline": {**HEADER, **EVENT_FIELDS},
    "engines": {
        **_all("VARCHAR", "pairing", "engine", "boot"),
        **_all("TIMESTAMP", "started_at", "first_at", "last_at"),
        **_all("BIGINT", "first_seq", "last_seq", "records", "missing"),
        **_all("TIMESTAMP", "complete_to", "complete_from"),
        "ended": "VARCHAR", "ended_at": "TIMESTAMP", "end_reason": "VARCHAR",
        **_all("VARCHAR", "primary_namespace", "secondary_namespace"),
        "syphon": "BOOLEAN", "backlog_queues": "BIGINT", "version": "VARCHAR", "receives": "BOOLEAN",
        **_all("VARCHAR", "pairing_name", "predecessor"),
        "predecessor_seq": "BIGINT", "end_known": "BOOLEAN", "lacks_boot": "BOOLEAN",
        "retired_at": "TIMESTAMP", "retired_why": "VARCHAR",
    },
    "gaps": {**_all("VARCHAR", "engine", "boot"), **_all("BIGINT", "first_seq", "last_seq", "missing")},
    "minutes": {
        **_all("VARCHAR", "engine", "entity"), "minute": "TIMESTAMP",
        **_all("BIGINT", "primary_accepted", "primary_failed", "backlog_accepted", "backlog_failed"),
        **_all("BIGINT", "pings_sent", "pings_accepted", "pings_failed"), "ping_seconds": "DOUBLE[]",
        **_all("DOUBLE", "availability", "accepted_share", "ping_p50", "ping_p95", "ping_p99"),
        "last_good_at": "TIMESTAMP",
    },
    "failures": {
        **_all("VARCHAR", "engine", "entity"), "minute": "TIMESTAMP", **_all("VARCHAR", "route", "failure"),
        "count": "BIGINT",
    },
    "backlog": {
        "engine": "VARCHAR", "queue": "BIGINT", "minute": "TIMESTAMP", "parked": "BIGINT", "read_at": "TIMESTAMP",
        **_all("BIGINT", "depth", "depth_max", "bytes", "dead_lettered", "scheduled"),
        "slope": "DOUBLE", "n": "BIGINT", **_all("DOUBLE", "sum_t", "sum_d", "sum_tt", "sum_td"),
    },
    "syphon": {
        "engine": "VARCHAR", "queue": "BIGINT", "entity": "VARCHAR", "minute": "TIMESTAMP",
        **_all("BIGINT", "moved", "retries", "dead_lettered"),
    },
    "dead_letters": {
        "engine": "VARCHAR", "queue": "BIGINT", "entity": "VARCHAR", "minute": "TIMESTAMP", "reason": "VARCHAR",
        "count": "BIGINT",
    },
    "cost": {"engine": "VARCHAR", "minute": "TIMESTAMP", "cause": "VARCHAR", **_all("BIGINT", "operations", "bytes")},
    "episodes": {
        **_all("VARCHAR", "id", "pairing", "engine", "boot", "entity"),
        **_all("TIMESTAMP", "began_at", "suspected_at", "failed_over_at", "first_ping_at", "failed_back_at"),
        **_all("TIMESTAMP", "backlog_empty_at", "last_at", "last_good_at", "first_diverted_at"),
        "outcome": "VARCHAR", "forced": "BOOLEAN", **_all("VARCHAR", "cause", "end_reason"),
        **_all("BIGINT", "pings_sent", "pings_accepted", "pings_failed", "parked", "moved", "dead_lettered"),
        "orders": "VARCHAR",
    },
    "receipts": {
        **_all("VARCHAR", "pairing", "entity", "message_id", "subscription", "stream"), "number": "BIGINT",
        **_all("VARCHAR", "session", "key"),
        **_all("BIGINT", "direct", "diverted", "in_doubt", "refused", "moved", "dead_lettered", "received"),
        **_all("BIGINT", "redelivered", "scheduled", "queue"), "time_to_live": "DOUBLE", "reason": "VARCHAR",
        **_all("VARCHAR", "diverted_by", "diverted_boot"), "diverted_seq": "BIGINT",
        **_all("VARCHAR", "reached_by", "reached_boot"), "reached_seq": "BIGINT",
        **_all("TIMESTAMP", "first_at", "accepted_at", "diverted_at", "moved_at", "dead_lettered_at", "reached_at"),
        "received_at": "TIMESTAMP", **_all("VARCHAR", "received_by", "received_boot"), "received_seq": "BIGINT",
        "last_at": "TIMESTAMP",
    },
    "audit": {
        **_all("VARCHAR", "pairing", "entity", "message_id", "status", "answer", "key"), "queue": "BIGINT",
        **_all("VARCHAR", "reason", "stream"), "number": "BIGINT",
        **_all("BIGINT", "direct", "diverted", "in_doubt", "refused", "moved", "dead_lettered", "received"),
        "duplicates": "BIGINT", "out_of_order": "BOOLEAN",
        **_all("TIMESTAMP", "first_at", "accepted_at", "diverted_at", "moved_at", "reached_at", "received_at"),
        **_all("TIMESTAMP", "dead_lettered_at", "last_at"), **_all("DOUBLE", "time_to_live", "dwell", "age"),
        "receivers_told": "BOOLEAN", "among_missing": "BIGINT", "is_shared": "BOOLEAN",
    },
    "verdicts": {
        **_all("VARCHAR", "pairing", "entity", "subscription"),
        **_all("BIGINT", "attempted", "accepted", "refused", "in_doubt", "recovered", "reached", "delivered"),
        **_all("BIGINT", "dead_lettered", "expired", "parked", "in_flight", "missing", "lost", "unknown"),
        **_all("BIGINT", "unexpected", "unsent", "duplicates", "out_of_order", "direct", "diverted", "home"),
        "unconfirmed": "BIGINT", "in_flight_age": "DOUBLE", "receivers_told": "BOOLEAN",
        **_all("BIGINT", "journals", "journals_complete"), **_all("TIMESTAMP", "complete_to", "judged_at"),
        **_all("VARCHAR", "rests_on", "finding"),
    },
}  # fmt: skip
"""Their meanings and units are in COLUMNS.md."""
NO_DATE: Final = "1970-01-01"
"""The partition of rows without a time."""
DATED: Final = frozenset(
    {"events", "timeline", "minutes", "failures", "backlog", "syphon", "dead_letters", "cost", "receipts", "audit"}
)
"""Tables partitioned by `date`: of `event_time`, `minute`, or `first_at`."""


def time_column(table: str) -> str:
    """Return the column of the time that a table's rows are of, and of its `date`; empty: it has none."""
    return next((name for name in ("event_time", "minute", "first_at") if name in TABLES[table]), "")


def date_sql(table: str) -> str:
    """Return the `date` of a table's rows as a column of SQL."""
    return f"coalesce(cast({time_column(table)} as date), date '{NO_DATE}') as date"


def spark_ddl(columns: Columns) -> str:
    """Return the columns as Spark writes them."""
    words = {"VARCHAR": "STRING", "DOUBLE[]": "ARRAY<DOUBLE>"}
    return ", ".join(f"`{name}` {words.get(kind, kind)}" for name, kind in columns.items())


def arrow_schema(columns: Columns, *, dated: bool = False) -> Any:
    """Return the columns as pyarrow has them, with their partition's `date`."""
    import pyarrow as pa

    types = {
        "VARCHAR": pa.string(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "DOUBLE[]": pa.list_(pa.float64()),
    }
    date = [("date", pa.date32())] if dated else []
    return pa.schema([*((name, types[kind]) for name, kind in columns.items()), *date])

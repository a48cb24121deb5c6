"""The columns of the tables, with their types for Spark, duckdb and Arrow.

Every table is plain Parquet, right for any reader: one row for each key, times as TIMESTAMP (UTC, microseconds). Tables
in DATED are partitioned by `date`, the day of a row's time; 1970-01-01 has the rows without one.

`events` has a column for every field of every journalled event, from paired_servicebus.core.model.pairing_events: a new
field becomes a new column. Raise manifest.VERSION for a change that makes old files unreadable.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
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


def required_fields() -> dict[str, tuple[str, ...]]:
    """Return the columns that some kinds of events cannot do without, each with those kinds."""
    found: dict[str, tuple[str, ...]] = {}
    for name, kind in KINDS.items():
        for field in fields(kind):
            if field.name != "at" and field.default is MISSING:
                column = COLUMN_OF.get(field.name, field.name)
                found[column] = (*found.get(column, ()), name)
    return found


EVENT_FIELDS: Final = _event_fields()
EVENTS: Final[Columns] = {**HEADER, **EVENT_FIELDS, "trouble": "VARCHAR", "line": "VARCHAR", "file": "VARCHAR"}
"""A journal's record, once. A line that is torn, foreign, impossible or newer has the problem in `trouble`."""

RECEIPT_KINDS: Final = ("delivered", "diverted", "in-doubt", "refused", "moved", "dead-lettered", "received")
COUNTED_KINDS: Final = ("sends", "failures", "operations", "queue-read", *RECEIPT_KINDS)
"""Kinds that are summed up; all others are in `timeline`."""

TIMELINE: Final[Columns] = {**HEADER, **EVENT_FIELDS}
"""The events that are few enough to be read one by one: changes of state, pings, orders, warnings, engines."""

ENGINES: Final[Columns] = {
    "pairing": "VARCHAR", "engine": "VARCHAR", "boot": "VARCHAR",
    "started_at": "TIMESTAMP", "first_at": "TIMESTAMP", "last_at": "TIMESTAMP",
    "first_seq": "BIGINT", "last_seq": "BIGINT", "records": "BIGINT", "missing": "BIGINT", "complete_to": "TIMESTAMP",
    "complete_from": "TIMESTAMP",
    "ended": "VARCHAR", "ended_at": "TIMESTAMP", "end_reason": "VARCHAR",
    "primary_namespace": "VARCHAR", "secondary_namespace": "VARCHAR", "syphon": "BOOLEAN", "backlog_queues": "BIGINT",
    "version": "VARCHAR",
    "receives": "BOOLEAN", "pairing_name": "VARCHAR", "predecessor": "VARCHAR", "predecessor_seq": "BIGINT",
    "end_known": "BOOLEAN", "lacks_boot": "BOOLEAN", "retired_at": "TIMESTAMP", "retired_why": "VARCHAR",
}  # fmt: skip
"""An engine's boot. `pairing_name`: by its engine-started record, else by its engine's name up to the last "@".
`pairing`: the first name, by the alphabet, of those that engines gave the same two namespaces. Their messages share
backlog queues and are judged together.
`missing`: records that its numbers lack, the first ones included, and the last ones where the next boot names its
predecessor's last number. `complete_to`: the time of the last record before the first gap; null: an earlier one is
missing. `complete_from`: the time of the first record after the last gap; null: no gap. `ended`: stopped, restarted
(it was killed), retired (declared gone for good), silent or running. `end_known`: whether its last record is known to
be its last. `lacks_boot`: whether it names a predecessor that is not here. `receives`: whether it recorded `received`
events."""
GAPS: Final[Columns] = {
    "engine": "VARCHAR", "boot": "VARCHAR", "first_seq": "BIGINT", "last_seq": "BIGINT", "missing": "BIGINT",
}  # fmt: skip

MINUTES: Final[Columns] = {
    "engine": "VARCHAR", "entity": "VARCHAR", "minute": "TIMESTAMP",
    "primary_accepted": "BIGINT", "primary_failed": "BIGINT", "backlog_accepted": "BIGINT", "backlog_failed": "BIGINT",
    "pings_sent": "BIGINT", "pings_accepted": "BIGINT", "pings_failed": "BIGINT", "ping_seconds": "DOUBLE[]",
    "availability": "DOUBLE", "accepted_share": "DOUBLE",
    "ping_p50": "DOUBLE", "ping_p95": "DOUBLE", "ping_p99": "DOUBLE", "last_good_at": "TIMESTAMP",
}  # fmt: skip
"""`last_good_at`: the begin of the last second in which the primary accepted a send."""
FAILURES: Final[Columns] = {
    "engine": "VARCHAR", "entity": "VARCHAR", "minute": "TIMESTAMP", "route": "VARCHAR", "failure": "VARCHAR",
    "count": "BIGINT",
}  # fmt: skip
BACKLOG: Final[Columns] = {
    "engine": "VARCHAR", "queue": "BIGINT", "minute": "TIMESTAMP", "parked": "BIGINT",
    "read_at": "TIMESTAMP", "depth": "BIGINT", "depth_max": "BIGINT", "bytes": "BIGINT", "dead_lettered": "BIGINT",
    "scheduled": "BIGINT", "slope": "DOUBLE",
    "n": "BIGINT", "sum_t": "DOUBLE", "sum_d": "DOUBLE", "sum_tt": "DOUBLE", "sum_td": "DOUBLE",
}  # fmt: skip
"""`depth` and the columns after it are of the minute's last reading; `slope`: messages a second, fitted to the `n`
readings by their sums."""
SYPHON: Final[Columns] = {
    "engine": "VARCHAR", "queue": "BIGINT", "entity": "VARCHAR", "minute": "TIMESTAMP",
    "moved": "BIGINT", "retries": "BIGINT", "dead_lettered": "BIGINT",
}  # fmt: skip
DEAD_LETTERS: Final[Columns] = {
    "engine": "VARCHAR", "queue": "BIGINT", "entity": "VARCHAR", "minute": "TIMESTAMP", "reason": "VARCHAR",
    "count": "BIGINT",
}  # fmt: skip
COST: Final[Columns] = {
    "engine": "VARCHAR", "minute": "TIMESTAMP", "cause": "VARCHAR", "operations": "BIGINT", "bytes": "BIGINT",
}  # fmt: skip

EPISODES: Final[Columns] = {
    "id": "VARCHAR", "pairing": "VARCHAR", "engine": "VARCHAR", "boot": "VARCHAR", "entity": "VARCHAR",
    "began_at": "TIMESTAMP", "suspected_at": "TIMESTAMP", "failed_over_at": "TIMESTAMP", "first_ping_at": "TIMESTAMP",
    "failed_back_at": "TIMESTAMP", "backlog_empty_at": "TIMESTAMP", "last_at": "TIMESTAMP",
    "last_good_at": "TIMESTAMP", "first_diverted_at": "TIMESTAMP",
    "outcome": "VARCHAR", "forced": "BOOLEAN", "cause": "VARCHAR", "end_reason": "VARCHAR",
    "pings_sent": "BIGINT", "pings_accepted": "BIGINT", "pings_failed": "BIGINT",
    "parked": "BIGINT", "moved": "BIGINT", "dead_lettered": "BIGINT", "orders": "VARCHAR",
}  # fmt: skip
"""`id`: entity@engine@began_at in microseconds. `outcome`: open, recovered (it never failed over), failed back, pinned,
engine ended, or engine silent; `end_reason` is a sentence. `orders`: a JSON list of {at, what, by, why}.
`last_good_at`: the last send that the primary accepted before. `parked`, `moved`, `dead_lettered`,
`first_diverted_at` and `backlog_empty_at` are of the latest judgement: of the messages that this engine diverted
between this episode's begin and its entity's next."""

RECEIPTS: Final[Columns] = {
    "pairing": "VARCHAR", "entity": "VARCHAR", "message_id": "VARCHAR", "subscription": "VARCHAR",
    "stream": "VARCHAR", "number": "BIGINT", "session": "VARCHAR", "key": "VARCHAR",
    "direct": "BIGINT", "diverted": "BIGINT", "in_doubt": "BIGINT", "refused": "BIGINT", "moved": "BIGINT",
    "dead_lettered": "BIGINT", "received": "BIGINT", "redelivered": "BIGINT", "scheduled": "BIGINT",
    "queue": "BIGINT", "time_to_live": "DOUBLE", "reason": "VARCHAR",
    "diverted_by": "VARCHAR", "diverted_boot": "VARCHAR", "diverted_seq": "BIGINT",
    "reached_by": "VARCHAR", "reached_boot": "VARCHAR", "reached_seq": "BIGINT",
    "first_at": "TIMESTAMP", "accepted_at": "TIMESTAMP", "diverted_at": "TIMESTAMP", "moved_at": "TIMESTAMP",
    "dead_lettered_at": "TIMESTAMP", "reached_at": "TIMESTAMP", "received_at": "TIMESTAMP",
    "received_by": "VARCHAR", "received_boot": "VARCHAR", "received_seq": "BIGINT", "last_at": "TIMESTAMP",
}  # fmt: skip
"""The receipts of a message, summed, for each subscription that reported it: `audit` is judged from them.
`redelivered`: deliveries of a copy that a receiver had before. `time_to_live`: seconds; null: the entity's.
`scheduled`: 1 if it was sent for a later time.
`reached_…`: the last acceptance by the destination, direct or by the syphon. `received_…`: the first delivery."""
AUDIT: Final[Columns] = {
    "pairing": "VARCHAR", "entity": "VARCHAR", "message_id": "VARCHAR", "status": "VARCHAR", "answer": "VARCHAR",
    "key": "VARCHAR", "queue": "BIGINT", "reason": "VARCHAR", "stream": "VARCHAR", "number": "BIGINT",
    "direct": "BIGINT", "diverted": "BIGINT", "in_doubt": "BIGINT", "refused": "BIGINT", "moved": "BIGINT",
    "dead_lettered": "BIGINT", "received": "BIGINT", "duplicates": "BIGINT", "out_of_order": "BOOLEAN",
    "first_at": "TIMESTAMP", "accepted_at": "TIMESTAMP", "diverted_at": "TIMESTAMP", "moved_at": "TIMESTAMP",
    "reached_at": "TIMESTAMP", "received_at": "TIMESTAMP", "dead_lettered_at": "TIMESTAMP",
    "last_at": "TIMESTAMP", "time_to_live": "DOUBLE", "dwell": "DOUBLE", "age": "DOUBLE",
    "receivers_told": "BOOLEAN", "among_missing": "BIGINT", "is_shared": "BOOLEAN",
}  # fmt: skip
"""A message's fate, one row each. `dwell`: seconds that it was parked. `age`: seconds since its destination (else its
queue) accepted it, at the judgement. `reason`: of a dead letter, and of a fate that is unknown or missing.
`receivers_told`: whether any receiver of its entity records what it gets. `among_missing`: on parked messages, how many
of its pairing's parked messages are missing without being known by name. `is_shared`: unknown since the receivers
seem to record only a share of the entity."""
VERDICTS: Final[Columns] = {
    "pairing": "VARCHAR", "entity": "VARCHAR", "subscription": "VARCHAR",
    **dict.fromkeys(
        (
            "attempted", "accepted", "refused", "in_doubt", "recovered", "reached", "delivered", "dead_lettered",
            "expired", "parked", "in_flight", "missing", "lost", "unknown", "unexpected", "unsent",
            "duplicates", "out_of_order", "direct", "diverted", "home", "unconfirmed",
        ),
        "BIGINT",
    ),
    "in_flight_age": "DOUBLE", "receivers_told": "BOOLEAN",
    "journals": "BIGINT", "journals_complete": "BIGINT", "complete_to": "TIMESTAMP", "judged_at": "TIMESTAMP",
    "rests_on": "VARCHAR", "finding": "VARCHAR",
}  # fmt: skip
"""`entity` '' is the pairing as a whole, `subscription` '' the entity as a whole. `reached`: accepted by the primary,
directly or from the backlog. `unconfirmed`: of those, the ones whose receivers record nothing. `unsent`: received, and
no journal here has its sender. `rests_on`: sentences.
`finding`: lost, unknown, not recorded, not delivered, accepted, open, or nothing lost."""

TABLES: Final[dict[str, Columns]] = {
    "events": EVENTS,
    "timeline": TIMELINE,
    "engines": ENGINES,
    "gaps": GAPS,
    "minutes": MINUTES,
    "failures": FAILURES,
    "backlog": BACKLOG,
    "syphon": SYPHON,
    "dead_letters": DEAD_LETTERS,
    "cost": COST,
    "episodes": EPISODES,
    "receipts": RECEIPTS,
    "audit": AUDIT,
    "verdicts": VERDICTS,
}
DATED: Final = frozenset(
    {"events", "timeline", "minutes", "failures", "backlog", "syphon", "dead_letters", "cost", "receipts", "audit"}
)
"""Tables partitioned by `date`: of `event_time`, `minute`, or `first_at`."""


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

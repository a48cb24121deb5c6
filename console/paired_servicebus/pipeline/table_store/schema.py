"""The columns of the tables' files, with their types for Spark, duckdb and Arrow.

`events` has a column for every field of every journalled event, from paired_servicebus.core.model.pairing_events: a new
field becomes a new column. Partial tables hold rows that add up: a key may be in several files, and readers sum
(table_reader).

Raise manifest.VERSION for a change that makes old files unreadable.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Final, get_type_hints

from paired_servicebus.core.model.pairing_events import KINDS

Columns = dict[str, str]
"""Names and types: BIGINT, DOUBLE, VARCHAR, BOOLEAN, or DOUBLE[]."""

HEADER: Final[Columns] = {
    "v": "BIGINT", "engine": "VARCHAR", "boot": "VARCHAR", "seq": "BIGINT", "ts": "BIGINT", "kind": "VARCHAR",
}  # fmt: skip
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
            column = _type_of(hints[field.name])
            if found.setdefault(field.name, column) != column:
                raise TypeError(f"{kind.__name__}.{field.name} is {column}, elsewhere {found[field.name]}")
    return found


def required_fields() -> dict[str, tuple[str, ...]]:
    """Return the columns that some kinds of events cannot do without, each with those kinds."""
    found: dict[str, tuple[str, ...]] = {}
    for name, kind in KINDS.items():
        for field in fields(kind):
            if field.name != "at" and field.default is MISSING:
                found[field.name] = (*found.get(field.name, ()), name)
    return found


EVENT_FIELDS: Final = _event_fields()
EVENTS: Final[Columns] = {**HEADER, **EVENT_FIELDS, "trouble": "VARCHAR", "line": "VARCHAR", "file": "VARCHAR"}

MINUTES: Final[Columns] = {
    "engine": "VARCHAR", "minute_ts": "BIGINT", "entity": "VARCHAR", "route": "VARCHAR",
    "accepted": "BIGINT", "failed": "BIGINT", "failure": "VARCHAR", "failures": "BIGINT",
    "pings_sent": "BIGINT", "pings_accepted": "BIGINT", "pings_failed": "BIGINT", "took": "DOUBLE[]",
}  # fmt: skip
BACKLOG: Final[Columns] = {
    "engine": "VARCHAR", "minute_ts": "BIGINT", "queue": "BIGINT", "parked": "BIGINT",
    "read_ts": "BIGINT", "depth": "BIGINT", "depth_max": "BIGINT", "bytes": "BIGINT", "dead_lettered": "BIGINT",
    "scheduled": "BIGINT",
    "n": "BIGINT", "sum_t": "DOUBLE", "sum_d": "DOUBLE", "sum_tt": "DOUBLE", "sum_td": "DOUBLE",
}  # fmt: skip
SYPHON: Final[Columns] = {
    "engine": "VARCHAR", "minute_ts": "BIGINT", "queue": "BIGINT", "entity": "VARCHAR",
    "moved": "BIGINT", "retries": "BIGINT", "dead_lettered": "BIGINT", "reason": "VARCHAR",
}  # fmt: skip
COST: Final[Columns] = {
    "engine": "VARCHAR", "minute_ts": "BIGINT", "cause": "VARCHAR", "operations": "BIGINT", "bytes": "BIGINT",
}  # fmt: skip
AUDIT: Final[Columns] = {
    "key": "VARCHAR", "message_id": "VARCHAR", "entity": "VARCHAR", "subscription": "VARCHAR", "stream": "VARCHAR",
    "number": "BIGINT",
    "direct": "BIGINT", "diverted": "BIGINT", "in_doubt": "BIGINT", "refused": "BIGINT", "moved": "BIGINT",
    "dead_lettered": "BIGINT", "received": "BIGINT", "queue": "BIGINT", "reason": "VARCHAR",
    "first_ts": "BIGINT", "accepted_ts": "BIGINT", "diverted_ts": "BIGINT", "moved_ts": "BIGINT",
    "received_ts": "BIGINT", "received_seq": "BIGINT", "last_ts": "BIGINT",
}  # fmt: skip
EPISODES: Final[Columns] = {
    "id": "VARCHAR", "version": "BIGINT", "engine": "VARCHAR", "boot": "VARCHAR", "entity": "VARCHAR",
    "suspected_ts": "BIGINT", "failed_over_ts": "BIGINT", "first_ping_ts": "BIGINT", "failed_back_ts": "BIGINT",
    "backlog_empty_ts": "BIGINT", "last_ts": "BIGINT", "outcome": "VARCHAR", "forced": "BOOLEAN",
    "cause": "VARCHAR", "why_back": "VARCHAR", "pings_sent": "BIGINT", "pings_accepted": "BIGINT",
    "pings_failed": "BIGINT", "parked": "BIGINT", "moved": "BIGINT", "dead_lettered": "BIGINT",
    "acts": "VARCHAR", "late": "BIGINT",
}  # fmt: skip
VERDICTS: Final[Columns] = {
    "entity": "VARCHAR",
    **dict.fromkeys(
        (
            "attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "dead_lettered",
            "parked", "lost", "in_flight", "unexpected", "duplicates", "out_of_order",
        ),
        "BIGINT",
    ),
    "in_flight_age": "DOUBLE",
    "receivers_told": "BOOLEAN",
}  # fmt: skip

TABLES: Final[dict[str, Columns]] = {
    "events": EVENTS,
    "minutes": MINUTES,
    "backlog": BACKLOG,
    "syphon": SYPHON,
    "cost": COST,
    "audit": AUDIT,
    "episodes": EPISODES,
    "verdicts": VERDICTS,
}


def spark_ddl(columns: Columns) -> str:
    """Return the columns as Spark writes them."""
    words = {"VARCHAR": "STRING", "DOUBLE[]": "ARRAY<DOUBLE>"}
    return ", ".join(f"`{name}` {words.get(kind, kind)}" for name, kind in columns.items())

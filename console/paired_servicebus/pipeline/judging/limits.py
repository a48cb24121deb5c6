"""The words that duckdb lacks of Spark's SQL.

The SQL of this room counts in microseconds and runs in Spark (ANSI mode) and in duckdb. Its limits are those of
paired_servicebus.core.judging.receipts, which this module passes on.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.judging import receipts

IN_FLIGHT: Final = receipts.IN_FLIGHT // receipts.SECOND
"""Seconds that a message is in flight at least."""

DUCKDB_WORDS: Final = (
    "create or replace macro unix_micros(moment) as epoch_us(moment)",
    "create or replace macro timestamp_micros(n) as make_timestamp(n)",
    "create or replace macro collect_set(x) as list(distinct x) filter (x is not null)",
    "create or replace macro sort_array(items) as list_sort(items)",
    "create or replace macro xxhash64(a, b, c, d, e, f) as hash(a, b, c, d, e, f)",
    "create or replace macro array_join(items, mark) as array_to_string(items, mark)",
)
"""Statements for a duckdb connection before it runs SQL of this room."""


def micros(seconds: float) -> int:
    """Return seconds as microseconds."""
    return round(seconds * 1_000_000)

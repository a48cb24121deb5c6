"""Runs the SQL of judging and reports by duckdb, in this process. Spark runs the same text (ingest.batch_loop).

    engine.make("entities", "select distinct entity from receipts")
    engine.rows("entities")

The statements use the words of Spark's SQL that duckdb has as well. Spark's other words are macros in duckdb (WORDS).
"""

from __future__ import annotations

from typing import Any, Final

import duckdb

Row = dict[str, Any]

WORDS: Final = (
    "create or replace macro unix_micros(moment) as epoch_us(moment)",
    "create or replace macro timestamp_micros(n) as make_timestamp(n)",
    "create or replace macro date_format(moment, pattern) as strftime(moment, '%Y-%m-%d %H:%M:%S.%f')",
    "create or replace macro collect_list(x) as list(x) filter (x is not null)",
    "create or replace macro collect_set(x) as list(distinct x) filter (x is not null)",
    "create or replace macro sort_array(items) as list_sort(items)",
    "create or replace macro size(items) as len(items)",
    "create or replace macro slice(items, place, most) as list_slice(items, place, place + most - 1)",
    "create or replace macro try_element_at(items, place) as list_extract(items, place)",
    "create or replace macro array_join(items, mark) as array_to_string(items, mark)",
    "create or replace macro named_struct(a, w, b, x, c, y, d, z) as "
    "json_object(a::varchar, w, b::varchar, x, c::varchar, y, d::varchar, z)",
    "create or replace macro xxhash64(a, b, c, d, e, f) as hash(a, b, c, d, e, f)",
    "create or replace macro array_repeat(item, times) as list_resize([item], times, item)",
    "create or replace macro try_sum(x) as sum(x)",
)
"""Statements for a duckdb connection before it runs that SQL. A pattern of date_format is always the same."""


class DuckdbEngine:
    """Runs statements in a duckdb connection, whose words are added to it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        for word in WORDS:
            connection.execute(word)

    def make(self, name: str, statement: str) -> None:
        """Make the table `name` of a statement's rows."""
        self._connection.execute(f"create or replace table {name} as {statement}")

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a table, by column."""
        done = self._connection.execute(f"select * from {name}")
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

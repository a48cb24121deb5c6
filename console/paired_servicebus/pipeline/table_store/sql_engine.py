"""The tables by duckdb, in this process: runs the SQL of judging and reports, and reads and writes Parquet files.

    engine.make("entities", "select distinct entity from receipts")
    engine.rows("entities")

Spark runs the same text where it reads events or messages (ingest.batch_loop). The statements use the words of Spark's
SQL that duckdb has as well. Spark's other words are macros in duckdb (WORDS).
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb

from paired_servicebus.pipeline.table_store.manifest import Manifest, Version
from paired_servicebus.pipeline.table_store.schema import DATED, NO_DATE, TABLES, arrow_schema
from paired_servicebus.pipeline.table_store.store_path import Place, StorePath

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
    """Runs statements in a duckdb connection, whose words are added to it; thread-safe.

    Args:
        version: of stored tables; by default they have no rows.
        schema: of their views.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, version: Version | None = None, *, schema: str = "stored"
    ) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        for word in WORDS:
            connection.execute(word)
        make_views(connection, version or Version(Path(), Manifest()), schema=schema)

    def make(self, name: str, statement: str) -> None:
        """Make the table `name` of a statement's rows."""
        with self._lock:
            self._connection.execute(f"create or replace table {name} as {statement}")

    def put(self, name: str, rows: Any) -> None:
        """Make the table `name` of an Arrow table."""
        columns = (_column(one.name, str(one.type).partition("[")[0].upper()) for one in rows.schema)
        with self._lock:
            self._connection.register("arrow_rows", rows)
            self._connection.execute(f"create or replace table {name} as select {', '.join(columns)} from arrow_rows")
            self._connection.unregister("arrow_rows")

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a table, by column."""
        with self._lock:
            return as_rows(self._connection.execute(f"select * from {name}"))

    def arrow(self, name: str) -> Any:
        """Return the rows of a table as an Arrow table; times are instants, and sums whole numbers of 64 bits."""
        with self._lock:
            found = self._connection.table(name)
            columns = zip(found.columns, map(str, found.types), strict=True)
            return found.project(_exported(dict(columns))).to_arrow_table()


def as_rows(done: duckdb.DuckDBPyConnection) -> list[Row]:
    """Return the result of an executed statement, by column."""
    names = [column[0] for column in done.description or ()]
    return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


_EXPORTED: Final = {"TIMESTAMP": 'make_timestamptz(epoch_us("{0}"))', "HUGEINT": 'cast("{0}" as bigint)'}


def _exported(columns: Mapping[str, str]) -> str:
    """Return columns, by name and type, as files hold them."""
    return ", ".join(_EXPORTED.get(kind, '"{0}"').format(name) + f' as "{name}"' for name, kind in columns.items())


# Files of the tables. One without rows has the columns for every reader, from the first version on.


def no_rows(table: str) -> str:
    """Return the columns of a table as a list of SQL's nulls. Times are instants, as Spark writes them."""
    kinds = {"TIMESTAMP": "TIMESTAMPTZ"}
    return ", ".join(f'cast(null as {kinds.get(kind, kind)}) as "{name}"' for name, kind in TABLES[table].items())


def rows_sql(table: str, files: Sequence[Place]) -> str:
    """Return the query of the rows in some of a table's files: all of its columns, whatever the files have."""
    dated = table in DATED
    empty = f"select {no_rows(table)}{', cast(null as date) as date' if dated else ''} where false"
    if not files:
        return empty
    listed = ", ".join(quoted(file) for file in files)
    return (
        f"{empty} union all by name select * from read_parquet([{listed}], union_by_name = true, "
        f"hive_partitioning = {str(dated).lower()})"
    )


def make_views(connection: duckdb.DuckDBPyConnection, version: Version, *, schema: str = "main") -> None:
    """Make a view for each table of a version, in a connection. Raises OSError: a store cannot be read."""
    connection.execute(f"create schema if not exists {schema}")
    for table in TABLES:
        connection.execute(f"create view {schema}.{table} as {_rows_of(connection, version, table)}")


def _rows_of(connection: duckdb.DuckDBPyConnection, version: Version, table: str) -> str:
    """Return the query of a table's rows in a version; columns that older files lack are null."""
    dated = table in DATED
    columns = ", ".join(_column(name, kind) for name, kind in TABLES[table].items()) + (", date" if dated else "")
    files = [version.path / table / file.name for file in version.manifest.of(table) if file.rows]
    source = rows_sql(table, files)
    if isinstance(version.path, StorePath) and files:  # duckdb reaches no store by itself
        connection.register(f"stored_{table}", version.path.rows(files, arrow_schema(TABLES[table], dated=dated)))
        source = f"select * from stored_{table}"
    return f"select {columns} from ({source})"


def _column(name: str, kind: str) -> str:
    """Return a column; files hold instants, which duckdb would call TIMESTAMP WITH TIME ZONE."""
    return f'make_timestamp(epoch_us("{name}")) as "{name}"' if kind == "TIMESTAMP" else f'"{name}"'


def quoted(path: Place) -> str:
    """Return a path as a literal of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def empty_name(table: str) -> str:
    """Return the name of a table's file without rows."""
    return f"date={NO_DATE}/empty.parquet" if table in DATED else "empty.parquet"


@cache
def empty_file(table: str) -> bytes:
    """Return a Parquet file of a table's columns, without rows."""
    with tempfile.TemporaryDirectory(prefix="paired-tables-") as folder, duckdb.connect() as connection:
        path = Path(folder) / "empty.parquet"
        write_rows(connection, path, table, f"select {no_rows(table)} where false")
        return path.read_bytes()


def write_rows(connection: duckdb.DuckDBPyConnection, path: Place, table: str, query: str) -> None:
    """Write a query's rows as one file of a table; columns that it lacks are null. Raises OSError."""
    none = ", ".join(f'cast(null as {kind}) as "{name}"' for name, kind in TABLES[table].items())
    whole = f"select {_exported(TABLES[table])} from (select {none} where false union all by name ({query}))"
    try:
        connection.execute(f"copy ({whole}) to {quoted(path)} (format parquet, compression zstd)")
    except duckdb.IOException as error:
        raise OSError(f"{path} cannot be written: {error}") from error

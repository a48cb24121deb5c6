"""A table's file without rows: its columns are there for every reader from the first version on."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import duckdb

from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.store_path import Place, StorePath

NO_DATE: Final = "1970-01-01"
"""The partition of rows without a time."""


def empty_name(table: str) -> str:
    """Return the name of a table's file without rows."""
    return f"date={NO_DATE}/empty.parquet" if table in DATED else "empty.parquet"


def write_empty(path: Place, table: str) -> None:
    """Write a file of a table's columns. Raises OSError."""
    if isinstance(path, StorePath):  # duckdb writes files of this machine
        with tempfile.TemporaryDirectory(prefix="paired-tables-") as folder:
            write_empty(Path(folder) / "empty.parquet", table)
            path.write_bytes((Path(folder) / "empty.parquet").read_bytes())
        return
    with duckdb.connect(config={"threads": 1}) as connection:
        write_rows(connection, path, table, f"select {no_rows(table)} where false")


def no_rows(table: str) -> str:
    """Return the columns of a table as a list of SQL's nulls. Times are instants, as Spark writes them."""
    kinds = {"TIMESTAMP": "TIMESTAMPTZ"}
    return ", ".join(f'cast(null as {kinds.get(kind, kind)}) as "{name}"' for name, kind in TABLES[table].items())


def write_rows(connection: duckdb.DuckDBPyConnection, path: Place, table: str, query: str) -> None:
    """Write a query's rows as one file of a table; columns that it lacks are null. Raises OSError."""
    whole = f"select {no_rows(table)} where false union all by name ({query})"
    target = str(path).replace("'", "''")
    try:
        connection.execute(f"copy ({whole}) to '{target}' (format parquet, compression zstd)")
    except duckdb.IOException as error:
        raise OSError(f"{path} cannot be written: {error}") from error

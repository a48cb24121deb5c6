"""`paired tables query`: one SELECT over the newest version of the tables, which reaches nothing else.

duckdb reads only the version's folder, loads no extension and takes no setting. Statements other than SELECT are
refused before they run, so no query writes a file.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import msgspec

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import harmless, one_line
from paired_servicebus.pipeline.table_store import manifest
from paired_servicebus.pipeline.table_store.manifest import Version
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import SpillFolder, view
from paired_servicebus.printing import print_lines, print_object, report_error

QueryFormat = Literal["table", "json", "csv"]
MAX_TABLE_ROWS: Final = 10_000
"""Rows of a table for people."""
_FETCHED_ROWS: Final = 2_000
_CLOSED: Final = (
    "set allowed_directories = ['{place}']",
    "set enable_external_access = false",
    "set lock_configuration = true",
)


def run_query(folder: Path, sql: str, *, format_: QueryFormat) -> int:
    """Print the rows of a query.

    Raises PairedError: there are no tables, the query does more than read, or duckdb refuses it.
    """
    version = manifest.newest(folder)
    if version.note:
        report_error(version.note)
    with closed_connection(version) as connection:
        names, rows = selected(connection, sql)
        try:
            _print(format_, names, rows, version)
        except duckdb.Error as error:
            raise PipelineError(f"the query failed: {one_line(str(error))}") from error
    return 0


@contextmanager
def closed_connection(version: Version) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with a view for each table, which reads that version's files and nothing else."""
    spill = SpillFolder()
    try:
        with _connect(version, spill) as connection:
            yield connection
    finally:
        spill.remove()


def _connect(version: Version, spill: SpillFolder) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={
            "threads": 2,
            "memory_limit": "1GB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "temp_directory": spill.path,  # duckdb also reads there: its default, ./.tmp, is anybody's
        }
    )
    place = version.path.resolve()
    for table in TABLES:
        connection.execute(f"create view {table} as {view(place, version.manifest, table)}")
    for statement in _CLOSED:
        connection.execute(statement.format(place=str(place).replace("'", "''")))
    return connection


def selected(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the columns and the rows of a query. Raises PipelineError: it does more than read, or is wrong."""
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise PipelineError(f"the query has {len(statements)} statements: give one SELECT")
        if statements[0].type != duckdb.StatementType.SELECT:
            kind = statements[0].type.name.replace("_", " ")
            raise PipelineError(f"the statement is {kind}, and the tables are only read: give one SELECT")
        done = connection.execute(statements[0])
    except duckdb.Error as error:
        raise PipelineError(f"the query is refused: {one_line(str(error))}") from error
    return [str(column[0]) for column in done.description or ()], _fetched(done)


def _fetched(done: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := done.fetchmany(_FETCHED_ROWS):
        yield from rows


def _print(format_: QueryFormat, names: list[str], rows: Iterator[tuple[Any, ...]], version: Version) -> None:
    if format_ == "csv":
        _print_csv(names, rows)
    elif format_ == "json":
        found = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
        print_object(msgspec.json.encode({"batch": version.manifest.batch, "rows": found}).decode())
    else:
        print_lines(as_table(names, rows))


def as_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return aligned columns as lines, MAX_TABLE_ROWS at most; numbers are to the right."""
    shown: list[Sequence[Any]] = []
    for row in rows:
        if len(shown) == MAX_TABLE_ROWS:
            break
        shown.append(row)
    else:
        return [*_aligned(names, shown), _counted(len(shown))]
    return [*_aligned(names, shown), f"only the first {MAX_TABLE_ROWS:,} rows: --format csv prints all"]


def _aligned(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    cells = [[_text(name) for name in names], *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [all(isinstance(row[place], int | float | None) for row in rows) for place in range(len(names))]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in cells
    ]
    return [lines[0], "  ".join("─" * width for width in widths), *lines[1:]]


def _counted(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _print_csv(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_text(name) for name in names])
    for row in rows:
        writer.writerow(["" if value is None else _text(value) for value in row])
        sys.stdout.write(buffer.getvalue())
        buffer.seek(0)
        buffer.truncate()
    sys.stdout.write(buffer.getvalue())


def _text(value: object) -> str:
    """Return a value as harmless text without secrets."""
    if value is None:
        return ""
    plain = _plain(value)
    return masked(harmless(plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()))


def _plain(value: object) -> object:
    """Return a value as JSON has it; times in UTC."""
    if isinstance(value, datetime):
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware.isoformat().replace("+00:00", "Z")
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value.hex() if isinstance(value, bytes) else str(value)

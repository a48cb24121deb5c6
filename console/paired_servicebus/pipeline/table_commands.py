"""`paired tables check`, `query` and `retire`.

A query is one SELECT over the newest version of the tables, which reaches nothing else.

duckdb itself refuses the rest: it opens the version's data files and its own spill folder, loads no extension, and its
settings are locked. Statements other than SELECT are refused before they run.
"""

from __future__ import annotations

import csv
import getpass
import io
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import msgspec

from paired_servicebus.core.errors import ConfigurationError, NoTablesError, PipelineError
from paired_servicebus.core.model.pairing_events import EngineRetired, Record
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import age, day_and_clock
from paired_servicebus.core.text.untrusted_text import harmless, one_line, repeated
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import SUFFIX
from paired_servicebus.pipeline.ingest.journal_files import find_journal_files
from paired_servicebus.pipeline.judging.derived_sql import RETIRED_BOOT
from paired_servicebus.pipeline.table_store import manifest
from paired_servicebus.pipeline.table_store.manifest import Version
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.sql_engine import make_views
from paired_servicebus.pipeline.table_store.store_path import Place, place_of, write_whole
from paired_servicebus.pipeline.table_store.table_reader import Tables, connected
from paired_servicebus.printing import print_lines, print_object, report_error
from paired_servicebus.settings import seconds_of

# `paired tables check`: whether the tables are fresh and whole, for a person and for a monitor.
#
# Exit status 0 fresh and whole; 1 stale, with gaps, with an incomplete journal, or not judged; 3 no readable tables.

FRESH: Final = 0
STALE: Final = 1
NONE: Final = 3
GONE: Final = 24 * 3600.0
"""Seconds without a record after which an engine that left no end is one that was removed."""
MAX_NAMED: Final = 10
"""Engines that are named; the rest is counted."""


class EngineJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of one engine, over all its boots."""

    engine: str
    missing: int
    """Records that its numbers lack."""
    last_at: float
    """The time of its newest record, seconds since the epoch."""
    is_running: bool
    """Whether its latest boot has no end in it."""


class TablesCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the tables. Times are seconds since the epoch; 0: never."""

    status: int
    batch: int
    written_at: float
    newest_at: float
    """The time of the newest record."""
    age: float | None
    """Seconds from the newest record to now; None: there is no record."""
    max_age: float
    engines: int
    complete: int
    incomplete: tuple[EngineJournal, ...]
    """With missing records, or running and older than the newest record by more than `max_age`, up to a day."""
    missing: int
    unreadable: int
    """Lines that could not be read."""
    unjudged: int
    """Files of events that no judgement has taken yet."""
    judged_at: float
    note: str
    """About a damaged newer version; empty without one."""


def run_check(folder: Place, *, max_age: str, json_line: bool) -> int:
    """Print the state of the tables; return the exit status.

    Raises ConfigurationError: `max_age` is no time.
    """
    seconds = seconds_of(max_age)
    if seconds is None or seconds <= 0:
        raise ConfigurationError(f'--max-age is {max_age!r}; it is a time, as in "10m"')
    try:
        with Tables.open(folder) as tables:
            found = check_tables(tables, max_age=seconds, now=time.time())
    except NoTablesError as error:
        report_error(str(error))
        return NONE
    if json_line:
        print_object(msgspec.json.encode(found).decode())
    else:
        print_lines(as_lines(found, folder))
    return found.status


def check_tables(tables: Tables, *, max_age: float, now: float) -> TablesCheck:
    """Return the state of the tables at a time. Raises NoTablesError."""
    manifest = tables.manifest
    engines = [EngineJournal(**row) for row in tables.rows(_ENGINES)]
    newest = max((one.last_at for one in engines), default=manifest.end(now) / 1e6)
    incomplete = tuple(
        one for one in engines if one.missing or (one.is_running and max_age < newest - one.last_at < GONE)
    )
    unjudged = len(manifest.unjudged())
    judged_late = bool(unjudged) and now - manifest.judged_at > max_age
    is_fresh = bool(newest) and now - newest <= max_age
    is_whole = not incomplete and not judged_late and not tables.note
    return TablesCheck(
        status=FRESH if is_whole and is_fresh else STALE,
        batch=manifest.batch,
        written_at=manifest.written_at,
        newest_at=newest,
        age=max(0.0, now - newest) if newest else None,
        max_age=max_age,
        engines=len(engines),
        complete=len(engines) - len(incomplete),
        incomplete=incomplete,
        missing=tables.rows(_MISSING)[0]["missing"],
        unreadable=tables.unreadable()[0],
        unjudged=unjudged,
        judged_at=manifest.judged_at,
        note=tables.note,
    )


def as_lines(found: TablesCheck, folder: Place) -> list[str]:
    """Return the state as lines, the worst first."""
    fresh = "they have no record"
    if found.age is not None:
        limit = f": more than {age(found.max_age)}" if found.age > found.max_age else ""
        fresh = f"the newest record is of {_moment(found.newest_at)}, {age(found.age)} ago{limit}"
    lines = [
        f"tables in {folder}: {'fresh and whole' if found.status == FRESH else 'NOT fresh and whole'}",
        f"  {fresh}; batch {found.batch}, written {_moment(found.written_at)}",
        f"  {found.complete:,} of {found.engines:,} engines' journals are complete; {found.missing:,} records missing",
        *(f"    {line}" for line in _incomplete(found)),
    ]
    if found.unreadable:
        lines.append(
            f"  {found.unreadable:,} lines of the journals could not be read: they are in events, with trouble"
        )
    if found.unjudged:
        judged = f"the last judgement was {_moment(found.judged_at)}" if found.judged_at else "nothing is judged yet"
        lines.append(f"  not judged: {found.unjudged:,} files of events; {judged}")
    return [*lines, *([f"  {found.note}"] if found.note else [])]


def _incomplete(found: TablesCheck) -> Iterator[str]:
    for one in found.incomplete[:MAX_NAMED]:
        missing = f"{one.missing:,} records missing" if one.missing else "running, and silent"
        yield f"{repeated(one.engine)}: {missing}; its newest record is of {_moment(one.last_at)}"
    if len(found.incomplete) > MAX_NAMED:
        yield f"and {len(found.incomplete) - MAX_NAMED:,} more"


def _moment(at: float) -> str:
    return f"{day_and_clock(at)} UTC" if at else "never"


_ENGINES: Final = """
select coalesce(engine, '') as engine, coalesce(sum(missing), 0)::bigint as missing,
       coalesce(epoch_us(max(last_at)) / 1e6, 0) as last_at,
       coalesce(arg_max(ended in ('running', 'silent'), last_at), false) as is_running
from engines group by all order by missing desc, last_at, engine
"""


_MISSING: Final = "select coalesce(sum(missing), 0)::bigint as missing from gaps"


QueryFormat = Literal["table", "json", "csv"]
MAX_TABLE_ROWS: Final = 10_000
"""Rows of a table for people."""
_FETCHED_ROWS: Final = 2_000
_CLOSED: Final = (
    "set allowed_paths = [{files}]",
    "set enable_external_access = false",
    "set lock_configuration = true",
)
SPILL_LIMIT: Final = "10GB"
"""How much a query may write for want of memory."""
_OWN: Final[dict[str, str | bool | float]] = {
    "threads": 2, "memory_limit": "1GB", "max_temp_directory_size": SPILL_LIMIT, "autoload_known_extensions": False,
    "allow_community_extensions": False, "python_enable_replacements": False,
}  # fmt: skip


def run_query(folder: Place, sql: str, *, format_: QueryFormat) -> int:
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
    with connected(**_OWN) as connection:
        _close(connection, version)
        yield connection


def _close(connection: duckdb.DuckDBPyConnection, version: Version) -> None:
    place = version.path.resolve() if isinstance(version.path, Path) else version.path
    make_views(connection, replace(version, path=place))
    paths = [str(place / table / file.name) for table in TABLES for file in version.manifest.of(table)]
    listed = paths if isinstance(place, Path) else []  # duckdb itself reads nothing of a store
    files = ", ".join("'" + path.replace("'", "''") + "'" for path in listed)
    for statement in _CLOSED:
        connection.execute(statement.replace("{files}", files))


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
        sys.stdout.writelines(csv_lines(names, rows))
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
    right = [all(isinstance(row[place], int | float | None) for row in rows) for place in range(len(names))]
    return aligned([[_text(value) for value in row] for row in (names, *rows)], right)


def aligned(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Return a head and rows as lines of aligned columns, with a rule between. right: of each column, whether to it."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
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


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield lines of CSV; a text that a spreadsheet would take for a formula has an apostrophe before it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in chain((names,), rows):
        writer.writerow([_cell(value) for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def _cell(value: object) -> str:
    text = "" if value is None else _text(value)
    return f"'{text}" if isinstance(value, str) and text[:1] in ("=", "+", "-", "@") else text


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


# `paired tables retire`: declares an engine gone for good, by a record in the journals that the judge reads.
#
# An engine that was killed and never started again might have records elsewhere, so every later loss stays unknown.
# With this record its end is its last record here, and every verdict says so. One that starts again counts as before.

FOLDER: Final = "retired"
"""Beside a journal's own folders, which belong to its engine."""
MOST_NAMED: Final = 10
FIRST_BYTES: Final = 64 * 1024
"""Of a file: they have its first record."""


def run_retire(journal: Place, engine: str, *, why: str) -> int:
    """Declare an engine of a journal gone, and say so. Raises PipelineError."""
    path = retire(journal, engine, why=why, by=getpass.getuser(), now=time.time())
    print_lines([f"{engine} is declared gone for good in {path}: its end is its last record, at the next judgement"])
    return 0


def retire(journal: Place, engine: str, *, why: str, by: str, now: float) -> Place:
    """Write the record, and return its file.

    Raises PipelineError: no reason, no journal, no record of such an engine in it, or a folder that cannot be written.
    """
    if not why.strip():
        raise PipelineError("the reason is empty: --why says how you know that the engine is gone")
    known = _engines(journal)
    if engine not in known:
        named = ", ".join(repeated(one) for one in sorted(known)[:MOST_NAMED])
        raise PipelineError(f"the journal in {journal} has no engine {repeated(engine)}; it has {named or 'none'}")
    boot = f"{RETIRED_BOOT}{int(now * 1000):013d}"
    event = EngineRetired(at=now, by=by, why=one_line(why.strip()))
    line = records.encode(Record(engine=engine, boot=boot, seq=1, event=event))
    path = place_of(journal) / FOLDER / f"{boot}-000000000001{SUFFIX}"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, line + b"\n")
    except OSError as error:
        raise PipelineError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _engines(journal: Place) -> set[str]:
    """Return the engines that began a file of the journal. Raises PipelineError."""
    found: set[str] = set()
    for one in find_journal_files([journal]).files:
        try:
            with one.path.open("rb") as file:
                record = records.decode(file.read(FIRST_BYTES).partition(b"\n")[0])
        except (OSError, records.UnreadableLineError):
            continue
        if record is not None:
            found.add(record.engine)
    return found

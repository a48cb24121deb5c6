"""The pipeline's tables without Spark: made from journal files by the pipeline's own SQL, which duckdb runs.

    with JournalTables.open([places.spool]) as tables:
        tables.verdict()
        tables.store(folder)  # in the pipeline's layout

The tables and columns are those of the pipeline, so a report reads both alike. A journal of more than MAX_EVENTS needs
the pipeline: this makes everything again for each start. `recent` makes the episodes of the newest part alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import duckdb

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.engine.journal.reader import files_of
from paired_servicebus.pipeline.ingest.journal_files import JournalFile, find_journal_files
from paired_servicebus.pipeline.ingest.journal_lines import load_events
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.judging.derived_sql import ONCE, STORY_KINDS
from paired_servicebus.pipeline.judging.judge import derive, judge
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File, RecordSpan
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES, date_sql, time_column
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine, write_rows
from paired_servicebus.pipeline.table_store.store_path import Place
from paired_servicebus.pipeline.table_store.table_reader import TableQueries

MAX_EVENTS: Final = 5_000_000
MAX_RECENT: Final = 24 * 1024 * 1024
RECENT_KINDS: Final = (*STORY_KINDS, "engine-started", "engine-stopped", "engine-retired", "sends", "operations")
"""Kinds of events that episodes and their figures are made of."""
TOO_MANY: Final = (
    "the journal has {lines:,} records, and {most:,} at most are judged without the pipeline: run paired pipeline "
    "--once, which needs the extra spark"
)
Row = dict[str, Any]


class JournalTables(TableQueries):
    """The tables of a journal as it was when they were opened.

    note: what was left out, a sentence; empty: nothing.
    """

    def __init__(self, folders: tuple[Place, ...], note: str) -> None:
        super().__init__()
        self.folders, self.note, self.batch = folders, note, 0
        self.written_at = self.read_at
        self._connect()

    @classmethod
    def recent(cls, journals: Sequence[Path], *, most_bytes: int = MAX_RECENT) -> Self:
        """Return the tables of the newest part of some engines' journals, for a screen. Their messages are not judged.

        Args:
            journals: folders of the engines' journals; those that are not there are left out.
            most_bytes: of each journal, the newest that are read, in whole files; also those that are being written.

        Raises PipelineError: there is no journal, or it cannot be read.
        """
        there = [one for one in journals if one.is_dir()]
        if not there:
            raise PipelineError(f"there is no journal in {', '.join(map(str, journals))}")
        tables = cls(tuple(there), "")
        with tables._closed_by_errors():
            tables._make_recent([path for one in there for path in _newest_files(one, most_bytes)])
        return tables

    @property
    def since(self) -> float | None:
        """The time of the oldest record, in seconds since the epoch; None: there is none."""
        found = self.rows("select epoch_us(min(event_time)) / 1e6 as since from events where trouble is null")
        since: float | None = found[0]["since"]
        return since

    @classmethod
    def open(cls, roots: Sequence[Place], *, most: int = MAX_EVENTS, in_flight: int = IN_FLIGHT) -> Self:
        """Return the tables of the journal files below some folders.

        Args:
            most: events that are judged.
            in_flight: microseconds that a message is in flight at least.

        Raises PipelineError: no files, too many events, or a file that cannot be read.
        """
        found = find_journal_files(roots)
        found.require()
        left_out = f"{found.being_written} files of running engines are not whole yet, and are left out"
        tables = cls(found.roots, left_out if found.being_written else "")
        with tables._closed_by_errors():
            _check_size(found.files, most)
            tables._make([file.path for file in found.files], in_flight)
        return tables

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.__exit__(None, None, None)
            raise PipelineError(f"{error.filename or 'a file'} cannot be read: {error.strerror or error}") from error
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter. Raises NoTablesError."""
        try:
            return self.fetched(query, parameters)
        except duckdb.OutOfMemoryException as error:
            raise NoTablesError(f"the tables of {self.folders[0]} need more memory: {error}") from error

    def _make(self, files: Sequence[Place], in_flight: int) -> None:
        engine = DuckdbEngine(self._connection)
        load_events(self._connection, files)
        if self.rows(_REPEATS)[0]["repeats"]:
            engine.make("events", ONCE.format(events="events"))
        derive(engine)
        end = self.rows("select epoch_us(max(event_time)) as newest from events where trouble is null")[0]["newest"]
        judge(engine, now=min(end or 0, round(self.read_at * 1e6)), in_flight=in_flight)
        self._shape()

    def _make_recent(self, files: Sequence[Path]) -> None:
        engine = DuckdbEngine(self._connection)
        load_events(self._connection, files, kinds=RECENT_KINDS)
        derive(engine)
        engine.make("episodes", _COUNTED)
        for table in ("receipts", "audit", "verdicts"):
            engine.make(table, f"select * from stored.{table}")
        self._shape()

    def _shape(self) -> None:
        for table, columns in TABLES.items():
            self._connection.execute(f"alter table {table} rename to made_{table}")
            self._connection.execute(f"create view {table} as {_shaped(table, columns)}")

    def store(self, folder: Path) -> Path:
        """Write every table to `folder`, which has none, in the pipeline's layout as its first version; return it.

        Raises PipelineError: the folder cannot be used; OSError: the disk refuses.
        """
        with Lake(folder) as lake, lake.staged("stored") as place:
            files = {table: self._staged(table, place) for table in TABLES}
            seen = tuple(RecordSpan(*row.values()) for row in self.rows(_SPANS))
            lake.commit(lambda _: Change(files=files, fields={"seen": seen, "judged": 1, "judged_at": time.time()}))
        return folder

    def _staged(self, table: str, place: Place) -> list[Staged]:
        """Write a table's rows, a file for each date."""
        when, dated = time_column(table), table in DATED
        dates = self.rows(f"select distinct date from {table} order by date") if dated else [{"date": ""}]
        span = f"min(epoch_us({when})) as first, max(epoch_us({when})) as last" if dated else "0 as first, 0 as last"
        found = []
        for number, day in enumerate(row["date"] for row in dates):
            path = place / f"{table}-{number}.parquet"
            rows = f"{table} where date = date '{day}'" if dated else table
            write_rows(self._connection, path, table, f"select * from {rows}")
            (row,) = self.rows(f"select count(*) as rows, {span} from {rows}")
            name = f"date={day}/stored.parquet" if dated else "stored.parquet"
            times = {"first_at": row["first"] or 0, "last_at": row["last"] or 0}
            found.append(Staged(path, File(name=name, rows=row["rows"], batch=1, **times)))
        return found


def _shaped(table: str, columns: dict[str, str]) -> str:
    """Return the query of a made table in exactly its columns, with its date."""
    listed = [f'cast("{name}" as {kind}) as "{name}"' for name, kind in columns.items()]
    if table in DATED:
        listed.append(date_sql(table))
    return f"select {', '.join(listed)} from made_{table}"


def _check_size(files: Iterable[JournalFile], most: int) -> None:
    """Raise PipelineError for more records than `most`."""
    lines = sum(file.path.read_bytes().count(b"\n") for file in files)
    if lines > most:
        raise PipelineError(TOO_MANY.format(lines=lines, most=most))


def _newest_files(journal: Path, most_bytes: int) -> list[Path]:
    """Return the newest files of a journal, the newest first; one that is gone has none. Raises OSError."""
    found, left = [], most_bytes
    for path in reversed(files_of(journal)):
        with suppress(FileNotFoundError):
            left -= path.stat().st_size
            found.append(path)
        if left <= 0:
            break
    return found


_SPANS: Final = """
select engine, boot, first, last, coalesce(epoch_us(first_at), 0), coalesce(epoch_us(last_at), 0) from spans
order by engine, boot, first
"""
"""The records that are in the tables, so that a pipeline that goes on with them reads none of them again."""
_COUNTED: Final = """
select * replace (coalesce(parked, (
    select sum(accepted)::bigint from events
    where kind = 'sends' and route <> 'primary' and trouble is null and events.engine = episodes.engine
      and lower(events.entity) = lower(episodes.entity)
      and event_time between began_at and coalesce(failed_back_at, last_at) + interval 1 second)) as parked)
from episodes
"""
"""Parked messages by the counts of sends, where no receipt was read."""
_REPEATS: Final = """
select count(*) > count(distinct case when seq is not null then (engine, boot, seq) end) as repeats from events
"""
"""Whether a record may be there twice, or lines have no number."""

"""The pipeline's tables without Spark: made from journal files by the pipeline's own SQL, which duckdb runs.

    with JournalTables.open([places.spool]) as tables:
        tables.verdict()

The tables and columns are those of the pipeline, so a report reads both alike. A journal of more than MAX_EVENTS needs
the pipeline: this makes everything again for each start.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.pipeline.ingest.journal_files import JournalFile, find_journal_files
from paired_servicebus.pipeline.ingest.journal_lines import load_events
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.judging.judge import derive, judge
from paired_servicebus.pipeline.judging.sql_engine import DuckdbEngine
from paired_servicebus.pipeline.table_store.empty_files import NO_DATE
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.table_reader import SETTINGS, SpillFolder, TableQueries

MAX_EVENTS: Final = 5_000_000
LONGEST: Final = 64 * 1024
"""Characters of an unreadable line that its row has."""
TOO_MANY: Final = (
    "the journal has {lines:,} records, and {most:,} at most are judged without the pipeline: run paired pipeline "
    "--once, which needs the extra spark"
)
Row = dict[str, Any]


class JournalTables(TableQueries):
    """The tables of a journal as it was when they were opened. A context manager, for one thread.

    folders: the roots. batch: 0, since no pipeline made them. note: what was left out, a sentence; empty: nothing.
    """

    batch: Final = 0

    def __init__(self, folders: tuple[Path, ...], note: str) -> None:
        self.folders = folders
        self.read_at = self.written_at = time.time()
        self.note = note
        self._spill = SpillFolder()
        self._connection = duckdb.connect(config=SETTINGS | {"temp_directory": self._spill.path})

    @classmethod
    def open(cls, roots: Sequence[Path], *, most: int = MAX_EVENTS, in_flight: int = IN_FLIGHT) -> Self:
        """Return the tables of the journal files below some folders.

        Args:
            most: events that are judged.
            in_flight: microseconds that a message is in flight at least.

        Raises PipelineError: no files, too many events, or a file that cannot be read.
        """
        found = find_journal_files(roots)
        found.require()
        left_out = f"{found.being_written} files of running engines are not whole yet, and are left out"
        tables = cls(tuple(roots), left_out if found.being_written else "")
        try:
            _check_size(found.files, most)
            tables._make([file.path for file in found.files], in_flight)
        except OSError as error:
            tables.__exit__(None, None, None)
            raise PipelineError(f"{error.filename} cannot be read: {error.strerror or error}") from error
        except BaseException:
            tables.__exit__(None, None, None)
            raise
        return tables

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._spill.remove()

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter. Raises NoTablesError."""
        try:
            done = self._connection.execute(query, list(parameters))
        except duckdb.OutOfMemoryException as error:
            raise NoTablesError(f"the tables of {self.folders[0]} need more memory: {error}") from error
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def _make(self, files: Sequence[Path], in_flight: int) -> None:
        engine = DuckdbEngine(self._connection)
        load_events(self._connection, files)
        if self.rows(_REPEATS)[0]["repeats"]:
            engine.make("events", _ONCE)
        derive(engine)
        end = self.rows("select epoch_us(max(event_time)) as newest from events where trouble is null")[0]["newest"]
        judge(engine, now=min(end or 0, round(self.read_at * 1e6)), in_flight=in_flight)
        for table, columns in TABLES.items():
            self._connection.execute(f"create or replace table {table} as {_shaped(table, columns)}")


def _shaped(table: str, columns: dict[str, str]) -> str:
    """Return the query of a table in exactly its columns, with its date."""
    listed = [f'cast("{name}" as {kind}) as "{name}"' for name, kind in columns.items()]
    if table in DATED:
        day = next(name for name in ("minute", "first_at", "event_time") if name in columns)
        listed.append(f"coalesce(cast({day} as date), date '{NO_DATE}') as date")
    return f"select {', '.join(listed)} from {table}"


def _check_size(files: Iterable[JournalFile], most: int) -> None:
    """Raise PipelineError for more records than `most`."""
    lines = sum(file.path.read_bytes().count(b"\n") for file in files)
    if lines > most:
        raise PipelineError(TOO_MANY.format(lines=lines, most=most))


_REPEATS: Final = """
select count(*) > count(distinct case when seq is not null then (engine, boot, seq) end) as repeats from events
"""
"""Whether a record may be there twice, or lines have no number."""
_ONCE: Final = """
with ranked as (
    select *, row_number() over (
        partition by engine, boot, seq, case when seq is null then file end, case when seq is null then line end
        order by trouble is not null, trouble, line) as nth
    from events
)
select * exclude (nth) from ranked where nth = 1
"""
"""Each record once, the readable one of two, and each line that is none."""

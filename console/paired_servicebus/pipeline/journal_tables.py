"""The pipeline's tables without Spark: made from journal files by the pipeline's own SQL, which duckdb runs.

    with JournalTables.open([places.spool]) as tables:
        tables.verdict()

The tables and columns are those of the pipeline, so a report reads both alike. A journal of more than MAX_EVENTS needs
the pipeline: this makes everything again for each start.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import msgspec

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.engine.journal.records import VERSION, UnreadableLineError, are_valid, decode
from paired_servicebus.pipeline.ingest.journal_files import JournalFile, find_journal_files
from paired_servicebus.pipeline.judging.audit_sql import IN_FLIGHT
from paired_servicebus.pipeline.judging.judge import derive, judge
from paired_servicebus.pipeline.judging.sql_engine import DuckdbEngine
from paired_servicebus.pipeline.table_store.empty_files import NO_DATE
from paired_servicebus.pipeline.table_store.schema import DATED, EVENTS, TABLES
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
            with tempfile.TemporaryDirectory(prefix="paired-journal-") as scratch:
                tables._make(_Lines(found.files, Path(scratch)), in_flight)
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

    def _make(self, lines: _Lines, in_flight: int) -> None:
        engine = DuckdbEngine(self._connection)
        engine.make("events", lines.query())
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


class _Header(msgspec.Struct):
    v: int
    engine: str
    boot: str
    seq: int
    ts: int
    kind: str


class _Lines:
    """The lines of journal files, sorted into records and others, in files that duckdb reads. Raises OSError."""

    def __init__(self, files: Iterable[JournalFile], scratch: Path) -> None:
        self._others = scratch / "others"
        self._records = scratch / "records"
        with self._records.open("wb") as records, self._others.open("wb") as others:
            for file in files:
                data = file.path.read_bytes().removeprefix(b"\xef\xbb\xbf")
                whole = data if data.endswith(b"\n") or not data else data + b"\n"
                if are_valid(whole):
                    records.write(whole)
                    continue
                for line in whole.split(b"\n"):
                    if line.strip():
                        row = _other(file.path.name, line)
                        (others if row else records).write((row or line) + b"\n")

    def query(self) -> str:
        """Return the query of the rows of `events`: each record once, and each line that is none."""
        kinds = {"ts" if name == "event_time" else name: kind for name, kind in EVENTS.items()}
        shape = {name: "DOUBLE" if kind == "TIMESTAMP" else kind for name, kind in kinds.items()} | {"ts": "BIGINT"}
        columns = ", ".join(
            "make_timestamp(ts) as event_time"
            if name == "event_time"
            else f'make_timestamp(cast("{name}" * 1e6 as bigint)) as "{name}"'
            if kind == "TIMESTAMP"
            else f'"{name}"'
            for name, kind in EVENTS.items()
        )
        listed = ", ".join(f"'{name}': '{kind}'" for name, kind in shape.items())
        read = " union all ".join(
            f"select {columns} from read_json('{str(path).replace(chr(39), chr(39) * 2)}', "
            f"format = 'newline_delimited', columns = {{{listed}}})"
            for path in (self._records, self._others)
        )
        return f"""
            with lines as ({read}),
            ranked as (
                select *, row_number() over (
                    partition by engine, boot, seq, case when seq is null then file end,
                                 case when seq is null then line end
                    order by trouble is not null, trouble, line) as nth
                from lines
            )
            select * exclude (nth) from ranked where nth = 1"""


def _other(file: str, line: bytes) -> bytes | None:
    """Return the row of a line that is no record of ours, as JSON; None: it is one."""
    try:
        if decode(line) is not None:
            return None
        header = msgspec.json.decode(line, type=_Header)
        trouble = "other format" if header.v != VERSION else "unknown kind"
        known = {"v": header.v, "engine": header.engine, "boot": header.boot, "seq": header.seq, "ts": header.ts,
                 "kind": header.kind}  # fmt: skip
    except UnreadableLineError:
        trouble, known = "torn", {}
    text = line[: 4 * LONGEST].decode("utf-8", "replace")[:LONGEST]
    return msgspec.json.encode({**known, "trouble": trouble, "line": text, "file": file})

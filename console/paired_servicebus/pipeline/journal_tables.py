"""The pipeline's tables without Spark: made from journal files by the project's own functions, in memory.

    with JournalTables.open([places.spool]) as tables:
        tables.verdict()

The tables and columns are those of the pipeline, so a report reads both alike. Pure functions make engines, episodes,
receipts, audit, verdicts and sums; duckdb holds the rows for queries. A journal of more than MAX_EVENTS needs the
pipeline: this takes the memory of one process, and makes everything again for each start.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import msgspec

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.core.judging.audit import BacklogReading, audit
from paired_servicebus.core.judging.engine_boots import BootFold, EngineBoot, pairings_of_engines
from paired_servicebus.core.judging.episode_stories import EpisodeFold
from paired_servicebus.core.judging.minute_sums import MinuteFold
from paired_servicebus.core.judging.receipts import IN_FLIGHT, ReceiptFold
from paired_servicebus.core.judging.verdicts import AuditVerdict, verdicts
from paired_servicebus.engine.journal.records import VERSION, UnreadableLineError, decode
from paired_servicebus.pipeline.ingest.journal_files import JournalFile, find_journal_files
from paired_servicebus.pipeline.judging.sql_engine import WORDS
from paired_servicebus.pipeline.table_store.empty_files import NO_DATE
from paired_servicebus.pipeline.table_store.schema import COUNTED_KINDS, DATED, EVENTS, TABLES, TIMELINE
from paired_servicebus.pipeline.table_store.table_reader import SETTINGS, SpillFolder, TableQueries

MAX_EVENTS: Final = 1_000_000
ROWS_AT_ONCE: Final = 10_000
"""Rows that reach duckdb in one statement."""
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

    def __init__(self, folders: tuple[Path, ...], made: _Made) -> None:
        self.folders = folders
        self.read_at = self.written_at = made.now
        self.note = made.note
        self._spill = SpillFolder()
        self._connection = duckdb.connect(config=SETTINGS | {"temp_directory": self._spill.path})
        for word in WORDS:
            self._connection.execute(word)
        for table, rows in made.tables().items():
            _load(self._connection, table, rows, made.scratch)
        _load_lines(self._connection, made.records)
        listed = ", ".join(f"'{kind}'" for kind in COUNTED_KINDS)
        columns = ", ".join(f'"{name}"' for name in (*TIMELINE, "date"))
        self._connection.execute(
            f"create view timeline as select {columns} from events where trouble is null and kind not in ({listed})"
        )

    @classmethod
    def open(cls, roots: Sequence[Path], *, most: int = MAX_EVENTS, in_flight: int = IN_FLIGHT) -> Self:
        """Return the tables of the journal files below some folders.

        Args:
            most: events that are judged.
            in_flight: microseconds that a message is in flight at least.

        Raises PipelineError: no files, too many events, or a file that cannot be read.
        """
        now = time.time()
        found = find_journal_files(roots)
        found.require()
        left_out = f"{found.being_written} files of running engines are not whole yet, and are left out"
        try:
            _check_size(found.files, most)
            with tempfile.TemporaryDirectory(prefix="paired-journal-") as scratch:
                made = _Made(now, in_flight, Path(scratch), left_out if found.being_written else "")
                made.take(found.files)
                return cls(tuple(roots), made)
        except OSError as error:
            raise PipelineError(f"{error.filename} cannot be read: {error.strerror or error}") from error

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


def _check_size(files: Iterable[JournalFile], most: int) -> None:
    """Raise PipelineError for more records than `most`."""
    lines = sum(file.path.read_bytes().count(b"\n") for file in files)
    if lines > most:
        raise PipelineError(TOO_MANY.format(lines=lines, most=most))


@dataclass(slots=True)
class _Made:
    """The tables under construction, from lines."""

    now: float
    in_flight: int
    scratch: Path
    """For files that duckdb reads."""
    note: str
    boots: BootFold = field(default_factory=BootFold)
    receipts: ReceiptFold = field(default_factory=ReceiptFold)
    minutes: MinuteFold = field(default_factory=MinuteFold)
    episodes: EpisodeFold = field(default_factory=EpisodeFold)
    troubled: dict[tuple[str, bytes], Row] = field(default_factory=dict)
    """Rows of lines that are no records of ours, by file and text."""
    newest: int = 0

    @property
    def records(self) -> Path:
        """The file of all records as they are, each once."""
        return self.scratch / "records"

    def take(self, files: Iterable[JournalFile]) -> None:
        """Take the files' lines. Raises OSError."""
        with self.records.open("wb") as records:
            for file in files:
                for line in file.path.read_bytes().split(b"\n"):
                    if line and self._take_line(file.path.name, line):
                        records.write(line + b"\n")

    def _take_line(self, file: str, line: bytes) -> bool:
        """Take a line; return whether it is a new record."""
        try:
            record = decode(line)
        except UnreadableLineError:
            self._note_trouble(file, line, "torn")
            return False
        if record is None:
            self._take_unknown(file, line)
            return False
        if not self.boots.add(record):
            return False
        self.newest = max(self.newest, round(record.event.at * 1e6))
        self.receipts.add(record)
        self.minutes.add(record)
        self.episodes.add(record)
        return True

    def _take_unknown(self, file: str, line: bytes) -> None:
        """Take a record of another release: its number counts."""
        header = msgspec.json.decode(line, type=_Header)
        if self.boots.note(header.engine, header.boot, header.seq, header.ts):
            trouble = "other format" if header.v != VERSION else "unknown kind"
            self._note_trouble(file, line, trouble, **_header_row(header))

    def _note_trouble(self, file: str, line: bytes, trouble: str, **known: Any) -> None:
        text = line[:LONGEST].decode("utf-8", "replace")
        self.troubled.setdefault((file, line), {**known, "trouble": trouble, "line": text, "file": file})

    def tables(self) -> dict[str, Sequence[object]]:
        """Return the rows of every table but `timeline`, by column or field; `events` has those that are no records.

        Times are in microseconds.
        """
        boots = self.boots.boots()
        now = min(self.newest, round(self.now * 1e6))
        receipts = self.receipts.receipts(self.boots.pairings())
        sums = self.minutes.rows()
        fates = audit(receipts, boots, _readings(sums["backlog"], boots), now=now, in_flight=self.in_flight)
        good = {key: sorted(times) for key, times in self.minutes.good.items()}
        return {
            "events": list(self.troubled.values()),
            **sums,
            "engines": boots,
            "gaps": [{**asdict(one), "missing": one.missing} for one in self.boots.gaps()],
            "episodes": self.episodes.rows(boots, good, receipts),
            "receipts": receipts,
            "audit": fates,
            "verdicts": [_verdict_row(one) for one in verdicts(fates, receipts, boots, now=now)],
        }


class _Header(msgspec.Struct):
    v: int
    engine: str
    boot: str
    seq: int
    ts: int
    kind: str


def _header_row(header: _Header) -> Row:
    return {"v": header.v, "engine": header.engine, "boot": header.boot, "seq": header.seq, "event_time": header.ts,
            "kind": header.kind}  # fmt: skip


def _readings(rows: Iterable[Row], boots: Sequence[EngineBoot]) -> Iterator[BacklogReading]:
    """Yield the last reading of each queue and minute."""
    pairings = pairings_of_engines(boots)
    for row in rows:
        if row.get("read_at") is not None:
            held = row["depth"] + row["scheduled"] + row["dead_lettered"]
            yield BacklogReading(pairing=pairings[row["engine"]], queue=row["queue"], read_at=row["read_at"], held=held)


def _verdict_row(one: AuditVerdict) -> Row:
    row = asdict(one)
    return {**row, **row.pop("counts")}


# -- into duckdb ---------------------------------------------------------------------------------------------------


def _load(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[object], scratch: Path) -> None:
    """Make a table of rows, in exactly its columns."""
    columns = [f"{_quoted(name)} {kind}" for name, kind in TABLES[table].items()]
    connection.execute(f"create table {table} ({', '.join([*columns, *(['date date'] if table in DATED else [])])})")
    if rows:
        path = scratch / table
        with path.open("wb") as file:
            for first in range(0, len(rows), ROWS_AT_ONCE):
                file.write(_ENCODER.encode_lines(rows[first : first + ROWS_AT_ONCE]))
        shape = {name: "BIGINT" if kind == "TIMESTAMP" else kind for name, kind in TABLES[table].items()}
        _insert(connection, table, path, shape, {})


def _load_lines(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Add records as they are to `events`; a record's time is `ts`, and its other times are in seconds."""
    kinds = {"ts" if name == "event_time" else name: kind for name, kind in EVENTS.items()}
    shape = {name: "DOUBLE" if kind == "TIMESTAMP" else kind for name, kind in kinds.items()} | {"ts": "BIGINT"}
    how = {
        name: f"make_timestamp(cast({_quoted(name)} * 1e6 as bigint))"
        for name, kind in EVENTS.items()
        if kind == "TIMESTAMP"
    }
    _insert(connection, "events", path, shape, how | {"event_time": "make_timestamp(ts)"})


def _insert(
    connection: duckdb.DuckDBPyConnection, table: str, path: Path, shape: dict[str, str], how: dict[str, str]
) -> None:
    """Add the rows in a file of JSON lines. shape: their fields. how: the SQL of columns that are no plain fields."""
    columns = [how.get(name, _plain(name, kind)) for name, kind in TABLES[table].items()]
    if table in DATED:
        day = next(name for name in ("minute", "first_at", "event_time") if name in TABLES[table])
        columns.append(f"coalesce(cast({how.get(day, _plain(day, 'TIMESTAMP'))} as date), date '{NO_DATE}')")
    kinds = ", ".join(f"'{name}': '{kind}'" for name, kind in shape.items())
    connection.execute(
        f"insert into {table} select {', '.join(columns)} "
        f"from read_json(?, format = 'newline_delimited', columns = {{{kinds}}})",
        [str(path)],
    )


def _plain(name: str, kind: str) -> str:
    return f"make_timestamp({_quoted(name)})" if kind == "TIMESTAMP" else _quoted(name)


def _quoted(name: str) -> str:
    return f'"{name}"'


_ENCODER: Final = msgspec.json.Encoder()

"""Events as Parquet files, one for each date, and what they hold. Runs in a task of Spark's; no Spark here.

Arrow writes the files: of an event's columns most are empty, and Spark's own writer took three times the CPU for them.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from paired_servicebus.core.model.pairing_events import KINDS
from paired_servicebus.engine.journal.records import LATEST, VERSION
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, held, merged
from paired_servicebus.pipeline.table_store.schema import (
    EVENT_FIELDS,
    EVENTS,
    HEADER,
    RECEIPT_KINDS,
    Columns,
    required_fields,
)

# Journal lines as typed events, in Arrow: blocks of lines, without Python code per line. No Spark here.
#
# An unreadable line becomes a row with its text and the reason in `trouble`: "torn" (no JSON object, or fields of other
# types), "foreign" (a field of our records is missing), "impossible" (a time or number out of range), "other format",
# "unknown kind". The last two keep their number and count as seen; their release makes the tables again.
#
# Spark's own from_json took three times the CPU for a journal of a million events.

TYPES: Final = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "DOUBLE[]": pa.list_(pa.float64()),
}
_IN_A_LINE: Final = {"TIMESTAMP": "DOUBLE"}
"""A field's time is in seconds; the record's own time is `ts`, in microseconds."""


def arrow_schema(columns: Columns) -> Any:
    """Return the columns as Arrow has them."""
    return pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])


LONGEST: Final = 64 * 1024
"""Characters of a bad line that its row has."""
_HEADER: Final[Columns] = {"ts" if name == "event_time" else name: kind for name, kind in HEADER.items()} | {
    "ts": "BIGINT"
}
_LINE: Final = arrow_schema({**_HEADER, **{name: _IN_A_LINE.get(kind, kind) for name, kind in EVENT_FIELDS.items()}})
_ROW: Final = arrow_schema(EVENTS)
_KINDS: Final = pa.array(sorted(KINDS))
_NUMBERED: Final = pa.array(["other format", "unknown kind"])
"""Troubles of lines that have a number nevertheless."""
_REQUIRED: Final = {name: pa.array(sorted(kinds)) for name, kinds in required_fields().items()}
_MOST: Final = 2**53
"""No count reaches it: sums of counts stay within 64 bits, and a double holds them."""


def events_of(lines: list[bytes], files: list[str]) -> Any:
    """Return a table of schema.EVENTS, a row for each line that is not blank. `files`: the file of each line."""
    kept = [(line, file) for line, file in zip(lines, files, strict=True) if line.strip()]
    lines = [line for line, _ in kept]
    if not lines:
        return _ROW.empty_table()
    objects = [line.lstrip().startswith(b"{") for line in lines]
    parts = _parsed([line if is_object else b"{}" for line, is_object in zip(lines, objects, strict=True)])
    table = pa.concat_tables([part if part is not None else _TORN for part in parts]).combine_chunks()
    whole = [part is not None for part in parts for _ in range(1 if part is None else part.num_rows)]
    torn = pc.invert(pc.and_(pa.array(whole), pa.array(objects)))
    trouble = _trouble(table, torn)
    if trouble.null_count == len(trouble):
        return _rows(table, trouble, pa.nulls(len(lines), pa.string()), pa.nulls(len(lines), pa.string()))
    troubled = pc.is_valid(trouble)
    texts = pa.array([line[: 4 * LONGEST].decode(errors="replace")[:LONGEST] for line in lines])
    names = pa.array([file for _, file in kept])
    return _rows(table, trouble, _where(troubled, texts), _where(troubled, names))


def events_of_block(block: bytes, file: str) -> Any:
    """Return a table of schema.EVENTS of whole lines of a file, a row for each that is not blank.

    A block of good lines is not cut into lines.
    """
    count = block.count(b"\n") + (not block.endswith(b"\n"))
    if block.startswith(b"{") and block.count(b"\n{") == count - 1:
        table = _read(block, count)
        if table is not None:
            trouble = _trouble(table, pa.scalar(value=False))
            if trouble.null_count == count:
                return _rows(table, trouble, pa.nulls(count, pa.string()), pa.nulls(count, pa.string()))
    lines = block.split(b"\n")
    return events_of(lines, [file] * len(lines))


def _read(data: bytes, count: int) -> Any | None:
    """Return so many lines as a table; None: one of them is torn.

    Each line begins as an object does: of a block that begins with `null` Arrow's reader takes the whole process down
    (apache/arrow#47409).
    """
    try:
        data.decode()  # Arrow does not look
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=_LINE, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, ValueError):  # one of Arrow's kinds of errors, or UnicodeDecodeError
        return None
    return table if table.num_rows == count else None


def _parsed(lines: list[bytes]) -> list[Any]:
    """Return the lines as tables, in order; None is a line that is torn, found by halving."""
    table = _read(b"\n".join(lines), len(lines))
    if table is not None:
        return [table]
    if len(lines) == 1:
        return [None]
    half = len(lines) // 2
    return _parsed(lines[:half]) + _parsed(lines[half:])


def _trouble(table: Any, torn: Any) -> Any:
    """Return the trouble of each row; null without one."""
    ours = pc.greater(table["seq"], 0)
    for name in _HEADER:
        ours = pc.and_kleene(pc.is_valid(table[name]), ours)
    known = pc.is_in(table["kind"], value_set=_KINDS)
    found = pc.if_else(_is_possible(table), pa.scalar(None, pa.string()), "impossible")
    found = pc.if_else(_lacks_a_field(table), "foreign", found)
    found = pc.if_else(known, found, "unknown kind")
    found = pc.if_else(pc.not_equal(pc.fill_null(table["v"], 0), VERSION), "other format", found)
    found = pc.if_else(pc.fill_null(ours, fill_value=False), found, "foreign")
    return pc.if_else(torn, "torn", found)


def _lacks_a_field(table: Any) -> Any:
    """Whether a row has not all that its kind cannot do without."""
    found = pa.scalar(value=False)
    for name, kinds in _REQUIRED.items():
        if table[name].null_count:
            found = pc.or_(found, pc.and_(pc.is_null(table[name]), pc.is_in(table["kind"], value_set=kinds)))
    return found


def _is_possible(table: Any) -> Any:
    """Whether a row's time and numbers can be."""
    found = _within(table["ts"], 0, LATEST - 1)
    for name, kind in {**EVENT_FIELDS, "seq": "BIGINT"}.items():
        if kind in ("BIGINT", "DOUBLE", "TIMESTAMP") and table[name].null_count < len(table):
            most = _MOST if kind != "TIMESTAMP" else LATEST // 1_000_000 - 1
            found = pc.and_(found, _within(table[name], -_MOST if kind != "TIMESTAMP" else 0, most))
    return found


def _within(numbers: Any, least: int, most: int) -> Any:
    """Whether a number that is there is one, and within bounds."""
    return pc.fill_null(pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most)), fill_value=True)


def _rows(table: Any, trouble: Any, line: Any, file: Any) -> Any:
    numbered = pc.or_(pc.is_null(trouble), pc.is_in(trouble, value_set=_NUMBERED))
    header = {name: _where(numbered, table[name]) for name in _HEADER}
    ts = header.pop("ts")
    possible = pc.and_(pc.greater_equal(ts, 0), pc.less(ts, LATEST))
    columns = {
        **header,
        "event_time": _where(pc.fill_null(possible, fill_value=False), ts).cast(TYPES["TIMESTAMP"]),
        **{name: _field(table[name], kind) for name, kind in EVENT_FIELDS.items()},
        "trouble": trouble,
        "line": line,
        "file": file,
    }
    return pa.table([columns[name] for name in EVENTS], schema=_ROW)


def _field(values: Any, kind: str) -> Any:
    if kind != "TIMESTAMP":
        return values
    possible = pc.and_(pc.greater_equal(values, 0.0), pc.less(values, LATEST / 1e6))
    seconds = _where(pc.fill_null(possible, fill_value=False), values)
    return pc.multiply(seconds, 1e6).cast(pa.int64(), safe=False).cast(TYPES[kind])


def _where(condition: Any, values: Any) -> Any:
    return pc.if_else(condition, values, pa.scalar(None, values.type))


_TORN: Final = pa.table([pa.nulls(1, field.type) for field in _LINE], schema=_LINE)


BLOCK: Final = 4 * 1024 * 1024
"""Bytes that are parsed at once."""
GROUP: Final = 100_000
"""Rows that are written at once, at least; fewer at a file's end."""
_MARK: Final = b"\xef\xbb\xbf"
"""Of UTF-8 at a file's start."""
_SCHEMA: Final = arrow_schema(EVENTS)
_REPEATING: Final = [
    field.name for field in _SCHEMA if pa.types.is_string(field.type) and field.name not in ("message_id", "line")
]
"""Columns that are written as numbers of their distinct values."""
_FIRST: Final = pa.scalar(0, TYPES["TIMESTAMP"])
"""A time in empty_files.NO_DATE."""
_RECEIPTS: Final = pa.array(RECEIPT_KINDS)


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What some events hold.

    spans: of their numbers. receiving: boots with receivers' records. troubled: files of lines without a number.
    numbered, receipts: how many. `bytes` were read for them.
    """

    files: dict[str, int] = {}
    """The written files, each with its rows."""
    bytes: int = 0
    spans: tuple[RecordSpan, ...] = ()
    receiving: tuple[tuple[str, str], ...] = ()
    troubled: tuple[str, ...] = ()
    numbered: int = 0
    receipts: int = 0

    def __add__(self, other: Contents) -> Contents:
        """Return what both hold."""
        return Contents(
            files=self.files | other.files,
            bytes=self.bytes + other.bytes,
            spans=merged(self.spans + other.spans),
            receiving=tuple(sorted({*self.receiving, *other.receiving})),
            troubled=tuple(sorted({*self.troubled, *other.troubled})),
            numbered=self.numbered + other.numbered,
            receipts=self.receipts + other.receipts,
        )

    def repeats(self, manifest: Manifest) -> bool:
        """Whether a record is in it twice, or may be in the tables already."""
        once = held(self.spans) == self.numbered
        new = held(merged(manifest.seen + self.spans)) == held(manifest.seen) + held(self.spans)
        return not (once and new and set(self.troubled).isdisjoint(manifest.troubled))


def write_files(files: Iterable[tuple[str, int]], folder: str) -> Contents:
    """Write the events of journal files, each a path with its bytes, below a folder. Raises OSError.

    A file that is not there has no bytes: an error would only move the task to a worker that sees the file.
    """
    writer = _EventWriter(Path(folder))
    read = 0
    for path, size in files:
        for number, block in enumerate(_blocks(path, size)):
            read += len(block)
            writer.add(events_of_block(block if number else block.removeprefix(_MARK), Path(path).name))
    return writer.close(read)


def write_batches(batches: Iterator[Any], folder: str) -> Contents:
    """Write Arrow batches of events below a folder. Raises OSError."""
    writer = _EventWriter(Path(folder))
    for batch in batches:
        writer.add(pa.Table.from_batches([batch]).select(list(EVENTS)).cast(_SCHEMA))
    return writer.close(0)


def _blocks(path: str, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file as blocks of whole lines; its last line may lack its end."""
    parts: list[bytes] = []
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - in the next statement
    except FileNotFoundError:
        return
    with file:
        while size and (data := file.read(min(BLOCK, size))):
            size -= len(data)
            end = data.rfind(b"\n") + 1
            if end:
                yield b"".join([*parts, data[:end]])
                parts = []
            parts.append(data[end:])
    if any(parts):
        yield b"".join(parts)


class _EventWriter:
    """Writes tables of events: those of a date are in one file, with a name that no other task uses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"{uuid.uuid4().hex}.parquet"
        self._held: dict[str, list[Any]] = defaultdict(list)
        self._open: dict[str, pq.ParquetWriter] = {}
        self._found = Contents()
        self._rows: dict[str, int] = defaultdict(int)

    def add(self, table: Any) -> None:
        """Add a table of events. Raises OSError."""
        self._found += contents_of(table)
        for day, rows in _by_day(table):
            self._rows[day] += rows.num_rows
            self._held[day].append(rows)
            if sum(one.num_rows for one in self._held[day]) >= GROUP:
                self._write(day)

    def close(self, read: int) -> Contents:
        """Write the rest; return what it all holds. Raises OSError."""
        for day in list(self._held):
            self._write(day)
            self._open[day].close()
        files = {str(self._path(day)): rows for day, rows in self._rows.items()}
        return self._found + Contents(files=files, bytes=read)

    def _path(self, day: str) -> Path:
        return self._folder / f"date={day}" / self._name

    def _write(self, day: str) -> None:
        if day not in self._open:
            self._path(day).parent.mkdir(parents=True, exist_ok=True)
            self._open[day] = pq.ParquetWriter(self._path(day), _SCHEMA, compression="zstd", use_dictionary=_REPEATING)
        if self._held[day]:
            self._open[day].write_table(pa.concat_tables(self._held[day]))
            self._held[day] = []


def _by_day(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows of each day, with its name; rows without a time are of the first."""
    days = pc.fill_null(pc.floor_temporal(table["event_time"], unit="day"), _FIRST)
    found = pc.unique(days)
    for day, name in zip(found, pc.strftime(found, "%Y-%m-%d").to_pylist(), strict=True):
        yield name, table if len(found) == 1 else table.filter(pc.equal(days, day))


def contents_of(table: Any) -> Contents:
    """Return what a table of events holds."""
    numbered = table.filter(pc.is_valid(table["seq"]))
    receiving = numbered.filter(pc.equal(numbered["kind"], "received")).select(["engine", "boot"])
    boots = receiving.group_by(["engine", "boot"]).aggregate([]).to_pylist()
    others = table["file"].filter(pc.is_null(table["seq"]))
    return Contents(
        spans=merged(tuple(_spans(numbered))),
        receiving=tuple(sorted((row["engine"], row["boot"]) for row in boots)),
        troubled=tuple(sorted(pc.unique(others).to_pylist())),
        numbered=numbered.num_rows,
        receipts=pc.sum(pc.is_in(numbered["kind"], value_set=_RECEIPTS)).as_py() or 0,
    )


def _spans(numbered: Any) -> Iterator[RecordSpan]:
    """Yield the spans of numbers that follow each other. A number that is there twice is in two spans."""
    if not numbered.num_rows:
        return
    keys = ("engine", "boot", "seq")
    rows = numbered.select([*keys, "event_time"]).sort_by([(key, "ascending") for key in keys]).combine_chunks()
    before, after = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    follows = pc.equal(pc.subtract(after["seq"], before["seq"]), 1)
    for key in keys[:2]:
        follows = pc.and_(follows, pc.equal(after[key], before[key]))
    ends = [row.as_py() for row in pc.indices_nonzero(pc.invert(follows))] + [rows.num_rows - 1]
    at = pc.fill_null(rows["event_time"].cast(pa.int64()), 0)
    firsts, lasts = rows.take([0, *(end + 1 for end in ends[:-1])]), rows.take(ends)
    columns = [firsts["engine"], firsts["boot"], firsts["seq"], lasts["seq"]]
    columns += [at.take([0, *(end + 1 for end in ends[:-1])]), at.take(ends)]
    for span in zip(*(column.to_pylist() for column in columns), strict=True):
        yield RecordSpan(*span)

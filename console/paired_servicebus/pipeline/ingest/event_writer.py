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
import pyarrow.parquet as pq

from paired_servicebus.pipeline.ingest.event_parser import TYPES, arrow_schema, events_of_block
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, held, merged
from paired_servicebus.pipeline.table_store.schema import EVENTS, RECEIPT_KINDS

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
    days = pc.fill_null(pc.floor_temporal(table["at"], unit="day"), _FIRST)
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
    rows = numbered.select([*keys, "at"]).sort_by([(key, "ascending") for key in keys]).combine_chunks()
    before, after = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    follows = pc.equal(pc.subtract(after["seq"], before["seq"]), 1)
    for key in keys[:2]:
        follows = pc.and_(follows, pc.equal(after[key], before[key]))
    ends = [row.as_py() for row in pc.indices_nonzero(pc.invert(follows))] + [rows.num_rows - 1]
    at = pc.fill_null(rows["at"].cast(pa.int64()), 0)
    firsts, lasts = rows.take([0, *(end + 1 for end in ends[:-1])]), rows.take(ends)
    columns = [firsts["engine"], firsts["boot"], firsts["seq"], lasts["seq"]]
    columns += [at.take([0, *(end + 1 for end in ends[:-1])]), at.take(ends)]
    for span in zip(*(column.to_pylist() for column in columns), strict=True):
        yield RecordSpan(*span)

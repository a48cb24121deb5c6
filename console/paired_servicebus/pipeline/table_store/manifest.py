"""The manifest: the tables' files and their sources. One file, replaced atomically.

A table is the Parquet files in the manifest; files of a killed pipeline are not among them. All tables of one manifest
belong together. Reading it needs no Spark.

`seen` turns "at least once" into "once": the numbers of the tables' records, as spans. A repeated record, from a file
read twice, a copied file or a lost checkpoint, is dropped. A hole in a span is a gap in the journal.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError, UnreadableError
from paired_servicebus.durable_file import replace_file
from paired_servicebus.foreign_json import read_json

NAME: Final = "manifest.json"
VERSION: Final = 1
"""Of the tables' layout and meaning; tables of another version are made anew from the journal."""


class File(msgspec.Struct, frozen=True):
    """A Parquet file, or a folder of them, of one table."""

    name: str
    """Below the table's folder."""
    rows: int
    last_ts: int
    """The newest record in it, microseconds since the epoch; 0: it has none."""
    batch: int
    """That it came with."""


class RecordSpan(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Records `first` to `last` of an engine's boot, all of them."""

    engine: str
    boot: str
    first: int
    last: int


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """Records that the journal should have between those that it has."""

    engine: str
    boot: str
    first: int
    last: int

    @property
    def missing(self) -> int:
        """How many."""
        return self.last - self.first + 1


class QueryPosition(msgspec.Struct, frozen=True):
    """How far one query of Spark's is in these tables."""

    checkpoint: str
    """Names one life of the query: batch numbers begin again when its checkpoint is lost."""
    batch: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The tables as of one batch."""

    version: int = VERSION
    life: str = ""
    """Changes when the tables are made anew."""
    batch: int = 0
    """How often the tables have changed."""
    written_at: float = 0.0
    files: dict[str, tuple[File, ...]] = {}
    """By table."""
    seen: tuple[RecordSpan, ...] = ()
    troubled: tuple[str, ...] = ()
    """Journal files with lines that have no number; they are whole, so each is taken once."""
    repeated: int = 0
    """Records that came again, and were left out."""
    sources: dict[str, QueryPosition] = {}
    judged: int = 0
    """The batch of the latest verdicts; later receipts are only in `events`."""
    entities: tuple[tuple[str, str], ...] = ()
    """Engines and all entities in their records."""

    def unjudged(self) -> tuple[File, ...]:
        """Return the files of events whose receipts are not in `audit` yet."""
        return tuple(file for file in self.of("events") if file.batch > self.judged)

    def of(self, table: str) -> tuple[File, ...]:
        """Return a table's files, oldest first."""
        return self.files.get(table, ())

    def end(self, clock: float) -> int:
        """Return the newest record's time in microseconds, or the clock's (given in seconds) if that is earlier.

        So a clock that ran ahead, or a changed digit, makes nothing old.
        """
        return min(max((file.last_ts for file in self.of("events")), default=0), int(clock * 1e6))

    def gaps(self) -> tuple[Gap, ...]:
        """Return the missing numbers, including a boot's first ones, which the journal may have removed."""
        found: list[Gap] = []
        ends: dict[tuple[str, str], int] = {}
        for span in sorted(self.seen):
            end = ends.get((span.engine, span.boot), 0)
            if span.first > end + 1:
                found.append(Gap(span.engine, span.boot, end + 1, span.first - 1))
            ends[span.engine, span.boot] = span.last
        return tuple(found)


def merged(spans: tuple[RecordSpan, ...]) -> tuple[RecordSpan, ...]:
    """Return the same records in as few spans as possible, sorted."""
    result: list[RecordSpan] = []
    for span in sorted(spans):
        last = result[-1] if result else None
        if last and (last.engine, last.boot) == (span.engine, span.boot) and span.first <= last.last + 1:
            result[-1] = RecordSpan(last.engine, last.boot, last.first, max(last.last, span.last))
        else:
            result.append(span)
    return tuple(result)


def held(spans: tuple[RecordSpan, ...]) -> int:
    """How many records they hold; of merged ones."""
    return sum(span.last - span.first + 1 for span in spans)


def read(folder: Path) -> Manifest:
    """Return the manifest of the tables in `folder`.

    Raises:
        NoTablesError: there is none, or it cannot be used.
        DamagedTablesError: it is there, and cannot be read.
    """
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NoTablesError(
            f"there are no tables in {folder}: paired pipeline --once makes them from the journal"
        ) from error
    except OSError as error:
        raise NoTablesError(f"the tables in {folder} cannot be read: {error.strerror or error}") from error
    try:
        version = read_json(_VERSION, data).version
        if version != VERSION:
            raise NoTablesError(
                f"the tables in {folder} are of version {version}, this program reads {VERSION}: "
                "paired pipeline --once makes them anew from the journal"
            )
        return read_json(_MANIFEST, data)
    except UnreadableError as error:
        raise DamagedTablesError(
            f"{path} is no manifest ({error}): move {folder} away, and run paired pipeline --once"
        ) from error


def write(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, so that a crash leaves the old one or the new one. Raises OSError."""
    replace_file(folder / NAME, msgspec.json.encode(manifest))
    sync(folder)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Version(msgspec.Struct):
    version: int


_VERSION: Final = msgspec.json.Decoder(_Version)
_MANIFEST: Final = msgspec.json.Decoder(Manifest)

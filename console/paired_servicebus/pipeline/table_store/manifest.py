"""The manifest: the files of one version of the tables, and the journal's records in them. Reading it needs no Spark.

`seen` turns "at least once" into "once": the numbers of the tables' records, as spans. A repeated record, from a file
read twice or a copied file, is dropped. A hole between spans is a gap in the journal.
"""

from __future__ import annotations

import os
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError, UnreadableError, other_format
from paired_servicebus.durable_file import replace_file
from paired_servicebus.foreign_json import read_json

NAME: Final = "manifest.json"
VERSION: Final = 2
"""Of the tables' layout and meaning."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of one table."""

    name: str
    """Below the table's folder, with its `date=…` folder."""
    rows: int
    size: int = 0
    """Bytes."""
    first_at: int = 0
    last_at: int = 0
    """The oldest and the newest record in it, microseconds since the epoch; 0: it has none."""
    batch: int = 0
    """Of its newest records."""
    merged: int = 0
    """How often its rows have been merged from smaller files."""

    @property
    def date(self) -> str:
        """Its partition; empty: its table has none."""
        folder, _, _ = self.name.rpartition("/")
        return folder.removeprefix("date=")


class RecordSpan(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Records `first` to `last` of an engine's boot, all of them, with the times of these two in microseconds."""

    engine: str
    boot: str
    first: int
    last: int
    first_at: int = 0
    last_at: int = 0


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


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the tables."""

    version: int = VERSION
    life: str = ""
    """Changes when the tables are made from nothing."""
    batch: int = 0
    """How often the tables have changed."""
    written_at: float = 0.0
    files: dict[str, tuple[File, ...]] = {}
    """By table."""
    seen: tuple[RecordSpan, ...] = ()
    troubled: tuple[str, ...] = ()
    """Journal files with lines that have no number."""
    repeated: int = 0
    """Records that came again, and were left out."""
    judged: int = 0
    """The batch of the latest judgement; later receipts are only in `events`."""
    judged_at: float = 0.0
    """When that was; 0: never."""
    unsettled: int = 0
    """Messages whose fate was open then: a later judgement may differ, without new receipts."""
    receipts: int = 0
    """Events about messages that are not judged yet."""
    receipts_batch: int = 0
    """The batch that brought the last of them."""

    def of(self, table: str) -> tuple[File, ...]:
        """Return a table's files, oldest first."""
        return self.files.get(table, ())

    def unjudged(self) -> tuple[File, ...]:
        """Return the files of events whose receipts are not in `receipts` yet."""
        return tuple(file for file in self.of("events") if file.batch > self.judged)

    def end(self, clock: float) -> int:
        """Return the newest record's time in microseconds, or the clock's (given in seconds) if that is earlier.

        So a clock that ran ahead, or a changed digit, makes nothing old.
        """
        return min(max((file.last_at for file in self.of("events")), default=0), int(clock * 1e6))

    def gaps(self) -> tuple[Gap, ...]:
        """Return the missing numbers, including a boot's first ones, which the journal may have removed."""
        found: list[Gap] = []
        for (engine, boot), spans in groupby(sorted(self.seen), key=lambda span: (span.engine, span.boot)):
            ends = [RecordSpan(engine, boot, 0, 0), *spans]
            found += [
                Gap(engine, boot, before.last + 1, after.first - 1)
                for before, after in pairwise(ends)
                if after.first > before.last + 1
            ]
        return tuple(found)


def merged(spans: tuple[RecordSpan, ...]) -> tuple[RecordSpan, ...]:
    """Return the same records in as few spans as possible, sorted."""
    result: list[RecordSpan] = []
    for span in sorted(spans):
        last = result[-1] if result else None
        if last and (last.engine, last.boot) == (span.engine, span.boot) and span.first <= last.last + 1:
            end = max(last, span, key=lambda one: one.last)
            result[-1] = RecordSpan(last.engine, last.boot, last.first, end.last, last.first_at, end.last_at)
        else:
            result.append(span)
    return tuple(result)


def held(spans: tuple[RecordSpan, ...]) -> int:
    """How many records they hold; of merged ones."""
    return sum(span.last - span.first + 1 for span in spans)


def read(place: Path) -> Manifest:
    """Return the manifest in a version's folder.

    Raises:
        NoTablesError: there is none, it cannot be read, or another version of this program made it.
        DamagedTablesError: it is there, and holds no manifest.
    """
    path = place / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedTablesError(f"{path} is missing") from error
    except OSError as error:
        raise NoTablesError(f"the tables in {place} cannot be read: {error.strerror or error}") from error
    try:
        version = read_json(_VERSION, data).version
        if version != VERSION:
            raise NoTablesError(
                other_format(f"the folder {place}", version, VERSION, "name another folder with --tables")
            )
        return read_json(_MANIFEST, data)
    except UnreadableError as error:
        raise DamagedTablesError(f"{path} is no manifest ({error})") from error


def write(place: Path, manifest: Manifest) -> None:
    """Write the manifest into a version's folder. Raises OSError."""
    replace_file(place / NAME, msgspec.json.encode(manifest))
    sync(place)


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

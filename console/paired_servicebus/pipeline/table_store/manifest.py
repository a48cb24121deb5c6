"""The manifest: the files of one version of the tables, and the journal's records in them. Reading it needs no Spark.

`seen` turns "at least once" into "once": the numbers of the tables' records, as spans. A repeated record, from a file
read twice or a copied file, is dropped. A hole between spans is a gap in the journal.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
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
    stream: str = ""
    """The name of the stream's checkpoint."""
    stream_batch: int = -1
    """The stream's newest batch in the tables: one that comes again is not taken."""
    young: dict[str, int] = {}
    """Journal files that were changed shortly before they were read, with their sizes; -1: one that was left for later,
    since it did not end with a whole line."""
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


# The versions of the tables on disk, and the newest whole one. No Spark, no duckdb.
#
#     tables/current                                            a link to the newest version, replaced atomically
#     tables/versions/v0000000123/manifest.json
#     tables/versions/v0000000123/minutes/date=2026-11-25/….parquet
#
# A version holds all files of all tables. Files that did not change are hard links to those of the version before, so a
# version costs only its new files. A program that opened one reads one state of all tables, whatever is written
# meanwhile.

CURRENT: Final = "current"
VERSIONS: Final = "versions"
OWN: Final = frozenset({CURRENT, VERSIONS, "staging", "work", "logs", "lock", "checkpoints", "published"})
"""The names in a folder of tables."""
_NAME: Final = re.compile(r"v(\d{10})")


@dataclass(frozen=True, slots=True)
class Version:
    """A whole version of the tables. `note`: a sentence about a damaged newer one; empty without one."""

    path: Path
    manifest: Manifest
    note: str = ""


def version_name(batch: int) -> str:
    """Return the name of a version's folder: names sort as versions do."""
    return f"v{batch:010d}"


def number_of(path: Path) -> int:
    """Return the number of a version's folder; -1: it is none."""
    found = _NAME.fullmatch(path.name)
    return int(found.group(1)) if found else -1


def version_paths(folder: Path) -> list[Path]:
    """Return the folders of the versions, the newest first. Raises OSError."""
    try:
        found = [path for path in (folder / VERSIONS).iterdir() if number_of(path) >= 0]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=number_of, reverse=True)


def newest(folder: Path) -> Version:
    """Return the version that `current` names; where that is damaged or missing, the newest whole one with a note.

    Raises:
        NoTablesError: there is none, it cannot be read, or another version of this program made it.
        DamagedTablesError: there are versions, and none is whole.
    """
    try:
        paths = version_paths(folder)
        named = folder / CURRENT
        chosen = named.resolve() if named.is_symlink() else None
    except OSError as error:
        raise NoTablesError(f"the tables in {folder} cannot be read: {error.strerror or error}") from error
    if not paths:
        whose(folder)
        raise NoTablesError(_none(folder))
    first = [chosen] if chosen is not None else []
    damage = "" if first else f"{named} is missing"
    for path in (*first, *(path for path in paths if path.resolve() != chosen)):
        try:
            manifest = _whole(path)
        except DamagedTablesError as error:
            damage = damage or str(error)
            continue
        return Version(path, manifest, _note(folder, manifest, damage))
    raise DamagedTablesError(
        f"no version of the tables in {folder} is whole ({damage}): move {folder} away, and run paired pipeline --once"
    )


def whose(folder: Path) -> str:
    """Return why a folder is not for tables, as a sentence; empty: it is new, or has tables.

    Raises:
        OSError: the folder cannot be read.
        NoTablesError: its tables have another format.
    """
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return f"the tables' folder {folder} is a file: name a folder with --tables"
    if (folder / NAME).is_file():  # where other formats have it
        read(folder)
    foreign = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} - OWN)
    if not foreign or version_paths(folder):
        return ""
    return (
        f"the folder {folder} has {foreign[0]} in it, which is not of tables: name a new or empty folder with --tables"
    )


def _whole(path: Path) -> Manifest:
    manifest = read(path)
    for table, files in manifest.files.items():
        for file in files:
            place = path / table / file.name
            try:
                size = place.stat().st_size
            except FileNotFoundError as error:
                raise DamagedTablesError(f"{place} is missing") from error
            except OSError as error:
                raise NoTablesError(f"the tables cannot be read: {place}: {error.strerror or error}") from error
            if size != file.size:
                raise DamagedTablesError(f"{place} has {size:,} bytes instead of {file.size:,}")
    return manifest


def _note(folder: Path, manifest: Manifest, damage: str) -> str:
    if not damage:
        return ""
    return (
        f"the newest tables in {folder} are damaged ({damage}): these are of batch {manifest.batch}, and the next "
        "paired pipeline adds what is missing"
    )


def _none(folder: Path) -> str:
    return f"there are no tables in {folder}: paired pipeline --once makes them from the journal"

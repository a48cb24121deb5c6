"""The commits: the files of one version of the tables, and the journal's records in them. Reading them needs no Spark.

`seen` turns "at least once" into "once": the numbers of the tables' records, as spans. A repeated record, from a file
read twice or a copied file, is dropped. A hole between spans is a gap in the journal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError, UnreadableError, other_format
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.table_store.store_path import Place, StorePath

VERSION: Final = 4
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
    late_batch: int = 0
    """The batch that last brought records after later ones of the same boot; 0: none did."""
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


def read(path: Place) -> Manifest:
    """Return the manifest in a commit's file.

    Raises:
        NoTablesError: it cannot be read, or another version of this program made it.
        DamagedTablesError: it is gone, or holds no manifest.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DamagedTablesError(f"{path} is missing") from error
    except OSError as error:
        raise NoTablesError(f"the tables in {path.parent.parent} cannot be read: {error.strerror or error}") from error
    try:
        version = read_json(_VERSION, data).version
        if version != VERSION:
            folder = path.parent.parent
            raise NoTablesError(
                other_format(f"the folder {folder}", version, VERSION, "name another folder with --tables")
            )
        return read_json(_MANIFEST, data)
    except UnreadableError as error:
        raise DamagedTablesError(f"{path} is no manifest ({error})") from error


class _Version(msgspec.Struct):
    version: int


_VERSION: Final = msgspec.json.Decoder(_Version)
_MANIFEST: Final = msgspec.json.Decoder(Manifest)


# The commits on disk, and the newest whole one. No Spark, no duckdb.
#
#     tables/commits/c0000000123.json                          the files of every table, and the records in them
#     tables/data/minutes/date=2026-11-25/b0000000123.parquet
#
# A file of data is written once and never changed, and its name has its batch. The newest commit lists the files of all
# tables. A program that opened one reads one state of them, whatever is written meanwhile.

COMMITS: Final = "commits"
DATA: Final = "data"
DELTA: Final = "delta"
"""A folder of Delta tables beside the tables' own files, for `--format delta`."""
HELD: Final = "published"
"""A folder of marks: each has the number of a commit whose files stay while they are published."""
HELD_FOR: Final = 24 * 3600.0
"""Seconds after which a mark is of a publish that was killed."""
OWN: Final = frozenset({COMMITS, DATA, "staging", "work", "logs", "lock", "checkpoints", DELTA, HELD})
"""The names in a folder of tables."""
_NAME: Final = re.compile(r"c(\d{10})\.json")


@dataclass(frozen=True, slots=True)
class Version:
    """A whole version of the tables. `note`: a sentence about a damaged newer one; empty without one."""

    path: Place
    """The folder of all data: a table's files are in the one of its name."""
    manifest: Manifest
    note: str = ""


def commit_path(folder: Place, batch: int) -> Place:
    """Return the file of a commit: names sort as commits do."""
    return folder / COMMITS / f"c{batch:010d}.json"


def number_of(path: Place) -> int:
    """Return the number of a commit's file; -1: it is none."""
    found = _NAME.fullmatch(path.name)
    return int(found.group(1)) if found else -1


def commit_paths(folder: Place) -> list[Place]:
    """Return the files of the commits, the newest first. Raises OSError."""
    try:
        found: list[Place] = [path for path in (folder / COMMITS).iterdir() if number_of(path) >= 0]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=number_of, reverse=True)


def newest(folder: Place) -> Version:
    """Return the newest whole version, with a note where a newer one is damaged.

    Raises:
        NoTablesError: there is none, it cannot be read, or another version of this program made it.
        DamagedTablesError: there are commits, and none is whole.
    """
    try:
        paths = commit_paths(folder)
    except OSError as error:
        raise NoTablesError(f"the tables in {folder} cannot be read: {error.strerror or error}") from error
    if not paths:
        raise NoTablesError(_none(folder))
    damage = ""
    for path in paths:
        try:
            manifest = _whole(folder, path)
        except DamagedTablesError as error:
            damage = damage or str(error)
            continue
        return Version(folder / DATA, manifest, _note(folder, manifest, damage))
    raise DamagedTablesError(
        f"no version of the tables in {folder} is whole ({damage}): move {folder} away, and run paired pipeline --once"
    )


def remove_unlisted(folder: Place, numbers: Collection[int]) -> None:
    """Remove all commits but those of some numbers, and the data that no remaining commit lists. Raises OSError."""
    listed = set()
    for path in commit_paths(folder):
        if number_of(path) not in numbers:
            path.unlink(missing_ok=True)
            continue
        with suppress(DamagedTablesError, NoTablesError):
            listed |= {f"{table}/{file.name}" for table, files in read(path).files.items() for file in files}
    data = str(folder / DATA)
    for path in (folder / DATA).rglob("*"):
        if str(path).removeprefix(f"{data}/") not in listed and path.is_file():
            path.unlink(missing_ok=True)


def held_numbers(folder: Place) -> set[int]:
    """Return the commits whose files are being published. Raises OSError."""
    found = set()
    for mark in (folder / HELD).iterdir() if (folder / HELD).is_dir() else ():
        if mark.stat().st_mtime < time.time() - HELD_FOR:
            mark.unlink(missing_ok=True)
        else:
            found.add(int(mark.name.rpartition(".")[2]))
    return found


def whose(folder: Place) -> str:
    """Return why a folder is not for tables, as a sentence; empty: it is new, or has tables. Raises OSError."""
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return f"the tables' folder {folder} is a file: name a folder with --tables"
    foreign = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} - OWN)
    if not foreign or commit_paths(folder):
        return ""
    return (
        f"the folder {folder} has {foreign[0]} in it, which is not of tables: name a new or empty folder with --tables"
    )


def _whole(folder: Place, commit: Place) -> Manifest:
    manifest = read(commit)
    for table, files in manifest.files.items():
        sizes = _sizes(folder / DATA / table)
        for file in files:
            place = folder / DATA / table / file.name
            try:
                size = place.stat().st_size if sizes is None else sizes[str(place)]
            except (FileNotFoundError, KeyError) as error:
                raise DamagedTablesError(f"{place} is missing") from error
            except OSError as error:
                raise NoTablesError(f"the tables cannot be read: {place}: {error.strerror or error}") from error
            if size != file.size:
                raise DamagedTablesError(f"{place} has {size:,} bytes instead of {file.size:,}")
    return manifest


def _sizes(folder: Place) -> dict[str, int] | None:
    """Return the sizes of all files of a store's folder, by one request; None: a folder of this machine.

    Raises NoTablesError.
    """
    if not isinstance(folder, StorePath):
        return None
    try:
        return {str(path): about.size for path, about in folder.listed() if about.size is not None}
    except OSError as error:
        raise NoTablesError(f"the tables cannot be read: {folder}: {error.strerror or error}") from error


def _note(folder: Place, manifest: Manifest, damage: str) -> str:
    if not damage:
        return ""
    return (
        f"the newest tables in {folder} are damaged ({damage}): these are of batch {manifest.batch}, and the next "
        "paired pipeline adds what is missing"
    )


def _none(folder: Place) -> str:
    return f"there are no tables in {folder}: paired pipeline --once makes them from the journal"

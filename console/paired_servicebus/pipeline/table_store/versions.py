"""The versions of the tables on disk, and the newest whole one. No Spark, no duckdb.

    tables/current                                            a link to the newest version, replaced atomically
    tables/versions/v0000000123/manifest.json
    tables/versions/v0000000123/minutes/date=2026-11-25/….parquet

A version holds all files of all tables. Files that did not change are hard links to those of the version before, so a
version costs only its new files. A program that opened one reads one state of all tables, whatever is written
meanwhile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.manifest import Manifest

CURRENT: Final = "current"
VERSIONS: Final = "versions"
OWN: Final = frozenset({CURRENT, VERSIONS, "staging", "work", "logs", "lock", "taken", "published"})
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
    if (folder / manifests.NAME).is_file():  # where other formats have it
        manifests.read(folder)
    foreign = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} - OWN)
    if not foreign or version_paths(folder):
        return ""
    return (
        f"the folder {folder} has {foreign[0]} in it, which is not of tables: name a new or empty folder with --tables"
    )


def _whole(path: Path) -> Manifest:
    manifest = manifests.read(path)
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

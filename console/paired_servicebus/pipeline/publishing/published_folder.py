"""The tables as plain Parquet in another folder, in the layout of the tables themselves.

A version is copied whole under a name that readers ignore, renamed, and `current` is switched to it. Files that the
version before has are hard links. The last versions stay for readers that opened them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.pipeline.publishing.delta_tables import PublishedTable
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store import versions
from paired_servicebus.pipeline.table_store.manifest import Manifest
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.versions import CURRENT, VERSIONS, Version, version_name

KEPT: Final = 3


def publish_folder(version: Version, folder: Path) -> tuple[PublishedTable, ...]:
    """Copy a version into a folder.

    Raises PipelineError: the folder has other files, or cannot be written; its content is unchanged.
    """
    try:
        before = _before(version.manifest, folder)
        if before is not None and before.manifest.batch >= version.manifest.batch:
            return tuple(PublishedTable(table=table) for table in TABLES)
        return _copy(version, before, folder)
    except OSError as error:
        raise PipelineError(
            f"the tables were not published to {folder}: {error.strerror or error}. Its content is unchanged"
        ) from error


def _before(manifest: Manifest, folder: Path) -> Version | None:
    if why := versions.whose(folder):
        raise PipelineError(f"{why.replace('--tables', '--to')}; nothing was written")
    if not versions.version_paths(folder):
        return None
    try:
        before = versions.newest(folder)
    except NoTablesError as error:
        raise PipelineError(f"{error}; nothing was written") from error
    if before.manifest.life != manifest.life:
        raise PipelineError(
            f"{folder} has other tables, or those from before they were made from nothing: nothing was written; "
            "publish to another folder"
        )
    return before


def _copy(version: Version, before: Version | None, folder: Path) -> tuple[PublishedTable, ...]:
    name = version_name(version.manifest.batch)
    (folder / VERSIONS).mkdir(mode=0o700, parents=True, exist_ok=True)
    making = folder / VERSIONS / f".{name}.{os.getpid()}"
    place = folder / VERSIONS / name
    try:
        making.mkdir(mode=0o700)
        done = tuple(_copy_table(version, before, making, table) for table in TABLES)
        manifests.write(making, version.manifest)
        if place.exists():  # damaged, or it would be the newest
            shutil.rmtree(place)
        making.rename(place)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    manifests.sync(folder / VERSIONS)
    _switch(folder, name)
    for old in versions.version_paths(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return done


def _copy_table(version: Version, before: Version | None, making: Path, table: str) -> PublishedTable:
    dates, rows = set(), 0
    for file in version.manifest.of(table):
        source, target = version.path / table / file.name, making / table / file.name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = None if before is None else before.path / table / file.name
        if there is not None and _is_same(source, there):
            target.hardlink_to(there)
            continue
        shutil.copy2(source, target)
        manifests.sync(target)
        if file.rows:
            dates.add(file.date)
            rows += file.rows
    return PublishedTable(table=table, dates=tuple(sorted(dates)), rows=rows)


def _is_same(source: Path, there: Path) -> bool:
    """Return whether a file was copied before: a copy keeps its time."""
    if not there.exists():
        return False
    status, before = source.stat(), there.stat()
    return (status.st_size, status.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _switch(folder: Path, name: str) -> None:
    new = folder / f".{CURRENT}.{os.getpid()}"
    new.unlink(missing_ok=True)
    new.symlink_to(Path(VERSIONS) / name)
    new.replace(folder / CURRENT)
    manifests.sync(folder)

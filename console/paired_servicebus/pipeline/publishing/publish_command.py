"""`paired tables publish`: the tables' newest version, to a folder or a store."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from paired_servicebus.core.errors import NoTablesError, PipelineError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.pipeline.progress_bar import Bar
from paired_servicebus.pipeline.publishing.delta_tables import PublishedTable, PublishTarget, find_target, publish_delta
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store import manifest as versions
from paired_servicebus.pipeline.table_store.manifest import CURRENT, VERSIONS, Manifest, Version, version_name
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.printing import print_lines, print_object

# The tables as plain Parquet in another folder, in the layout of the tables themselves.
#
# A version is copied whole under a name that readers ignore, renamed, and `current` is switched to it. Files that the
# version before has are hard links. The last versions stay for readers that opened them.

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


PublishFormat = Literal["parquet", "delta"]
HELD: Final = "published"
"""A folder beside the versions, with links that keep a version's files while they are published."""
LEFT: Final = 24 * 3600.0
"""Seconds after which links are of a publish that was killed."""


def run_publish(folder: Path, *, to: str, format_: PublishFormat, json_line: bool) -> int:
    """Publish the tables in `folder`, and print the changes.

    Raises PairedError: there are no tables, the target has other tables, or refuses; one sentence.
    """
    target = find_target(to, os.environ)
    if format_ == "parquet" and target.folder is None:
        raise PipelineError(
            "--format parquet is for folders: a store changes plain files one by one, and a reader would meet half of "
            "a change. --format delta commits them together"
        )
    if target.folder is not None and _overlap(target.folder, folder):
        raise PipelineError(f"--to is {target.folder}, which is in the tables' own folder or around it: name another")
    bar = Bar(quiet=json_line)
    with held(folder) as version, bar.shown("publishing", len(TABLES)):
        done = _publish(version, target, format_, bar)
    if version.note:
        bar.say(version.note)
    if json_line:
        print_object(_as_object(version, target, done))
    else:
        print_lines(as_lines(version, target, done))
    return 0


def as_lines(version: Version, target: PublishTarget, done: tuple[PublishedTable, ...]) -> list[str]:
    """Return the changes of a publish as lines."""
    changed = [one for one in done if one.dates]
    batch = f"batch {version.manifest.batch} of the tables is in {masked(target.place)}"
    if not changed:
        return [f"{batch}: nothing had changed"]
    rows = sum(one.rows for one in changed)
    return [
        f"{batch}: {len(changed)} of {len(done)} tables changed, {rows:,} rows",
        *(f"  {one.table}: {one.rows:,} rows{_dates(one.dates)}" for one in changed if one.rows or any(one.dates)),
    ]


@contextmanager
def held(folder: Path) -> Iterator[Version]:
    """Yield the newest version of the tables; its files stay inside the block, also when a pipeline commits.

    Raises NoTablesError: there are none.
    """
    found = versions.newest(folder)
    place = folder / HELD / uuid.uuid4().hex
    try:
        _remove_left(folder / HELD)
        _link_all(found.path, place)
        yield Version(place, found.manifest, found.note)
    except FileNotFoundError as error:
        raise NoTablesError(f"the tables in {folder} are removed as they are read: {error.filename}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _publish(version: Version, target: PublishTarget, format_: PublishFormat, bar: Bar) -> tuple[PublishedTable, ...]:
    if format_ == "parquet":
        assert target.folder is not None, "a store takes Delta alone"
        return publish_folder(version, target.folder)
    return publish_delta(
        version, target, shown=lambda table, number: bar.show(f"publishing {table}", number, len(TABLES))
    )


def _link_all(source: Path, place: Path) -> None:
    """Link a version's files to another folder. Raises OSError."""
    try:
        shutil.copytree(source, place, copy_function=os.link)
        os.utime(place)  # of now, not of the version
    except shutil.Error as error:
        raise PipelineError(f"the tables in {source} cannot be kept while they are published: {error}") from error
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise PipelineError(
            f"the tables in {source} cannot be kept while they are published: {error.strerror or error}"
        ) from error


def _remove_left(folder: Path) -> None:
    for left in folder.iterdir() if folder.is_dir() else ():
        if left.stat().st_mtime < time.time() - LEFT:
            shutil.rmtree(left, ignore_errors=True)


def _overlap(one: Path, other: Path) -> bool:
    first, second = one.resolve(), other.resolve()
    return first == second or first in second.parents or second in first.parents


def _dates(dates: tuple[str, ...]) -> str:
    if not any(dates):
        return ""
    return f" of {dates[0]}" if len(dates) == 1 else f" of {len(dates)} dates, {dates[0]} to {dates[-1]}"


def _as_object(version: Version, target: PublishTarget, done: tuple[PublishedTable, ...]) -> str:
    tables = {one.table: {"rows": one.rows, "dates": one.dates} for one in done if one.dates}
    return msgspec.json.encode({"to": target.place, "batch": version.manifest.batch, "tables": tables}).decode()

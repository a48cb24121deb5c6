"""`paired tables publish`: the tables' newest version, to a folder or a store."""

from __future__ import annotations

import os
import shutil
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
from paired_servicebus.pipeline.table_store import manifest as commits
from paired_servicebus.pipeline.table_store.manifest import Manifest, Version
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.store_path import Place, sync
from paired_servicebus.printing import print_lines, print_object

# The tables as plain Parquet in another folder, in the layout of the tables themselves.
#
# Files that are not there yet are copied under names that readers ignore, and renamed; then the commit is written. The
# last commits and their files stay for readers that opened them.

KEPT: Final = 3


def publish_folder(version: Version, folder: Path) -> tuple[PublishedTable, ...]:
    """Copy a version into a folder.

    Raises PipelineError: the folder has other files, or cannot be written; its content is unchanged.
    """
    try:
        before = _before(version.manifest, folder)
        if before is not None and before.manifest.batch >= version.manifest.batch:
            return tuple(PublishedTable(table=table) for table in TABLES)
        return _copy(version, folder)
    except OSError as error:
        raise PipelineError(
            f"the tables were not published to {folder}: {error.strerror or error}. Its content is unchanged"
        ) from error


def _before(manifest: Manifest, folder: Path) -> Version | None:
    if why := commits.whose(folder):
        raise PipelineError(f"{why.replace('--tables', '--to')}; nothing was written")
    if not commits.commit_paths(folder):
        return None
    try:
        before = commits.newest(folder)
    except NoTablesError as error:
        raise PipelineError(f"{error}; nothing was written") from error
    if before.manifest.life != manifest.life:
        raise PipelineError(
            f"{folder} has other tables, or those from before they were made from nothing: nothing was written; "
            "publish to another folder"
        )
    return before


def _copy(version: Version, folder: Path) -> tuple[PublishedTable, ...]:
    for name in (commits.COMMITS, commits.DATA):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    done = tuple(_copy_table(version, folder / commits.DATA, table) for table in TABLES)
    commits.write(folder, version.manifest)
    commits.remove_unlisted(folder, [commits.number_of(path) for path in commits.commit_paths(folder)[:KEPT]])
    return done


def _copy_table(version: Version, data: Path, table: str) -> PublishedTable:
    dates, rows = set(), 0
    for file in version.manifest.of(table):
        source, target = version.path / table / file.name, data / table / file.name
        if target.exists() and target.stat().st_size == file.size:
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            shutil.copy2(str(source), new)
            sync(new)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        sync(target.parent)
        if file.rows:
            dates.add(file.date)
            rows += file.rows
    return PublishedTable(table=table, dates=tuple(sorted(dates)), rows=rows)


PublishFormat = Literal["parquet", "delta"]


def run_publish(folder: Place, *, to: str, format_: PublishFormat, json_line: bool) -> int:
    """Publish the tables in `folder`, and print the changes.

    Raises PairedError: there are no tables, the target has other tables, or refuses; one sentence.
    """
    if not isinstance(folder, Path):
        raise PipelineError(f"the tables in {folder} are in a store already: only those of a folder are published")
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
    found = commits.newest(folder)
    mark = folder / commits.HELD / f"{uuid.uuid4().hex}.{found.manifest.batch}"
    try:
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch()
        yield found
    except FileNotFoundError as error:
        raise NoTablesError(f"the tables in {folder} are removed as they are read: {error.filename}") from error
    except OSError as error:
        why = error.strerror or error
        raise PipelineError(f"the tables in {folder} cannot be kept while they are published: {why}") from error
    finally:
        mark.unlink(missing_ok=True)


def _publish(version: Version, target: PublishTarget, format_: PublishFormat, bar: Bar) -> tuple[PublishedTable, ...]:
    if format_ == "parquet":
        assert target.folder is not None, "a store takes Delta alone"
        return publish_folder(version, target.folder)
    return publish_delta(
        version, target, shown=lambda table, number: bar.show(f"publishing {table}", number, len(TABLES))
    )


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

"""The single writer of the tables: its lock, the current version, and the commit of the next one.

A batch writes its files into a folder of `staging`. `commit` moves them to the data, and writes one file that lists
them and the unchanged ones: all tables change atomically. The next start removes what no commit lists. The last KEPT
versions stay, and replaced ones for GRACE seconds more, for readers that opened them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError, PipelineError, PipelineRunningError
from paired_servicebus.pipeline.table_store import manifest as commits
from paired_servicebus.pipeline.table_store.empty_files import empty_name, write_empty
from paired_servicebus.pipeline.table_store.manifest import COMMITS, DATA, File, Manifest, Version, number_of
from paired_servicebus.pipeline.table_store.schema import TABLES

GRACE: Final = 60.0
KEPT: Final = 3
STAGING: Final = "staging"


@dataclass(frozen=True, slots=True)
class Staged:
    """A new file of a table: where it was written, and what it becomes. Its size is read at the commit."""

    path: Path
    file: File


Files = Sequence[File | Staged]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the tables: the new list of files of each changed table, and fields of the manifest."""

    files: Mapping[str, Files] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


class Lake:
    """A folder of tables, for its writer. A context manager; thread-safe.

    Args:
        folder: created with access for its owner only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.note = ""
        """What was wrong with the newest version, as a sentence; empty: nothing."""
        self._lock = threading.RLock()
        self._held = -1
        self._version = Version(folder / DATA, Manifest())
        self._pinned: list[int] = []

    def __enter__(self) -> Self:
        """Take the writer's lock and remove unfinished files of a killed writer.

        Raises:
            PipelineRunningError: there is another writer.
            PipelineError: the folder is unusable or not for tables.
            NoTablesError: its tables are of a later program, or none of them is whole.
        """
        try:
            if why := commits.whose(self.folder):
                raise PipelineError(why)
            for name in (COMMITS, DATA, STAGING, "work", "logs"):
                (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PipelineError(
                f"the tables' folder {self.folder} cannot be used: {error.strerror or error}"
            ) from error
        try:
            self._take_lock()
            self._begin()
        except BaseException:
            os.close(self._held)
            self._held = -1
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:  # a commit in progress ends first; a later one is refused
            os.close(self._held)
            self._held = -1

    @property
    def manifest(self) -> Manifest:
        """The manifest of the current version."""
        return self._version.manifest

    @property
    def path(self) -> Path:
        """The folder of the current version. Long work has to pin it."""
        return self._version.path

    @property
    def version(self) -> Version:
        """The current version. Long work has to pin it."""
        return self._version

    @property
    def writing(self) -> threading.RLock:
        """The lock from reading a version to committing its successor."""
        return self._lock

    @contextmanager
    def pinned(self) -> Iterator[Version]:
        """Yield the current version, and keep its files inside the block, whatever is committed meanwhile."""
        with self._lock:
            version = self._version
            self._pinned.append(version.manifest.batch)
        try:
            yield version
        finally:
            with self._lock:
                self._pinned.remove(version.manifest.batch)

    @contextmanager
    def staged(self, name: str) -> Iterator[Path]:
        """Yield a new folder for files that are to be committed; it is removed at the end. Raises OSError."""
        place = self.folder / STAGING / f"{name}-{uuid.uuid4().hex[:8]}"
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def commit(self, change: Callable[[Manifest], Change]) -> Manifest:
        """Make the next version. `change` maps the manifest to what is new.

        Raises:
            OSError: the disk refuses; the tables are as they were.
            PipelineError: this is not the writer any more.
        """
        with self._lock:
            if self._held < 0:
                raise PipelineError(f"the tables in {self.folder} have another writer by now: this pipeline has ended")
            before = self._version.manifest
            new = change(before)
            number = max([before.batch, *map(number_of, commits.commit_paths(self.folder))]) + 1
            files = self._placed(before, new.files)
            after = msgspec.structs.replace(
                before, **{**new.fields, "files": files, "batch": number, "written_at": time.time()}
            )
            commits.write(self.folder, after)
            self._version = Version(self.folder / DATA, after)
            self._tidy()
            return after

    # -- a version ----------------------------------------------------------------------------------------------------

    def _placed(self, before: Manifest, changed: Mapping[str, Files]) -> dict[str, tuple[File, ...]]:
        """Move the new files of the next version to the data; return all of its files by table."""
        folders: set[Path] = set()
        found: dict[str, tuple[File, ...]] = {}
        for table in TABLES:
            wanted = [one for one in changed.get(table, before.of(table)) if _file(one).rows]
            found[table] = tuple(self._move(table, one, folders) for one in wanted or [self._empty(table)])
        for folder in folders:
            commits.sync(folder)
        return found

    def _move(self, table: str, one: File | Staged, folders: set[Path]) -> File:
        """Move a new file to the data, once it is on the disk; its size is known then. Adds its folder."""
        if isinstance(one, File):
            return one
        target = self._version.path / table / one.file.name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        commits.sync(one.path)
        shutil.move(one.path, target)
        folders |= {target.parent, target.parent.parent}
        return msgspec.structs.replace(one.file, size=target.stat().st_size)

    def _empty(self, table: str) -> File | Staged:
        """Return a file without rows: a plain reader finds the columns of every table."""
        name = empty_name(table)
        there = self._version.path / table / name
        if there.exists():
            return File(name=name, rows=0, size=there.stat().st_size)
        path = self.folder / STAGING / f"{table}.parquet"
        write_empty(path, table)
        return Staged(path, File(name=name, rows=0))

    def _tidy(self) -> None:
        """Remove versions that were replaced long ago."""
        found, oldest = commits.commit_paths(self.folder), time.time() - GRACE
        used = {*self._pinned, self.manifest.batch, *commits.held_numbers(self.folder)}
        due = [
            path
            for path, successor in zip(found[KEPT:], found[KEPT - 1 :], strict=False)
            if number_of(path) not in used and successor.stat().st_mtime < oldest
        ]
        if due:
            commits.remove_unlisted(self.folder, {number_of(path) for path in found if path not in due})

    # -- the start ----------------------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = os.pread(self._held, 32, 0).decode(errors="replace").strip()
            raise PipelineRunningError(
                f"another pipeline (pid {other or 'unknown'}) writes the tables in {self.folder}: end it first, "
                "or name another folder with --tables"
            ) from error
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, str(os.getpid()).encode(), 0)

    def _begin(self) -> None:
        """Find the tables, and remove what a killed writer left. The first version has no rows."""
        try:
            self._version = commits.newest(self.folder)
        except DamagedTablesError:
            raise
        except NoTablesError:
            if commits.commit_paths(self.folder):  # of a later program, or unreadable
                raise
            self._version = Version(self.folder / DATA, Manifest(life=uuid.uuid4().hex[:12]))
        self.note = self._version.note
        try:
            shutil.rmtree(self.folder / STAGING, ignore_errors=True)
            (self.folder / STAGING).mkdir(mode=0o700)
            commits.remove_unlisted(self.folder, {number_of(path) for path in commits.commit_paths(self.folder)})
        except OSError as error:
            raise PipelineError(
                f"the tables' folder {self.folder} cannot be used: {error.strerror or error}"
            ) from error


def _file(one: File | Staged) -> File:
    return one.file if isinstance(one, Staged) else one

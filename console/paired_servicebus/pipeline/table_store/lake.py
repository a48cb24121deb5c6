"""The single writer of the tables: its lock, the current version, and the commit of the next one.

A batch writes its files into a folder of `staging`. `commit` moves them to the data, and writes one file that lists
them and the unchanged ones: all tables change atomically. The next start removes what no commit lists. The last KEPT
versions stay, and replaced ones for GRACE seconds more, for readers that opened them.
"""

from __future__ import annotations

import fcntl
import os
import socket
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
from paired_servicebus.pipeline.table_store import store_path
from paired_servicebus.pipeline.table_store.manifest import COMMITS, DATA, File, Manifest, Version, number_of
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.sql_engine import empty_file, empty_name

GRACE: Final = 60.0
KEPT: Final = 3
STAGING: Final = "staging"


@dataclass(frozen=True, slots=True)
class Staged:
    """A new file of a table: where it was written, and what it becomes. Its size is read at the commit."""

    path: store_path.Place
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
        folder: created with access for its owner only; or a path in a store.
    """

    def __init__(self, folder: store_path.Place) -> None:
        self.folder = folder
        self._lock_file = _StoreLock(folder) if isinstance(folder, store_path.StorePath) else _FolderLock(folder)
        self.note = ""
        """What was wrong with the newest version, as a sentence; empty: nothing."""
        self._lock = threading.RLock()
        self._is_open = False
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
            for name in (COMMITS, DATA, STAGING):
                (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("work", "logs"):
                (store_path.own_folder(self.folder) / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file.acquire()
        except OSError as error:
            raise PipelineError(
                f"the tables' folder {self.folder} cannot be used: {error.strerror or error}"
            ) from error
        try:
            self._begin()
        except BaseException:
            self._lock_file.release()
            raise
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:  # a commit in progress ends first; a later one is refused
            self._is_open = False
            self._lock_file.release()

    @property
    def manifest(self) -> Manifest:
        """The manifest of the current version."""
        return self._version.manifest

    @property
    def version(self) -> Version:
        """The current version. Long work has to pin it."""
        return self._version

    @property
    def writing(self) -> threading.RLock:
        """The lock from reading a version to committing its successor."""
        return self._lock

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let another process write the tables inside the block; afterwards this one goes on with what is there.

        Raises as `__enter__`.
        """
        self._lock_file.release()
        try:
            yield
        finally:
            self._lock_file.acquire()
            if commits.commit_paths(self.folder):
                self._version = commits.newest(self.folder)

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
    def staged(self, name: str) -> Iterator[store_path.Place]:
        """Yield a new folder for files that are to be committed; it is removed at the end. Raises OSError."""
        place = self.folder / STAGING / f"{name}-{uuid.uuid4().hex[:8]}"
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            store_path.remove_below(place)

    def commit(self, change: Callable[[Manifest], Change]) -> Manifest:
        """Make the next version. `change` maps the manifest to what is new.

        Raises:
            OSError: the disk refuses; the tables are as they were.
            PipelineError: this is not the writer any more.
        """
        with self._lock:
            if not (self._is_open and self._lock_file.is_held()):
                raise PipelineError(f"the tables in {self.folder} have another writer by now: this pipeline has ended")
            before = self._version.manifest
            new = change(before)
            number = max([before.batch, *map(number_of, commits.commit_paths(self.folder))]) + 1
            files = self._placed(before, new.files)
            after = msgspec.structs.replace(
                before, **{**new.fields, "files": files, "batch": number, "written_at": time.time()}
            )
            # Readers open it from now on.
            store_path.write_whole(commits.commit_path(self.folder, number), msgspec.json.encode(after))
            self._version = Version(self.folder / DATA, after)
            self._tidy()
            return after

    # -- a version ----------------------------------------------------------------------------------------------------

    def _placed(self, before: Manifest, changed: Mapping[str, Files]) -> dict[str, tuple[File, ...]]:
        """Move the new files of the next version to the data; return all of its files by table."""
        folders: set[store_path.Place] = set()
        found: dict[str, tuple[File, ...]] = {}
        for table in TABLES:
            wanted = [one for one in changed.get(table, before.of(table)) if file_of(one).rows]
            found[table] = tuple(self._move(table, one, folders) for one in wanted or [self._empty(table)])
        for folder in folders:
            store_path.sync(folder)
        return found

    def _move(self, table: str, one: File | Staged, folders: set[store_path.Place]) -> File:
        """Move a new file to the data, once it is on the disk; its size is known then. Adds its folder."""
        if isinstance(one, File):
            return one
        target = self._version.path / table / one.file.name
        store_path.move(one.path, target)
        folders |= {target.parent, target.parent.parent}
        return msgspec.structs.replace(one.file, size=target.stat().st_size)

    def _empty(self, table: str) -> File | Staged:
        """Return a file without rows: a plain reader finds the columns of every table."""
        name = empty_name(table)
        there = self._version.path / table / name
        if there.exists():
            return File(name=name, rows=0, size=there.stat().st_size)
        path = self.folder / STAGING / f"{table}.parquet"
        path.write_bytes(empty_file(table))
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
            store_path.remove_below(self.folder / STAGING)
            (self.folder / STAGING).mkdir(mode=0o700)
            commits.remove_unlisted(self.folder, {number_of(path) for path in commits.commit_paths(self.folder)})
        except OSError as error:
            raise PipelineError(
                f"the tables' folder {self.folder} cannot be used: {error.strerror or error}"
            ) from error


def file_of(one: File | Staged) -> File:
    """Return what a file of a table is or becomes."""
    return one.file if isinstance(one, Staged) else one


class _FolderLock:
    """The writer's lock of a folder: it ends with its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1

    def acquire(self) -> None:
        """Lock the folder. Raises PipelineRunningError, OSError."""
        self._file = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = os.pread(self._file, 32, 0).decode(errors="replace").strip()
            self.release()
            raise PipelineRunningError(
                f"another pipeline (pid {other or 'unknown'}) writes the tables in {self._folder}: end it first, "
                "or name another folder with --tables"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def is_held(self) -> bool:
        """Return whether the lock is held."""
        return self._file >= 0

    def release(self) -> None:
        """Unlock the folder."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _StoreLock:
    """The writer's mark in a store, which has no locks: the last pipeline that began writes, an earlier one ends.

    Each commit of the earlier one is refused, since the mark has changed.
    """

    def __init__(self, folder: store_path.StorePath) -> None:
        self._place = folder / "lock"
        self._mark = b""

    def acquire(self) -> None:
        """Write the mark. Raises OSError."""
        self._mark = f"{os.getpid()} on {socket.gethostname()}, {uuid.uuid4().hex}".encode()
        store_path.write_whole(self._place, self._mark)

    def is_held(self) -> bool:
        """Return whether the mark is this pipeline's. Raises OSError."""
        return bool(self._mark) and self._place.read_bytes() == self._mark

    def release(self) -> None:
        """Leave the mark: the next pipeline replaces it."""
        self._mark = b""

"""The single writer of the tables: its lock, the current manifest, and the removal of other files.

A batch writes its files under new names, then `commit` replaces the manifest: all of its tables change atomically. The
next start removes unfinished files. Replaced files stay for GRACE seconds, for readers with the previous manifest.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from paired_servicebus.core.errors import DamagedTablesError, NoTablesError, PipelineError, PipelineRunningError
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.schema import TABLES

GRACE: Final = 60.0
STORY: Final = "story"
STORY_KEPT: Final = 30 * 24 * 3600.0
"""Seconds that a story is kept for, should the second query have to begin again."""


class Lake:
    """A folder of tables, for its writer. A context manager; thread-safe.

    Args:
        folder: created with access for its owner only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest()
        self._lock = threading.RLock()
        self._held = -1
        self._replaced: list[tuple[float, Path]] = []

    def __enter__(self) -> Self:
        """Take the writer's lock and remove unfinished files of a killed writer.

        Raises:
            PipelineRunningError: there is another writer.
            PipelineError: the folder is unusable, or its manifest is damaged.
        """
        try:
            for name in (*TABLES, STORY, "checkpoints", "work", "logs"):
                (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PipelineError(
                f"the tables' folder {self.folder} cannot be used: {error.strerror or error}"
            ) from error
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = os.pread(self._held, 32, 0).decode(errors="replace").strip()
            os.close(self._held)
            raise PipelineRunningError(
                f"another pipeline (pid {other or 'unknown'}) writes the tables in {self.folder}: end it first, "
                "or name another folder with --tables"
            ) from error
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, str(os.getpid()).encode(), 0)
        try:
            self._begin()
        except BaseException:
            os.close(self._held)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:  # who is in the middle of a commit ends it; who comes later is refused
            os.close(self._held)
            self._held = -1

    @property
    def checkpoints(self) -> Path:
        """Return the folder of Spark's checkpoints for this life of the tables; those of other tables do not apply."""
        return self.folder / "checkpoints" / self.manifest.life

    def place(self, table: str, name: str) -> Path:
        """Return the path of a new file of a table; readers ignore it until the commit."""
        return self.folder / table / name

    def commit(self, change: Callable[[Manifest], dict[str, Any]]) -> Manifest:
        """Commit a change of the tables. `change` maps the manifest to its new fields.

        Raises:
            OSError: the disk refuses; the tables are as they were.
            PipelineError: this is not the writer any more.
        """
        with self._lock:
            if self._held < 0:
                raise PipelineError(f"the tables in {self.folder} have another writer by now: this pipeline has ended")
            before = self.manifest
            new = change(before)
            after = msgspec.structs.replace(before, batch=before.batch + 1, written_at=time.time(), **new)
            for table, file in _files(after) - _files(before):
                _sync(self.place(table, file.name))
            manifests.write(self.folder, after)
            self.manifest = after
            now = time.monotonic()
            self._replaced += [(now, self.place(table, file.name)) for table, file in _files(before) - _files(after)]
            self._publish()
            self._tidy(now)
            return after

    @property
    def writing(self) -> threading.RLock:
        """The lock from reading the manifest to writing its successor."""
        return self._lock

    # -- what a killed pipeline left --------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            self.manifest = manifests.read(self.folder)
        except DamagedTablesError:
            raise
        except NoTablesError:  # none, or of another version: everything is made from the journal
            self.manifest = Manifest(life=uuid.uuid4().hex[:12])
            shutil.rmtree(self.folder / STORY, ignore_errors=True)
            (self.folder / STORY).mkdir(mode=0o700)
            manifests.write(self.folder, self.manifest)
        self._publish()
        old = time.time() - STORY_KEPT
        for told in (self.folder / STORY).iterdir():
            if told.name.startswith(".") or told.stat().st_mtime < old:
                told.unlink()
        for table in TABLES:
            kept = {file.name for file in self.manifest.of(table)}
            for found in (self.folder / table).iterdir():
                if found.name not in kept:
                    _remove(found)
        for other in (self.folder / "checkpoints").iterdir():
            if other.name != self.manifest.life:
                _remove(other)

    def _publish(self) -> None:
        """Story files of batches that count get the name under which the second query sees them."""
        for waiting in (self.folder / STORY).glob(".b*.parquet"):
            if int(waiting.stem.removeprefix(".b")) <= self.manifest.batch:
                waiting.rename(waiting.with_name(waiting.name[1:]))

    def _tidy(self, now: float) -> None:
        due = [path for at, path in self._replaced if at + GRACE <= now]
        self._replaced = [(at, path) for at, path in self._replaced if at + GRACE > now]
        for path in due:
            _remove(path)


def batch_name(batch: int) -> str:
    """Return the name of a batch's files: names sort as batches do."""
    return f"b{batch:010d}"


def _files(manifest: Manifest) -> set[tuple[str, File]]:
    return {(table, file) for table, files in manifest.files.items() for file in files}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    for part in (*path.glob("*.parquet"), path) if path.is_dir() else (path,):
        manifests.sync(part)
    manifests.sync(path.parent)

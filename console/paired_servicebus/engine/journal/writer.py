"""The journal: every event of an engine as a line in rolling files, written before it takes effect.

`append` writes a line to the operating system immediately; lines appended inside `together` are written when that ends.
A killed engine loses no appended line. Lines are synced once a second, or immediately by `sync`. A file is complete
after 64k events, 8 MB or ten seconds, or within a second after a reader's request (spool.py). A quiet engine makes no
empty files.

If the disk refuses, at the start or later, the engine continues: lines are counted instead of written, `healthy` is
False, `trouble` has the reason, and the disk is tried once a second. The newest complete files are kept up to a number
of bytes; older ones are deleted. The host handles the consequences, such as pausing the syphon. Disk waits run in the
journal's own thread; only the write itself runs in the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, TypeVar

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import JournalView
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.engine.journal import spool
from paired_servicebus.engine.journal.spool import RecoveredFile, SpoolFile

MAX_FILE_LINES: Final = 64 * 1024
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MAX_OPEN_SECONDS: Final = 10.0
"""Seconds that a file with events stays open."""
ROUND_SECONDS: Final = 1.0
"""Seconds between two rounds of syncing, rolling, reading requests and retrying the disk."""
DEFAULT_KEPT_BYTES: Final = 4 * 1024**3
"""Default bytes of complete files to keep: about ten days of thirty entities in use."""
TRIM_INTERVAL: Final = 600.0
"""Seconds between two looks whether the files have become too many."""
DISK_TIMEOUT: Final = 5.0
"""Seconds after which a disk that does not answer counts as one that refuses."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class Journal:
    """The journal of one engine's boot. An asynchronous context manager, for one event loop.

    `lines` counts every line appended, `lost` those that the disk did not take, `deleted` the old
    files that gave way to new ones. `on_change` is called when `healthy`
    changed; it must be quick, and append nothing.
    """

    def __init__(
        self,
        folder: Path,
        *,
        engine: str,
        roll_after: float = MAX_OPEN_SECONDS,
        keep: int = DEFAULT_KEPT_BYTES,
        clock: Callable[[], float] = time.time,
        on_change: Callable[[], None] = lambda: None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """prepare: makes what the folder needs, before it is used for the first time; raises OSError."""
        self._folder = folder
        self._prepare = prepare
        self.is_open = False
        """Whether the folder was made, and what a crash left in it was recovered."""
        self._engine = engine
        self._stem = f"{engine}-{int(clock() * 1000):013d}"
        self._roll_after = roll_after
        self._keep = keep
        self._trim_at = 0.0
        self._on_change = on_change
        self._file: SpoolFile | None = None
        self._opened_at = 0.0
        self._asked = 0
        self._full: list[SpoolFile] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._crew = TaskSupervisor()
        self._settling = asyncio.Lock()
        self._synced = 0
        self._held: list[bytes] | None = None
        self.lines = 0
        self.lost = 0
        self.deleted = 0
        self.trouble = ""
        self.recovered: tuple[RecoveredFile, ...] = ()
        self.predecessor: Record | None = None
        """The last record of the boot before, which the next reader needs to have."""

    @property
    def healthy(self) -> bool:
        """Whether the disk accepted the last write."""
        return not self.trouble

    async def __aenter__(self) -> Self:
        """Recover a crash's files, then get ready; a folder that cannot be made or read is tried again."""
        try:
            await self._on_disk(self._open)
        except OSError as error:
            self._fail(error)
        self._crew.start(self._rounds(), name="the journal's rounds")
        return self

    def _open(self) -> None:
        """Make the folder and recover a crash's files, unless that is done. Raises OSError."""
        if self.is_open:
            return
        self._prepare()
        spool.prepare(self._folder)
        self.recovered = spool.recover(self._folder)
        self.predecessor = spool.last_record(self._folder, self._engine)
        self.is_open = True

    async def __aexit__(self, *reason: object) -> None:
        await self._crew.close()
        self._roll()
        await self._settle()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def append(self, line: bytes) -> None:
        """Write a record's line. Never raises for a disk error: see `healthy`."""
        self.lines += 1
        if not self.healthy:  # tried again in the next round, not for every event
            self.lost += 1
            return
        if self._held is None:
            self._write(line)
        else:
            self._held.append(line)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write all lines appended inside this context in one call at its end. Await nothing in it."""
        if self._held is not None:
            yield
            return
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
            if held:
                self._write(*held)

    def _write(self, *lines: bytes) -> None:
        """Return the lines counted last."""
        written = 0
        try:
            file = self._writable(self.lines - len(lines) + 1)
            before = file.lines
            try:
                file.append(*lines)
            finally:
                written = file.lines - before
        except OSError as error:
            self.lost += len(lines) - written
            self._fail(error)

    def view(self) -> JournalView:
        """Return the journal's status."""
        return JournalView(lines=self.lines, lost=self.lost, trouble=self.trouble)

    async def sync(self) -> bool:
        """Sync all appended lines; return whether that succeeded. Concurrent callers share the work."""
        wanted = self.lines
        if self.healthy and self._synced < wanted:
            await self._settle(wanted)
        return self.healthy

    def _writable(self, number: int) -> SpoolFile:
        """Open the file for line `number` and those that follow."""
        file = self._file
        if file is not None and (file.lines >= MAX_FILE_LINES or file.bytes >= MAX_FILE_BYTES):
            self._roll()
        if self._file is None:
            self._opened_at = asyncio.get_running_loop().time()
            self._file = SpoolFile(self._folder, f"{self._stem}-{number:012d}{spool.SUFFIX}")
        return self._file

    def _roll(self) -> None:
        if self._file is not None:
            self._full.append(self._file)
            self._file = None

    async def _settle(self, wanted: int | None = None) -> None:
        """Finish the full files and sync the open one, unless line `wanted` was synced meanwhile."""
        async with self._settling:
            if wanted is not None and self._synced >= wanted:
                return
            reached, file = self.lines, self._file
            try:
                while self._full:
                    await self._on_disk(self._full[0].finish)
                    del self._full[0]
                if file is not None and file is self._file:
                    await self._on_disk(file.sync)
            except OSError as error:
                self._fail(error)
            else:
                self._synced = reached

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self._round()

    async def _round(self) -> None:
        if not self.healthy:
            await self._try_disk()
        if self._file is not None and await self._is_due():
            self._roll()
        if self._full or self._synced < self.lines:
            await self._settle()
        if self.is_open and (now := asyncio.get_running_loop().time()) >= self._trim_at:
            self._trim_at = now + TRIM_INTERVAL
            await self._trim()

    async def _is_due(self) -> bool:
        """Return whether the open file has reached its maximum age or a reader requests it."""
        before = self._asked
        try:
            self._asked = await self._on_disk(lambda: spool.asked(self._folder))
        except OSError as error:
            self._fail(error)
        due = self._opened_at + self._roll_after
        return self._asked != before or asyncio.get_running_loop().time() >= due

    async def _trim(self) -> None:
        try:
            self.deleted += await self._on_disk(lambda: spool.trim(self._folder, self._keep))
        except OSError as error:  # tried again the next time
            log.warning("old files of the journal cannot be deleted: %s", error)

    async def _try_disk(self) -> None:
        """Continue in a new file if the disk accepts data again: the old one may be torn."""
        try:
            await self._on_disk(self._open)
            await self._on_disk(lambda: spool.probe(self._folder))
        except OSError as error:
            self._fail(error)
        else:
            self._roll()
            self.trouble = ""
            self._on_change()
            log.warning("the journal is written again; %d events are missing from it", self.lost)

    def _fail(self, error: OSError) -> None:
        trouble = f"{error.strerror or error} in {self._folder}"
        if trouble != self.trouble:
            log.error("the journal is not written: %s", trouble)
        was_healthy, self.trouble = self.healthy, trouble
        if was_healthy:
            self._on_change()

    async def _on_disk(self, work: Callable[[], T]) -> T:
        """Run `work` in the journal's thread.

        Raises:
            OSError: the disk refused, or did not answer in time (TimeoutError is one).
        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError:  # a program at its end takes no work for threads any more: done here, rather than lost
            return work()
        try:
            async with asyncio.timeout(DISK_TIMEOUT):
                return await running
        except TimeoutError as error:
            raise TimeoutError(f"no answer from the disk for {DISK_TIMEOUT:g} s") from error

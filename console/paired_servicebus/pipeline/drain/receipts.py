"""The journal of a drain's tasks: written by each task, moved into the pairing's journal by the drain's command.

Each attempt of a task is its own boot, in its own folder, and holds that folder's lock while it runs. As in an engine,
a receipt reaches the operating system before its settlement. `gather` moves whole files into the journal at any time,
and a killed attempt's files once its lock is free, without a torn last line. No receipt is lost or moved twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.core.model.pairing_events import DeadLettered, Event, Moved, Record
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.drain.drain_files import FOLDER, AttemptProgress, attempts, write

LOCK: Final = "lock"
PROGRESS: Final = "progress.json"
_PROGRESS: Final = msgspec.json.Decoder(AttemptProgress)
_MOVED: Final = f'"kind":"{Moved.kind}"'.encode()
_BURIED: Final = f'"kind":"{DeadLettered.kind}"'.encode()


class Receipts:
    """The journal of one attempt. An asynchronous context manager; `trouble` is the disk's error.

    Args:
        on_change: called when it becomes writable or ceases to be.
    """

    def __init__(self, run: Path, pairing: str, on_change: Callable[[], None] = lambda: None) -> None:
        self._identity = EngineIdentity.of(f"{pairing}-drain")
        self.folder = run / self._identity.boot
        self._seq = 0
        self._lock = -1
        stem = f"{self._identity.engine}-{self._identity.boot}"
        self._journal = Journal(self.folder, engine=stem, roll_after=5.0, on_change=on_change)

    async def __aenter__(self) -> Self:
        """Make the folder. Raises OSError."""
        self.folder.mkdir(mode=0o700)
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        await self._journal.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._journal.__aexit__(kind, error, trace)
        os.close(self._lock)

    @property
    def trouble(self) -> str:
        """Why it is not written at present; empty if it is."""
        return self._journal.trouble

    def record(self, event: Event) -> int:
        """Write an event down; its number."""
        self._seq += 1
        identity = self._identity
        self._journal.append(
            records.encode(Record(engine=identity.engine, boot=identity.boot, seq=self._seq, event=event))
        )
        return self._seq

    def together(self) -> AbstractContextManager[None]:
        """Events that are recorded inside are written as one, before it is left."""
        return self._journal.together()

    def tell(self, progress: AttemptProgress) -> None:
        """Write the attempt's progress. Raises OSError."""
        write(self.folder / PROGRESS, progress)


class ReceiptTally:
    """The counts of a run's receipts, made while they move into the journal."""

    def __init__(self) -> None:
        self.moved = 0
        self.dead_lettered = 0
        self.over = AttemptProgress()
        """The final counts of finished attempts; below the receipts' counts if one was killed."""

    def count(self, lines: bytes) -> None:
        """Add a whole file."""
        self.moved += lines.count(_MOVED)
        self.dead_lettered += lines.count(_BURIED)


def gather(run: Path, into: Path, tally: ReceiptTally) -> bool:
    """Move whole files of a run's folder into the journal at `into`; return whether attempts are still running.

    Raises OSError: a disk error; the remaining files are moved the next time.
    """
    lives = False
    for folder in attempts(run):
        with _held(folder) as is_ours:
            if is_ours:
                spool.recover(folder)
            _move(folder, into, tally)
            if is_ours:
                tally.over += _told(folder)
                shutil.rmtree(folder)
            lives = lives or not is_ours
    return lives


def left_by_others(into: Path) -> int:
    """Move the files of killed runs into the journal and remove finished runs; return the number of files moved.

    Raises OSError.
    """
    found = 0
    for run in attempts(into / FOLDER):
        before = _whole(into)
        if not gather(run, into, ReceiptTally()):
            shutil.rmtree(run)
        found += _whole(into) - before
    return found


def _whole(into: Path) -> int:
    return sum(1 for _ in (into / spool.CLOSED).glob(f"*{spool.SUFFIX}"))


def _move(folder: Path, into: Path, tally: ReceiptTally) -> None:
    for path in sorted((folder / spool.CLOSED).glob(f"*{spool.SUFFIX}")):
        lines = path.read_bytes()
        path.rename(into / spool.CLOSED / path.name)
        tally.count(lines)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether the attempt has ended, and we hold its lock."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # it is only beginning
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def progress_of(run: Path, tally: ReceiptTally) -> AttemptProgress:
    """Return the sum of all attempts' reports."""
    return sum((_told(folder) for folder in attempts(run)), tally.over)


def _told(folder: Path) -> AttemptProgress:
    try:
        return read_json(_PROGRESS, (folder / PROGRESS).read_bytes())
    except (OSError, UnreadableError):  # it has told nothing yet, or has just been cleared away
        return AttemptProgress()

"""The files between a drain's processes: the order, the attempts' receipts, and the folder of a run.

    SPOOL/.drain/RUN/order.json      the order; read by the process that holds Spark
    SPOOL/.drain/RUN/stop            exists: all processes end cleanly
    SPOOL/.drain/RUN/ATTEMPT/        one task's attempt: its journal, its lock

The order has the path of pairing.toml and no secret: every task reads the file on its own machine. The operator's Spark
settings go only to the process with Spark, by standard input. All executors must see the folder; journal readers skip
it, since its name begins with a dot. No Spark here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from paired_servicebus.core.backlog.queue_settings import queue_index
from paired_servicebus.core.errors import DrainError
from paired_servicebus.core.model.pairing_events import DeadLettered, Event, Moved, Record
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.journal import records, spool
from paired_servicebus.engine.journal.writer import Journal
from paired_servicebus.foreign_json import read_json

FOLDER: Final = ".drain"
WAVE_SECONDS: Final = 60.0
"""Seconds after which a task ends in order, so that a wave ends."""
WAVE_MESSAGES: Final = 200_000
"""Messages after which it does."""
IN_HAND: Final = 5000
"""Messages that a task has in hand, as the pump itself."""


class TaskEnd(StrEnum):
    """Why a task ended."""

    EMPTY = "nothing came any more"
    BOUND = "its bound was reached"
    STOPPED = "it was told to"
    FAILING = "it could not go on"
    UNFIT = "this executor cannot drain"
    """A setting or a folder is missing there, and no second try will help."""


class DrainOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Nothing in it is secret."""

    run: str
    pairing: str
    config: str
    """Path of pairing.toml, here and on every executor."""
    spool: str
    """The journal's folder, here and on every executor."""
    queues: list[str]
    """The backlog queues' paths."""
    master: str
    parallelism: int
    rate: float | None = None
    """Messages a second in all; None: as many as can be."""
    in_hand: int = IN_HAND
    wave_seconds: float = WAVE_SECONDS
    wave_messages: int = WAVE_MESSAGES

    @property
    def by_index(self) -> dict[int, str]:
        """The queues' paths by the index in each, which may have gaps.

        Raises DrainError: a path is no backlog queue's.
        """
        found = {queue_index(path): path for path in self.queues}
        if None in found:
            raise DrainError(f"the order names {found[None]!r}, which is no backlog queue")
        return {index: path for index, path in found.items() if index is not None}

    @property
    def folder(self) -> Path:
        """The run's."""
        return Path(self.spool) / FOLDER / self.run


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The final report of a task. A killed task has none: the receipts hold the truth about messages."""

    queue: int
    end: TaskEnd
    moved: int = 0
    dead_lettered: int = 0
    set_aside: int = 0
    text: str = ""


class DrainOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    moved: int = 0
    dead_lettered: int = 0
    """Both by the receipts, since a killed task reports none: the drain's command counts them."""
    set_aside: int
    seconds: float
    waves: int
    complete: bool
    """Whether every queue was empty except for deferred messages."""
    text: str = ""


_ORDER: Final = msgspec.json.Decoder(DrainOrder)


def write(path: Path, value: msgspec.Struct) -> None:
    """Replace a file at once: a reader sees the old one or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(msgspec.json.encode(value))
    new.replace(path)


def read_order(folder: Path) -> DrainOrder:
    """Read the order of a run. Raises OSError or UnreadableError."""
    return read_json(_ORDER, (folder / "order.json").read_bytes())


def attempts(folder: Path) -> Iterator[Path]:
    """Return the folders of a run's attempts, those that run and those that ended."""
    try:
        yield from sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        return


def is_stopped(folder: Path) -> bool:
    """Return whether all processes are to end."""
    return (folder / "stop").exists()


# The journal of a drain's tasks: written by each task, moved into the pairing's journal by the drain's command.
#
# Each attempt of a task is its own boot, in its own folder, and holds that folder's lock while it runs. As in an
# engine, a receipt reaches the operating system before its settlement. `gather` moves whole files into the journal at
# any time, and a killed attempt's files once its lock is free, without a torn last line. No receipt is lost or moved
# twice.

LOCK: Final = "lock"
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


@dataclass(slots=True)
class ReceiptTally:
    """The counts of a run's receipts."""

    moved: int = 0
    dead_lettered: int = 0

    def count(self, lines: bytes) -> None:
        """Add a file, or what is there of it."""
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


def progress_of(run: Path, tally: ReceiptTally) -> ReceiptTally:
    """Return the counts of a run so far: those of the gathered files, and of those that its attempts have."""
    found = replace(tally)
    for path in run.glob(f"*/*/*{spool.SUFFIX}"):
        with suppress(FileNotFoundError):  # it was renamed
            found.count(path.read_bytes())
    return found

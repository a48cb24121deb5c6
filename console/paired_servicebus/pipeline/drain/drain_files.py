"""The files between a drain's processes: the order, the tasks' reports, and the folder of a run.

    SPOOL/.drain/RUN/order.json      the order; read by the process that holds Spark
    SPOOL/.drain/RUN/progress.json   the progress, once a second
    SPOOL/.drain/RUN/stop            exists: all processes end cleanly
    SPOOL/.drain/RUN/ATTEMPT/        one task's attempt: its journal, its lock, its progress

The order has the path of pairing.toml and no secret: every task reads the file on its own machine. The operator's Spark
settings go only to the process with Spark, by standard input. All executors must see the folder; journal readers skip
it, since its name begins with a dot. No Spark here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import DrainError
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.management.backlog_queues import queue_index

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


class AttemptProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, or all of a run so far.

    `set_aside` is that of the one that was added last: attempts that drain a queue one after the other find the same
    messages.
    """

    moved: int = 0
    dead_lettered: int = 0
    set_aside: int = 0
    text: str = ""
    at: float = 0.0
    """Seconds since 1970; 0: never."""

    def __add__(self, other: AttemptProgress) -> AttemptProgress:
        return AttemptProgress(
            moved=self.moved + other.moved,
            dead_lettered=self.dead_lettered + other.dead_lettered,
            set_aside=other.set_aside,
            text=other.text or self.text,
            at=max(self.at, other.at),
        )


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The final report of a task. A killed task has none: the receipts hold the truth about messages."""

    queue: int
    end: TaskEnd
    moved: int = 0
    dead_lettered: int = 0
    set_aside: int = 0
    text: str = ""


class DrainOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended; the counts are those of the receipts."""

    moved: int
    dead_lettered: int
    set_aside: int
    seconds: float
    waves: int
    complete: bool
    """Whether every queue was empty except for deferred messages."""
    text: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The content of progress.json."""

    phase: str
    wave: int
    progress: AttemptProgress
    outcome: DrainOutcome | None = None
    trouble: str = ""


_ORDER: Final = msgspec.json.Decoder(DrainOrder)
_TOLD: Final = msgspec.json.Decoder(Told)


def write(path: Path, value: msgspec.Struct) -> None:
    """Replace a file at once: a reader sees the old one or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(msgspec.json.encode(value))
    new.replace(path)


def read_order(folder: Path) -> DrainOrder:
    """Read the order of a run. Raises OSError or UnreadableError."""
    return read_json(_ORDER, (folder / "order.json").read_bytes())


def read_told(folder: Path) -> Told | None:
    """Return the progress; None before the first. Raises OSError or UnreadableError."""
    try:
        return read_json(_TOLD, (folder / "progress.json").read_bytes())
    except FileNotFoundError:
        return None


def attempts(folder: Path) -> Iterator[Path]:
    """Return the folders of a run's attempts, those that run and those that ended."""
    try:
        yield from sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        return


def is_stopped(folder: Path) -> bool:
    """Return whether all processes are to end."""
    return (folder / "stop").exists()

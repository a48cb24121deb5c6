"""The record of a run's queues: written before a queue is made, so that a killed run's queues can be deleted.

One file for each run, in the pairing's state folder. It is locked while its run lives; the system unlocks it when the
process ends. A line adds a queue or removes it. The file is deleted with its last queue.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from paired_servicebus.core.errors import ConfigurationError

PREFIX: Final = "paired-verify-"
_RUN: Final = r"[0-9a-f]{12}"
_NAME: Final = re.compile(rf"{PREFIX}({_RUN})-[0-9]+")
_FILE: Final = re.compile(rf"({_RUN})\.jsonl")
_FOLDER: Final = "verify"


def run_of(path: str) -> str:
    """Return the run that made a queue; "" for a queue of any other origin."""
    found = _NAME.fullmatch(path)
    return found[1] if found is not None else ""


def without_queues(text: str, word: str) -> str:
    """Replace the names of our queues in a text by one word."""
    return _NAME.sub(word, text)


@dataclass(frozen=True, slots=True)
class RecordedQueue:
    """A queue that a run may have made. host: its namespace's, in case the configuration changes."""

    side: str
    host: str
    path: str


class RunRecord:
    """The locked record of one run. run: its random part."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self.run = file.stem
        self._file = file
        self._descriptor = descriptor
        self._queues = {queue.path: queue for queue in _read(file)}

    @classmethod
    def begin(cls, state: Path) -> Self:
        """Make the record of a new run in the pairing's state folder. Raises ConfigurationError."""
        folder = state / _FOLDER
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = folder / f"{secrets.token_hex(6)}.jsonl"
            unlocked = file.with_suffix(".new")  # a record gets its name only when it is locked
            descriptor = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(file)
        except OSError as error:
            raise ConfigurationError(f"the record of queues in {folder} cannot be made: {error.strerror}") from error
        return cls(file, descriptor)

    @property
    def prefix(self) -> str:
        """The beginning of the names of this run's queues."""
        return f"{PREFIX}{self.run}"

    @property
    def queues(self) -> tuple[RecordedQueue, ...]:
        """The queues that may exist."""
        return tuple(self._queues.values())

    def has(self, path: str) -> bool:
        """Return whether the queue may exist."""
        return path in self._queues

    def note(self, side: str, host: str, path: str) -> None:
        """Record a queue on disk, before it is made. Raises OSError."""
        self._queues[path] = RecordedQueue(side, host, path)
        self._write({"side": side, "host": host, "queue": path})
        os.fsync(self._descriptor)

    def forget(self, path: str) -> None:
        """Record that the queue is deleted."""
        if self._queues.pop(path, None) is not None:
            self._write({"deleted": path})

    def end(self) -> None:
        """Unlock the file, and delete it unless queues are left."""
        if not self._queues:
            self._file.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _write(self, line: dict[str, str]) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def past_records(state: Path) -> Iterator[RunRecord]:
    """Yield the records of runs that have ended with queues left, each locked; end each after its use."""
    for file in _files(state):
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        except OSError:  # deleted meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its run lives
            os.close(descriptor)
            continue
        yield RunRecord(file, descriptor)


def known_runs(state: Path) -> set[str]:
    """Return the runs that have a record here: living ones, and those with queues left."""
    return {file.stem for file in _files(state)}


def _files(state: Path) -> list[Path]:
    return sorted(file for file in (state / _FOLDER).glob("*.jsonl") if _FILE.fullmatch(file.name))


def _read(file: Path) -> list[RecordedQueue]:
    """Return a record's queues. A torn line is of a queue that was never made."""
    found: dict[str, RecordedQueue] = {}
    for line in file.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        found.pop(str(entry.get("deleted", "")), None)
        path = str(entry.get("queue", ""))
        if run_of(path):
            found[path] = RecordedQueue(str(entry.get("side", "")), str(entry.get("host", "")), path)
    return list(found.values())

"""The record of a run's entities: written before one is made, so that a killed run's entities can be deleted.

One file for each run, in the pairing's state folder. It is locked while its run lives; the system unlocks it when the
process ends. A line adds an entity or removes it. The file is deleted with its last entity.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from paired_servicebus.core.errors import ConfigurationError

_FILE: Final = re.compile(r"([0-9a-f]{12})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind:
    """The records of one command.

    folder: in the pairing's state folder. prefix: of its entities' paths. run_of: the run that made an entity, by its
    path; "" for any other path.
    """

    folder: str
    prefix: str
    run_of: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class RecordedEntity:
    """An entity that a run may have made. host: its namespace's, in case the configuration changes."""

    side: str
    host: str
    path: str


class RunRecord:
    """The locked record of one run. run: its random part."""

    def __init__(self, kind: RecordKind, file: Path, descriptor: int) -> None:
        self.run = file.stem
        self._kind = kind
        self._file = file
        self._descriptor = descriptor
        self._entities = _read(kind, file)

    @classmethod
    def begin(cls, kind: RecordKind, state: Path) -> Self:
        """Make the record of a new run in the pairing's state folder. Raises ConfigurationError."""
        folder = state / kind.folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = folder / f"{secrets.token_hex(6)}.jsonl"
            unlocked = file.with_suffix(".new")  # a record gets its name only when it is locked
            descriptor = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(file)
        except OSError as error:
            raise ConfigurationError(f"the record of entities in {folder} cannot be made: {error.strerror}") from error
        return cls(kind, file, descriptor)

    @property
    def prefix(self) -> str:
        """The beginning of the paths of this run's entities."""
        return f"{self._kind.prefix}{self.run}"

    @property
    def entities(self) -> tuple[RecordedEntity, ...]:
        """The entities that may exist."""
        return tuple(self._entities)

    def has(self, path: str) -> bool:
        """Return whether an entity of this path may exist."""
        return any(entity.path == path for entity in self._entities)

    def note(self, side: str, host: str, path: str) -> None:
        """Record an entity on disk, before it is made. Raises OSError."""
        self._entities.append(RecordedEntity(side, host, path))
        self._write({"side": side, "host": host, "queue": path})
        os.fsync(self._descriptor)

    def forget(self, path: str) -> None:
        """Record that the entity is deleted."""
        if self.has(path):
            self._entities = [entity for entity in self._entities if entity.path != path]
            self._write({"deleted": path})

    def end(self) -> None:
        """Unlock the file, and delete it unless entities are left."""
        if not self._entities:
            self._file.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _write(self, line: dict[str, str]) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


def past_records(kind: RecordKind, state: Path) -> Iterator[RunRecord]:
    """Yield the records of runs that have ended with entities left, each locked; end each after its use."""
    for file in _files(kind, state):
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        except OSError:  # deleted meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its run lives
            os.close(descriptor)
            continue
        yield RunRecord(kind, file, descriptor)


def known_runs(kind: RecordKind, state: Path) -> set[str]:
    """Return the runs that have a record here: living ones, and those with entities left."""
    return {file.stem for file in _files(kind, state)}


def _files(kind: RecordKind, state: Path) -> list[Path]:
    return sorted(file for file in (state / kind.folder).glob("*.jsonl") if _FILE.fullmatch(file.name))


def _read(kind: RecordKind, file: Path) -> list[RecordedEntity]:
    """Return a record's entities. A torn line is of an entity that was never made."""
    found: list[RecordedEntity] = []
    for line in file.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        deleted, path = str(entry.get("deleted", "")), str(entry.get("queue", ""))
        found = [entity for entity in found if entity.path != deleted]
        if kind.run_of(path):
            found.append(RecordedEntity(str(entry.get("side", "")), str(entry.get("host", "")), path))
    return found

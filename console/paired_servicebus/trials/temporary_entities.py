"""Entities that a command makes in the owner's namespaces and deletes at its end.

A namespace in which entities are made: each request within a deadline, each refusal once. And the record of a run's
entities, written before one is made, so that a killed run's entities can be deleted: one file for each run, in the
pairing's state folder. It is locked while its run lives; the system unlocks it when the process ends. A line adds an
entity or removes it. The file is deleted with its last entity.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
import secrets
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from azure.core.exceptions import AzureError, ResourceNotFoundError

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.pairing.management.management_port import TopicManagement, is_refusal, is_transient
from paired_servicebus.pairing.runtime.deadlines import bounded

# Signals that end a command after its entities are deleted.

T = TypeVar("T")


class EndedBySignalError(Exception):
    """A signal has ended the work. status: the exit status that a shell expects."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(f"ended by {number.name}")
        self.status = 128 + number


async def until_signalled(work: Coroutine[Any, Any, T], signals: Sequence[signal.Signals]) -> T:
    """Await the work; each of the signals cancels it, so that its entities are deleted. Raises EndedBySignalError."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    received: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, partial(end, number))
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        raise EndedBySignalError(received[0]) from None
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await the work to its end, whatever is cancelled meanwhile; the work has deadlines of its own.

    A cancellation is raised after its end.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


MANAGING: Final = 20.0
"""Seconds for one management request."""
DELETE_TRIES: Final = 3
RETRY_PAUSE: Final = 1.0

log = logging.getLogger(__name__)


class Side(StrEnum):
    """A namespace of the pairing; its name in all results."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class NotPermittedError(Exception):
    """The credential lacks a right that the command needs."""


@dataclass(slots=True)
class ManagedNamespace:
    """One namespace. refused: why no entity can be made there, once known."""

    side: Side
    host: str
    admin: TopicManagement
    tier: ServiceTier = field(default=ServiceTier.UNKNOWN, kw_only=True)
    refused: str = field(default="", kw_only=True)
    making: asyncio.Lock = field(default_factory=asyncio.Lock, kw_only=True)

    async def make(self, act: Callable[[], Any]) -> None:
        """Create an entity. Raises NotPermittedError, and azure-core's errors."""
        async with self.making:  # a refusal is learned once, not by each caller
            if self.refused:
                raise NotPermittedError(self.refused)
            try:
                await bounded(act(), MANAGING, "making an entity")
            except AzureError as error:
                if is_refusal(error):
                    self.refused = f"the credential of the {self.side} namespace lacks Manage, which queues need"
                    raise NotPermittedError(self.refused) from error
                raise

    async def delete(self, path: str, *, is_topic: bool = False) -> bool:
        """Delete a queue or topic if it exists; return whether it is certainly gone."""
        act = self.admin.delete_topic if is_topic else self.admin.delete_queue
        for attempt in range(DELETE_TRIES):
            try:
                await bounded(act(path), MANAGING, "deleting an entity")
                return True
            except ResourceNotFoundError:
                return True
            except (AzureError, OSError, TimeoutError) as error:
                log.info("an entity was not deleted: %s", type(error).__name__)
                if isinstance(error, AzureError) and not is_transient(error):
                    return False
            await asyncio.sleep(RETRY_PAUSE * attempt)
        return False


# -- the record of a run's entities

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

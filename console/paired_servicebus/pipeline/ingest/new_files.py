"""The journal files that are not in the tables yet, and the request for the engines' open ones. No Spark here.

`taken` lists the files in the tables, with their sizes and batches. It only saves work: the numbers of the records
decide (manifest). A file that has grown since, such as a copy that was half done, is new again. A file that does not
end with a whole line is a copy in progress; it waits until nobody has changed it for SETTLED seconds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.engine.journal import spool
from paired_servicebus.pipeline.ingest.journal_files import JournalFile, JournalFiles, find_journal_files

MOST_BYTES: Final = 256 * 1024 * 1024
MOST_FILES: Final = 2000
"""Of one batch."""
SETTLED: Final = 600.0

log = logging.getLogger(__name__)


class NewFiles:
    """The files below some roots that are new to one life of the tables.

    Args:
        record: the file with the taken names.
        life: of the tables.
        batch: of the tables; files of later batches do not count as taken.
    """

    def __init__(self, roots: Sequence[Path], record: Path, *, life: str, batch: int) -> None:
        self._roots = tuple(roots)
        self._record = record
        self._taken = _recorded(record, life, batch)
        lines = [_line(batch, Path(path), size) for path, size in self._taken.items()]
        new = record.with_name(f".{record.name}.new")
        new.write_text("".join([f"{life}\n", *lines]))
        new.replace(record)
        self.unfinished = 0
        """Files that the latest look left for later, since they do not end with a whole line."""

    def listed(self) -> JournalFiles:
        """List all files. Raises PipelineError."""
        return find_journal_files(self._roots)

    def batch(self) -> list[JournalFile]:
        """Return the next files of a batch, the oldest first. Raises PipelineError."""
        found: list[JournalFile] = []
        total, unfinished = 0, 0
        for file in self.listed().files:
            if self._taken.get(str(file.path)) == file.size:
                continue
            if len(found) == MOST_FILES or (found and total + file.size > MOST_BYTES):
                break
            if _is_whole(file):
                found.append(file)
                total += file.size
            else:
                unfinished += 1
        self.unfinished = unfinished
        return found

    def settle(self, files: Iterable[JournalFile], batch: int) -> None:
        """Record that files are in the tables. Raises OSError."""
        with self._record.open("a") as record:
            for one in files:
                record.write(_line(batch, one.path, one.size))
                self._taken[str(one.path)] = one.size


def _line(batch: int, path: Path, size: int) -> str:
    return f"{batch}\t{size}\t{path}\n"


def _recorded(record: Path, life: str, batch: int) -> dict[str, int]:
    """Return the sizes of taken files that are still there; none where the record is lost or of other tables."""
    found: dict[str, int] = {}
    try:
        first, *lines = record.read_text().splitlines()
    except (FileNotFoundError, ValueError):  # lost, empty, or not text
        return {}
    for line in lines if first == life else ():
        try:
            taken, size, path = line.split("\t", 2)
            if int(taken) <= batch and os.path.exists(path):  # noqa: PTH110 - 50,000 of them
                found[path] = int(size)
        except ValueError:  # torn by a crash
            continue
    return found


def _is_whole(file: JournalFile) -> bool:
    """Whether a file is there, and no copy in progress."""
    try:
        with file.path.open("rb") as content:
            content.seek(max(0, file.size - 1))
            end = content.read(1)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PipelineError(f"the journal file {file.path} cannot be read: {error.strerror or error}") from error
    return not file.size or end == b"\n" or time.time() - file.modified_ns / 1e9 >= SETTLED


ASK: Final = 1.8
"""Seconds before a look: an engine checks for a request once a second, and the disk needs time."""


class Countdown:
    """Signals once for each whole multiple of `period` seconds that it is due within `ahead` seconds."""

    def __init__(self, ahead: float, period: float, clock: Callable[[], float] = time.time) -> None:
        self._ahead = ahead
        self._period = period
        self._clock = clock
        self._signalled = -1

    def is_due(self) -> bool:
        """Whether this is the first time since the last look that so little is left."""
        coming = int((self._clock() + self._ahead) // self._period)
        before, self._signalled = self._signalled, coming
        return coming != before


class JournalFlusher:
    """Requests the open files from the engines of some journals; does nothing without write access to them."""

    def __init__(self) -> None:
        self._is_said = False

    def ask(self, journals: Iterable[Path]) -> None:
        """For their open files."""
        try:
            for journal in journals:
                spool.ask(journal)
        except OSError as error:  # for good, or while the disk is full
            if not self._is_said:
                log.warning("the tables are some seconds later: the engine cannot be asked for its journal: %s", error)
            self._is_said = True
        else:
            self._is_said = False

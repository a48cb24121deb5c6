"""A journal as Spark's source: its whole files, the request for the open one, and the deliveries of new ones.

Spark polls at whole multiples of the trigger's seconds. The engine is asked before each poll to close its open file,
however small; an engine without a follower makes fewer files.

Spark's file source lists its whole folder at each poll and never forgets a file: with the 50,000 files of a week that
took more than a core. So it gets deliveries. A delivery is a folder of links that appears atomically and is removed
when its records are in the tables. There is one at a time, so that a batch's files are known. Each has an empty file:
if the journal removes all the others before Spark polls, there is still a new file and a batch for it.

`taken` lists the journal files in the tables. It only saves work: after a crash or a lost folder the numbers of the
records decide (manifest). So a name is written last, and without fsync. No Spark here.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.journal import spool
from paired_servicebus.engine.journal.spool import CLOSED, OPEN, SUFFIX


def journal_files(journal: Path) -> Path:
    """Return the folder of whole journal files: a journal's `events`, or the folder itself.

    Raises PipelineError: there is none.
    """
    for folder in (journal / CLOSED, journal):
        if folder.is_dir():
            return folder
    raise PipelineError(f"there is no journal in {journal}: an engine writes one, or name its folder with --journal")


def none_yet(journal: Path) -> str:
    """Why there is nothing to read, as a sentence; empty where there is a journal file, or one that is being written.

    Raises PipelineError: there is no journal, or it cannot be looked into.
    """
    whole = journal_files(journal)
    try:
        if any(whole.glob(f"*{SUFFIX}")) or any((journal / OPEN).glob(f"*{SUFFIX}")):
            return ""
    except OSError as error:
        raise PipelineError(f"the journal in {journal} cannot be read: {error.strerror or error}") from error
    return f"there are no journal files in {whole}"


def require_files(journal: Path) -> None:
    """Raise PipelineError where there is nothing to read: tables of nothing would look like a success."""
    if text := none_yet(journal):
        raise PipelineError(f"{text}: an engine writes them, or name its journal's folder with --journal")


def require_whole_files(journal: Path) -> None:
    """Raise PipelineError where no file is whole, after the engine was asked for the one that it writes."""
    require_files(journal)
    whole = journal_files(journal)
    if not any(whole.glob(f"*{SUFFIX}")):
        raise PipelineError(
            f"there are no whole journal files in {whole}, and the one in {journal / OPEN} is not ended: start its "
            "engine, which recovers it"
        )


ASK: Final = 1.8
"""Seconds before Spark's poll: an engine checks for a request once a second, and the disk needs time."""
SHOW: Final = 0.5
"""Seconds before Spark's poll; the delivery may be a tenth of a second late."""

log = logging.getLogger(__name__)


class PollCountdown:
    """Signal once for each poll of Spark that it is due within `ahead` seconds."""

    def __init__(self, ahead: float, trigger: float, clock: Callable[[], float] = time.time) -> None:
        self._ahead = ahead
        self._trigger = trigger
        self._clock = clock
        self._said = -1

    def is_due(self) -> bool:
        """Whether this is the first time since the last look that so little is left."""
        coming = int((self._clock() + self._ahead) // self._trigger)
        before, self._said = self._said, coming
        return coming != before


class JournalFlusher:
    """Requests the open file from the engine of one journal; does nothing without an engine or write access."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._is_said = False

    def ask(self) -> None:
        """For its open file."""
        if not (self._journal / spool.CLOSED).is_dir():
            return
        try:
            spool.ask(self._journal)
        except OSError as error:  # for good, or while the disk is full
            if not self._is_said:
                log.warning("the tables are some seconds later: the engine cannot be asked for its journal: %s", error)
            self._is_said = True
        else:
            self._is_said = False


MOST_FILES: Final = 2000
"""Of one delivery that is one batch: Spark takes some 5 ms for each."""
EMPTY: Final = f"delivery{SUFFIX}"
"""A delivery's own file; an engine's names are longer."""


class Inbox:
    """The deliveries of one journal and one life of the tables. Thread-safe; every method may raise OSError.

    Args:
        folder: the folder of the deliveries and of the taken names.
        files: the folder of whole journal files.
    """

    def __init__(self, folder: Path, files: Path) -> None:
        self.shown = folder / "shown"
        self._making = folder / "making"
        self._record = folder / "taken"
        self._files = files
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._delivered: tuple[str, ...] = ()
        self._refused: set[str] = set()
        self._number = 0
        self._files_shown = 0
        self._next: int | None = None

    def begin(self) -> None:
        """Remove the delivery, for a Spark without a checkpoint; forget names of files that the journal removed."""
        with self._lock:
            shutil.rmtree(self.shown, ignore_errors=True)
            self.shown.mkdir(mode=0o700, parents=True)
            self._delivered, self._next, self._files_shown = (), None, 0
            self._taken = self._recorded() & {entry.name for entry in os.scandir(self._files)}
            new = self._record.with_name(".taken")
            new.write_text("".join(f"{line}\n" for line in (self._files.resolve(), *sorted(self._taken))))
            new.replace(self._record)

    def deliver(self, most_bytes: int | None = None) -> None:
        """Deliver new files, the oldest first, `most_bytes` at most. An earlier delivery has to be taken first."""
        with self._lock:
            if self._delivered:
                self._next = most_bytes
            else:
                self._show(self._new(most_bytes))

    def settle(self) -> None:
        """Record that the delivery is in the tables."""
        with self._lock:
            with self._record.open("a") as record:
                record.writelines(f"{name}\n" for name in self._delivered)
            self._taken.update(self._delivered)
            self._delivered, following, self._next = (), self._next, None
            shutil.rmtree(self._place(), ignore_errors=True)
            if following is not None:
                self._show(self._new(following))

    def is_idle_after(self, files: int) -> bool:
        """Whether nothing is shown, after so many files at least."""
        with self._lock:
            return not self._delivered and self._files_shown >= files

    def _place(self) -> Path:
        return self.shown / f"d{self._number:08d}"

    def _recorded(self) -> set[str]:
        try:
            journal, *names = self._record.read_text().splitlines()
        except (FileNotFoundError, ValueError, UnicodeDecodeError):  # lost, or of another kind
            return set()
        return set(names) if journal == str(self._files.resolve()) else set()

    def _new(self, most_bytes: int | None) -> tuple[str, ...]:
        found: list[tuple[int, str, int]] = []
        for entry in os.scandir(self._files):
            if not entry.name.endswith(SUFFIX) or entry.name.startswith((".", "_")) or entry.name in self._taken:
                continue
            if not entry.name.isprintable():  # neither Spark nor the record of what was taken can have it
                self._refuse(entry.name)
                continue
            try:
                told = entry.stat()
            except FileNotFoundError:  # the journal had no room for it any more
                continue
            found.append((told.st_mtime_ns, entry.name, told.st_size))
        names = [name for _, name, _ in sorted(found)]
        if most_bytes is None:
            return tuple(names)
        sizes = [size for _, _, size in sorted(found)]
        return tuple(names[: _that_fit(sizes[:MOST_FILES], most_bytes)])

    def _refuse(self, name: str) -> None:
        """Report a skipped file, once."""
        if name not in self._refused:
            self._refused.add(name)
            log.warning("the journal file %s is not read: its name is no text; rename it", repeated(name))

    def _show(self, names: tuple[str, ...]) -> None:
        if not names:
            return
        shutil.rmtree(self._making, ignore_errors=True)
        self._making.mkdir(mode=0o700)
        (self._making / EMPTY).touch(mode=0o600)
        for name in names:
            (self._making / name).symlink_to(self._files.resolve() / name)
        self._number += 1
        self._making.rename(self._place())
        self._delivered = names
        self._files_shown += len(names) + 1


def _that_fit(sizes: list[int], most: int) -> int:
    """How many of them; one at least."""
    total = 0
    for index, size in enumerate(sizes):
        total += size
        if total > most:
            return max(1, index)
    return len(sizes)

"""The loop of batches: new journal files into the tables, again and again, and what is due beside it.

A batch that failed is repeated; nothing of it was taken. Spark tries a task four times by itself, but not the batch
around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.ingest.batch_tables import BatchTables, ShortReadError
from paired_servicebus.pipeline.ingest.journal_files import (
    ASK,
    Countdown,
    JournalFile,
    JournalFiles,
    JournalFlusher,
    NewFiles,
)
from paired_servicebus.pipeline.ingest.upkeep import Upkeep, finish
from paired_servicebus.pipeline.spark.spark_session import first_line
from paired_servicebus.pipeline.spark_processes import NOTE, write_line
from paired_servicebus.pipeline.table_store.lake import Lake

TRIES: Final = 4
"""Tries in a row of one batch; after them the error is raised."""
PAUSE: Final = 1.0
"""Seconds before the next try."""
LOOK: Final = 0.2
MEGABYTE: Final = 1024 * 1024
READING: Final = "reading journals, in MB"
Show = Callable[[str, int, int | None], None]
"""Shows what is done, how much of it, and of how much in all; None: that is not known."""
TAKEN: Final = "taken"
_NOT_THERE: Final = ("FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND", "FileNotFoundException")


class BatchLoop:
    """The batches of one session into one folder of tables.

    Args:
        roots: of the journals.
        show: shows the progress of `once`.
    """

    def __init__(
        self, spark: Any, lake: Lake, roots: Sequence[Path], show: Show = lambda what, done, total: None
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._tables = BatchTables(spark, lake)
        manifest = lake.manifest
        self._files = NewFiles(roots, lake.folder / TAKEN, life=manifest.life, batch=manifest.batch)
        self._noted: set[str] = set()
        self._show = show

    def once(self) -> None:
        """Make the tables of the present files. Raises Spark's errors, and PipelineError without any file."""
        listed = self._files.listed()
        listed.require_whole()
        self._note(listed)
        done, total = 0, listed.size
        self._show(READING, 0, total // MEGABYTE)
        while taken := self.take_next():
            done += sum(one.size for one in taken)
            self._show(READING, min(done, total) // MEGABYTE, total // MEGABYTE)
        self._show("judging messages", 0, None)
        if self._files.unfinished:
            write_line(f"{NOTE}{unfinished(self._files.unfinished)}")
        finish(self._spark, self._lake)

    def follow(self, period: float, ended: Callable[[], bool]) -> None:
        """Keep the tables up to date until `ended`, with a look every `period` seconds. Raises Spark's errors."""
        flusher, is_asked, is_polled = JournalFlusher(), Countdown(ASK, period), Countdown(0.0, period)
        with Upkeep(self._spark, self._lake) as upkeep:
            while not ended():
                if is_asked.is_due():
                    listed = self._files.listed()
                    self._note(listed)
                    flusher.ask(listed.journals)
                if is_polled.is_due():
                    while self.take_next() and not ended():
                        upkeep.look()
                upkeep.look()
                time.sleep(LOOK)

    def take_next(self) -> Sequence[JournalFile]:
        """Take the next files, and return them; empty: there are none. Raises the last error."""
        for tried in range(1, TRIES + 1):
            files = self._files.batch()
            if not files:
                return ()
            try:
                done = self._tables.take(files)
            except ShortReadError:
                if all(_is_same(one) for one in files):
                    raise
            except (OSError, PipelineError):
                raise
            except Exception as error:  # noqa: BLE001 - Spark's kinds of errors are many: the last is raised
                self._after(error, files, tried)
            else:
                self._files.settle(files, done.batch)
                return files
        raise PipelineError(f"{files[0].path} and files beside it change while they are read: try again later")

    def _after(self, error: Exception, files: Sequence[JournalFile], tried: int) -> None:
        """Go on to the next try, or raise."""
        reason = first_line(error)
        there = [one for one in files if one.path.exists()]
        if len(there) == len(files) and any(word in str(error) for word in _NOT_THERE):
            raise PipelineError(
                f"a worker of Spark's does not see {files[0].path} or a file beside it, which is there: nothing "
                "of them is taken; see that every worker has the same journal and table folders"
            ) from error
        if tried == TRIES:
            raise error
        write_line(one_line(f"a batch of {len(files)} files is repeated ({tried} of {TRIES - 1}): {reason}"))
        time.sleep(PAUSE)

    def _note(self, listed: JournalFiles) -> None:
        """Report skipped files, once."""
        for note in listed.notes:
            if note not in self._noted:
                self._noted.add(note)
                write_line(NOTE + one_line(note))


def unfinished(count: int) -> str:
    """Return the sentence about files that were left for later."""
    files = "1 journal file does" if count == 1 else f"{count} journal files do"
    return f"{files} not end with a whole line and may be a copy in progress: left for the next run"


def _is_same(one: JournalFile) -> bool:
    try:
        told = one.path.stat()
    except FileNotFoundError:
        return False
    return (told.st_size, told.st_mtime_ns) == (one.size, one.modified_ns)

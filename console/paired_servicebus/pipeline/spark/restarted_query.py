"""A Spark query that is restarted after an error, such as a killed Python worker or its late start.

    metadata      the query's identity
    sources/0/N   the files up to step N
    offsets/N     batch N was begun, with the files up to a step
    commits/N     batch N is done
    state/        the state of transformWithState

Spark refuses an incomplete checkpoint. It is removed, once: the tables know their records, so all files may be read
again. A missing file of the state shows only when Spark needs it.

Spark tries a task four times, but not the batch around it, and waits ten
seconds, once, for the worker that prepares a batch. A restarted query repeats its batch under the same number; see
streaming_queries for the reason that this is harmless.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.spark.spark_session import first_line
from paired_servicebus.pipeline.spark_processes import NOTE, write_line

TRIES: Final = 4
"""Tries in a row of one batch; after them the error is raised."""
PAUSE: Final = 1.0
"""Seconds before the next try."""


class Query:
    """A query that survives errors. `place` returns its position, which changes with each finished batch."""

    def __init__(self, name: str, checkpoint: Path, start: Callable[[], Any], place: Callable[[], object]) -> None:
        self._name = name
        self._checkpoint = checkpoint
        self._is_anew = False
        self._start = start
        self._place = place
        self._failed_at: object = None
        self._failures = 0
        if lacking := missing(checkpoint):
            self._give_up_checkpoint(f"{lacking} is missing")
        self._running = start()

    def finish(self) -> None:
        """Wait until it has read all present files. Raises the last error of Spark."""
        while not self._done():
            pass

    def keep_up(self) -> None:
        """Restart it if it has ended. Raises the last error of Spark."""
        if not self._running.isActive:
            self._done()

    def begin_anew(self) -> None:
        """End it in order, and start it again."""
        self._running.stop()
        self._running = self._start()

    def stop(self) -> None:
        """In order."""
        self._running.stop()

    def _done(self) -> bool:
        try:
            self._running.awaitTermination()
        except Exception as error:  # noqa: BLE001 - Spark's kinds of errors are many: the last is raised
            self._begin_again(error)
            return False
        return True

    def _begin_again(self, error: Exception) -> None:
        reason = first_line(error)
        if is_blamed(reason) and not self._is_anew:
            self._give_up_checkpoint(reason)
        else:
            self._count(error)
            write_line(one_line(f"{self._name} is begun again ({self._failures} of {TRIES - 1}): {reason}"))
            time.sleep(PAUSE)
        self._running = self._start()

    def _count(self, error: Exception) -> None:
        place = self._place()
        self._failures = self._failures + 1 if place == self._failed_at else 1
        self._failed_at = place
        if self._failures >= TRIES:
            raise error

    def _give_up_checkpoint(self, why: str) -> None:
        self._is_anew = True
        damage = f"Spark's checkpoint of the {self._name} in {self._checkpoint.parent} is damaged ({why})"
        write_line(
            one_line(f"{NOTE}{damage}: it is removed and all files are read again; the tables take nothing twice")
        )
        shutil.rmtree(self._checkpoint, ignore_errors=True)  # somebody may have removed it


_LOGS: Final = ("offsets", "commits", "sources/0")
_BLAMED: Final = re.compile(r"checkpoint|CHECKPOINT|STATEFUL|STATE_STORE|STDS_|log file|STREAM_LOG|Wrong basePath")
_THE_DISK: Final = re.compile(r"No space left|Permission denied|Read-only|Input/output error|quota")
_UP_TO: Final = re.compile(r'"logOffset":(\d+)')


def missing(checkpoint: Path) -> str:
    """Return the first thing that it lacks, as far as its files show; empty: nothing, or there is no checkpoint."""
    begun, done, files = (_numbered(checkpoint / log) for log in _LOGS)
    if not (begun or done or files):
        return ""
    for name in ("metadata", *(f"{log}/{path.name}" for log in _LOGS for path in (checkpoint / log).glob("[0-9]*"))):
        if not _has_content(checkpoint / name):
            return name
    last = max(begun, default=-1)
    needed = range(min(begun, default=0), max([last, *done]) + 1)
    if lacking := sorted(set(needed) - set(begun)):
        return f"offsets/{lacking[0]}"
    compacted = max((step for step, path in files.items() if path.suffix), default=0)
    steps = range(compacted, max([_up_to(begun.get(last)), *files]) + 1)
    if lacking := sorted(set(steps) - set(files)):
        return f"sources/0/{lacking[0]}"
    return ""


def is_blamed(reason: str) -> bool:
    """Return whether a query failed because of its checkpoint, by Spark's error."""
    return _BLAMED.search(reason) is not None and _THE_DISK.search(reason) is None


def _numbered(log: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in log.glob("[0-9]*") if path.stem.isdecimal()}


def _has_content(path: Path) -> bool:
    """Return whether a file has content: a machine's crash can leave it empty, or full of zeros."""
    try:
        with path.open("rb") as file:
            return file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return False


def _up_to(offset: Path | None) -> int:
    """Return the step of the files that a batch was begun with; -1: it had none."""
    found = _UP_TO.search(offset.read_text(errors="replace")) if offset is not None else None
    return int(found.group(1)) if found else -1

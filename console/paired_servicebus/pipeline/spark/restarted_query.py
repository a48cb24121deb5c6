"""A Spark query that is restarted after an error, such as a killed Python worker or its late start.

An incomplete checkpoint is removed, once. Spark tries a task four times, but not the batch around it, and waits ten
seconds, once, for the worker that prepares a batch. A restarted query repeats its batch under the same number; see
streaming_queries for the reason that this is harmless.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.spark.checkpoint import is_blamed, missing
from paired_servicebus.pipeline.spark.spark_session import first_line
from paired_servicebus.pipeline.spark_processes import NOTE, write_line

TRIES: Final = 4
"""Tries in a row of one batch; after them the error is raised."""
PAUSE: Final = 1.0
"""Seconds before the next try."""


class Query:
    """A query that survives errors.

    Args:
        name: its name in the log.
        checkpoint: the folder of its checkpoint.
        start: starts it, with that checkpoint.
        place: its position, which changes with each finished batch.
    """

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

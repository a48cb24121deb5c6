"""Judging in parallel with the batches of a followed journal: one work at a time, in its own thread.

Judging half a million receipts takes seconds, and more as the tables grow. A batch does not wait for it: both run in
Spark's fair order (spark_session), in small tasks. Work longer than MOST is cancelled and retried after the same time;
until then readers judge new receipts themselves, more slowly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from paired_servicebus.pipeline.ingest import table_maintenance
from paired_servicebus.pipeline.table_store.lake import Lake

MOST: Final = 1800.0
"""Seconds that one work may take."""
STOP: Final = 5.0
"""Seconds that it has to end in once it is interrupted."""
TAG: Final = "judging"

Work = Callable[[Any, Lake], None]
log = logging.getLogger(__name__)


class MaintenanceThread:
    """Runs due maintenance when it is polled. A context manager, for one thread."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self._spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        self._lake = lake
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._until = 0.0
        self._rest_until = 0.0
        self._is_late = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the running work; its files count for nothing, and the next start removes them."""
        if self._thread is not None:
            self._spark.interruptTag(TAG)
            self._thread.join(STOP)

    def look(self) -> None:
        """Begin due work and cancel late work. Raises the error of work that was not cancelled."""
        now = time.monotonic()
        if self._thread is None:
            work = due(self._lake) if now >= self._rest_until else None
            if work is not None:
                self._begin(work, now)
        elif not self._thread.is_alive():
            self._thread = None
            self._end(now)
        elif now >= self._until:
            self._is_late = True
            self._spark.interruptTag(TAG)  # at each look: between two jobs there is none to interrupt

    def _begin(self, work: Work, now: float) -> None:
        self._error, self._is_late, self._until = None, False, now + MOST
        self._thread = threading.Thread(target=self._do, args=(work,), name="judging", daemon=True)
        self._thread.start()

    def _do(self, work: Work) -> None:
        try:
            self._spark.addTag(TAG)  # of this thread's jobs
            work(self._spark, self._lake)
        except Exception as error:  # noqa: BLE001 - raised by the next look
            self._error = error

    def _end(self, now: float) -> None:
        if self._error is None:
            return
        if not self._is_late:
            raise self._error
        self._rest_until = now + MOST
        log.warning("the audit was not done within %g s, and is tried again in as many", MOST)


def due(lake: Lake) -> Work | None:
    """Return the due work; None without any."""
    if table_maintenance.due(lake.manifest):
        return table_maintenance.judge
    return table_maintenance.tidy if table_maintenance.crowded(lake.manifest) else None


_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
    "spark.sql.files.maxPartitionBytes": "8m",
}
"""Tasks of a second or so: Spark interrupts none for another job's."""

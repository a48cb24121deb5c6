"""What is due beside the batches: judgements, and compaction.

Both are done at the end of `--once`. Following, a thread does one work at a time beside the batches, in Spark's fair
order (spark_session) and in small tasks. A work is of its first version; later additions stay. A judgement longer than
MOST is cancelled, and tried again after as long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from paired_servicebus.pipeline.ingest.compaction import compact, crowds
from paired_servicebus.pipeline.ingest.judgement import judge
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest

NEW_SHARE: Final = 4
REST: Final = 60.0
"""Seconds at least between two judgements while a journal is followed."""
AGAIN: Final = 300.0
"""Seconds after which open fates are judged again without new receipts."""
MOST: Final = 1800.0
"""Seconds that one work may take."""
STOP: Final = 5.0
"""Seconds that it has to end in once it is interrupted."""
TAG: Final = "judging"

Work = Callable[[], None]
log = logging.getLogger(__name__)


def finish(spark: Any, lake: Lake) -> None:
    """Judge what is not judged, and compact. Raises Spark's errors and OSError."""
    if lake.manifest.unjudged() or (lake.manifest.batch and not lake.manifest.judged_at):
        judge(spark, lake)
    if crowds(lake.manifest):
        compact(lake)


def judgement_is_due(manifest: Manifest, now: float) -> bool:
    """Return whether it is time for a judgement while a journal is followed; `now` in seconds since the epoch."""
    since = now - manifest.judged_at
    if since < REST or not manifest.unjudged():
        return False
    if manifest.receipts:
        known = sum(file.rows for file in manifest.of("receipts"))
        return manifest.receipts * NEW_SHARE >= known or manifest.batch > manifest.receipts_batch or since >= AGAIN
    return manifest.unsettled > 0 and since >= AGAIN


class Upkeep:
    """Does due work when it is polled. A context manager, for one thread."""

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
            work = self._due() if now >= self._rest_until else None
            if work is not None:
                self._begin(work, now)
        elif not self._thread.is_alive():
            self._thread = None
            self._end(now)
        elif now >= self._until:
            self._is_late = True
            self._spark.interruptTag(TAG)  # at each look: between two jobs there is none to interrupt

    def _due(self) -> Work | None:
        manifest = self._lake.manifest
        if judgement_is_due(manifest, time.time()):
            return lambda: judge(self._spark, self._lake)
        return (lambda: compact(self._lake)) if crowds(manifest) else None

    def _begin(self, work: Work, now: float) -> None:
        self._error, self._is_late, self._until = None, False, now + MOST
        self._thread = threading.Thread(target=self._do, args=(work,), name="judging", daemon=True)
        self._thread.start()

    def _do(self, work: Work) -> None:
        try:
            self._spark.addTag(TAG)  # of this thread's jobs
            work()
        except Exception as error:  # noqa: BLE001 - raised by the next look
            self._error = error

    def _end(self, now: float) -> None:
        if self._error is None:
            return
        if not self._is_late:
            raise self._error
        self._rest_until = now + MOST
        log.warning("the audit was not done within %g s, and is tried again in as many", MOST)


_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",  # makes one task of small ones
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
    "spark.sql.files.maxPartitionBytes": "8m",
}
"""Tasks of a second or so: Spark interrupts none for another job's."""

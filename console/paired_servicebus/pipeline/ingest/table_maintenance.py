"""Judging: the fate of each message from its receipts; and compaction of many small files.

It runs at the end of `--once`, and while following when the new receipts are a quarter of the known ones: each message
is judged a few times only. Spark runs the SQL of audit_sql. Events and settled messages older than KEPT are dropped.
Unsettled messages (parked, in doubt, undelivered) stay.

Following, MaintenanceThread does one work at a time beside the batches, in Spark's fair order (spark_session) and in
small tasks: judging half a million receipts takes seconds, and more as the tables grow. A work is of its first
manifest, and later additions stay. Work longer than MOST is cancelled and retried after the same time; until then
readers judge new receipts themselves, more slowly.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from paired_servicebus.pipeline.ingest import partial_aggregates
from paired_servicebus.pipeline.table_store import audit_sql
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.schema import AUDIT, EVENTS, VERDICTS, spark_ddl

KEPT: Final = 30 * 24 * 3600 * 1_000_000
"""Microseconds, back from the newest record, or from now if that claims to be later."""
MOST_FILES: Final = 100
"""Files of a table that are read one by one before they are made one."""
LARGE: Final = 100_000
"""Rows of a file of events that is left alone."""
NEW_SHARE: Final = 4
_KEPT: Final = """
with latest as (select *, max(received_ts) over (partition by lower(entity)) as last_received from judged),
kept as (
    select lower(entity) as kept_entity, message_id as kept_id from latest
    where last_ts >= {horizon} or status not in ('delivered', 'dead-lettered', 'accepted', 'refused', 'unexpected')
       or received_ts = last_received
)
select merged.* from merged left semi join kept on lower(merged.entity) = kept_entity and message_id = kept_id
"""
"""The message that an entity's receivers reported last stays: with none, it would seem that they report nothing."""


def due(manifest: Manifest) -> bool:
    """Whether it is time for a judgement while a journal is followed."""
    new = manifest.unjudged()
    known = sum(file.rows for file in manifest.of("audit"))
    return len(new) >= MOST_FILES and sum(file.rows for file in new) * NEW_SHARE >= known


def crowded(manifest: Manifest) -> bool:
    """Whether a table has so many files that they are better made one."""
    many = (manifest.of(table) for table in partial_aggregates.MERGED)
    return any(len(files) >= 2 * MOST_FILES for files in (*many, _small(manifest.unjudged())))


def judge(spark: Any, lake: Lake) -> None:
    """Make `audit` and `verdicts` of all receipts, and compact every table. Raises Spark's errors."""
    began = lake.manifest
    name = _name(began)
    end = began.end(time.time())
    horizon = end - KEPT
    recent = tuple(file for file in began.of("events") if file.last_ts >= horizon)
    new = {
        **_audited(spark, lake, began, name, end),
        "events": _fewer(spark, lake, recent, name),
        **{table: _merged(lake, began, table, name) for table in partial_aggregates.MERGED},
    }
    lake.commit(lambda now: {"files": replaced(now, began, new), "judged": began.batch})


def tidy(spark: Any, lake: Lake) -> None:
    """Compact without judging: unjudged receipts stay separate. Raises Spark's errors."""
    began = lake.manifest
    name = _name(began)
    unjudged = began.unjudged()
    judged = tuple(file for file in began.of("events") if file not in unjudged)
    new = {
        "events": (*judged, *_fewer(spark, lake, unjudged, name)),
        **{table: _merged(lake, began, table, name) for table in partial_aggregates.MERGED},
    }
    lake.commit(lambda now: {"files": replaced(now, began, new)})


def _name(began: Manifest) -> str:
    """Return the name of a work's files: a batch meanwhile gets the next number."""
    return f"j{began.batch:010d}"


def replaced(now: Manifest, began: Manifest, new: dict[str, tuple[File, ...]]) -> dict[str, tuple[File, ...]]:
    """Return all tables' files: the new ones replace the work's inputs, and later additions stay."""
    since = {table: tuple(file for file in now.of(table) if file not in began.of(table)) for table in new}
    return {**now.files, **{table: (*files, *since[table]) for table, files in new.items()}}


def _audited(spark: Any, lake: Lake, began: Manifest, name: str, end: int) -> dict[str, tuple[File, ...]]:
    from pyspark.sql import functions as f

    whole = _merged_receipts(spark, lake, began, lake.place("audit", name))
    whole.createOrReplaceTempView("merged")
    spark.sql(audit_sql.JUDGED.format(merged="merged", now=end)).createOrReplaceTempView("judged")
    by_entity = audit_sql.VERDICT.format(entity="max(entity)", judged="judged", group="group by lower(entity)")
    verdicts = partial_aggregates.with_all(spark.sql(by_entity).select(*VERDICTS).toArrow())
    rows, last, oldest = whole.select(f.count("*"), f.max("last_ts"), f.min("last_ts")).first()
    if oldest is not None and oldest < end - KEPT:
        kept = spark.sql(_KEPT.format(horizon=end - KEPT))
        kept.select(*AUDIT).write.mode("overwrite").parquet(str(lake.place("audit", f"{name}-kept")))
        shutil.rmtree(lake.place("audit", name), ignore_errors=True)
        name = f"{name}-kept"
        rows = spark.read.schema(spark_ddl(AUDIT)).parquet(str(lake.place("audit", name))).count()
    written = write_arrow(verdicts, lake.place("verdicts", f"{name}.parquet"))
    batch = began.batch + 1
    return {
        "audit": (File(name, rows, last or 0, batch),) if rows else (),
        "verdicts": (File(written.name, verdicts.num_rows, last or 0, batch),),
    }


def _merged_receipts(spark: Any, lake: Lake, began: Manifest, place: Path) -> Any:
    """Write all receipts by message once; later steps read this file."""
    known = _frame(spark, lake, "audit", began.of("audit"), spark_ddl(AUDIT))
    _frame(spark, lake, "events", began.unjudged(), spark_ddl(EVENTS)).createOrReplaceTempView("new_events")
    known.unionByName(spark.sql(audit_sql.PARTIAL.format(events="new_events"))).createOrReplaceTempView("receipts")
    merged = spark.sql(audit_sql.MERGE.format(partials="receipts")).select(*AUDIT)
    merged.write.mode("overwrite").parquet(str(place))
    return spark.read.schema(spark_ddl(AUDIT)).parquet(str(place))


def _small(files: tuple[File, ...]) -> tuple[File, ...]:
    return tuple(file for file in files if file.rows < LARGE)


def _fewer(spark: Any, lake: Lake, files: tuple[File, ...], name: str) -> tuple[File, ...]:
    """Of many small files of events one."""
    small = _small(files)
    if len(small) < MOST_FILES:
        return files
    frame = _frame(spark, lake, "events", small, spark_ddl(EVENTS))
    frame.coalesce(1).write.mode("overwrite").parquet(str(lake.place("events", name)))
    rows, last = sum(file.rows for file in small), max(file.last_ts for file in small)
    one = File(name, rows, last, max(file.batch for file in small))
    return (*(file for file in files if file not in small), one)


def _merged(lake: Lake, manifest: Manifest, table: str, name: str) -> tuple[File, ...]:
    files = manifest.of(table)
    if len(files) < MOST_FILES:
        return files
    rows = partial_aggregates.merge(table, [str(lake.place(table, file.name)) for file in files])
    written = write_arrow(rows, lake.place(table, f"{name}.parquet"))
    return (File(written.name, rows.num_rows, max(file.last_ts for file in files), manifest.batch + 1),)


def _frame(spark: Any, lake: Lake, table: str, files: Any, ddl: str) -> Any:
    paths = [str(lake.place(table, file.name)) for file in files]
    if not paths:
        return spark.createDataFrame([], ddl)
    return spark.read.schema(ddl).parquet(*paths)


def write_arrow(rows: Any, path: Path) -> Path:
    """Write an Arrow table as one Parquet file. Raises OSError."""
    import pyarrow.parquet as pq

    pq.write_table(rows, path, compression="zstd")
    return path


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
            work = due_work(self._lake) if now >= self._rest_until else None
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


def due_work(lake: Lake) -> Work | None:
    """Return the due work; None without any."""
    if due(lake.manifest):
        return judge
    return tidy if crowded(lake.manifest) else None


_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
    "spark.sql.files.maxPartitionBytes": "8m",
}
"""Tasks of a second or so: Spark interrupts none for another job's."""

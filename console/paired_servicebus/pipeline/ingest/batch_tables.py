"""One batch: from journal files to the next version of every table but the judged ones. Spark's SQL makes them all.

    files ──▶ events ──▶ sums ──▶ minutes, failures, backlog, syphon, dead_letters, cost ──┐
                    └──▶ timeline, spans ──▶ engines, gaps ──▶ stories ────────────────────┴──▶ episodes

Events are parsed and written once; every other query reads the written files. The two lines run beside each other. A
table's rows of a batch are few, so they come to this process, and are written as one file for each day. Nothing changes
before the commit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from paired_servicebus.core.errors import PipelineError, SparkFailedError
from paired_servicebus.pipeline.ingest.episode_tables import episode_rows, find_stories
from paired_servicebus.pipeline.ingest.event_writer import TYPES, Contents, arrow_schema, write_batches, write_files
from paired_servicebus.pipeline.ingest.journal_files import JournalFile
from paired_servicebus.pipeline.ingest.table_files import (
    Existing,
    days_of,
    frame,
    rows_in,
    staged_parts,
    write_days,
    write_rows,
)
from paired_servicebus.pipeline.judging.derived_sql import ENGINES, PINGS, READINGS, SUMMED, SUMS, TIMELINE_OF_EVENTS
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import side_by_side
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, merged
from paired_servicebus.pipeline.table_store.schema import GAPS

# Events, written by Spark's tasks: those of journal files, and those of a query that are new to the tables.


def write_journal(spark: Any, files: Sequence[JournalFile], folder: Path) -> Contents:
    """Write the events of journal files below a folder, in as many tasks as there are processors.

    Raises Spark's errors, and SparkFailedError: this process does not find all that the tasks wrote.
    """
    context = spark.sparkContext
    shares = _shares(files, context.defaultParallelism)
    written = context.parallelize(shares, len(shares)).map(partial(write_files, folder=str(folder))).collect()
    return _found(written, folder)


def write_events(events: Any, folder: Path) -> Contents:
    """Write the events of a query below a folder. Raises as `write_journal`."""
    rows = events.mapInArrow(partial(_written, folder=str(folder)), "contents binary").collect()
    return _found([_CONTENTS.decode(row["contents"]) for row in rows], folder)


def _written(batches: Iterator[Any], folder: str) -> Iterator[Any]:
    """In a Python worker of Spark's: Arrow batches of events in, what they hold out."""
    found = msgspec.json.encode(write_batches(batches, folder))
    yield pa.RecordBatch.from_pydict({"contents": pa.array([found], pa.binary())})


_CONTENTS = msgspec.json.Decoder(Contents)


def _shares(files: Sequence[JournalFile], most: int) -> list[list[tuple[str, int]]]:
    """Return the files in shares of as many bytes."""
    shares: list[tuple[int, int, list[tuple[str, int]]]] = [(0, number, []) for number in range(min(most, len(files)))]
    for one in sorted(files, key=lambda one: one.size, reverse=True):
        size, number, share = heapq.heappop(shares)
        share.append((str(one.path), one.size))
        heapq.heappush(shares, (size + one.size, number, share))
    return [share for _, _, share in shares]


def _found(written: Iterable[Contents], folder: Path) -> Contents:
    """Return what the tasks wrote; it has to be there. A worker may have written into a folder of its own."""
    whole = reduce(add, written, Contents())
    wanted, found = sum(whole.files.values()), rows_in(map(Path, whole.files))
    if found != wanted:
        raise SparkFailedError(
            f"of {wanted:,} rows that Spark's workers wrote into {folder}, {found:,} are there: nothing is taken; see "
            "that every worker has the same table folder"
        )
    return whole


def unseen(events: Any, seen: Iterable[RecordSpan], held: Any) -> Any:
    """Return the events that the tables do not hold yet, each once.

    A record is known by its number; of two with one number the readable one counts. A line without one is known by its
    file's name and its text: `held` are the tables' lines of that kind, None without any.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark = events.sparkSession
    spans = [(span.engine, span.boot, span.first, span.last) for span in seen]
    if spans:
        known = f.broadcast(spark.createDataFrame(spans, "s_engine string, s_boot string, first bigint, last bigint"))
        same = (f.col("engine") == f.col("s_engine")) & (f.col("boot") == f.col("s_boot"))
        events = events.join(known, same & f.col("seq").between(f.col("first"), f.col("last")), "left_anti")
    best = Window.partitionBy("engine", "boot", "seq").orderBy(f.col("trouble").isNotNull(), "trouble", "line")
    numbered = events.where("seq is not null").withColumn("rank", f.row_number().over(best)).where("rank = 1")
    numbered = numbered.drop("rank")
    others = events.where("seq is null")
    if held is not None:
        lines = f.broadcast(held.select(f.col("file").alias("h_file"), f.col("line").alias("h_line")).distinct())
        others = others.join(
            lines, (f.col("file") == f.col("h_file")) & (f.col("line") == f.col("h_line")), "left_anti"
        )
    return numbered.unionByName(others)


def spans_of(manifest: Manifest) -> Any:
    """Return the spans of all records as an Arrow table."""
    spans = manifest.seen
    at = TYPES["TIMESTAMP"]
    columns = {
        "engine": pa.array([one.engine for one in spans], pa.string()),
        "boot": pa.array([one.boot for one in spans], pa.string()),
        "first": pa.array([one.first for one in spans], pa.int64()),
        "last": pa.array([one.last for one in spans], pa.int64()),
        "first_at": pa.array([one.first_at or None for one in spans], pa.int64()).cast(at),
        "last_at": pa.array([one.last_at or None for one in spans], pa.int64()).cast(at),
    }
    return pa.table(columns)


def receiving_of(boots: Iterable[tuple[str, str]]) -> Any:
    """Return boots as an Arrow table."""
    found = list(boots)
    return pa.table(
        {
            "engine": pa.array([one for one, _ in found], pa.string()),
            "boot": pa.array([one for _, one in found], pa.string()),
        }
    )


def gaps_of(manifest: Manifest) -> Any:
    """Return the rows of `gaps` as an Arrow table."""
    rows = [
        {"engine": gap.engine, "boot": gap.boot, "first_seq": gap.first, "last_seq": gap.last, "missing": gap.missing}
        for gap in manifest.gaps()
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(GAPS))


_RARE: Final = (
    ("pings", PINGS, "ping-accepted"), ("readings", READINGS, "queue-read"),
)  # fmt: skip


SMALL: Final = 8 * 1024 * 1024
"""Bytes of a batch's files up to which Spark spends more on compiling a query than on running it."""


class ShortReadError(PipelineError):
    """The executors read other bytes of the journal's files than are there."""


class BatchTables:
    """Takes batches into the tables of a lake."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self._large = spark
        self._small = spark_session.for_small_work(spark)
        self._spark = self._small
        self._lake = lake

    def take(self, files: Sequence[JournalFile]) -> Manifest:
        """Add the records of some files. Raises ShortReadError, Spark's errors and OSError; nothing is half taken."""
        lake = self._lake
        self._spark = self._large if sum(one.size for one in files) > SMALL else self._small
        with lake.writing, lake.staged("batch") as place:
            return self._add(self._read(files, place / "read"), place)

    def _add(self, found: Contents, place: Path) -> Manifest:
        """Add written events to the tables; `place` is for new files."""
        version = self._lake.version
        before = version.manifest
        came = found.numbered
        if found.repeats(before):
            found = self._write_unseen(found, before, place / "unseen")
        fields: dict[str, Any] = {"repeated": before.repeated + came - found.numbered}
        paths = [Path(path) for path in found.files]
        files = staged_parts(paths, "events", before.batch + 1)
        if not files:
            return self._lake.commit(lambda _: Change(fields=fields))
        seen = merged(before.seen + found.spans)
        after = msgspec.structs.replace(before, seen=seen)
        changed = self._tables(paths, place, after, found, Existing(self._small, version))
        if found.receipts:
            fields |= {"receipts": before.receipts + found.receipts, "receipts_batch": before.batch + 1}
        fields |= {"seen": seen, "troubled": tuple(sorted({*before.troubled, *found.troubled}))}
        whole: dict[str, Files] = {"events": (*before.of("events"), *files), **changed}
        return self._lake.commit(lambda _: Change(files=whole, fields=fields))

    # -- events -------------------------------------------------------------------------------------------------------

    def _read(self, files: Sequence[JournalFile], place: Path) -> Contents:
        """Write the events of files. They count only if the workers read, and wrote, what this process sees."""
        read = write_journal(self._spark, files, place)
        wanted = sum(one.size for one in files)
        if read.bytes != wanted:
            raise ShortReadError(
                f"Spark's workers read {read.bytes:,} of {wanted:,} bytes of {len(files)} journal files, "
                f"{files[0].path} among them: nothing of them is taken; see that every worker has the same "
                "journal folders"
            )
        return read

    def _write_unseen(self, found: Contents, before: Manifest, place: Path) -> Contents:
        """Write the events that are not in the tables."""
        held = None
        if before.troubled:
            held = Existing(self._spark, self._lake.version).rows("events").where("seq is null")
        events = frame(self._spark, "events", [Path(path) for path in found.files])
        return write_events(unseen(events, before.seen, held), place)

    # -- the other tables ---------------------------------------------------------------------------------------------

    def _tables(
        self, events: Sequence[Path], place: Path, after: Manifest, found: Contents, existing: Existing
    ) -> dict[str, Files]:
        """Return the new files of all tables but the judged ones; `events` are the files of the batch's."""
        batch = after.batch + 1
        frame(self._spark, "events", events).createOrReplaceTempView("events")
        changed: dict[str, Files]
        work: Sequence[Callable[[], Any]] = (
            partial(self._engine_files, place, after, found, existing),
            partial(self._sums, place, existing, batch),
        )
        (told, changed, has_stories), summed = side_by_side(self._small, work)
        changed |= summed
        if has_stories:
            episodes = episode_rows(self._small, events, told, existing, changed)
            changed["episodes"] = write_rows(place, "episodes", episodes, batch)
        return changed

    def _engine_files(
        self, place: Path, after: Manifest, found: Contents, existing: Existing
    ) -> tuple[Any, dict[str, Files], bool]:
        """Return the batch's rows of `timeline`, the files of the engines' tables, and whether an episode changes."""
        spark, batch = self._small, after.batch + 1
        told = self._spark.sql(TIMELINE_OF_EVENTS).toArrow()
        spark.createDataFrame(told).createOrReplaceTempView("timeline")
        engines = self._engines(after, found, existing)
        changed: dict[str, Files] = {
            "engines": write_rows(place, "engines", engines, batch),
            "gaps": write_rows(place, "gaps", gaps_of(after), batch),
        }
        if told.num_rows:
            changed["timeline"] = (*existing.of("timeline"), *write_days(place, "timeline", told, batch))
        return told, changed, find_stories(spark, told, engines, existing, changed)

    def _sums(self, place: Path, existing: Existing, batch: int) -> dict[str, Files]:
        """Add the batch's sums to the rows of the days that it has records of."""
        days = self._sum_up()
        dates = {table: set().union(*(days.get(kind, set()) for kind in SUMMED[table].kinds)) for table in SUMMED}
        adding = [partial(self._added, table, some, place, existing, batch) for table, some in dates.items() if some]
        return dict(side_by_side(self._small, adding))

    def _added(self, table: str, dates: set[str], place: Path, existing: Existing, batch: int) -> tuple[str, Files]:
        """Return a table's files with the batch's sums added to the rows of those days."""
        touched = [file for file in existing.of(table) if file.date in dates]
        existing.rows(table, touched).createOrReplaceTempView(f"known_{table}")
        rows = self._small.sql(SUMMED[table].query(table)).toArrow()
        kept = [file for file in existing.of(table) if file.date not in dates]
        return table, (*kept, *write_days(place, table, rows, batch))

    def _rows_of(self, queries: Iterable[str]) -> list[Any]:
        """Return the rows of queries over the batch's events, as Arrow tables."""
        spark = self._spark
        return side_by_side(spark, [partial(lambda query: spark.sql(query).toArrow(), query) for query in queries])

    def _sum_up(self) -> dict[str, set[str]]:
        """Make the views of sums; return the days of each kind of event."""
        spark = self._small
        sums = self._spark.sql(SUMS).toArrow()
        spark.createDataFrame(sums).createOrReplaceTempView("sums")
        days: dict[str, set[str]] = {}
        for kind, day in zip(sums["kind"].to_pylist(), days_of(sums["minute"]), strict=True):
            days.setdefault(kind, set()).add(day)

        new = self._rows_of(query if kind in days else f"{query} having false" for _, query, kind in _RARE)
        for (name, _, _), rows in zip(_RARE, new, strict=True):
            spark.createDataFrame(rows).createOrReplaceTempView(name)
        return days

    def _engines(self, after: Manifest, found: Contents, existing: Existing) -> Any:
        spark = self._small
        spark.createDataFrame(spans_of(after)).createOrReplaceTempView("spans")
        spark.createDataFrame(receiving_of(found.receiving)).createOrReplaceTempView("receiving")
        existing.rows("engines").createOrReplaceTempView("known_engines")
        return spark.sql(ENGINES).toArrow()

"""Events, written by Spark's tasks: those of journal files, and those of a query that are new to the tables."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from paired_servicebus.core.errors import SparkFailedError
from paired_servicebus.pipeline.ingest.event_writer import Contents, write_batches, write_files
from paired_servicebus.pipeline.ingest.journal_files import JournalFile
from paired_servicebus.pipeline.ingest.table_files import rows_in
from paired_servicebus.pipeline.table_store.manifest import RecordSpan


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

"""Journal files as events that are new to the tables: event_parser.py under Spark, without earlier events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from paired_servicebus.pipeline.spark.spark_session import spark_path
from paired_servicebus.pipeline.table_store.empty_files import NO_DATE
from paired_servicebus.pipeline.table_store.manifest import RecordSpan
from paired_servicebus.pipeline.table_store.schema import EVENTS, spark_ddl

DATED_EVENTS = {**EVENTS, "date": "DATE"}


def lines_of(spark: Any, paths: Sequence[Path]) -> Any:
    """Return the lines of files, as they are, with their file's name: `value`, `file`."""
    from pyspark.sql import functions as f

    lines = spark.read.text([spark_path(path) for path in paths], lineSep="\n")
    return lines.select("value", f.col("_metadata.file_name").alias("file"))


def typed(lines: Any) -> Any:
    """Return events with their date, from `value` (a line) and `file` (its file's name)."""
    return dated(lines.mapInArrow(_batches, spark_ddl(EVENTS)))


def dated(events: Any) -> Any:
    """Return events with the date that their table is partitioned by."""
    from pyspark.sql import functions as f

    return events.withColumn("date", f.coalesce(f.to_date("at"), f.lit(NO_DATE).cast("date")))


def _batches(batches: Iterator[Any]) -> Iterator[Any]:
    """In a Python worker of Spark's: Arrow batches of lines in, of events out."""
    from paired_servicebus.pipeline.ingest.event_parser import events_of

    for batch in batches:
        value, file = batch.columns
        yield from events_of(value.cast("binary").to_pylist(), file.to_pylist()).to_batches()


def unseen(events: Any, seen: Iterable[RecordSpan], held: Any) -> Any:
    """Return the events that the tables do not hold yet, each once.

    A record is known by its number. A line without one is known by its file's name and its text: `held` are the tables'
    lines of that kind, None without any.
    """
    from pyspark.sql import functions as f

    spark = events.sparkSession
    spans = [(span.engine, span.boot, span.first, span.last) for span in seen]
    if spans:
        known = f.broadcast(spark.createDataFrame(spans, "s_engine string, s_boot string, first bigint, last bigint"))
        same = (f.col("engine") == f.col("s_engine")) & (f.col("boot") == f.col("s_boot"))
        events = events.join(known, same & f.col("seq").between(f.col("first"), f.col("last")), "left_anti")
    numbered = events.where("seq is not null").dropDuplicates(["engine", "boot", "seq"])
    others = events.where("seq is null")
    if held is not None:
        lines = f.broadcast(held.select(f.col("file").alias("h_file"), f.col("line").alias("h_line")).distinct())
        others = others.join(
            lines, (f.col("file") == f.col("h_file")) & (f.col("line") == f.col("h_line")), "left_anti"
        )
    return numbered.unionByName(others)

"""Journal lines as events that are new to the tables: event_parser.py under Spark, without earlier events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from paired_servicebus.pipeline.table_store.manifest import RecordSpan
from paired_servicebus.pipeline.table_store.schema import EVENTS, spark_ddl


def typed(lines: Any) -> Any:
    """Events from lines: a DataFrame with `value` (a line) and `file` (its file's name) in, schema.EVENTS out."""
    return lines.select("value", "file").mapInArrow(_batches, spark_ddl(EVENTS))


def _batches(batches: Iterator[Any]) -> Iterator[Any]:
    """In a Python worker of Spark's: Arrow batches of lines in, of events out."""
    from paired_servicebus.pipeline.ingest.event_parser import events_of

    for batch in batches:
        value, file = batch.columns
        yield from events_of(value.cast("binary").to_pylist(), file.to_pylist()).to_batches()


def unseen(events: Any, seen: Iterable[RecordSpan], troubled: Iterable[str]) -> Any:
    """Those that the tables do not hold yet, each once: by their number, or by their file where they have none."""
    from pyspark.sql import functions as f

    spark = events.sparkSession
    spans, names = [(span.engine, span.boot, span.first, span.last) for span in seen], [(name,) for name in troubled]
    if spans:
        held = f.broadcast(spark.createDataFrame(spans, "s_engine string, s_boot string, first bigint, last bigint"))
        same = (f.col("engine") == f.col("s_engine")) & (f.col("boot") == f.col("s_boot"))
        events = events.join(held, same & f.col("seq").between(f.col("first"), f.col("last")), "left_anti")
    events = events.where("seq is null").unionByName(
        events.where("seq is not null").dropDuplicates(["engine", "boot", "seq"])
    )
    if names:
        whole = f.broadcast(spark.createDataFrame(names, "t_file string"))
        events = events.join(whole, f.col("seq").isNull() & (f.col("file") == f.col("t_file")), "left_anti")
    return events

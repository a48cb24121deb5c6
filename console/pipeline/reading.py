"""Journal lines as typed events, in Spark's own expressions: no Python touches a line.

A line that cannot be read becomes a row that says so in `trouble`, with its text: "torn" (no JSON, or of other types),
"foreign" (JSON, no record of ours), "newer version", "unknown kind". The last two have their number and are counted as
seen; what they hold is for the program that knows them, which makes the tables anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from console.core.events import KINDS
from console.engine.records import VERSION
from console.pipeline.manifest import Span, merged
from console.pipeline.schema import EVENT_FIELDS, EVENTS, HEADER, spark_ddl

_CORRUPT: Final = "_corrupt_record"
_LINE: Final = spark_ddl({**HEADER, **EVENT_FIELDS, _CORRUPT: "VARCHAR"})


def typed(lines: Any) -> Any:
    """Events from lines: a DataFrame with `value` (a line) and `file` (its file's name) in, schema.EVENTS out."""
    from pyspark.sql import functions as f

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = lines.where(f.length(f.trim("value")) > 0).select(
        "value", "file", f.from_json("value", _LINE, options).alias("e")
    )
    event = f.col("e")
    header = [event[name] for name in HEADER]
    has_header = f.lit(True)
    for column in header:
        has_header = has_header & column.isNotNull()
    trouble = (
        f.when(event.isNull() | event[_CORRUPT].isNotNull(), "torn")
        .when(~(has_header & (event["seq"] > 0)), "foreign")
        .when(event["v"] > VERSION, "newer version")
        .when(~event["kind"].isin(list(KINDS)), "unknown kind")
    )
    told = parsed.withColumn("trouble", trouble)
    numbered = f.col("trouble").isNull() | f.col("trouble").isin("newer version", "unknown kind")
    return told.select(
        *(f.when(numbered, event[name]).alias(name) for name in HEADER),
        *(event[name].alias(name) for name in EVENT_FIELDS),
        "trouble",
        f.when(f.col("trouble").isNotNull(), f.col("value")).alias("line"),
        f.when(f.col("trouble").isNotNull(), f.col("file")).alias("file"),
    ).select(*EVENTS)


def unseen(events: Any, seen: Iterable[Span], troubled: Iterable[str]) -> Any:
    """Those that the tables do not hold yet: by their number, or by their file where they have none."""
    from pyspark.sql import functions as f

    spark = events.sparkSession
    spans, names = [tuple(_plain(span)) for span in seen], [(name,) for name in troubled]
    if spans:
        held = f.broadcast(spark.createDataFrame(spans, "s_engine string, s_boot string, first bigint, last bigint"))
        same = (f.col("engine") == f.col("s_engine")) & (f.col("boot") == f.col("s_boot"))
        events = events.join(held, same & f.col("seq").between(f.col("first"), f.col("last")), "left_anti")
    if names:
        whole = f.broadcast(spark.createDataFrame(names, "t_file string"))
        events = events.join(whole, f.col("seq").isNull() & (f.col("file") == f.col("t_file")), "left_anti")
    return events


def _plain(span: Span) -> tuple[str, str, int, int]:
    return span.engine, span.boot, span.first, span.last


def numbers(events: Any) -> tuple[tuple[Span, ...], int]:
    """Which numbers are among them, as spans, and how many rows have a number that another row has, too."""
    from pyspark.sql import functions as f

    numbered = events.where("seq is not null")
    buckets = numbered.groupBy("engine", "boot", f.bitmap_bucket_number("seq").alias("bucket")).agg(
        f.bitmap_construct_agg(f.bitmap_bit_position("seq")).alias("bits"), f.count(f.lit(1)).alias("rows")
    )
    spans: list[Span] = []
    rows = 0
    for engine, boot, bucket, bits, count in buckets.collect():
        spans += bucket_spans(engine, boot, bucket, bytes(bits))
        rows += count
    return merged(tuple(spans)), rows - sum(span.last - span.first + 1 for span in spans)


BUCKET: Final = 32 * 1024
"""Numbers that a bitmap of Spark's holds."""


def bucket_spans(engine: str, boot: str, bucket: int, bits: bytes) -> list[Span]:
    """The spans in one bitmap: bucket 1 holds the numbers 1 to 32,768, its lowest bit first."""
    import numpy as np

    base = (bucket - 1) * BUCKET + 1
    found = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
    edges = np.flatnonzero(np.diff(np.concatenate(([0], found, [0]))))
    return [
        Span(engine, boot, base + int(first), base + int(end) - 1)
        for first, end in zip(edges[::2], edges[1::2], strict=True)
    ]

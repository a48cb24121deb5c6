"""A rehearsal's chunks on Spark, a task each; started by command.py as a process of its own.

What goes to a task is the order as text and the chunk's number; what comes back are whole numbers, put in order here.
So the result is the same on any master, with any number of executors, whatever task was run again.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.processes.pipeline_launcher import TROUBLE
from paired_servicebus.pipeline.rehearsal.policy_grid import NAMES, Order, Row, run_chunk
from paired_servicebus.pipeline.spark.java import find_java
from paired_servicebus.pipeline.spark.spark_session import open_session

ORDER: Final = "order.json"
ROWS: Final = "rows.json"


class SparkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to do."""

    order: Order
    master: str
    java_home: str | None = None


class SparkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What it did."""

    rows: list[Row]
    seconds: float
    """From the first chunk to the last, without Spark's start."""


_WANTED: Final = msgspec.json.Decoder(SparkOrder)


def spread(spark: Any, order: Order) -> list[Row]:
    """Every row, by policy and seed."""
    text = msgspec.json.encode(order)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # a run's World goes as a whole: walks through it find nothing before
        told = msgspec.json.decode(text, type=Order)
        schema = pyarrow.schema([(name, pyarrow.int64()) for name in NAMES])
        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                columns = list(zip(*run_chunk(told, chunk), strict=True))
                yield pyarrow.record_batch([pyarrow.array(one, pyarrow.int64()) for one in columns], schema=schema)

    chunks = spark.range(0, order.chunks, 1, order.chunks)
    found = chunks.mapInArrow(run, ", ".join(f"{name} long" for name in NAMES)).toArrow()
    return sorted(zip(*(found.column(name).to_pylist() for name in NAMES), strict=True))


def main(folder: Path) -> int:
    """Run what stands in `folder`, and leave the rows there; exit status 2 and a sentence where that cannot be."""
    try:
        wanted = read_json(_WANTED, (folder / ORDER).read_bytes())
        configured = None if wanted.java_home is None else Path(wanted.java_home)
        java = find_java(configured=configured, shims=folder)
        with open_session(app="rehearse", work=folder, java=java, master=wanted.master) as spark:
            began = time.monotonic()
            rows = spread(spark, wanted.order)
            ran = SparkResult(rows=rows, seconds=time.monotonic() - began)
        (folder / ROWS).write_bytes(msgspec.json.encode(ran))
    except PairedError as error:
        sys.stderr.write(f"{TROUBLE}{one_line(str(error))}\n")
        return 2
    return 0

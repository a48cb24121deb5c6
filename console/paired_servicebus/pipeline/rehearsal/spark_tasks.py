"""A rehearsal's chunks on Spark, one task each; rehearsal_command runs it with the order's folder as its argument.

A task gets the order as text and its chunk's number. It returns whole numbers, which are sorted here. So the result is
the same on any master, with any number of executors and any task retries.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.rehearsal.policy_ranking import NAMES, Order, Row, run_chunk
from paired_servicebus.pipeline.spark.spark_session import find_java, open_session
from paired_servicebus.pipeline.spark_processes import TROUBLE, ProgressLines, watch_parent

ORDER: Final = "order.json"
ROWS: Final = "rows.json"


class SparkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Where and on what Spark runs."""

    master: str = "local[*]"
    java_home: Path | None = None
    settings: dict[str, str] = {}
    """Spark's own, on top of ours."""


class SparkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order of the process."""

    order: Order
    spark: SparkChoice


class SparkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the process."""

    rows: list[Row]
    seconds: float
    """From the first chunk to the last, without Spark's start."""


_WANTED: Final = msgspec.json.Decoder(SparkOrder, dec_hook=lambda kind, value: kind(value))


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
    """Run the order in `folder` and write the rows there. Return 2 and write one sentence on failure."""
    try:
        wanted = read_json(_WANTED, (folder / ORDER).read_bytes())
        choice = wanted.spark
        java = find_java(configured=choice.java_home, shims=folder)
        with open_session(
            app="rehearse", work=folder, java=java, master=choice.master, private=choice.settings
        ) as spark:
            ProgressLines().show(f"rehearsing on {masked(choice.master)}, {wanted.order.runs:,} runs")
            began = time.monotonic()
            rows = spread(spark, wanted.order)
            ran = SparkResult(rows=rows, seconds=time.monotonic() - began)
        (folder / ROWS).write_bytes(msgspec.json.encode(ran))
    except PairedError as error:
        sys.stderr.write(f"{TROUBLE}{one_line(str(error))}\n")
        return 2
    return 0


if __name__ == "__main__":
    os.nice(10)  # engines and people first
    watch_parent(lambda: None, within=0.0)
    sys.exit(main(Path(sys.argv[1])))

"""Whether every worker of a cluster sees the folders that this process sees, asked before anything is read or written.

A worker that misses a folder would fail its tasks, or write files that this process never finds. Workers that get no
task here are met later: a batch counts only if its bytes were all read.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.errors import SparkFailedError
from paired_servicebus.pipeline.table_store.store_path import Place

TASKS: Final = 32
"""More than a small cluster's cores, so that each of its workers gets some, also one that starts seconds later."""
PAUSE: Final = 0.2
"""Seconds that each task takes at least: a fast worker takes not all of them."""


def require_sight(spark: Any, *, read: Sequence[Place], written: Place) -> None:
    """Raise SparkFailedError unless the workers see all `read` folders and what this process writes into `written`.

    Paths in a store are left out: every worker reaches them, or its tasks fail.
    """
    if not isinstance(written, Path):
        return
    probe = written / f".seen-by-workers-{uuid.uuid4().hex[:8]}"
    probe.touch(mode=0o600)
    wanted = [str(path) for path in (*read, probe) if isinstance(path, Path)]

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _looked(batches, wanted)

    try:
        tasks = spark.range(0, TASKS, 1, TASKS)
        found = tasks.mapInArrow(look, "host string, path string").distinct().collect()
    finally:
        probe.unlink(missing_ok=True)
    if found:
        host, path = found[0]["host"], found[0]["path"]
        place = written if path == str(probe) else Path(path)
        raise SparkFailedError(
            f"Spark's worker on {host} does not see {place}: nothing was read or written; mount the journal and table "
            "folders at the same paths on every worker"
        )


def _looked(batches: Iterator[Any], wanted: Sequence[str]) -> Iterator[Any]:
    """In a worker: the paths that it does not see."""
    import time

    import pyarrow as pa

    for _ in batches:
        time.sleep(PAUSE)
        missing = [path for path in wanted if not Path(path).exists()]
        hosts = [socket.gethostname()] * len(missing)
        yield pa.record_batch({"host": pa.array(hosts, pa.string()), "path": pa.array(missing, pa.string())})

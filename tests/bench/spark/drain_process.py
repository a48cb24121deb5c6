"""The process of `python -m tests.bench drain` that holds Spark: `python -m tests.bench.spark.drain_process FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.core.model.pairing_events import Moved
from paired_servicebus.engine.journal.spool import prepare
from paired_servicebus.pipeline.drain.drain_files import DrainOrder, ReceiptTally, gather, write
from paired_servicebus.pipeline.drain.drain_main import wave
from paired_servicebus.pipeline.spark.spark_session import open_session
from tests.bench.spark.drain_bench import DrainLap, LapOrders
from tests.journal_files import read_records

_WARM_UP = 2.0
"""Seconds of the first wave, which only starts the Python processes."""


def main(folder: Path) -> None:
    """One lap after the other."""
    orders = msgspec.json.decode((folder / "orders.json").read_bytes(), type=LapOrders)
    most = max(orders.laps)
    work = folder / "work"
    work.mkdir()
    with open_session(app="bench", work=work, master=f"local[{most},1]") as spark:
        _drain(spark, orders, most, folder / "spool-warm-up", seconds=_WARM_UP)
        laps = []
        for number, tasks in enumerate(orders.laps):
            spool = folder / f"spool-{number}"
            _drain(spark, orders, tasks, spool, seconds=orders.seconds)
            laps.append(measured(spool, tasks))
    (folder / "laps.json").write_bytes(msgspec.json.encode(laps))


def _drain(spark: object, orders: LapOrders, tasks: int, spool: Path, *, seconds: float) -> None:
    prepare(spool)
    order = DrainOrder(
        run="lap",
        pairing="bench",
        config=orders.config,
        spool=str(spool),
        queues=orders.queues,
        master="",
        parallelism=tasks,
        in_hand=orders.in_hand,
        wave_seconds=seconds,
    )
    order.folder.mkdir(parents=True)
    write(order.folder / "order.json", order)
    for report in wave(spark, order, tuple(range(tasks))):
        sys.stderr.write(f"{report}\n")
    gather(order.folder, spool, ReceiptTally())


def measured(spool: Path, tasks: int) -> DrainLap:
    """What was moved while all tasks were at work, by their receipts. Raises BenchError."""
    at: dict[str, list[float]] = {}
    for record in read_records(spool):
        if isinstance(record.event, Moved):
            at.setdefault(record.boot, []).append(record.event.at)
    if len(at) != tasks:
        raise BenchError(f"{len(at)} of {tasks} tasks moved something: too little time, or too few messages")
    began, ended = max(min(times) for times in at.values()), min(max(times) for times in at.values())
    if ended <= began:
        raise BenchError("the tasks were not at work at the same time: the machine is too busy")
    moved = sum(began <= one <= ended for times in at.values() for one in times)
    return DrainLap(tasks=tasks, messages=moved, seconds=ended - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`python -m tests.bench.spark.quiet_day [BATCHES]`: how many data files a quiet engine's day leaves, by real batches.

A day of an engine with three entities, one outage of 100 s among it, comes as BATCHES closed journal files, one a
batch, as a pipeline finds them that follows. Between batches is done what is due: judgements and compaction. The files
of all tables are counted on the disk: the most after any batch, at the day's end, and once the next day has begun.
The exit status is 1 if there were more than LIMIT.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.model.pairing_events import (
    Diverted,
    EngineStarted,
    Event,
    Moved,
    OperationsCounted,
    QueueRead,
    Record,
    SendsCounted,
    StateChanged,
)
from paired_servicebus.engine.journal import records
from paired_servicebus.engine.journal.spool import CLOSED, SUFFIX
from paired_servicebus.pipeline.spark.spark_session import open_session
from paired_servicebus.pipeline.table_store.lake import Lake
from tests.bench.spark.synthetic_journal import ENTITIES, QUEUES

LIMIT: Final = 100
BATCHES: Final = 1_440
DAY: Final = 86_400
START: Final = 1_790_035_200.0
"""2026-09-22 00:00:00 UTC."""
NOON: Final = DAY // 2
OUTAGE: Final = 100
"""Seconds."""


def main() -> int:
    """Play the day, and print the numbers of files."""
    batches = int(sys.argv[1]) if sys.argv[1:] else BATCHES
    with tempfile.TemporaryDirectory(prefix="paired-bench-") as name:
        folder = Path(name)
        (folder / "journal" / CLOSED).mkdir(parents=True)
        (folder / "work").mkdir()
        with (
            Lake(folder / "tables") as lake,
            open_session(app="bench", work=folder / "work") as spark,
        ):
            return _play(spark, lake, folder, batches)


def _play(spark: Any, lake: Lake, folder: Path, batches: int) -> int:
    from paired_servicebus.pipeline.ingest.batch_loop import BatchLoop

    loop = BatchLoop(spark, lake, [folder / "journal"])
    most: Counter[str] = Counter()
    began, seq = time.monotonic(), 0
    for number in range(batches + 1):  # the last one is of the next day
        if number == batches:
            _print("at the day's end", _files(lake))
        span = DAY / batches
        seq = _write(folder / "journal" / CLOSED, seq, number * span, (number + 1) * span)
        loop.read_new()
        _look_after(spark, lake)
        if (found := _files(lake)).total() > most.total():
            most = found
    _print("the next day", _files(lake))
    _print(f"the most after any of {batches:,} batches", most)
    print(f"{seq:,} events, {(time.monotonic() - began) / batches:.2f} s a batch")
    return 0 if most.total() <= LIMIT else 1


def _look_after(spark: Any, lake: Lake) -> None:
    """Do what is due. Judgements have no rest between them: a batch here takes less than its share of the day."""
    from paired_servicebus.pipeline.ingest.batch_loop import compact, crowds, judge

    if lake.manifest.unjudged() and (lake.manifest.receipts or not lake.manifest.judged_at):
        judge(spark, lake)
    while crowds(lake.manifest):
        compact(lake)


def _files(lake: Lake) -> Counter[str]:
    """Return the data files of the present version by table."""
    place = str(lake.version.path)
    return Counter(str(path).removeprefix(place).split("/")[1] for path in lake.version.path.rglob("*.parquet"))


def _print(when: str, files: Counter[str]) -> None:
    print(f"{when}: {files.total()} files, {', '.join(f'{table} {number}' for table, number in files.most_common())}")


def _write(folder: Path, seq: int, begin: float, end: float) -> int:
    """Write the events of these seconds of the day as one closed file; return the number of the last one."""
    lines = []
    for event in _events(begin, end):
        seq += 1
        lines.append(records.encode(Record(engine="quiet@here", boot="b0", seq=seq, event=event)))
    if lines:
        (folder / f"quiet@here-{seq:012d}{SUFFIX}").write_bytes(b"\n".join(lines) + b"\n")
    return seq


def _events(begin: float, end: float) -> Iterator[Event]:
    for second in range(int(begin), int(end)):
        at = START + second
        if second == 0:
            yield EngineStarted(
                at=at, pairing="bench", primary="contoso", secondary="backup", backlog_queues=QUEUES, syphon=True,
                version="0",
            )  # fmt: skip
        yield from _outage(second - NOON, at)
        if second % 10 == 9:
            for entity in ENTITIES:
                yield SendsCounted(at=at, entity=entity, route="primary", accepted=20, failed=0, seconds=10.0)
        if second % 60 == 59:
            yield OperationsCounted(
                at=at, sends=120, parked=0, pings=0, receives=10, moves=0, settlements=0, sent_bytes=108_000,
                parked_bytes=0, moved_bytes=0,
            )  # fmt: skip
            for queue in range(QUEUES):
                yield QueueRead(at=at, queue=queue, depth=0, size_bytes=0, dead_lettered=0, scheduled=0)


def _outage(into: int, at: float) -> Iterator[Event]:
    if into == 0:
        yield StateChanged(at=at, entity="orders", was="healthy", now="suspect", why="timeout")
        yield StateChanged(at=at, entity="orders", was="suspect", now="failed over", why="no send accepted for 1 s")
    if into == OUTAGE:
        yield StateChanged(at=at, entity="orders", was="failed over", now="healthy", why="a ping was accepted")
    if 0 < into < OUTAGE:
        yield Diverted(at=at, entity="orders", message_id=f"m-{into}", queue=into % QUEUES)
    if OUTAGE < into < 2 * OUTAGE:
        parked = into - OUTAGE
        yield Moved(at=at, entity="orders", message_id=f"m-{parked}", queue=parked % QUEUES)


if __name__ == "__main__":
    sys.exit(main())

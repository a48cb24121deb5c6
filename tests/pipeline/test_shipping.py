"""Journals of 20 engines that arrive late, twice, half and out of order: the same tables as from all at once.

A shipper copies files as rsync, rclone and cp do: under a temporary name, or in place while they grow. It runs beside a
pipeline that follows the tree. Needs Spark: run where PAIRED_SPARK is set (.ci/run).
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.engine.journal import records
from paired_servicebus.pipeline.spark_processes import PipelineProcess
from paired_servicebus.pipeline.table_commands import check_tables
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.bench.spark.synthetic_journal import events
from tests.pipeline.batches import LONG, MINUTES_OF_SPARK, begin, finish, rows_of

pytestmark = [
    MINUTES_OF_SPARK,
    pytest.mark.timeout(900),
]

ENGINES = 20
EVENTS = 1_500
LINES = 250
START = 1_790_000_000.0
UNSTEADY = {
    "events": ("file",),
    "audit": ("age",),
    "verdicts": ("in_flight_age",),
}
"""Columns that depend on the moment of a judgement, or on which of two copies was read."""


def name_of(number: int) -> str:
    return f"orders@host-{number:02}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journals as their hosts have them, in files of some lines each."""
    folder = tmp_path_factory.mktemp("hosts")
    for number in range(ENGINES):
        engine = name_of(number)
        whole = folder / f"host-{number:02}" / "events"
        whole.mkdir(parents=True)
        lines = [
            records.encode(Record(engine=engine, boot="b0", seq=seq, event=event)).replace(
                b'"m-', f'"{number}-'.encode()
            )
            for seq, event in enumerate(events(EVENTS, per_second=12, start=START + number * 7), start=1)
        ]
        for first in range(0, EVENTS, LINES):
            data = b"\n".join(lines[first : first + LINES]) + b"\n"
            (whole / f"{engine}-b0-{first + 1:012d}.jsonl").write_bytes(data)
    return folder


class Shipper:
    """Copies files to two collectors' trees, in a random order and in the ways that programs do."""

    def __init__(self, source: Path, first: Path, second: Path, *, seed: int) -> None:
        self._source = source
        self._trees = (first, second)
        self._random = random.Random(seed)
        self._ways: list[Callable[[Path, Path], None]] = [
            self._renamed, self._in_place, self._half_then_whole, self._torn_then_again,
        ]  # fmt: skip

    def ship(self, paths: list[Path]) -> None:
        self._random.shuffle(paths)
        again = self._random.sample(paths, len(paths) // 3)
        work = [(path, self._trees[0]) for path in paths] + [(path, self._trees[1]) for path in again]
        threads = [threading.Thread(target=self._all, args=(work[part::3],)) for part in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _all(self, work: list[tuple[Path, Path]]) -> None:
        for path, tree in work:
            target = tree / path.relative_to(self._source)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._random.choice(self._ways)(path, target)

    def _renamed(self, path: Path, target: Path) -> None:
        """As rsync does."""
        new = target.with_name(f".{target.name}.Xy12Zw")
        shutil.copyfile(path, new)
        new.rename(target)

    def _in_place(self, path: Path, target: Path) -> None:
        """As cp and older rclones do, on a slow line."""
        data = path.read_bytes()
        with target.open("wb", buffering=0) as file:
            for start in range(0, len(data), len(data) // 3 + 1):
                file.write(data[start : start + len(data) // 3 + 1])
                time.sleep(self._random.uniform(0.0, 0.6))

    def _half_then_whole(self, path: Path, target: Path) -> None:
        """A copy that ends at a whole line, and goes on later."""
        data = path.read_bytes()
        target.write_bytes(data[: data.find(b"\n", len(data) // 2) + 1])
        time.sleep(self._random.uniform(0.5, 2.5))
        self._renamed(path, target)

    def _torn_then_again(self, path: Path, target: Path) -> None:
        """A copy that ended within a line, and is made again."""
        data = path.read_bytes()
        target.write_bytes(data[: len(data) // 2])
        time.sleep(self._random.uniform(0.2, 1.5))
        shutil.copyfile(path, target)


def wait_for(tables: Path, pipeline: PipelineProcess, sql: str, wanted: int) -> None:
    """Wait until a query over the tables gives a number."""
    end = time.monotonic() + LONG
    found = None
    while found != wanted:
        assert pipeline.running, pipeline.log.read_text()[-3000:]
        assert time.monotonic() < end, (sql, found, wanted)
        time.sleep(0.3)
        try:
            with Tables.open(tables) as opened:
                row = opened.row(sql)
        except NoTablesError:
            continue
        found = next(iter(row.values())) if row else None


def test_journals_that_arrive_in_any_way_make_the_same_tables_as_all_at_once(source: Path, tmp_path: Path) -> None:
    finish(begin(source, tables=tmp_path / "at once"))
    first, second, tables = tmp_path / "first", tmp_path / "second", tmp_path / "shipped"
    first.mkdir()
    second.mkdir()
    paths = sorted(source.rglob("*.jsonl"))
    late = next(path for path in paths if path.name.startswith(name_of(7)) and path.name.endswith("000000000501.jsonl"))
    paths.remove(late)
    shipper = Shipper(source, first, second, seed=11)

    pipeline = begin(first, second, tables=tables, once=False, trigger=1.0)
    try:
        shipper.ship(paths)
        wait_for(tables, pipeline, "select count(*) from events", ENGINES * EVENTS - LINES)
        with Tables.open(tables) as opened:
            found = check_tables(opened, max_age=1e9, now=START)
        assert [(one.engine, one.missing) for one in found.incomplete] == [(name_of(7), LINES)]
        assert (found.engines, found.complete, found.missing, found.unreadable) == (ENGINES, ENGINES - 1, LINES, 0)
        shipper.ship([late])
        wait_for(tables, pipeline, "select count(*) from events", ENGINES * EVENTS)
    finally:
        pipeline.stop()
    finish(begin(first, second, tables=tables))

    wanted, got = rows_of(tmp_path / "at once", UNSTEADY), rows_of(tables, UNSTEADY)
    assert {table: len(rows) for table, rows in got.items()} == {table: len(rows) for table, rows in wanted.items()}
    for table in TABLES:
        assert got[table] == wanted[table], table

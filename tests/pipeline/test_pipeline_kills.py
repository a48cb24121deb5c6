"""Kill -9 of the pipeline's driver or JVM at random moments, and late or repeated files: the tables are the same.

`python -m tests.long pipeline-kills` kills 20 times; a run with PAIRED_SPARK kills 3 times.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Final

import pytest

from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.spark_processes import PipelineOrder, PipelineProcess, start_pipeline
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.batches import MINUTES_OF_SPARK, rows_of
from tests.pipeline.spark_children import below, jvm_of

pytestmark = [MINUTES_OF_SPARK, pytest.mark.timeout(7200)]

EVENTS: Final = 20_000
FILES: Final = 10
KILLS: Final = 20 if os.environ.get("PAIRED_SPARK") == "all" else 3
LONG: Final = 900.0
SETTINGS: Final = {"spark.paired.maxFilesPerTrigger": "2"}


def begin(journal: Path, tables: Path) -> PipelineProcess:
    order = PipelineOrder(journals=(journal,), tables=tables, once=True, settings=SETTINGS)
    return start_pipeline(order)


def finish(journal: Path, tables: Path) -> float:
    """Make the tables of the whole journal; how many seconds it took."""
    began = time.monotonic()
    pipeline = begin(journal, tables)
    try:
        assert pipeline.wait(LONG) == 0, pipeline.log.read_text()[-3000:]
    finally:
        pipeline.stop()
    return time.monotonic() - began


def kill_after(pipeline: PipelineProcess, seconds: float, *, jvm: bool) -> bool:
    """Kill the driver or the JVM of a pipeline; whether it was alive then."""
    if pipeline.wait(seconds) is not None:
        return False
    victims = jvm_of(pipeline.process.pid) if jvm else [pipeline.process.pid]
    children = below(pipeline.process.pid)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert pipeline.wait(LONG) is not None
    end = time.monotonic() + LONG
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < end, "Spark outlived its driver"
        time.sleep(0.05)
    return True


def test_killed_at_random_moments_the_tables_equal_an_undisturbed_run(tmp_path: Path) -> None:
    chance = random.Random(38)
    journal = tmp_path / "journal"
    write_journal(journal, EVENTS, per_second=50, lines=EVENTS // FILES)
    took = finish(journal, tmp_path / "undisturbed")
    wanted = rows_of(tmp_path / "undisturbed")
    killed, tables = 0, tmp_path / "tables-0"
    for number in range(KILLS):
        if kill_after(begin(journal, tables), chance.uniform(0.3, 1.0) * took, jvm=number % 2 == 1):
            killed += 1
        else:  # it had ended: what it made is compared, and the next kill is in new tables
            _compare(rows_of(tables), wanted)
            tables = tmp_path / f"tables-{number + 1}"
    finish(journal, tables)
    _compare(rows_of(tables), wanted)
    assert killed, "every run had ended before its kill"


def test_late_and_repeated_files_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(38)
    journal, source = tmp_path / "journal", tmp_path / "source"
    write_journal(source, EVENTS, per_second=50, lines=EVENTS // FILES)
    finish(source, tmp_path / "undisturbed")
    files = sorted((source / CLOSED).iterdir())
    chance.shuffle(files)
    for part in (files[:4], files[4:7], files[7:]):
        for path in (*part, files[0]):
            target = journal / f"host-{chance.randrange(9)}" / f"{chance.randrange(1 << 30)}-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        finish(journal, tmp_path / "tables")
    _compare(rows_of(tmp_path / "tables"), rows_of(tmp_path / "undisturbed"))


def _compare(found: dict[str, list[dict[str, Any]]], wanted: dict[str, list[dict[str, Any]]]) -> None:
    for table, rows in wanted.items():
        assert _rounded(found[table]) == _rounded(rows), table


def _rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums of fractions depend on their order in the last digits."""
    return [
        {name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]

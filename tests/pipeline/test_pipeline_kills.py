"""Kill -9 of the pipeline's driver or JVM at random moments: the tables are the same.

`python -m tests.long pipeline-kills` kills 20 times; a run with PAIRED_SPARK kills 3 times.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from paired_servicebus.pipeline.spark_processes import PipelineProcess
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.batches import LONG, MINUTES_OF_SPARK, begin, below, finish, jvm_of, rows_of

pytestmark = [MINUTES_OF_SPARK, pytest.mark.timeout(7200)]

EVENTS: Final = 20_000
FILES: Final = 10
KILLS: Final = 20 if os.environ.get("PAIRED_SPARK") == "all" else 3
SETTINGS: Final = {"spark.paired.maxFilesPerTrigger": "2"}


def timed(journal: Path, tables: Path) -> float:
    """Make the tables of the whole journal; how many seconds it took."""
    began = time.monotonic()
    finish(begin(journal, tables=tables, settings=SETTINGS))
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
    took = timed(journal, tmp_path / "undisturbed")
    wanted = rows_of(tmp_path / "undisturbed")
    killed, tables = 0, tmp_path / "tables-0"
    for number in range(KILLS):
        if kill_after(
            begin(journal, tables=tables, settings=SETTINGS), chance.uniform(0.3, 1.0) * took, jvm=number % 2 == 1
        ):
            killed += 1
        else:  # it had ended: what it made is compared, and the next kill is in new tables
            assert rows_of(tables) == wanted
            tables = tmp_path / f"tables-{number + 1}"
    timed(journal, tables)
    assert rows_of(tables) == wanted
    assert killed, "every run had ended before its kill"

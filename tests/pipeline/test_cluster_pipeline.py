"""The pipeline on a real cluster of two executors: the same rows as one process, and no loss where one is blind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.engine.journal.spool import CLOSED
from tests.bench.spark import loopback_cluster
from tests.bench.spark.loopback_cluster import SETTINGS, cluster
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.batches import LONG, MINUTES_OF_SPARK, begin, rows_of, take_once

pytestmark = [
    MINUTES_OF_SPARK,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds Spark's processes as Linux tells them"),
    pytest.mark.timeout(900),
]

EVENTS = 20_000
FILES = 8


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    write_journal(tmp_path / "journal", EVENTS, per_second=50, lines=EVENTS // FILES)
    return tmp_path / "journal"


def run(master: str, journal: Path, tables: Path) -> tuple[int | None, str]:
    settings = {**SETTINGS, "spark.sql.files.maxPartitionBytes": "300k"}
    pipeline = begin(journal, tables=tables, master=master, settings=settings)
    try:
        return pipeline.wait(LONG), pipeline.trouble()
    finally:
        pipeline.stop()


def test_two_executors_give_the_same_rows_as_one_process(spark: Any, journal: Path, tmp_path: Path) -> None:
    (tmp_path / "daemons").mkdir()
    with cluster(tmp_path / "daemons", workers=2) as standing:
        assert run(standing.master, journal, tmp_path / "spread") == (0, "")
    take_once(spark, tmp_path / "here", journal)
    assert rows_of(tmp_path / "spread") == rows_of(tmp_path / "here")


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch, journal: Path) -> list[str]:
    """The second worker lives in a mount namespace where something else covers a folder of this machine's."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("only root can make a worker blind")
    covered: list[str] = []
    start = subprocess.Popen

    def unshared(command: Any, *args: Any, **how: Any) -> Any:
        if "org.apache.spark.deploy.worker.Worker" in map(str, command) and any(
            str(part).endswith("w1") for part in command
        ):
            covers = " && ".join(f"mount -t tmpfs tmpfs '{path}'" for path in covered)
            command = ["unshare", "-m", "sh", "-c", f'{covers} && exec "$@"', "sh", *map(str, command)]
        return start(command, *args, **how)

    monkeypatch.setattr(loopback_cluster.subprocess, "Popen", unshared)
    return covered


@pytest.mark.parametrize("where", ["the journal", "the journal's files", "the tables"])
def test_a_worker_that_sees_nothing_ends_the_run_and_nothing_is_taken(
    spark: Any, blind: list[str], journal: Path, tmp_path: Path, where: str
) -> None:
    """The bug (E2): half of the events were lost for good, with exit status 0."""
    tables = tmp_path / "tables"
    (tables / "staging").mkdir(mode=0o700, parents=True)
    blind.append(str({"the journal": journal.parent, "the tables": tables}.get(where, journal / CLOSED)))
    (tmp_path / "daemons").mkdir()
    with cluster(tmp_path / "daemons", workers=2) as standing:
        status, trouble = run(standing.master, journal, tables)
    assert status == 2
    assert "see" in trouble
    assert "nothing" in trouble
    assert not list((tables / "commits").iterdir())
    take_once(spark, tables, journal)
    assert sum(1 for row in rows_of(tables)["events"] if not row["trouble"]) == EVENTS

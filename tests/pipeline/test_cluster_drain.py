"""A drain and the pipeline on a real cluster of two workers, of which much is killed; run with `pytest -n 0` alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.drain.drain_files import ReceiptTally, attempts, progress_of
from paired_servicebus.pipeline.table_store.table_reader import Tables
from servicebus_sandbox.faults import FaultTerms, Operation
from tests.bench.spark.loopback_cluster import ROOT, SETTINGS, Cluster, cluster, with_descendants
from tests.bench.spark.synthetic_journal import write_journal
from tests.pairing.backlogs import queue_path
from tests.pipeline.batches import begin, finish
from tests.pipeline.drains import QUEUES, Grounds, grounds, until

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(not os.environ.get("PAIRED_SPARK"), reason="starts a cluster: PAIRED_SPARK=1 runs it"),
    pytest.mark.timeout(600),
]
COUNT = 20_000
FEW = 5_000
LOCK = timedelta(seconds=15)
"""Shorter than the minute of a backlog queue, so that what died with a worker comes again sooner."""


@pytest.fixture
async def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Grounds]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    async with grounds(tmp_path, lock=LOCK) as found:
        yield found


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as found:
        yield found


async def drain(standing: Grounds, spark: Cluster, *options: str) -> asyncio.subprocess.Process:
    settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "paired_servicebus", "drain", "--config", str(standing.config.path),
        "--master", spark.master, "--yes", standing.config.name, "--json", *settings,
        *options, cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def outcome(process: asyncio.subprocess.Process) -> dict[str, object]:
    async with asyncio.timeout(400):
        said, _ = await process.communicate()
    return {"status": process.returncode, **json.loads(said)}


def moved(standing: Grounds) -> int:
    """As the tasks of the run tell it."""
    runs = list(attempts(standing.places.spool / ".drain"))
    return max((progress_of(run, ReceiptTally()).moved for run in runs), default=0) + len(standing.receipts())


def locked(standing: Grounds) -> set[str]:
    """The messages that somebody holds."""
    return {
        str(stored.message.message_id)
        for index in range(QUEUES)
        for stored in standing.lying(queue_path(index), "secondary")
        if stored.lock_token is not None
    }


def audited(standing: Grounds) -> Tables:
    """The tables of the whole journal."""
    tables = standing.places.state / "tables"
    finish(begin(standing.places.spool, tables=tables))
    return Tables.open(tables)


async def test_a_worker_that_is_killed_loses_no_message_and_doubles_only_what_it_held(
    standing: Grounds, spark: Cluster
) -> None:
    """Nothing is lost; at-least-once: message_id is kept, so a destination with duplicate detection gets each once."""
    standing.fill(COUNT // 2, destination="orders")
    standing.fill(COUNT // 2, destination="audit", start=COUNT // 2)
    for number, path in enumerate(("orders", "audit")):
        first = number * COUNT // 2
        standing.sent_by(f"drained@sender-of-{path}", (f"m{name}" for name in range(first, first + COUNT // 2)), path)
    slowly = FaultTerms(delay_s=0.1, operations=frozenset({Operation.SEND}))  # so that a worker holds some at any time
    standing.sandbox["primary"].node.faults.add("latency", terms=slowly)
    process = await drain(standing, spark, "--rate", "1500", "--why", "an incident")
    await until(lambda: moved(standing) > COUNT // 5 and locked(standing), patience=200)
    assert len(spark.executors(0)) > 1
    spark.kill_worker(0)
    held = locked(standing)
    found = await outcome(process)

    everything = {f"m{number}" for number in range(COUNT)}
    detecting, plain = standing.arrived("orders"), standing.arrived("audit")
    assert set(detecting) | set(plain) == everything
    assert standing.left() == 0
    assert set(detecting.values()) == {1}
    again = {name for name, times in plain.items() if times > 1}
    assert again <= held
    assert plain.total() - len(plain) <= len(held)
    receipts = standing.receipts()
    assert set(receipts) == everything
    assert (found["status"], found["complete"], found["moved"]) == (0, True, receipts.total())
    acts = [one.event for one in standing.records() if isinstance(one.event, Commanded | CommandEnded)]
    assert [type(act) for act in acts] == [Commanded, CommandEnded]
    assert isinstance(acts[0], Commanded)
    assert (acts[0].command, acts[0].why) == ("drain", "an incident")
    audit = await asyncio.to_thread(audited, standing)
    assert audit.rows("select status, count(*) as count from audit group by status") == [
        {"status": "accepted", "count": COUNT}
    ]
    assert audit.rows("select sum(moved) as moved from audit where moved > 0") == [{"moved": receipts.total()}]
    [verdict] = audit.rows("select * from verdicts where pairing = 'drained' and entity = ''")
    assert [verdict[name] for name in ("accepted", "parked", "lost", "unexpected")] == [COUNT, 0, 0, 0]


async def test_an_interrupt_ends_a_drain_in_order(standing: Grounds, spark: Cluster) -> None:
    standing.fill(FEW)
    process = await drain(standing, spark, "--rate", "300")
    await until(lambda: moved(standing) > 0, patience=200)
    process.send_signal(signal.SIGINT)
    found = await outcome(process)
    assert (found["status"], found["complete"]) == (1, False)
    arrived = standing.arrived()
    assert arrived == standing.receipts()
    assert set(arrived.values()) == {1}
    assert standing.left() + len(arrived) == FEW
    assert not any(attempts(standing.places.spool / ".drain"))


def executors(spark: Cluster) -> list[int]:
    """The executors' processes that have Python at work below them."""
    pids = [pid for index in range(len(spark.workers)) for pid in spark.executors(index)]
    return [pid for pid in pids if any("pyspark.daemon" in _command(below) for below in with_descendants(pid)[1:])]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.skipif(os.environ.get("PAIRED_SPARK") != "all", reason="40 s on two cores: PAIRED_SPARK=all runs it")
def test_an_executor_that_is_killed_changes_no_table(spark: Cluster, tmp_path: Path) -> None:
    """The one there is: a worker of the cluster was killed above."""
    write_journal(tmp_path, COUNT, per_second=50)
    lines = (line for file in (tmp_path / CLOSED).iterdir() for line in file.read_text().splitlines())
    written = Counter(json.loads(line)["kind"] for line in lines)
    pipeline = begin(tmp_path, tables=tmp_path / "tables", master=spark.master, settings=SETTINGS)
    try:
        while not (found := executors(spark)):
            assert pipeline.wait(0.05) is None, pipeline.trouble()
        for pid in with_descendants(found[0]):
            os.kill(pid, signal.SIGKILL)
        assert pipeline.wait(300) == 0, pipeline.trouble()
    finally:
        pipeline.stop()
    with Tables.open(tmp_path / "tables") as tables:
        kinds = tables.rows("select kind, count(*) as count, count(distinct seq) as numbers from events group by kind")
        [receipts] = tables.rows("select sum(direct) as delivered, sum(diverted) as diverted from audit")
        episodes = tables.rows("select distinct outcome from episodes")
    assert {row["kind"]: (row["count"], row["numbers"]) for row in kinds} == {
        kind: (count, count) for kind, count in written.items()
    }
    assert receipts == {"delivered": written["delivered"], "diverted": written["diverted"]}
    assert episodes == [{"outcome": "failed back"}]

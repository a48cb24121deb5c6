"""The pipeline with Spark itself: what it makes of a journal, killed and bereft in every way, is the same each time.

Each start is a JVM and some ten seconds: what need not kill it shares one session of this process. Run where
PAIRED_SPARK is set (.ci/run).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.ingest import streaming_queries, table_maintenance
from paired_servicebus.pipeline.ingest.journal_source import Inbox
from paired_servicebus.pipeline.ingest.table_maintenance import MaintenanceThread
from paired_servicebus.pipeline.pipeline_command import summary
from paired_servicebus.pipeline.spark.java import find_java
from paired_servicebus.pipeline.spark.spark_session import open_session
from paired_servicebus.pipeline.spark_processes import PipelineOrder, PipelineProcess, start_pipeline
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.bench.spark.synthetic_journal import write_journal
from tests.damaged import GOOD, UNREADABLE

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PAIRED_SPARK"), reason="PAIRED_SPARK=1 runs what needs Spark and minutes"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds Spark's processes as Linux tells them"),
    pytest.mark.timeout(900),
]

EVENTS = 20_000
PER_SECOND = 50
LATEST = 1_790_000_500 * 1_000_000
LONG = 600.0
VIEWS = ("events", "gaps", "episodes", "minutes", "backlog", "syphon", "cost", "audit")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of four files: two outages, and a last file with every kind of bad line."""
    folder = tmp_path_factory.mktemp("journal")
    write_journal(folder, EVENTS, per_second=PER_SECOND, lines=EVENTS // 4)
    event = {"v": 1, "engine": "bench@here", "boot": "b0", "seq": EVENTS + 1, "ts": LATEST, "kind": "warned"}
    bad = [
        json.dumps(event)[:40],
        json.dumps({"somebody": "else's"}),
        json.dumps({**event, "v": 2, "seq": EVENTS + 1}),
        json.dumps({**event, "kind": "from-tomorrow", "seq": EVENTS + 2}),
        "",
        json.dumps({**event, "seq": EVENTS + 4, "about": "here", "text": "after a gap"}),
    ]
    (folder / CLOSED / "bench@here-z.jsonl").write_text("\n".join(bad) + "\n")
    return folder


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    work = tmp_path_factory.mktemp("work")
    with open_session(app="test", work=work, java=find_java(shims=work)) as session:
        yield session


@pytest.fixture(scope="module")
def made(spark: Any, journal: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the tables say when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("tables")
    once(spark, journal, folder)
    return said(folder)


@pytest.fixture
def stage(journal: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A journal and a folder for tables, for a test that changes both."""
    copy = tmp_path / "a journal"
    shutil.copytree(journal, copy)
    return copy, tmp_path / "its tables"


def begin(journal: Path, tables: Path, **how: Any) -> PipelineProcess:
    return start_pipeline(PipelineOrder(journals=(journal,), tables=tables, **{"once": True, **how}))


def once(spark: Any, journal: Path, folder: Path) -> None:
    """As a process of its own, but in this one."""
    with Lake(folder) as lake:
        streaming_queries.StreamingPipeline(spark, lake, journal).once()


def finish(pipeline: PipelineProcess) -> None:
    try:
        assert pipeline.wait(LONG) == 0, pipeline.log.read_text()[-3000:]
    finally:
        pipeline.stop()


def said(folder: Path) -> dict[str, list[dict[str, Any]]]:
    with Tables.open(folder) as tables:
        found = {view: sorted(tables.rows(f"select * from {view}"), key=str) for view in VIEWS}
        found["verdicts"] = sorted(tables.rows("select * exclude (through_batch) from verdicts"), key=str)
    return found


def until(look: Callable[[], bool], pipeline: PipelineProcess) -> None:
    end = time.monotonic() + LONG
    while not look():
        assert pipeline.running, pipeline.log.read_text()[-3000:]
        assert time.monotonic() < end
        time.sleep(0.01)


def batch(folder: Path) -> int:
    try:
        return manifests.read(folder).batch
    except NoTablesError:
        return -1


def below(pid: int) -> list[int]:
    """A process's descendants."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(stat.parent.name)
            found += [child, *below(child)]
    return found


def jvm_of(pipeline: PipelineProcess) -> int:
    return next(pid for pid in below(pipeline.process.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


class Killer:
    """Kills, of this process's Spark, each Python daemon's first new worker, and the first that prepares a batch."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self._known = set(below(os.getpid()))
        self._spared: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._kill, name="the killer", daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _kill(self) -> None:
        while not self._ended.wait(0.005):
            pids = below(os.getpid())
            commands = {pid: command_of(pid) for pid in pids}
            for pid in pids:
                if pid not in self._known:
                    self._known.add(pid)
                    self._meet(pid, commands)

    def _meet(self, pid: int, commands: dict[int, str]) -> None:
        parent = parent_of(pid)
        if "driver_worker" in commands[pid] and "preparing" not in self.killed:
            self.killed.append("preparing")
        elif "pyspark.daemon" in commands.get(parent, "") and parent not in self._spared:
            self._spared.add(parent)
            self.killed.append("working")
        else:
            return
        kill(pid)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_journal_as_tables(made: dict[str, list[dict[str, Any]]]) -> None:
    kinds = [row["trouble"] for row in made["events"] if row["trouble"]]
    assert sorted(kinds) == ["foreign", "gap: 1 record missing", "newer version", "torn", "unknown kind"]
    assert sum(1 for row in made["events"] if not row["trouble"]) == EVENTS + 1
    assert [(row["from_seq"], row["missing"]) for row in made["gaps"]] == [(EVENTS + 3, 1)]
    assert {(row["entity"], row["outcome"]) for row in made["episodes"]} == {
        (entity, "failed back") for entity in ("orders", "payments", "audit")
    }
    whole = next(row for row in made["verdicts"] if row["entity"] == "")
    assert (whole["unexpected"], whole["duplicates"], whole["out_of_order"]) == (0, 0, 0)
    assert whole["accepted"] == whole["delivered"] + whole["parked"] + whole["lost"] + whole["in_flight"]


def test_killed_at_any_moment_and_found_late_it_says_the_same(
    stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]]
) -> None:
    journal, folder = stage
    late = sorted((journal / CLOSED).iterdir())[1]
    late = late.rename(journal / late.name)  # found after newer ones

    driver = begin(journal, folder)
    until(lambda: any((folder / "events").glob("*/*")), driver)
    processes = below(driver.process.pid)
    driver.process.kill()
    driver.process.wait()
    end = time.monotonic() + 60
    while not gone(processes) and time.monotonic() < end:
        time.sleep(0.1)
    assert gone(processes), "Spark outlived its driver"

    jvm = begin(journal, folder)
    until(lambda: batch(folder) >= 1, jvm)
    os.kill(jvm_of(jvm), signal.SIGKILL)
    assert jvm.wait(LONG) == 2
    assert jvm.trouble()

    late.rename(journal / CLOSED / late.name)
    finish(begin(journal, folder))
    assert said(folder) == made


def test_a_lost_checkpoint_and_copied_files_give_nothing_twice(
    spark: Any, stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]]
) -> None:
    journal, folder = stage
    once(spark, journal, folder)
    (record,) = folder.glob("checkpoints/*/inbox/taken")  # as if killed between a commit and the record of its files
    record.unlink()
    once(spark, journal, folder)
    assert said(folder) == made

    shutil.rmtree(folder / "checkpoints")
    first = sorted((journal / CLOSED).iterdir())[0]
    shutil.copy(first, first.with_name(f"copy-of-{first.name}"))
    once(spark, journal, folder)
    assert said(folder) == made
    assert manifests.read(folder).repeated >= EVENTS

    (folder / manifests.NAME).unlink()
    once(spark, journal, folder)
    assert said(folder) == made


def test_whatever_a_line_is_it_becomes_a_row_and_stops_no_start(spark: Any, tmp_path: Path) -> None:
    """Each begins a file, and so a block: `null` there takes Arrow's reader down (apache/arrow#47409)."""
    journal, folder = tmp_path / "journal", tmp_path / "tables"
    write_journal(journal, 1000, per_second=PER_SECOND)
    strange = {name: line for name, line in UNREADABLE.items() if name != "a text that is objects in objects"}
    files = {f"bench@here-z{number}.jsonl": line for number, line in enumerate(strange.values())}
    for number, (name, line) in enumerate(files.items()):
        (journal / CLOSED / name).write_bytes(line + b"\n" + GOOD.replace(b"9001", b"%d" % (9001 + number)) + b"\n")
    once(spark, journal, folder)
    once(spark, journal, folder)
    with Tables.open(folder) as tables:
        bad = tables.rows("select file, trouble from events where trouble is not null and kind is distinct from 'gap'")
        (good,) = tables.rows("select count(*) as number from events where trouble is null")
    assert sorted(row["file"] for row in bad) == sorted(files)
    assert good["number"] == 1000 + len(files)
    assert f"{len(files)} unreadable lines (1 in " in "\n".join(summary(folder))


def test_a_journal_without_a_file_is_an_error_and_makes_no_tables(tmp_path: Path) -> None:
    (tmp_path / "journal" / CLOSED).mkdir(parents=True)
    pipeline = begin(tmp_path / "journal", tmp_path / "tables")
    assert pipeline.wait(LONG) == 2
    assert pipeline.trouble().startswith(f"there are no journal files in {tmp_path / 'journal' / CLOSED}: ")
    assert batch(tmp_path / "tables") == -1


def test_python_processes_that_are_killed_change_nothing(
    spark: Any, journal: Path, made: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Those that wait for work, those that work, and the one that prepares a batch of episodes."""
    for pid in below(os.getpid()):
        if "pyspark.daemon" in command_of(pid):
            kill(pid)
    with Killer() as killer:
        once(spark, journal, tmp_path)
    assert sorted(killer.killed) == ["preparing", "working", "working"]
    assert said(tmp_path) == made


def test_a_checkpoint_of_which_half_is_lost_loses_nothing(
    spark: Any, stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark itself would take a new batch for one that is done; and it would not go on without its state."""
    journal, folder = stage
    late = sorted((journal / CLOSED).iterdir())[1]
    late = late.rename(journal / late.name)
    once(spark, journal, folder)
    late.rename(journal / CLOSED / late.name)
    for name in ("journal/offsets", "journal/commits", "journal/sources", "story/state"):
        (lost,) = folder.glob(f"checkpoints/*/{name}")
        shutil.rmtree(lost)
    once(spark, journal, folder)
    assert said(folder) == made
    assert "checkpoint of the story" in capsys.readouterr().out

    (metadata,) = folder.glob("checkpoints/*/story/metadata")
    metadata.write_bytes(bytes(metadata.stat().st_size))  # as a machine's crash can leave it
    once(spark, journal, folder)
    assert said(folder) == made
    assert "metadata is missing" in capsys.readouterr().out


def test_followed_for_long_spark_keeps_no_name_of_an_old_file(
    spark: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(streaming_queries, "MOST_BYTES", 1)  # a delivery for each file
    monkeypatch.setattr(streaming_queries, "FORGET", 2)
    end, events = time.monotonic() + LONG, len(made["events"]) - len(made["gaps"])
    known: list[int] = []
    with Lake(tmp_path) as lake:

        def is_over() -> bool:
            assert time.monotonic() < end
            logs = [path.read_text() for path in lake.checkpoints.glob("journal/sources/0/[0-9]*")]
            known.append(sum(log.count('"path"') for log in logs))
            return sum(file.rows for file in lake.manifest.of("events")) == events and known[-1] == 0

        streaming_queries.StreamingPipeline(spark, lake, journal).follow(1.0, is_over)
        assert max(known) > 0
    once(spark, journal, tmp_path)
    assert said(tmp_path) == made


def test_files_that_the_journal_gave_up_before_spark_looked_hold_up_nobody(
    spark: Any, stage: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: Spark saw nothing new, so that the delivery was never taken, and nothing came after it."""
    journal, folder = stage
    *given_up, newest = sorted((journal / CLOSED).iterdir())
    newest = newest.rename(journal / newest.name)
    deliver, end = Inbox.deliver, time.monotonic() + 60

    def delivered(inbox: Inbox, most_bytes: int | None = None) -> None:
        deliver(inbox, most_bytes)
        for path in given_up:
            path.unlink(missing_ok=True)

    def is_over() -> bool:
        assert time.monotonic() < end
        if newest.exists():
            newest.rename(journal / CLOSED / newest.name)
        return bool(lake.manifest.of("events"))

    monkeypatch.setattr(Inbox, "deliver", delivered)
    with Lake(folder) as lake:
        streaming_queries.StreamingPipeline(spark, lake, journal).follow(1.0, is_over)
    assert {row["file"] for row in said(folder)["events"] if row["file"]} == {newest.name}


def test_followed_live_by_one_pipeline_and_no_second(stage: tuple[Path, Path]) -> None:
    journal, folder = stage
    live = begin(journal, folder, once=False, trigger=1.0)
    try:
        until(lambda: batch(folder) >= 2, live)
        second = begin(journal, folder)
        assert second.wait(LONG) == 2
        assert f"another pipeline (pid {live.process.pid}) writes the tables" in second.trouble()
    finally:
        assert live.stop() == 0


def test_fewer_files_say_the_same(spark: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are made one, judged or not; each step leaves what readers see as it was."""
    monkeypatch.setattr(streaming_queries, "MOST_BYTES", 1)  # a batch for each file
    with Lake(tmp_path) as lake:
        streaming_queries.StreamingPipeline(spark, lake, journal).once()
        whole = said(tmp_path)
        assert len(lake.manifest.of("events")) >= 4
        assert sum(1 for row in whole["events"] if not row["trouble"]) == EVENTS + 1

        monkeypatch.setattr(table_maintenance, "MOST_FILES", 2)
        lake.commit(lambda now: {"judged": 0, "files": {**now.files, "audit": ()}})  # as before the first judgement
        table_maintenance.tidy(spark, lake)
        assert len(lake.manifest.of("events")) == 1
        assert len(lake.manifest.of("minutes")) == 1
        assert said(tmp_path) == whole
        monkeypatch.setattr(table_maintenance, "MOST_FILES", 1)
        with MaintenanceThread(spark, lake) as judge:  # as beside a journal that is followed
            end = time.monotonic() + LONG
            while not lake.manifest.judged:
                judge.look()
                assert time.monotonic() < end
                time.sleep(0.01)
        assert said(tmp_path) == whole

        monkeypatch.setattr(table_maintenance, "KEPT", 0)  # all is old but the newest record
        table_maintenance.judge(spark, lake)
        (audit,) = lake.manifest.of("audit")
        with Tables.open(tmp_path) as tables:
            left = [row["status"] for row in tables.rows("select status from audit")]
        before = Counter(row["status"] for row in whole["audit"])
        newest = Counter(left).pop("delivered")
        assert Counter(left) == {**before, "delivered": newest}
        assert 0 < newest < before["delivered"]
        assert audit.rows == len(left)

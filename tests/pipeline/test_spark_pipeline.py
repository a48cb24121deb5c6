"""The pipeline with Spark itself: what it makes of a journal, killed and bereft in every way, is the same each time.

Each start is a JVM and some ten seconds: what need not kill it shares one session of this process. Run where
PAIRED_SPARK is set (.ci/run).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.engine.journal.spool import CLOSED
from paired_servicebus.pipeline.ingest import batch_loop
from paired_servicebus.pipeline.ingest.batch_loop import CHECKPOINTS, BatchLoop
from paired_servicebus.pipeline.pipeline_command import summary
from paired_servicebus.pipeline.spark_processes import PipelineProcess
from paired_servicebus.pipeline.table_store import manifest as versions
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.bench.spark.synthetic_journal import write_journal
from tests.damaged import GOOD, UNREADABLE
from tests.pipeline.batches import LONG, MINUTES_OF_SPARK, begin, finish, rows_of, session_of, take_once

pytestmark = [
    MINUTES_OF_SPARK,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds Spark's processes as Linux tells them"),
    pytest.mark.timeout(900),
]

EVENTS = 20_000
PER_SECOND = 50
LATEST = 1_790_000_500 * 1_000_000


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of five files: two outages, and a last file with every kind of bad line."""
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
def made(spark: Any, journal: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the tables say when nothing goes wrong."""
    folder = tmp_path_factory.mktemp("tables")
    take_once(spark, folder, journal)
    return rows_of(folder)


@pytest.fixture
def stage(journal: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A journal and a folder for tables, for a test that changes both. Some names in the path are unusual."""
    copy = tmp_path / "a [journal] of, 50%" / "{it}"
    shutil.copytree(journal, copy)
    return copy, tmp_path / "its tables"


def until(look: Callable[[], bool], pipeline: PipelineProcess) -> None:
    end = time.monotonic() + LONG
    while not look():
        assert pipeline.running, pipeline.log.read_text()[-3000:]
        assert time.monotonic() < end
        time.sleep(0.01)


def batch(folder: Path) -> int:
    try:
        return versions.newest(folder).manifest.batch
    except NoTablesError:
        return -1


def test_a_journal_as_tables(made: dict[str, list[dict[str, Any]]]) -> None:
    kinds = [row["trouble"] for row in made["events"] if row["trouble"]]
    assert sorted(kinds) == ["foreign", "other format", "torn", "unknown kind"]
    assert sum(1 for row in made["events"] if not row["trouble"]) == EVENTS + 1
    assert [(row["first_seq"], row["missing"]) for row in made["gaps"]] == [(EVENTS + 3, 1)]
    assert {(row["entity"], row["outcome"]) for row in made["episodes"]} == {
        (entity, "failed back") for entity in ("orders", "payments", "audit")
    }
    whole = next(row for row in made["verdicts"] if row["entity"] == "" and row["pairing"] == "")
    assert (whole["unexpected"], whole["duplicates"], whole["lost"]) == (0, 0, 0)
    assert whole["accepted"] == sum(1 for row in made["audit"] if row["answer"] == "accepted")


def test_lost_records_versions_and_links_and_copied_files_give_nothing_twice(
    spark: Any, stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]]
) -> None:
    journal, folder = stage
    take_once(spark, folder, journal)
    shutil.rmtree(folder / CHECKPOINTS)
    for path in sorted((journal / CLOSED).iterdir())[:-1]:  # the last has lines without a number
        shutil.copy(path, path.with_name(f"copy-of-{path.name}"))
    take_once(spark, folder, journal)
    assert rows_of(folder) == made
    assert versions.newest(folder).manifest.repeated >= EVENTS

    versions.commit_paths(folder)[0].write_bytes(bytes(100))
    take_once(spark, folder, journal)
    assert rows_of(folder) == made

    shutil.rmtree(folder / "commits")
    take_once(spark, folder, journal)
    assert rows_of(folder) == made


def test_a_batch_of_a_damaged_version_is_taken_again(
    spark: Any, stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]]
) -> None:
    """The files that only the damaged version had are not counted as taken."""
    journal, folder = stage
    take_once(spark, folder, journal, files=1)
    versions.commit_paths(folder)[0].unlink()
    take_once(spark, folder, journal)
    assert rows_of(folder) == made


def test_whatever_a_line_is_it_becomes_a_row_and_stops_no_start(spark: Any, tmp_path: Path) -> None:
    """Each begins a file, and so a block: `null` there takes Arrow's reader down (apache/arrow#47409)."""
    journal, folder = tmp_path / "journal", tmp_path / "tables"
    write_journal(journal, 1000, per_second=PER_SECOND)
    strange = {name: line for name, line in UNREADABLE.items() if name != "a text that is objects in objects"}
    files = {f"bench@here-z{number}.jsonl": line for number, line in enumerate(strange.values())}
    for number, (name, line) in enumerate(files.items()):
        (journal / CLOSED / name).write_bytes(line + b"\n" + GOOD.replace(b"9001", b"%d" % (9001 + number)) + b"\n")
    take_once(spark, folder, journal)
    shutil.rmtree(folder / CHECKPOINTS)
    take_once(spark, folder, journal)
    with Tables.open(folder) as tables:
        bad = tables.rows("select file, trouble from events where trouble is not null")
        (good,) = tables.rows("select count(*) as number from events where trouble is null")
    assert sorted(row["file"] for row in bad) == sorted(files)
    assert good["number"] == 1000 + len(files)
    assert f"{len(files)} unreadable lines (1 in " in "\n".join(summary(folder))


def test_counts_beyond_all_sums_stop_nothing(spark: Any, tmp_path: Path) -> None:
    """The most that a field may say, so often that no 64 bits hold the sum."""
    line = {"v": 1, "engine": "e", "boot": "b", "kind": "sends", "entity": "orders", "route": "primary", "failed": 0,
            "seconds": 1.0, "accepted": 2**53, "ts": LATEST}  # fmt: skip
    path = tmp_path / "j" / "many.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({**line, "seq": seq}) + "\n" for seq in range(1, 2001)))
    take_once(spark, tmp_path / "t", tmp_path / "j")
    with Tables.open(tmp_path / "t") as tables:
        assert tables.row("select count(*) as n from events where trouble is null") == {"n": 2000}
        assert tables.row("select primary_accepted as n from minutes") == {"n": 0}


def test_files_that_the_journal_gave_up_meanwhile_hold_up_nothing(
    spark: Any, stage: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, folder = stage
    *_, newest = sorted((journal / CLOSED).iterdir())
    take = BatchLoop.add_batch

    def gone_first(loop: BatchLoop, lines: Any, number: int) -> None:
        for path in (journal / CLOSED).iterdir():
            if path != newest:
                path.unlink()
        take(loop, lines, number)

    monkeypatch.setattr(BatchLoop, "add_batch", gone_first)
    take_once(spark, folder, journal)
    with Tables.open(folder) as tables:
        assert tables.row("select count(*) as n from events") == {"n": 5}


def test_copies_that_grow_are_taken_when_they_are_whole(
    spark: Any, stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]]
) -> None:
    """Half a copy that ends between two lines, then within one, then the whole."""
    journal, folder = stage
    path = sorted((journal / CLOSED).iterdir())[0]
    data = path.read_bytes()
    half = data[: data.index(b"\n", len(data) // 2) + 1]
    for part in (half, half + b'{"v":1,"eng', data):
        path.write_bytes(part)
        take_once(spark, folder, journal)
    assert rows_of(folder) == made


def test_a_full_disk_leaves_the_tables_as_they_were(
    stage: tuple[Path, Path], made: dict[str, list[dict[str, Any]]]
) -> None:
    """The tables' disk has room for the first batches and not for the judgement."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    journal, folder = stage
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2600k,mode=700", "tmpfs", folder], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        pipeline = begin(journal, tables=folder)
        assert pipeline.wait(LONG) == 2
        assert "No space left" in pipeline.trouble() or "space" in pipeline.log.read_text()
        subprocess.run(["mount", "-o", "remount,size=200m", folder], check=True)
        finish(begin(journal, tables=folder))
        assert rows_of(folder) == made
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_followed_live_by_one_pipeline_and_no_second(stage: tuple[Path, Path], tmp_path: Path) -> None:
    journal, folder = stage
    late = sorted((journal / CLOSED).iterdir())[1]
    late = late.rename(tmp_path / late.name)
    live = begin(journal, tables=folder, once=False, trigger=1.0)
    try:
        until(lambda: batch(folder) >= 1, live)
        second = begin(journal, tables=folder)
        assert second.wait(LONG) == 2
        assert f"another pipeline (pid {live.process.pid}) writes the tables" in second.trouble()
        late.rename(journal / CLOSED / late.name)
        until(lambda: _events(folder) == EVENTS + 5, live)
    finally:
        assert live.stop() == 0


def _events(folder: Path) -> int:
    with Tables.open(folder) as tables:
        found = tables.row("select count(*) as n from events")
    assert found is not None
    return int(found["n"])


def test_followed_to_the_end_the_tables_say_the_same(
    spark: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, list[dict[str, Any]]]
) -> None:
    """A batch for each file, with judgements and mergers beside them."""
    monkeypatch.setattr(batch_loop, "REST", 0.0)
    monkeypatch.setattr(batch_loop, "AGAIN", 0.0)
    end = time.monotonic() + LONG
    with Lake(tmp_path) as lake:

        def is_over() -> bool:
            assert time.monotonic() < end
            now = lake.manifest
            return sum(file.rows for file in now.of("events")) == EVENTS + 5 and not now.unjudged()

        BatchLoop(session_of(spark, 1), lake, [journal]).follow(1.0, is_over)
    assert rows_of(tmp_path) == made


def test_settled_messages_of_long_ago_are_dropped(
    spark: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(batch_loop, "KEPT", 0)  # all is old but the newest record
    take_once(spark, tmp_path, journal)
    with Tables.open(tmp_path) as tables:
        left = Counter(row["status"] for row in tables.rows("select status from audit"))
        episodes = tables.rows("select id, parked from episodes order by id")
    before = Counter(row["status"] for row in made["audit"])
    assert {**left, "delivered": 0} == {**before, "delivered": 0}
    assert 0 < left["delivered"] < before["delivered"]
    assert episodes == sorted(
        ({"id": row["id"], "parked": row["parked"]} for row in made["episodes"]), key=lambda row: row["id"]
    )

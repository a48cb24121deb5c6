"""Whatever a disk has done to a journal: its lines become rows that say so, and the tables and the report of the rest
are made. Spark's part, which only carries lines, is played by a loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.pipeline.ingest.episodes import EpisodeHistory, as_row
from paired_servicebus.pipeline.ingest.partial_aggregates import look_into
from paired_servicebus.pipeline.ingest.table_maintenance import write_arrow
from paired_servicebus.pipeline.report.markdown_report import as_markdown
from paired_servicebus.pipeline.report.svg_plots import plots_of

from paired_servicebus.core.errors import DamagedTablesError
from paired_servicebus.core.model.pairing_events import MessageReceived, PingSent, StateChanged
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.pipeline.ingest import partial_aggregates
from paired_servicebus.pipeline.ingest.event_parser import events_of
from paired_servicebus.pipeline.rehearsal.histories.journal_history import read_history
from paired_servicebus.pipeline.report.report_command import as_object
from paired_servicebus.pipeline.report.report_queries import last_report, report_since
from paired_servicebus.pipeline.table_store import audit_sql, manifest
from paired_servicebus.pipeline.table_store.lake import Lake
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.schema import EPISODES, TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.damaged import BOOT, ENGINE, GOOD, START, UNREADABLE, between, flipped, write
from tests.pipeline.journals import put, tables_of

NAME = "orders@here-1.jsonl"
READABLE_HERE = {"a text that is objects in objects"}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return asyncio.run(write(tmp_path_factory.mktemp("journal"))).read_bytes()


def made(folder: Path, data: bytes) -> Path:
    """The tables of a file, as a batch makes them and a judgement follows."""
    lines = data.split(b"\n")
    events = folder / "events" / "b1"
    events.mkdir(parents=True)
    write_arrow(events_of(lines, [NAME] * len(lines)), events / "a.parquet")
    found = look_into(events)
    entities: set[tuple[str, str]] = set()
    rows = partial_aggregates.split(f"{events}/*.parquet", entities)
    files = {"events": (File("b1", found.rows, found.last_ts or 0, 1),)}
    for table in partial_aggregates.PARTIALS:
        (folder / table).mkdir()
        write_arrow(rows[table], folder / table / "a.parquet")
        files[table] = (File("a.parquet", rows[table].num_rows, found.last_ts or 0, 1),)
    put(folder / "episodes" / "a.parquet", "episodes", _episodes(rows["story"].to_pylist()))
    files["episodes"] = (File("a.parquet", 1, 0, 1),)
    _judge(folder, files)
    manifest.write(
        folder, Manifest(batch=1, written_at=START + 900.0, judged=0, files=files, seen=found.spans, entities=())
    )
    return folder


def _episodes(story: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_entity: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in story:
        by_entity[row["key"]].append(row)
    found = []
    for told in by_entity.values():
        history = EpisodeHistory()
        history.add(told)
        EpisodeHistory(history.text())
        found += [as_row(episode, EPISODES) for episode in history.episodes.values()]
    return found


def _judge(folder: Path, files: dict[str, tuple[File, ...]]) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.read_parquet(str(folder / "events" / "b1" / "*.parquet")).create_view("events")
        connection.execute(f"create view receipts as {audit_sql.PARTIAL.format(events='events')}")
        connection.execute(f"create view merged as {audit_sql.MERGE.format(partials='receipts')}")
        end = files["events"][0].last_ts
        connection.execute(f"create view judged as {audit_sql.JUDGED.format(merged='merged', now=end)}")
        each = audit_sql.VERDICT.format(entity="max(entity)", judged="judged", group="group by lower(entity)")
        (folder / "verdicts").mkdir()
        columns = ", ".join(TABLES["verdicts"])
        verdicts = partial_aggregates.with_all(connection.sql(f"select {columns} from ({each})").to_arrow_table())
    write_arrow(verdicts, folder / "verdicts" / "a.parquet")
    files["verdicts"] = (File("a.parquet", verdicts.num_rows, 0, 1),)


def report_and_rows(folder: Path) -> tuple[str, dict[int, str | None]]:
    """The report's words, once everything that is made of it was made; and each numbered row's trouble."""
    with Tables.open(folder) as tables:
        report = last_report(tables)
        everything = report_since(tables, 0.0)
        numbers = {
            row["seq"]: row["trouble"]
            for row in tables.rows("select seq, trouble from events where seq is not null and kind <> 'gap'")
        }
    for one in (report, everything):
        plots_of(one)
        as_object(one)
    return as_markdown(report), numbers


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=some.integers(0, 2**32), places=some.integers(1, 30))
def test_bytes_changed_at_random_places_cost_the_lines_they_are_in(
    tmp_path_factory: pytest.TempPathFactory, journal: bytes, seed: int, places: int
) -> None:
    data, sound = flipped(journal, Random(seed), places)
    text, numbers = report_and_rows(made(tmp_path_factory.mktemp("tables"), data))
    assert {number + 1 for number in sound} <= {seq for seq, trouble in numbers.items() if trouble is None}
    assert "## Audit" in text


def test_every_strange_line_is_a_row_that_says_so_and_the_report_names_the_file(tmp_path: Path, journal: bytes) -> None:
    strange = [line for name, line in UNREADABLE.items() if name not in READABLE_HERE]
    lines = journal.splitlines()
    text, numbers = report_and_rows(made(tmp_path, between(lines, b"\n".join(strange))))
    assert {seq for seq, trouble in numbers.items() if trouble is None} == set(range(1, len(lines) + 1))
    assert f"{len(strange)} lines of the journal could not be read: {len(strange)} in {NAME}" in text


@pytest.mark.parametrize("name", [name for name in UNREADABLE if name not in READABLE_HERE])
def test_a_strange_line_is_one_wherever_in_a_block_it_is(name: str) -> None:
    """Arrow's reader takes the process down where a block begins with `null`: apache/arrow#47409."""
    strange = UNREADABLE[name]
    for lines in ([strange, GOOD], [GOOD, strange], [strange, strange], [strange]):
        rows = events_of(lines, [NAME] * len(lines)).to_pylist()
        assert [row["trouble"] is None for row in rows] == [line is GOOD for line in lines]
        assert {row["file"] for row in rows if row["trouble"]} == {NAME}


@pytest.mark.parametrize("at", [1e12, -1.0, 568_971_820_800.0])
def test_a_time_that_no_calendar_has_breaks_no_report(tmp_path: Path, at: float) -> None:
    """Tables that were made before such a time was refused hold it for ever."""
    events = [
        StateChanged(at=START, entity="orders", was="healthy", now="suspect", why="timeout"),
        StateChanged(at=at, entity="orders", was="suspect", now="failed over", why="timeout"),
        PingSent(at=START + 60, entity="orders", number=1),
    ]
    strange = round(at * 1e6)
    episode = {"id": "e", "version": 1, "engine": ENGINE, "boot": BOOT, "entity": "orders", "outcome": "open",
               "suspected_ts": round(START * 1e6), "failed_over_ts": strange, "last_ts": strange}  # fmt: skip
    with tables_of(tmp_path, events, episodes=[episode]) as tables:
        reports = [last_report(tables), report_since(tables, 0.0)]
    assert "an impossible time" in as_markdown(reports[0])
    for report in reports:
        as_markdown(report)
        assert (report.since, report.until) <= (START + 60, START + 60)
        plots_of(report)


async def test_a_rehearsal_of_a_damaged_journal_says_what_it_passed_over(tmp_path: Path) -> None:
    path = await write(tmp_path)
    lines = path.read_bytes().splitlines()
    strange = GOOD.replace(b'"kind":"warned","about":"here","text":"good"', b'"kind":"state-changed","entity":"orders",'
                           b'"was":"healthy","now":"heal\\u0000","why":"x"')  # fmt: skip
    path.write_bytes(between([*lines, strange], UNREADABLE["a byte that is not UTF-8"]))
    history = read_history([tmp_path], Policy())
    said = " ".join(history.unknown)
    assert f"line {(len(lines) + 1) // 2 + 1} of {path.name} cannot be read" in said
    assert "what 1 changes of state mean" in said


@pytest.mark.parametrize(
    "data", [b'{"version":1,"life":"\xff"}', b"[" * 100_000, b'{"version":1,"seen":[[[', b"null", bytes(3000)],
    ids=["not UTF-8", "nested", "torn", "null", "zeros"],
)  # fmt: skip
def test_a_damaged_manifest_is_a_sentence_and_deletes_nothing(tmp_path: Path, data: bytes) -> None:
    """The bug: a pipeline that met one made a new one, and deleted every file that it did not name."""
    with Lake(tmp_path) as lake:
        lake.place("minutes", "a.parquet").write_bytes(b"years")
        lake.commit(lambda _: {"files": {"minutes": (File("a.parquet", 1, 1, 1),)}})
    (tmp_path / manifest.NAME).write_bytes(data)
    with pytest.raises(DamagedTablesError, match="is no manifest"):
        Tables.open(tmp_path)
    with pytest.raises(DamagedTablesError, match=r"move .* away"), Lake(tmp_path):
        pass
    assert (tmp_path / "minutes" / "a.parquet").read_bytes() == b"years"


def test_a_line_of_ten_megabytes_costs_its_row_not_its_size() -> None:
    (row,) = events_of([UNREADABLE["ten megabytes"]], [NAME]).to_pylist()
    assert (row["trouble"], len(row["line"])) == ("torn", 65_536)


def test_a_receipt_lost_to_damage_is_not_a_message_lost(tmp_path: Path, journal: bytes) -> None:
    """A receipt whose line is torn: its message is in flight, and neither an error nor lost yet."""
    lines = journal.splitlines()
    at = next(number for number, line in enumerate(lines) if f'"kind":"{MessageReceived.kind}"'.encode() in line)
    lines[at] = lines[at][:-5]
    with Tables.open(made(tmp_path, b"\n".join(lines))) as tables:
        statuses = {row["status"] for row in tables.rows("select distinct status from audit")}
    assert "in flight" in statuses
    assert "undelivered" not in statuses

"""A batch's share of each table: from its events, in duckdb; cuts make no difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.pipeline.ingest import partial_aggregates
from paired_servicebus.pipeline.table_store.schema import TABLES
from tests.pipeline.journals import as_rows, put, tables_of

EVENTS: list[e.Event] = [
    e.StateChanged(at=600, entity="orders", was="healthy", now="failed over", why="timeout"),
    *(e.Diverted(at=601 + index, entity="orders", message_id=f"m{index}", queue=index % 2) for index in range(30)),
    e.SendsCounted(at=602, entity="orders", route="primary", accepted=0, failed=7, seconds=1.0),
    e.SendsCounted(at=603, entity="orders", route="backlog/0", accepted=30, failed=0, seconds=1.0),
    e.FailuresCounted(at=602, entity="orders", route="primary", failure=e.FailureKind.TIMEOUT, count=7),
    e.PingSent(at=610, entity="orders", number=1),
    e.PingFailed(at=611, entity="orders", number=1, reason="timeout", took=1.0),
    e.PingSent(at=620, entity="orders", number=2),
    e.PingAccepted(at=620.2, entity="orders", number=2, took=0.2),
    e.StateChanged(at=620.2, entity="orders", was="failed over", now="healthy", why="a ping was accepted"),
    e.QueueRead(at=615, queue=0, depth=15, size_bytes=1500, dead_lettered=0, scheduled=1),
    e.QueueRead(at=625, queue=0, depth=5, size_bytes=500, dead_lettered=1, scheduled=0),
    *(e.Moved(at=626, entity="orders", message_id=f"m{index}", queue=index % 2) for index in range(29)),
    e.DeadLettered(at=627, entity="orders", message_id="m29", queue=1, reason="poison"),
    e.DestinationFailed(at=625, entity="orders", reason="full", retry_at=630),
    e.OperationsCounted(at=630, sends=7, parked=30, pings=2, receives=3, moves=30, settlements=30,
                        sent_bytes=0, parked_bytes=3000, moved_bytes=3900),
    e.EngineStopped(at=640, reason="paired down"),
]  # fmt: skip


def split(folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """As the pipeline does, of a file that Spark has not written."""
    path = folder / f"batch-{rows[0]['seq']}.parquet"
    put(path, "events", rows)
    return partial_aggregates.split(str(path), set())


def seen(folder: Path, batches: list[list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """What readers see after these batches."""
    made = [split(folder, rows) for rows in batches]
    files = {table: [row for part in made for row in part[table].to_pylist()] for table in partial_aggregates.PARTIALS}
    order = {"minutes": "entity", "backlog": "queue", "syphon": "queue", "cost": "cause"}
    with tables_of(folder, [], **files) as tables:
        return {view: tables.rows(f"select * from {view} order by {by}") for view, by in order.items()}


def test_a_batch_as_readers_see_it(tmp_path: Path) -> None:
    views = seen(tmp_path, [as_rows(EVENTS)])
    (minute,) = views["minutes"]
    assert (minute["primary_failed"], minute["backlog_accepted"], minute["failures"]) == (7, 30, {"timeout": 7})
    assert (minute["pings_sent"], minute["pings_accepted"], minute["pings_failed"]) == (2, 1, 1)
    first, second = views["backlog"]
    assert (first["parked"], first["depth"], first["depth_max"], first["slope"]) == (15, 5, 15, pytest.approx(-1.0))
    assert (second["parked"], second["depth"]) == (15, None)
    assert {(row["queue"], row["moved"], row["dead_lettered"], row["retries"]) for row in views["syphon"]} == {
        (0, 15, 0, 0),
        (1, 14, 1, 0),
        (None, 0, 0, 1),
    }
    assert {row["cause"]: (row["operations"], row["bytes"]) for row in views["cost"]} == {
        "sends": (7, 0),
        "parked": (30, 3000),
        "pings": (2, 0),
        "receives": (3, 0),
        "moves": (30, 3900),
        "settlements": (30, 0),
    }


def test_how_events_are_cut_into_batches_makes_no_difference(tmp_path: Path) -> None:
    rows = as_rows(EVENTS)
    assert seen(tmp_path / "cut", [rows[:9], rows[9:36], rows[36:40], rows[40:]]) == seen(tmp_path / "whole", [rows])


def test_many_files_made_one_say_the_same(tmp_path: Path) -> None:
    rows = as_rows(EVENTS)
    made = [split(tmp_path, part) for part in (rows[:20], rows[20:38], rows[38:])]
    merged: dict[str, list[dict[str, Any]]] = {}
    for table in partial_aggregates.PARTIALS:
        paths = [tmp_path / f"{table}-{number}.parquet" for number in range(len(made))]
        for path, part in zip(paths, made, strict=True):
            put(path, table, part[table].to_pylist())
        merged[table] = partial_aggregates.merge(table, [str(path) for path in paths]).to_pylist()
    with tables_of(tmp_path / "merged", [], **merged) as tables:
        (minute,) = tables.rows("select * from minutes")
        slope = tables.row("select slope from backlog where queue = 0")
    assert (minute["primary_failed"], minute["failures"], minute["ping_p50"]) == (7, {"timeout": 7}, 0.2)
    assert slope == {"slope": pytest.approx(-1.0)}


def test_the_story_is_what_episodes_are_made_of(tmp_path: Path) -> None:
    rows = split(tmp_path, as_rows(EVENTS))["story"].to_pylist()
    assert [row["kind"] for row in rows if row["kind"] == "engine-stopped"] == ["engine-stopped"]
    assert {row["key"] for row in rows} == {"orders"}
    tallied = {
        what: sum(row["n"] for row in rows if row["what"] == what) for what in ("diverted", "moved", "dead-lettered")
    }
    assert tallied == {"diverted": 30, "moved": 29, "dead-lettered": 1}


def test_every_field_of_every_event_is_a_column() -> None:
    for kind in e.KINDS.values():
        assert {name for name in kind.__dataclass_fields__ if name != "at"} <= set(TABLES["events"])

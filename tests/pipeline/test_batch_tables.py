"""What the SQL makes of events: sums by minute, engines, gaps, episodes; by Spark however they are cut into batches."""

from __future__ import annotations

import json
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.table_store.schema import TABLES
from tests.pipeline.batches import MINUTES_OF_SPARK, rows_of, take_once, write_file
from tests.pipeline.judged import records_of
from tests.pipeline.made_tables import utc
from tests.pipeline.test_spark_judges import compare_tables

pytestmark = pytest.mark.timeout(600)
numbered = partial(records_of, engine="e1")

T0 = 1_790_000_000.0 - 1_790_000_000.0 % 60
HOUR = 3600.0

EVENTS: list[e.Event] = [
    e.EngineStarted(at=T0, pairing="shop", primary="contoso", secondary="backup", backlog_queues=2, syphon=True,
                    version="1"),
    e.SendsCounted(at=T0 + 1, entity="orders", route="primary", accepted=9, failed=1, seconds=1.0),
    e.StateChanged(at=T0 + 2, entity="orders", was="healthy", now="suspect", why="timeout"),
    e.StateChanged(at=T0 + 3, entity="orders", was="suspect", now="failed over", why="no send accepted"),
    *(e.Diverted(at=T0 + 4 + index, entity="orders", message_id=f"m{index}", queue=index % 2) for index in range(30)),
    e.SendsCounted(at=T0 + 5, entity="orders", route="primary", accepted=0, failed=7, seconds=1.0),
    e.SendsCounted(at=T0 + 6, entity="orders", route="backlog/0", accepted=30, failed=0, seconds=1.0),
    e.FailuresCounted(at=T0 + 5, entity="orders", route="primary", failure=e.FailureKind.TIMEOUT, count=7),
    e.PingSent(at=T0 + 10, entity="orders", number=1),
    e.PingFailed(at=T0 + 11, entity="orders", number=1, reason="timeout", took=1.0),
    e.PingSent(at=T0 + 20, entity="orders", number=2),
    e.PingAccepted(at=T0 + 20.2, entity="orders", number=2, took=0.2),
    e.StateChanged(at=T0 + 20.2, entity="orders", was="failed over", now="healthy", why="a ping was accepted"),
    e.QueueRead(at=T0 + 15, queue=0, depth=15, size_bytes=1500, dead_lettered=0, scheduled=1),
    e.QueueRead(at=T0 + 25, queue=0, depth=5, size_bytes=500, dead_lettered=1, scheduled=0),
    *(e.Moved(at=T0 + 26, entity="orders", message_id=f"m{index}", queue=index % 2) for index in range(29)),
    e.DeadLettered(at=T0 + 27, entity="orders", message_id="m29", queue=1, reason="poison"),
    e.DestinationFailed(at=T0 + 25, entity="orders", reason="full", retry_at=T0 + 30),
    e.OperationsCounted(at=T0 + 30, sends=7, parked=30, pings=2, receives=3, moves=30, settlements=30,
                        sent_bytes=0, parked_bytes=3000, moved_bytes=3900),
    e.EngineStopped(at=T0 + 40, reason="paired down"),
]  # fmt: skip


def changed(at: float, was: str, now: str, why: str = "because") -> e.Event:
    return e.StateChanged(at=T0 + at, entity="orders", was=was, now=now, why=why)


def warned(at: float) -> e.Event:
    return e.Warned(at=T0 + at, about="here", text="of nothing")


STORIES: list[list[Record]] = [
    numbered([changed(0, "healthy", "suspect"), changed(2, "suspect", "healthy", "a send")], engine="recovered"),
    numbered(
        [
            e.Forced(at=T0, entity="orders", by="ada", why="rehearsal"),
            changed(0.001, "healthy", "forced"),
            e.EntityReleased(at=T0 + 60, entity="orders", by="bob", why="done"),
            changed(60.001, "forced", "healthy"),
        ],
        engine="forced",
    ),
    numbered([changed(0, "healthy", "suspect"), changed(1, "suspect", "failed over")], engine="killed"),
    numbered([warned(30)], engine="killed", boot="b2"),
    numbered([changed(0, "healthy", "failed over"), e.EngineStopped(at=T0 + 5, reason="down")], engine="stopped"),
    numbered([changed(0, "healthy", "failed over")], engine="shop@gone"),
    numbered([warned(0), warned(16 * 60)], engine="shop@here"),
    numbered([changed(0, "healthy", "failed over")], engine="alone@there"),
    # its clock goes back two hours in the middle
    numbered([changed(2 * HOUR, "healthy", "failed over"), changed(10, "failed over", "healthy")], engine="jumps"),
    numbered([changed(0, "healthy", "failed over"), changed(1, "failed over", "healthy"),
              changed(2, "healthy", "suspect"), changed(3, "suspect", "pinned")], engine="twice"),
    numbered([warned(1), warned(2)], engine="gap", first=3) + numbered([warned(9)], engine="gap", first=9),
]  # fmt: skip


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_file(folder / "whole.jsonl", [*numbered(EVENTS), *(record for story in STORIES for record in story)])
    return folder


@pytest.fixture(scope="module")
def made(journal: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables without Spark; Spark's are the same below."""
    with JournalTables.open([journal]) as tables:
        return {table: sorted(tables.rows(f"select * from {table}"), key=str) for table in TABLES}


def of(made: dict[str, list[dict[str, Any]]], table: str, engine: str) -> list[dict[str, Any]]:
    return [row for row in made[table] if row["engine"] == engine]


def test_a_minutes_sums(made: dict[str, list[dict[str, Any]]]) -> None:
    (minute,) = of(made, "minutes", "e1")
    assert minute["minute"] == utc(T0)
    assert (minute["primary_accepted"], minute["primary_failed"], minute["backlog_accepted"]) == (9, 8, 30)
    assert (minute["pings_sent"], minute["pings_accepted"], minute["pings_failed"]) == (2, 1, 1)
    assert (minute["availability"], minute["ping_seconds"], minute["ping_p50"]) == (pytest.approx(9 / 17), [0.2], 0.2)
    (failed,) = of(made, "failures", "e1")
    assert (failed["failure"], failed["route"], failed["count"]) == ("timeout", "primary", 7)
    assert {row["cause"]: (row["operations"], row["bytes"]) for row in of(made, "cost", "e1")} == {
        "sends": (7, 0), "parked": (30, 3000), "pings": (2, 0), "receives": (3, 0), "moves": (30, 3900),
        "settlements": (30, 0),
    }  # fmt: skip


def test_a_queues_minute(made: dict[str, list[dict[str, Any]]]) -> None:
    first, second = sorted(of(made, "backlog", "e1"), key=lambda row: row["queue"])
    assert (first["parked"], first["depth"], first["depth_max"], first["slope"]) == (15, 5, 15, pytest.approx(-1.0))
    assert (second["parked"], second["depth"]) == (15, None)
    syphon = {(row["queue"], row["moved"], row["dead_lettered"], row["retries"]) for row in of(made, "syphon", "e1")}
    assert syphon == {(0, 15, 0, 0), (1, 14, 1, 0), (None, 0, 0, 1)}
    (dead,) = of(made, "dead_letters", "e1")
    assert (dead["queue"], dead["entity"], dead["reason"], dead["count"]) == (1, "orders", "poison", 1)


def test_an_engine_and_how_it_ended(made: dict[str, list[dict[str, Any]]]) -> None:
    (engine,) = of(made, "engines", "e1")
    assert (engine["pairing"], engine["syphon"], engine["ended"], engine["end_reason"]) == (
        "shop", True, "stopped", "paired down",
    )  # fmt: skip
    assert (engine["records"], engine["missing"], engine["complete_to"]) == (len(EVENTS), 0, utc(T0 + 40))
    ended = {(row["engine"], row["boot"]): (row["pairing"], row["ended"]) for row in made["engines"]}
    assert ended["killed", "b1"] == ("killed", "restarted")
    assert ended["killed", "b2"] == ("killed", "running")
    assert ended["shop@gone", "b1"] == ("shop", "silent")
    assert ended["shop@here", "b1"] == ("shop", "running")
    assert ended["alone@there", "b1"] == ("alone", "running")


def test_a_gap_is_a_row_and_ends_what_is_complete(made: dict[str, list[dict[str, Any]]]) -> None:
    assert [(row["first_seq"], row["last_seq"], row["missing"]) for row in made["gaps"]] == [(1, 2, 2), (5, 8, 4)]
    (engine,) = of(made, "engines", "gap")
    assert (engine["records"], engine["missing"]) == (3, 6)
    assert (engine["complete_to"], engine["complete_from"]) == (None, utc(T0 + 9))


def test_an_outage_from_its_first_failure_to_the_empty_backlog(made: dict[str, list[dict[str, Any]]]) -> None:
    (episode,) = of(made, "episodes", "e1")
    steps = ("last_good_at", "began_at", "suspected_at", "failed_over_at", "first_diverted_at", "first_ping_at",
             "failed_back_at", "backlog_empty_at")  # fmt: skip
    assert [episode[step] for step in steps] == [utc(T0 + after) for after in (0, 2, 2, 3, 4, 20.2, 20.2, 27)]
    assert (episode["parked"], episode["moved"], episode["dead_lettered"]) == (30, 29, 1)
    assert (episode["outcome"], episode["cause"], episode["end_reason"]) == (
        "failed back", "no send accepted", "a ping was accepted",
    )  # fmt: skip
    assert (episode["pairing"], episode["forced"], episode["orders"]) == ("shop", False, "[]")


@pytest.mark.parametrize(
    ("engine", "outcomes"),
    [("recovered", ["recovered"]), ("forced", ["failed back"]), ("killed", ["engine ended"]),
     ("stopped", ["engine ended"]), ("shop@gone", ["engine silent"]), ("alone@there", ["open"]),
     ("jumps", ["failed back"]), ("twice", ["failed back", "pinned"])],
)  # fmt: skip
def test_how_an_episode_ends(made: dict[str, list[dict[str, Any]]], engine: str, outcomes: list[str]) -> None:
    found = sorted(of(made, "episodes", engine), key=lambda row: row["began_at"])
    assert [row["outcome"] for row in found] == outcomes
    assert all(row["end_reason"] for row in found if row["outcome"] != "open")


def test_an_operators_orders_belong_to_their_episode(made: dict[str, list[dict[str, Any]]]) -> None:
    (episode,) = of(made, "episodes", "forced")
    assert episode["forced"]
    assert [(one["what"], one["by"], one["why"]) for one in json.loads(episode["orders"])] == [
        ("forced", "ada", "rehearsal"),
        ("released", "bob", "done"),
    ]


@MINUTES_OF_SPARK
@pytest.mark.parametrize("seed", [1, 2])
def test_how_events_are_cut_and_ordered_makes_no_difference(
    spark: Any, journal: Path, tmp_path: Path, seed: int
) -> None:
    """Five files, each a batch, in any order, with some records twice: Spark's tables are those without Spark."""
    chance = random.Random(seed)
    told = [*numbered(EVENTS), *(record for story in STORIES for record in story)]
    chance.shuffle(told)
    size = math.ceil(len(told) / 5)
    for number in range(5):
        again = chance.sample(told, 3)
        write_file(tmp_path / "j" / f"{number}.jsonl", [*told[number * size : (number + 1) * size], *again])
    take_once(spark, tmp_path / "t", tmp_path / "j", files=1)
    compare_tables(tmp_path / "t", journal)


def started(pairing: str) -> e.Event:
    return e.EngineStarted(
        at=T0, pairing=pairing, primary="contoso", secondary="backup", backlog_queues=1, syphon=True, version="1"
    )


def parked(name: str) -> e.Event:
    return e.Diverted(at=T0 + 5, entity="orders", message_id=name, queue=0)


@MINUTES_OF_SPARK
def test_a_name_that_is_heard_later_joins_what_is_known(spark: Any, tmp_path: Path) -> None:
    """An application's parked messages were judged before an engine of another name, which moved one, was heard."""
    first = [started("shop"), changed(1, "healthy", "failed over"), parked("a"), parked("b")]
    write_file(tmp_path / "j" / "events" / "a-0000000000001-000000000001.jsonl", numbered(first, engine="shop@web"))
    take_once(spark, tmp_path / "t", tmp_path / "j")
    assert {row["pairing"] for row in rows_of(tmp_path / "t")["audit"]} == {"shop"}
    later = [started("orders"), e.Moved(at=T0 + 30, entity="orders", message_id="a", queue=0)]
    write_file(tmp_path / "j" / "events" / "b-0000000000001-000000000001.jsonl", numbered(later, engine="orders@ops"))
    take_once(spark, tmp_path / "t", tmp_path / "j")
    found = rows_of(tmp_path / "t")
    assert [(row["pairing"], row["message_id"], row["status"]) for row in found["audit"]] == [
        ("orders", "a", "accepted"),
        ("orders", "b", "parked"),
    ]
    assert {row["pairing"] for table in ("engines", "episodes", "receipts") for row in found[table]} == {"orders"}

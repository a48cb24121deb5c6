"""What the tables say, read by duckdb: minutes, backlog, syphon, cost, from partial rows that add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.model.pairing_events import Diverted, Moved
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.journals import tables_of

MINUTE = 60_000_000
KEY = {"engine": "e1", "minute_ts": 10 * MINUTE}


def the_one(tables: Tables, view: str) -> dict[str, Any]:
    (row,) = tables.rows(f"select * from {view}")
    return row


def test_a_minute_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    orders = {**KEY, "entity": "orders"}
    parts = [
        {**orders, "route": "primary", "accepted": 30, "failed": 10},
        {**orders, "route": "primary", "accepted": 30, "failed": 10},
        {**orders, "route": "backlog/3", "accepted": 20, "failed": 0},
        {**orders, "route": "primary", "failure": "timeout", "failures": 15},
        {**orders, "route": "primary", "failure": "connection lost", "failures": 2},
        {**orders, "route": "primary", "failure": "connection lost", "failures": 3},
        {**orders, "pings_sent": 2, "pings_accepted": 2, "pings_failed": 0, "took": [0.1, 0.3]},
        {**orders, "pings_sent": 2, "pings_accepted": 1, "pings_failed": 1, "took": [0.2]},
    ]
    with tables_of(tmp_path, [], minutes=parts) as tables:
        row = the_one(tables, "minutes")
    assert (row["primary_accepted"], row["primary_failed"], row["backlog_accepted"]) == (60, 20, 20)
    assert row["failures"] == {"connection lost": 5, "timeout": 15}
    assert row["availability"] == pytest.approx(0.75)
    assert row["accepted_share"] == pytest.approx(0.8)
    assert (row["pings_sent"], row["pings_accepted"], row["pings_failed"]) == (4, 3, 1)
    assert row["ping_p50"] == pytest.approx(0.2)
    assert row["ping_p99"] == pytest.approx(0.298)


def test_a_minute_without_attempts_has_no_availability(tmp_path: Path) -> None:
    with tables_of(tmp_path, [], minutes=[{**KEY, "entity": "orders", "pings_sent": 1}]) as tables:
        row = the_one(tables, "minutes")
    assert (row["availability"], row["accepted_share"], row["ping_p50"]) == (None, None, None)


def test_depth_is_the_last_reading_and_slope_the_line_through_all(tmp_path: Path) -> None:
    """Readings of 0, 20 and 40 messages at 0, 10 and 20 s, in two parts: 2 a second."""
    first = {**KEY, "queue": 3, "read_ts": 10, "depth": 20, "depth_max": 20, "n": 2,
             "sum_t": 10.0, "sum_d": 20.0, "sum_tt": 100.0, "sum_td": 200.0}  # fmt: skip
    second = {**KEY, "queue": 3, "read_ts": 20, "depth": 40, "depth_max": 40, "n": 1,
              "sum_t": 20.0, "sum_d": 40.0, "sum_tt": 400.0, "sum_td": 800.0}  # fmt: skip
    with tables_of(tmp_path, [], backlog=[second, first]) as tables:
        row = the_one(tables, "backlog")
    assert (row["depth"], row["depth_max"], row["read_ts"]) == (40, 40, 20)
    assert row["slope"] == pytest.approx(2.0)


def test_dwell_is_from_parked_to_moved(tmp_path: Path) -> None:
    events = [
        *(Diverted(at=600 + index, entity="orders", message_id=f"m{index}", queue=1) for index in range(5)),
        *(Moved(at=610, entity="orders", message_id=f"m{index}", queue=1) for index in range(5)),
    ]
    with tables_of(tmp_path, events) as tables:
        row = the_one(tables, "backlog")
    assert (row["queue"], row["moved"]) == (1, 5)
    assert (row["dwell_p50"], row["dwell_max"]) == (8.0, 10.0)


def test_the_syphons_minute(tmp_path: Path) -> None:
    key = {**KEY, "queue": 1, "entity": "orders"}
    parts = [{**key, "moved": 100}, {**key, "moved": 20}, {**key, "dead_lettered": 2, "reason": "poison"},
             {**key, "dead_lettered": 1, "reason": "poison"}, {**key, "retries": 4}]  # fmt: skip
    with tables_of(tmp_path, [], syphon=parts) as tables:
        row = the_one(tables, "syphon")
    assert (row["moved"], row["rate"], row["retries"], row["dead_lettered"]) == (120, 2.0, 4, 3)
    assert row["dead_reasons"] == {"poison": 3}


def test_cost_is_priced_by_its_owner(tmp_path: Path) -> None:
    parts = [
        {**KEY, "cause": "sends", "operations": 1_000_000, "bytes": 5},
        {**KEY, "cause": "sends", "operations": 500_000},
    ]
    with tables_of(tmp_path, [], cost=parts) as tables:
        (row,) = tables.cost(Price(million_operations=0.8, currency="EUR"))
    assert row == {
        "cause": "sends",
        "operations": 1_500_000,
        "bytes": 5,
        "price": pytest.approx(1.2),
        "currency": "EUR",
    }


def test_of_an_episodes_rows_the_one_made_from_most_counts(tmp_path: Path) -> None:
    told = [("x", 9, "failed back"), ("x", 3, "open"), ("ghost", 1, "open"), ("ghost", 2, "withdrawn")]
    rows = [{"id": name, "version": version, "outcome": outcome} for name, version, outcome in told]
    with tables_of(tmp_path, [], episodes=rows) as tables:
        row = the_one(tables, "episodes")
    assert (row["id"], row["outcome"], row["open"]) == ("x", "failed back", False)


def test_every_view_is_there_without_any_file(tmp_path: Path) -> None:
    with tables_of(tmp_path, []) as tables:
        for view in ("events", "gaps", "episodes", "minutes", "backlog", "syphon", "cost", "audit", "verdicts"):
            assert tables.rows(f"select * from {view}") == []
        assert tables.verdict() is None

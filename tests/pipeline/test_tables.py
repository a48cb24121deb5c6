"""The tables as the project's own reader gives them: a view for each, with all of its columns."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.core.model.pairing_events import Warned
from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.journals import tables_of
from tests.pipeline.made_tables import make_version, utc

KEY = {"engine": "e1", "minute": utc(600)}


def test_every_view_is_there_without_any_row(tmp_path: Path) -> None:
    with tables_of(tmp_path, []) as tables:
        for view, columns in TABLES.items():
            assert tables.rows(f"select * from {view}") == []
            names = [row["column_name"] for row in tables.rows(f"describe {view}")]
            assert names == [*columns, *(["date"] if view in DATED else [])]
        assert tables.verdict() is None


def test_columns_that_older_files_lack_are_null(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    duckdb.sql("select 'e1' as engine").write_parquet(str(path))
    with Lake(tmp_path / "t") as lake:
        lake.commit(lambda _: Change(files={"engines": [Staged(path, File(name="old.parquet", rows=1))]}))
    with Tables.open(tmp_path / "t") as tables:
        assert tables.rows("select engine, boot, last_at from engines") == [
            {"engine": "e1", "boot": None, "last_at": None}
        ]


def test_cost_is_priced_by_its_owner(tmp_path: Path) -> None:
    parts = [
        {**KEY, "cause": "sends", "operations": 1_000_000, "bytes": 5},
        {**KEY, "minute": utc(660), "cause": "sends", "operations": 500_000},
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


def test_the_verdict_on_everything_and_on_each_pairing(tmp_path: Path) -> None:
    rows = [{"pairing": pairing, "entity": "", "lost": lost} for pairing, lost in (("", 3), ("a", 1), ("b", 2))]
    with tables_of(tmp_path, [], verdicts=[*rows, {"pairing": "a", "entity": "orders", "lost": 1}]) as tables:
        whole = tables.verdict()
        assert whole is not None
        assert whole["lost"] == 3
        assert [(row["pairing"], row["lost"]) for row in tables.verdicts()] == [("a", 1), ("b", 2)]


def test_unreadable_lines_are_counted_by_file(tmp_path: Path) -> None:
    rows = [{"trouble": "torn", "file": f"{name}.jsonl"} for name in "aab"]
    make_version(tmp_path, events=rows)
    with Tables.open(tmp_path) as tables:
        assert tables.unreadable() == (3, "2 in a.jsonl, 1 in b.jsonl")


def test_a_file_that_is_no_parquet_is_one_sentence(tmp_path: Path) -> None:
    with tables_of(tmp_path, [Warned(at=600, about="a", text="b")]) as tables:
        (path,) = ((tmp_path / "current").resolve() / "events").rglob("*.parquet")
        path.write_bytes(bytes(path.stat().st_size))
        with pytest.raises(NoTablesError, match="cannot be read"):
            tables.rows("select * from events")

"""The reader of the tables: views without files, and figures of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.pipeline.table_store.schema import TABLES
from tests.pipeline.journals import tables_of
from tests.pipeline.made_tables import utc

KEY = {"engine": "e1", "minute": utc(600)}


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


def test_every_view_is_there_without_any_file(tmp_path: Path) -> None:
    with tables_of(tmp_path, []) as tables:
        for view in TABLES:
            assert tables.rows(f"select * from {view}") == []
        assert tables.verdict() is None

"""Every column of the tables has a meaning, and the page has them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from paired_servicebus.pipeline.table_store import column_meanings
from paired_servicebus.pipeline.table_store.column_meanings import ROWS, columns_page, meaning_of
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES

PAGE = Path(column_meanings.__file__).parents[1] / "COLUMNS.md"
COLUMNS = [(table, name) for table, columns in TABLES.items() for name in (*columns, *(["date"] * (table in DATED)))]


def test_every_table_and_column_has_a_meaning_and_no_other() -> None:
    assert list(ROWS) == list(TABLES)
    used = {f"{table}.{name}" for table, name in COLUMNS} | {name for _, name in COLUMNS}
    assert set(column_meanings._MEANINGS) <= used, "of no column"
    lacking = [f"{table}.{name}" for table, name in COLUMNS if not meaning_of(table, name)[0]]
    assert not lacking


@pytest.mark.parametrize(("ending", "unit"), [("_at", "UTC"), ("_bytes", "bytes"), ("_seq", "number")])
def test_a_name_and_its_unit_agree(ending: str, unit: str) -> None:
    assert not [
        f"{table}.{name}" for table, name in COLUMNS if name.endswith(ending) and unit not in meaning_of(table, name)[1]
    ]


def test_a_time_has_its_zone_and_a_truth_is_yes_or_no() -> None:
    for table, columns in TABLES.items():
        for name, kind in columns.items():
            unit = meaning_of(table, name)[1]
            assert (kind == "TIMESTAMP") == unit.startswith("UTC"), f"{table}.{name}"
            assert (kind == "BOOLEAN") == (unit == "yes or no"), f"{table}.{name}"
            assert (kind == "VARCHAR") == (unit == ""), f"{table}.{name}"


def test_the_page_is_made_from_the_schema(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--approve"):
        PAGE.write_text(columns_page(), "utf-8")
    assert PAGE.read_text("utf-8") == columns_page()

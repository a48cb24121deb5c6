"""Every table as programs read it that know nothing of this project: duckdb, polars, pandas and Spark agree."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("polars", reason="CI installs polars beside the extra `spark`")

import pandas as pd
import polars as pl

from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.pipeline.batches import MINUTES_OF_SPARK, take_once, write_file
from tests.pipeline.made_tables import files_of
from tests.pipeline.test_batch_tables import EVENTS, STORIES, T0, numbered

pytestmark = [MINUTES_OF_SPARK, pytest.mark.timeout(600)]

DAYS = 2
Reader = Callable[[Any, list[str], str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of three batches and two days, with a line that cannot be read."""
    folder = tmp_path_factory.mktemp("plain")
    journal = folder / "j"
    half = len(EVENTS) // 2
    write_file(journal / "1.jsonl", numbered(EVENTS[:half]))
    write_file(journal / "2.jsonl", numbered(EVENTS[half:], first=half + 1))
    later = [replace(event, at=event.at + 86_400) for event in EVENTS]
    write_file(journal / "3.jsonl", [*numbered(later, boot="b2"), *(record for story in STORIES for record in story)])
    (journal / "4.jsonl").write_text("torn\n")
    take_once(spark, folder / "t", journal, files=1)
    return folder / "t"


def listed(folder: Path, table: str) -> list[str]:
    return [str(path) for path in files_of(folder, table)]


def by_duckdb(_: Any, files: list[str], table: str) -> list[dict[str, Any]]:
    times = [name for name, kind in TABLES[table].items() if kind == "TIMESTAMP"]
    replaced = ", ".join(f'epoch_us("{name}") as "{name}"' for name in times)
    columns = f"* replace ({replaced})" if times else "*"
    found = duckdb.sql(f"select {columns} from read_parquet({files}, hive_partitioning = {table in DATED})")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def by_polars(_: Any, files: list[str], table: str) -> list[dict[str, Any]]:
    return pl.read_parquet(files, hive_partitioning=table in DATED).to_dicts()


def by_pandas(_: Any, files: list[str], table: str) -> list[dict[str, Any]]:
    found = pd.read_parquet(files, dtype_backend="pyarrow")
    return [dict(row) for row in found.to_dict("records")]


def by_spark(spark: Any, files: list[str], table: str) -> list[dict[str, Any]]:
    return [
        row.asDict()
        for row in spark.read.option("basePath", files[0].partition(f"/{table}/")[0] + f"/{table}")
        .parquet(*files)
        .collect()
    ]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("reader", [by_duckdb, by_polars, by_pandas, by_spark])
def test_a_table_is_the_same_for_every_reader(spark: Any, tables: Path, table: str, reader: Reader) -> None:
    with Tables.open(tables) as opened:
        expected = [_plain(row) for row in opened.rows(f"select * from {table}")]
    found = [_plain(row) for row in reader(spark, listed(tables, table), table)]
    assert expected, "the test's journal has rows of every table"
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("table", "keys"),
    [("events", "engine, boot, seq, file, line"), ("timeline", "engine, boot, seq"), ("engines", "engine, boot"),
     ("minutes", "engine, entity, minute"), ("failures", "engine, entity, minute, route, failure"),
     ("backlog", "engine, queue, minute"), ("syphon", "engine, queue, entity, minute"),
     ("dead_letters", "engine, queue, entity, minute, reason"), ("cost", "engine, minute, cause"),
     ("episodes", "id"), ("receipts", "pairing, entity, message_id, subscription"),
     ("audit", "pairing, entity, message_id"), ("verdicts", "pairing, entity, subscription")],
)  # fmt: skip
def test_a_key_has_one_row(tables: Path, table: str, keys: str) -> None:
    twice = duckdb.sql(
        f"select {keys}, count(*) from read_parquet({listed(tables, table)}) group by all having count(*) > 1"
    )
    assert twice.fetchall() == []


def test_a_row_is_in_the_partition_of_its_day(tables: Path) -> None:
    found = duckdb.sql(f"select distinct date::varchar from read_parquet({listed(tables, 'minutes')}) order by 1")
    first = datetime.datetime.fromtimestamp(T0, datetime.UTC).date()
    assert [day for (day,) in found.fetchall()] == [str(first + datetime.timedelta(days=day)) for day in range(DAYS)]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in sorted(row.items())}


def _value(value: Any) -> Any:
    """Return a value as Python has it: times as microseconds in UTC, days as text."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime(warn=False)
    if isinstance(value, datetime.datetime):
        whole = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return (whole - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return str(value)
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 9)
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ndarray":
        return [_value(one) for one in value]
    return bool(value) if type(value).__name__ in ("bool_", "bool") else value

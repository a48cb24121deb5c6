"""Spark's tables of a journal beside those that duckdb makes: the same rows .

One test is the part of Spark that every run of the tests has; PAIRED_SPARK=1 runs the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from paired_servicebus.core.model.pairing_events import EngineStopped, Record, Warned
from paired_servicebus.pipeline.journal_tables import JournalTables
from paired_servicebus.pipeline.table_store.store_path import Place
from paired_servicebus.pipeline.table_store.table_reader import Tables
from tests.bench.spark.synthetic_journal import write_journal
from tests.pipeline.batches import MINUTES_OF_SPARK, take_once, write_file
from tests.pipeline.judged import records_of
from tests.pipeline.made_journals import SPAN, journals
from tests.pipeline.slow_receivers import SlowWorld
from tests.pipeline.test_journal_tables import STORY

TABLES = (
    "engines", "gaps", "minutes", "failures", "backlog", "syphon", "dead_letters", "cost", "timeline", "episodes",
    "receipts", "audit", "verdicts",
)  # fmt: skip
JOURNALS = 6
"""Journals made by hypothesis, each for a pairing and engines of its own, in one Spark run."""


def rows_of(tables: Tables | JournalTables, table: str) -> list[str]:
    """A table's rows as sorted texts; fractions are rounded, since sums come in any order."""
    left_out = {"verdicts": " exclude (judged_at)"}.get(table, "")
    return sorted(json.dumps(_plain(row), default=str) for row in tables.rows(f"select *{left_out} from {table}"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(json.loads(one) if name == "orders" else one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def compare(spark: Any, folder: Path, journal: Path) -> None:
    take_once(spark, folder / "tables", journal)
    compare_tables(folder / "tables", journal)


def compare_tables(tables: Place, journal: Path) -> None:
    """The tables that Spark made of a journal have the rows that duckdb makes of it."""
    with Tables.open(tables) as by_spark, JournalTables.open([journal]) as by_functions:
        for table in TABLES:
            mine, theirs = rows_of(by_functions, table), rows_of(by_spark, table)
            only = [one for one in mine if one not in theirs], [one for one in theirs if one not in mine]
            assert mine == theirs, (table, only)


@MINUTES_OF_SPARK
def test_names_that_differ_in_case_are_one_in_any_language_of_the_machine(spark: Any) -> None:
    """The fixture's JVM is told to speak Turkish, whose lower case of I is another letter."""
    (row,) = spark.sql("select lower(name) as folded from values ('ÉI') as names(name)").collect()
    assert row["folded"] == "éi"


@MINUTES_OF_SPARK
def test_a_journal_of_failovers(spark: Any, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, 30_000)
    compare(spark, tmp_path, journal)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("batches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_story_and_a_world_with_slow_receivers(spark: Any, tmp_path: Path, batches: int) -> None:
    journal = tmp_path / "journal"
    write_file(journal / "events" / "a-0000000000001-000000000001.jsonl", records_of(STORY, engine="story@web-1"))
    played = SlowWorld(7, deletes=5).play(hours=4)
    half = len(played.records) // 2
    write_file(journal / "events" / "b-0000000000001-000000000001.jsonl", played.records[:half])
    if batches > 1:  # what comes later is judged again
        take_once(spark, tmp_path / "tables", journal)
    write_file(journal / "events" / "b-0000000000002-000000000001.jsonl", played.records[half:])
    compare(spark, tmp_path, journal)


@MINUTES_OF_SPARK
def test_journals_made_by_hypothesis(spark: Any, tmp_path: Path) -> None:
    found: list[list[Record]] = []

    @seed(23)
    @settings(max_examples=JOURNALS, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(records=journals())
    def make(records: list[Record]) -> None:
        found.append(records)

    make()
    journal = tmp_path / "journal"
    for number, records in enumerate(found):
        last = max((one.event.at for one in records), default=float(SPAN))
        alone = [
            Record(engine=f"n{number}-{one.engine}", boot=one.boot, seq=one.seq, event=one.event) for one in records
        ]
        end = records_of(
            [Warned(at=last, about="a", text="b"), EngineStopped(at=last + 9, reason="x")], engine=f"n{number}-end@web"
        )
        name = f"n{number}-0000000000001-000000000001.jsonl"
        write_file(journal / f"host-{number}" / "events" / name, [*alone, *end])
    compare(spark, tmp_path, journal)

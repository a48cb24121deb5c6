"""A judgement after another one: the same rows as one of everything, whatever came in which order (SPEC.md section 11).

"A judgement after another one judges the messages with new receipts and those whose fate is open. Its rows are those of
one judgement of everything, whatever came in which order."
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.pipeline.judging import audit_sql
from paired_servicebus.pipeline.judging.judge import derive, judge, sum_up
from paired_servicebus.pipeline.table_store.schema import TABLES
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine
from tests.pipeline.judged import end_of, event_rows, load
from tests.pipeline.made_journals import journals
from tests.pipeline.worlds import random_world

WORLDS: Final = int(os.environ.get("PAIRED_WORLDS", "40"))
FEW, MORE = 3, 12
"""Worlds of README's test command, and of .ci/run; `python -m tests.long cases` has all."""
MARKS: Final = [[] if seed < FEW else [pytest.mark.slow if seed < MORE else pytest.mark.long] for seed in range(WORLDS)]
SEEDS: Final = [pytest.param(seed, marks=marks) for seed, marks in enumerate(MARKS)]
JUDGED: Final = ("receipts", "audit", "verdicts", "episodes")


def judged(parts: Sequence[Sequence[Record]]) -> dict[str, list[dict[str, Any]]]:
    """The tables after a judgement for each part of a journal."""
    with duckdb.connect(config={"threads": 1}) as connection:
        engine = DuckdbEngine(connection)
        seen: list[Record] = []
        for part in parts:
            is_late, engines = bool(seen) and _is_late(seen, part), _engines(engine) if seen else {}
            seen += part
            load(connection, "events", event_rows(seen))
            _load_new(connection, part)
            derive(engine)
            renamed = any(_engines(engine).get(boot, name) != name for boot, name in engines.items())
            is_first = len(seen) == len(part) or is_late or renamed
            (judge if is_first else judge_again)(engine, now=end_of(seen))
        return {table: sorted(engine.rows(table), key=str) for table in JUDGED}


def judge_again(engine: DuckdbEngine, *, now: int) -> None:
    """Judge what `new_events` touch and what is open, as Spark does with its files."""
    columns = ", ".join(TABLES["receipts"])
    engine.make("new_receipts", audit_sql.PARTIAL.format(events="new_events"))
    engine.make("touched", audit_sql.TOUCHED)
    engine.make("touched_before", audit_sql.TOUCHED_BEFORE.format(known="receipts"))
    engine.make("known_audit", "select * from audit")
    partials = f"select {columns} from new_receipts union all select {columns} from receipts"
    engine.make("receipts", audit_sql.MERGE.format(partials=f"({partials}) as partials"))
    for independent in audit_sql.parts(whole=False, now=now):
        for name, statement in independent.items():
            engine.make(name, statement)
    kept = f"select {', '.join(TABLES['audit'])} from ({audit_sql.KEPT}) as kept"
    engine.make("audit", f"{audit_sql.AUDIT} union all {kept}")
    sum_up(engine, now=now)


def _load_new(connection: duckdb.DuckDBPyConnection, part: Sequence[Record]) -> None:
    keys = [(one.engine, one.boot, one.seq) for one in part]
    connection.execute("create or replace table new_keys (engine varchar, boot varchar, seq bigint)")
    if keys:
        connection.executemany("insert into new_keys values (?, ?, ?)", keys)
    connection.execute(
        "create or replace table new_events as select * from events semi join new_keys using (engine, boot, seq)"
    )


def _is_late(seen: Sequence[Record], part: Sequence[Record]) -> bool:
    last: dict[tuple[str, str], int] = {}
    for one in seen:
        last[one.engine, one.boot] = max(last.get((one.engine, one.boot), 0), one.seq)
    return any(one.seq < last.get((one.engine, one.boot), 0) for one in part)


def _engines(engine: DuckdbEngine) -> dict[tuple[str, str], str]:
    return {(row["engine"], row["boot"]): row["pairing"] for row in engine.rows("engines")}


def parts_of(records: Sequence[Record], rng: Random) -> list[list[Record]]:
    """A journal in some parts, each in the order of time; files of some engines come late."""
    ordered = sorted(records, key=lambda one: (one.event.at, one.engine, one.seq))
    delays = {one.engine: rng.choice([0, 0, 0, 5, 40]) for one in ordered}
    places = [(place + delays[one.engine], place) for place, one in enumerate(ordered)]
    ordered = [ordered[place] for _, place in sorted(places)]
    cuts = sorted(rng.randrange(len(ordered) + 1) for _ in range(rng.randint(1, 4)))
    return [list(ordered[first:last]) for first, last in zip([0, *cuts], [*cuts, len(ordered)], strict=True)]


def once(records: Sequence[Record]) -> list[Record]:
    return list({(one.engine, one.boot, one.seq): one for one in records}.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_worlds_in_parts_have_the_rows_of_a_whole_judgement(seed: int) -> None:
    rng = Random(seed)
    records = once(random_world(rng).journals())
    parts = [part for part in parts_of(records, rng) if part]
    again, whole = judged(parts), judged([records])
    for table in JUDGED:
        assert again[table] == whole[table], table


@settings(max_examples=settings.default.max_examples // 16, deadline=None)
@given(records=journals(), seed=some.integers(0, 1 << 30))
def test_any_journal_in_parts_has_the_rows_of_a_whole_judgement(records: list[Record], seed: int) -> None:
    records = once(records)
    if not records:
        return
    parts = [part for part in parts_of(records, Random(seed)) if part]
    again, whole = judged(parts), judged([records])
    for table in JUDGED:
        assert again[table] == whole[table], table

"""The table `episodes`: from the first failure of an entity to its return. SQL of Spark's, over a boot's `timeline`.

An episode belongs to one boot of one engine, which fails over by itself, and its records are in the order of their
numbers: no clock is compared with another one.

    suspect ──▶ failed over ──▶ first ping accepted ──▶ failed back
        └──▶ recovered: it never failed over

STORIES reads the views `story` (the boots' rows of STORY_KINDS) and `engines` (their rows). EPISODES reads its result,
`ended`, and `sends` (sends that the primary accepted, around the begins of episodes), `minutes` (those before), `known`
(the present rows of these boots, whose figures of the latest judgement stay) and `others` (the rows of other boots).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paired_servicebus.pipeline.ingest.table_files import Existing, as_frame, frame
from paired_servicebus.pipeline.judging.derived_sql import words
from paired_servicebus.pipeline.judging.episode_sql import BEFORE, EPISODES, SENDS, STORIES, STORY_KINDS
from paired_servicebus.pipeline.table_store.lake import Files, Staged
from paired_servicebus.pipeline.table_store.store_path import Place


def find_stories(spark: Any, told: Any, engines: Any, existing: Existing, changed: Mapping[str, Files]) -> bool:
    """Make the views of the stories that a batch goes on with, and return whether there are any.

    Args:
        told: the batch's rows of `timeline`, an Arrow table.
        engines: the new table `engines`, an Arrow table.
        existing: the tables before the batch.
        changed: the files of the tables that the batch has changed already, `timeline` among them.
    """
    before = existing.rows("engines").select("engine", "boot", "ended").toArrow()
    boots = _touched(told) | _ended_otherwise(before, engines)
    if not boots:
        return False
    as_frame(spark, engines).createOrReplaceTempView("engines")
    as_frame(spark, _boots(boots)).createOrReplaceTempView("touched")
    _new(spark, "timeline", existing, changed).createOrReplaceTempView("timeline")
    story = f"select * from timeline left semi join touched using (engine, boot) where kind in ({words(STORY_KINDS)})"
    spark.sql(f"{story} and entity is not null and event_time is not null").createOrReplaceTempView("story")
    as_frame(spark, spark.sql(STORIES).toArrow()).createOrReplaceTempView("ended")
    return True


def episode_rows(
    spark: Any, events: Sequence[Place], told: Any, existing: Existing, changed: Mapping[str, Files]
) -> Any:
    """Return all rows of `episodes` as an Arrow table, from the views of `find_stories`.

    Args:
        events: the files of the batch's events.
        told, existing: as there.
        changed: the files of the tables that the batch has changed, `minutes` among them.
    """
    _new(spark, "minutes", existing, changed).createOrReplaceTempView("minutes")
    existing.rows("episodes").createOrReplaceTempView("episodes")
    for name, how in (("known", "semi"), ("others", "anti")):
        spark.sql(f"select * from episodes left {how} join touched using (engine, boot)").createOrReplaceTempView(name)
    begins = told.filter(pc.equal(told["kind"], "state-changed"))
    _sends(spark, events, begins, existing).createOrReplaceTempView("sends")
    return spark.sql(EPISODES).toArrow()


def _touched(told: Any) -> set[tuple[str, str]]:
    some = told.filter(pc.is_in(told["kind"], value_set=pa.array(STORY_KINDS)))
    return set(zip(some["engine"].to_pylist(), some["boot"].to_pylist(), strict=True))


def _ended_otherwise(before: Any, engines: Any) -> set[tuple[str, str]]:
    """Return the boots that ended since, or turned out to go on."""
    names = ("engine", "boot", "ended")
    known, now = ({tuple(row[name] for name in names) for row in one.to_pylist()} for one in (before, engines))
    return {(engine, boot) for engine, boot, ended in now - known if ended != "running"} | {
        (engine, boot) for engine, boot, ended in known - now if ended != "running"
    }


def _boots(boots: Iterable[tuple[str, str]]) -> Any:
    found = sorted(boots)
    return pa.table({"engine": [one for one, _ in found], "boot": [one for _, one in found]})


def _new(spark: Any, table: str, existing: Existing, changed: Mapping[str, Files]) -> Any:
    """Return a table as the batch leaves it."""
    files = changed.get(table, existing.of(table))
    new = [one.path for one in files if isinstance(one, Staged)]
    return frame(spark, table, [*existing.paths(table, [one for one in files if not isinstance(one, Staged)]), *new])


def _sends(spark: Any, events: Sequence[Place], begins: Any, existing: Existing) -> Any:
    """Return the accepted sends around the changes of state of the batch, from it and from older files."""
    paths: list[Place] = []
    if begins.num_rows:
        times = pc.min_max(begins["event_time"].cast(pa.int64())).as_py()
        first, last = times["min"] - BEFORE * 1_000_000, times["max"]
        older = [file for file in existing.of("events") if file.last_at >= first and file.first_at <= last]
        paths = [*events, *existing.paths("events", older)]
    frame(spark, "events", paths).createOrReplaceTempView("events")
    return spark.sql(SENDS)

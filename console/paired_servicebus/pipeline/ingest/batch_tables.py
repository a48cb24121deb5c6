"""One batch: from journal files to the next version of every table but the judged ones. Spark's SQL makes them all.

    files ──▶ events ──▶ sums ──▶ minutes, failures, backlog, syphon, dead_letters, cost ──┐
                    └──▶ timeline, spans ──▶ engines, gaps ──▶ stories ────────────────────┴──▶ episodes

Events are parsed and written once; every other query reads the written files. The two lines run beside each other. A
table's rows of a batch are few, so they come to this process, and are written as one file for each day. Nothing changes
before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.pipeline.ingest import summed_tables
from paired_servicebus.pipeline.ingest.engine_tables import ENGINES, gaps_of, receiving_of, spans_of
from paired_servicebus.pipeline.ingest.episode_tables import episode_rows, find_stories
from paired_servicebus.pipeline.ingest.event_frames import unseen, write_events, write_journal
from paired_servicebus.pipeline.ingest.event_writer import Contents
from paired_servicebus.pipeline.ingest.journal_files import JournalFile
from paired_servicebus.pipeline.ingest.summed_tables import SUMMED
from paired_servicebus.pipeline.ingest.table_files import (
    Existing,
    days_of,
    frame,
    staged_parts,
    write_days,
    write_rows,
)
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.side_by_side import side_by_side
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest, merged
from paired_servicebus.pipeline.table_store.schema import COUNTED_KINDS, TIMELINE

_LISTED: Final = ", ".join(f"'{kind}'" for kind in COUNTED_KINDS)
TIMELINE_OF_EVENTS: Final = f"""
select {", ".join(f"`{name}`" for name in TIMELINE)} from events
where trouble is null and kind not in ({_LISTED})
"""
_RARE: Final = (
    ("pings", summed_tables.PINGS, "ping-accepted"), ("readings", summed_tables.READINGS, "queue-read"),
)  # fmt: skip


SMALL: Final = 8 * 1024 * 1024
"""Bytes of a batch's files up to which Spark spends more on compiling a query than on running it."""


class ShortReadError(PipelineError):
    """The executors read other bytes of the journal's files than are there."""


class BatchTables:
    """Takes batches into the tables of a lake."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self._large = spark
        self._small = spark_session.for_small_work(spark)
        self._spark = self._small
        self._lake = lake

    def take(self, files: Sequence[JournalFile]) -> Manifest:
        """Add the records of some files. Raises ShortReadError, Spark's errors and OSError; nothing is half taken."""
        lake = self._lake
        self._spark = self._large if sum(one.size for one in files) > SMALL else self._small
        with lake.writing, lake.staged("batch") as place:
            return self._add(self._read(files, place / "read"), place)

    def _add(self, found: Contents, place: Path) -> Manifest:
        """Add written events to the tables; `place` is for new files."""
        version = self._lake.version
        before = version.manifest
        came = found.numbered
        if found.repeats(before):
            found = self._write_unseen(found, before, place / "unseen")
        fields: dict[str, Any] = {"repeated": before.repeated + came - found.numbered}
        paths = [Path(path) for path in found.files]
        files = staged_parts(paths, "events", before.batch + 1)
        if not files:
            return self._lake.commit(lambda _: Change(fields=fields))
        seen = merged(before.seen + found.spans)
        after = msgspec.structs.replace(before, seen=seen)
        changed = self._tables(paths, place, after, found, Existing(self._small, version))
        if found.receipts:
            fields |= {"receipts": before.receipts + found.receipts, "receipts_batch": before.batch + 1}
        fields |= {"seen": seen, "troubled": tuple(sorted({*before.troubled, *found.troubled}))}
        whole: dict[str, Files] = {"events": (*before.of("events"), *files), **changed}
        return self._lake.commit(lambda _: Change(files=whole, fields=fields))

    # -- events -------------------------------------------------------------------------------------------------------

    def _read(self, files: Sequence[JournalFile], place: Path) -> Contents:
        """Write the events of files. They count only if the workers read, and wrote, what this process sees."""
        read = write_journal(self._spark, files, place)
        wanted = sum(one.size for one in files)
        if read.bytes != wanted:
            raise ShortReadError(
                f"Spark's workers read {read.bytes:,} of {wanted:,} bytes of {len(files)} journal files, "
                f"{files[0].path} among them: nothing of them is taken; see that every worker has the same "
                "journal folders"
            )
        return read

    def _write_unseen(self, found: Contents, before: Manifest, place: Path) -> Contents:
        """Write the events that are not in the tables."""
        held = None
        if before.troubled:
            held = Existing(self._spark, self._lake.version).rows("events").where("seq is null")
        events = frame(self._spark, "events", [Path(path) for path in found.files])
        return write_events(unseen(events, before.seen, held), place)

    # -- the other tables ---------------------------------------------------------------------------------------------

    def _tables(
        self, events: Sequence[Path], place: Path, after: Manifest, found: Contents, existing: Existing
    ) -> dict[str, Files]:
        """Return the new files of all tables but the judged ones; `events` are the files of the batch's."""
        batch = after.batch + 1
        frame(self._spark, "events", events).createOrReplaceTempView("events")
        changed: dict[str, Files]
        work: Sequence[Callable[[], Any]] = (
            partial(self._engine_files, place, after, found, existing),
            partial(self._sums, place, existing, batch),
        )
        (told, changed, has_stories), summed = side_by_side(self._small, work)
        changed |= summed
        if has_stories:
            episodes = episode_rows(self._small, events, told, existing, changed)
            changed["episodes"] = write_rows(place, "episodes", episodes, batch)
        return changed

    def _engine_files(
        self, place: Path, after: Manifest, found: Contents, existing: Existing
    ) -> tuple[Any, dict[str, Files], bool]:
        """Return the batch's rows of `timeline`, the files of the engines' tables, and whether an episode changes."""
        spark, batch = self._small, after.batch + 1
        told = self._spark.sql(TIMELINE_OF_EVENTS).toArrow()
        spark.createDataFrame(told).createOrReplaceTempView("told")
        engines = self._engines(after, found, existing)
        changed: dict[str, Files] = {
            "engines": write_rows(place, "engines", engines, batch),
            "gaps": write_rows(place, "gaps", gaps_of(after), batch),
        }
        if told.num_rows:
            changed["timeline"] = (*existing.of("timeline"), *write_days(place, "timeline", told, batch))
        return told, changed, find_stories(spark, told, engines, existing, changed)

    def _sums(self, place: Path, existing: Existing, batch: int) -> dict[str, Files]:
        """Add the batch's sums to the rows of the days that it has records of."""
        days = self._sum_up()
        dates = {table: set().union(*(days.get(kind, set()) for kind in SUMMED[table].kinds)) for table in SUMMED}
        adding = [partial(self._added, table, some, place, existing, batch) for table, some in dates.items() if some]
        return dict(side_by_side(self._small, adding))

    def _added(self, table: str, dates: set[str], place: Path, existing: Existing, batch: int) -> tuple[str, Files]:
        """Return a table's files with the batch's sums added to the rows of those days."""
        touched = [file for file in existing.of(table) if file.date in dates]
        existing.rows(table, touched).createOrReplaceTempView(f"known_{table}")
        rows = self._small.sql(SUMMED[table].query(table)).toArrow()
        kept = [file for file in existing.of(table) if file.date not in dates]
        return table, (*kept, *write_days(place, table, rows, batch))

    def _rows_of(self, queries: Iterable[str]) -> list[Any]:
        """Return the rows of queries over the batch's events, as Arrow tables."""
        spark = self._spark
        return side_by_side(spark, [partial(lambda query: spark.sql(query).toArrow(), query) for query in queries])

    def _sum_up(self) -> dict[str, set[str]]:
        """Make the views of sums; return the days of each kind of event."""
        spark = self._small
        sums = self._spark.sql(summed_tables.SUMS).toArrow()
        spark.createDataFrame(sums).createOrReplaceTempView("sums")
        days: dict[str, set[str]] = {}
        for kind, day in zip(sums["kind"].to_pylist(), days_of(sums["minute"]), strict=True):
            days.setdefault(kind, set()).add(day)

        new = self._rows_of(query if kind in days else f"{query} having false" for _, query, kind in _RARE)
        for (name, _, _), rows in zip(_RARE, new, strict=True):
            spark.createDataFrame(rows).createOrReplaceTempView(name)
        return days

    def _engines(self, after: Manifest, found: Contents, existing: Existing) -> Any:
        spark = self._small
        spark.createDataFrame(spans_of(after)).createOrReplaceTempView("spans")
        spark.createDataFrame(receiving_of(found.receiving)).createOrReplaceTempView("receiving")
        existing.rows("engines").createOrReplaceTempView("known_engines")
        return spark.sql(ENGINES).toArrow()

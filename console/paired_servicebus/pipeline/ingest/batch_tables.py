"""One batch: from journal files to the next version of every table but the judged ones. Spark's SQL makes them all.

    files ──▶ events ──▶ sums, timeline ──▶ minutes, failures, backlog, syphon, dead_letters, cost
                    └──▶ spans ──▶ engines, gaps ──▶ episodes

Events are parsed and written once; every other query reads the written files. A table's rows of a batch are few, so
they come to this process, and are written as one file for each day. Nothing changes before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import PipelineError
from paired_servicebus.pipeline.ingest import summed_tables
from paired_servicebus.pipeline.ingest.engine_tables import ENGINES, gaps_of, receiving_of, spans_of
from paired_servicebus.pipeline.ingest.episode_tables import episode_rows
from paired_servicebus.pipeline.ingest.event_frames import dated, lines_of, typed, unseen
from paired_servicebus.pipeline.ingest.new_files import WholeFile
from paired_servicebus.pipeline.ingest.summed_tables import SUMMED
from paired_servicebus.pipeline.ingest.table_files import (
    Existing,
    days_of,
    frame,
    parts,
    staged_parts,
    write_dated,
    write_days,
    write_rows,
)
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, held, merged
from paired_servicebus.pipeline.table_store.schema import COUNTED_KINDS, RECEIPT_KINDS, TIMELINE

_LISTED: Final = ", ".join(f"'{kind}'" for kind in COUNTED_KINDS)
TIMELINE_OF_EVENTS: Final = f"""
select {", ".join(f"`{name}`" for name in TIMELINE)} from events
where trouble is null and kind not in ({_LISTED})
"""
_SPAN: Final = ("engine", "boot", "first", "last", "first_at", "last_at")
_RECEIPTS: Final = ", ".join(f"'{kind}'" for kind in RECEIPT_KINDS)
_SPANS: Final = f"""
select engine, boot, min(seq) as first, max(seq) as last, coalesce(unix_micros(min_by(at, seq)), 0) as first_at,
       coalesce(unix_micros(max_by(at, seq)), 0) as last_at, count(*) as records,
       max(int(kind = 'received')) as receiving, count_if(kind in ({_RECEIPTS})) as receipts, file
from (select engine, boot, seq, at, kind, case when seq is null then file end as file,
             seq - row_number() over (partition by engine, boot order by seq) as island
      from events)
group by engine, boot, file, island
"""
"""Numbers that follow each other are as far from their ranks. A number that is there twice makes spans that overlap.
Rows with a `file` are of lines without numbers."""
_RARE: Final = (
    ("pings", summed_tables.PINGS, "ping-accepted"), ("readings", summed_tables.READINGS, "queue-read"),
)  # fmt: skip


SMALL: Final = 8 * 1024 * 1024
"""Bytes of a batch's files up to which Spark spends more on compiling a query than on running it."""


class ShortReadError(PipelineError):
    """The executors read other bytes of the journal's files than are there."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What some events hold: their spans, boots with receivers' records, files of lines without a number, and rows."""

    spans: tuple[RecordSpan, ...]
    receiving: tuple[tuple[str, str], ...]
    troubled: tuple[str, ...]
    numbered: int
    receipts: int

    def repeats(self, manifest: Manifest) -> bool:
        """Whether a record is in it twice, or may be in the tables already."""
        once = held(self.spans) == self.numbered
        new = held(merged(manifest.seen + self.spans)) == held(manifest.seen) + held(self.spans)
        return not (once and new and set(self.troubled).isdisjoint(manifest.troubled))


class BatchTables:
    """Takes batches into the tables of a lake."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self._large = spark
        self._small = spark_session.for_small_work(spark)
        self._spark = self._small
        self._lake = lake

    def take(self, files: Sequence[WholeFile]) -> Manifest:
        """Add the records of some files. Raises ShortReadError, Spark's errors and OSError; nothing is half taken."""
        lake = self._lake
        self._spark = self._large if sum(one.file.size for one in files) > SMALL else self._small
        with lake.writing, lake.staged("batch") as place:
            self._read_files(files, place / "read")
            return self.add(place / "read", place)

    def add(self, events: Path, place: Path) -> Manifest:
        """Add the events in a folder to the tables; `place` is for new files. Raises as `take`."""
        version = self._lake.version
        before = version.manifest
        found = self._look_into(events)
        came = found.numbered
        if found.repeats(before):
            events = self._write_unseen(events, before, place / "unseen")
            found = self._look_into(events)
        fields: dict[str, Any] = {"repeated": before.repeated + came - found.numbered}
        files = staged_parts(events, "events", before.batch + 1)
        if not files:
            return self._lake.commit(lambda _: Change(fields=fields))
        seen = merged(before.seen + found.spans)
        after = msgspec.structs.replace(before, seen=seen)
        changed = self._tables(events, place, after, found, Existing(self._small, version))
        if found.receipts:
            fields |= {"receipts": before.receipts + found.receipts, "receipts_batch": before.batch + 1}
        fields |= {"seen": seen, "troubled": tuple(sorted({*before.troubled, *found.troubled}))}
        whole: dict[str, Files] = {"events": (*before.of("events"), *files), **changed}
        return self._lake.commit(lambda _: Change(files=whole, fields=fields))

    # -- events -------------------------------------------------------------------------------------------------------

    def _read_files(self, files: Sequence[WholeFile], place: Path) -> None:
        """Write the events of files. They count only if the executors read exactly what this process sees."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        read = Observation("read")
        lines = lines_of(self._spark, [one.file.path for one in files])
        lines = lines.observe(read, f.sum(f.octet_length("value") + 1).alias("bytes"))
        write_dated(typed(lines), place)
        wanted, found = sum(one.readable for one in files), read.get["bytes"] or 0
        if found != wanted:
            raise ShortReadError(
                f"Spark's workers read {found:,} of {wanted:,} bytes of {len(files)} journal files, "
                f"{files[0].file.path} among them: nothing of them is taken; see that every worker has the same "
                "journal folders"
            )

    def _look_into(self, events: Path) -> Contents:
        """Make the view `events` of a folder, and look into it."""
        spark = self._spark
        frame(spark, "events", [events] if parts(events) else []).createOrReplaceTempView("events")
        found = spark.sql(_SPANS).toArrow().to_pylist()
        numbered = [row for row in found if row["file"] is None]
        return Contents(
            spans=merged(tuple(RecordSpan(*(row[name] for name in _SPAN)) for row in numbered)),
            receiving=tuple(sorted({(row["engine"], row["boot"]) for row in numbered if row["receiving"]})),
            troubled=tuple(row["file"] for row in found if row["file"] is not None),
            numbered=sum(row["records"] for row in numbered),
            receipts=sum(row["receipts"] for row in numbered),
        )

    def _write_unseen(self, events: Path, before: Manifest, place: Path) -> Path:
        """Write the events that are not in the tables."""
        held = None
        if before.troubled:
            held = Existing(self._spark, self._lake.version).rows("events").where("seq is null")
        rows = unseen(frame(self._spark, "events", [events]), before.seen, held)
        write_dated(dated(rows), place)
        return place

    # -- the other tables ---------------------------------------------------------------------------------------------

    def _tables(
        self, events: Path, place: Path, after: Manifest, found: Contents, existing: Existing
    ) -> dict[str, Files]:
        """Return the new files of all tables but the judged ones; the view `events` has the batch."""
        spark, batch = self._small, after.batch + 1
        told = self._spark.sql(TIMELINE_OF_EVENTS).toArrow()
        spark.createDataFrame(told).createOrReplaceTempView("told")
        changed: dict[str, Files] = dict(self._sums(place, existing, batch))
        if told.num_rows:
            changed["timeline"] = (*existing.of("timeline"), *write_days(place, "timeline", told, batch))
        engines = self._engines(after, found, existing)
        changed["engines"] = write_rows(place, "engines", engines, batch)
        changed["gaps"] = write_rows(place, "gaps", gaps_of(after), batch)
        episodes = episode_rows(spark, events, told, engines, existing, changed)
        if episodes is not None:
            changed["episodes"] = write_rows(place, "episodes", episodes, batch)
        return changed

    def _sums(self, place: Path, existing: Existing, batch: int) -> dict[str, Files]:
        """Add the batch's sums to the rows of the days that it has records of."""
        spark = self._small
        days = self._sum_up()
        changed: dict[str, Files] = {}
        for table, rule in SUMMED.items():
            dates = set().union(*(days.get(kind, set()) for kind in rule.kinds))
            if not dates:
                continue
            touched = [file for file in existing.of(table) if file.date in dates]
            existing.rows(table, touched).createOrReplaceTempView("known")
            rows = spark.sql(rule.query(table)).toArrow()
            kept = [file for file in existing.of(table) if file.date not in dates]
            changed[table] = (*kept, *write_days(place, table, rows, batch))
        return changed

    def _sum_up(self) -> dict[str, set[str]]:
        """Make the views of sums; return the days of each kind of event."""
        spark = self._small
        sums = self._spark.sql(summed_tables.SUMS).toArrow()
        spark.createDataFrame(sums).createOrReplaceTempView("sums")
        days: dict[str, set[str]] = {}
        for kind, day in zip(sums["kind"].to_pylist(), days_of(sums["minute"]), strict=True):
            days.setdefault(kind, set()).add(day)
        for name, query, kind in _RARE:
            new = self._spark.sql(query if kind in days else f"{query} having false")
            spark.createDataFrame(new.toArrow()).createOrReplaceTempView(name)
        return days

    def _engines(self, after: Manifest, found: Contents, existing: Existing) -> Any:
        spark = self._small
        spark.createDataFrame(spans_of(after)).createOrReplaceTempView("spans")
        spark.createDataFrame(receiving_of(found.receiving)).createOrReplaceTempView("receiving")
        existing.rows("engines").createOrReplaceTempView("known")
        return spark.sql(ENGINES).toArrow()

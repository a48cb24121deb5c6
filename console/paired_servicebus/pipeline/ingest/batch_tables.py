"""One batch: from journal files to the next version of every table but the judged ones.

    files ──▶ events ──▶ sums ──▶ minutes, failures, backlog, syphon, dead_letters, cost ──┐
                    └──▶ timeline, spans ──▶ engines, gaps ──▶ stories ────────────────────┴──▶ episodes

Spark parses and writes the events once, and reads the written files for the sums and the timeline. These rows are few,
so they come to this process, where duckdb makes the other tables of them (judging.judge). A table's new rows are one
file for each day. Nothing changes before the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import asdict, replace

from paired_servicebus.pipeline.ingest import table_files
from paired_servicebus.pipeline.ingest.journal_lines import SPARK, events_sql
from paired_servicebus.pipeline.judging.derived_sql import BEFORE, FROM_EVENTS, ONCE, SUMMED
from paired_servicebus.pipeline.judging.judge import dates_of, derive_episodes, derive_sums
from paired_servicebus.pipeline.spark.spark_session import FEW_ROWS, session_for, side_by_side
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, Version, held, merged
from paired_servicebus.pipeline.table_store.schema import RECEIPT_KINDS, arrow_schema, date_sql
from paired_servicebus.pipeline.table_store.sql_engine import DuckdbEngine
from paired_servicebus.pipeline.table_store.store_path import Place
from paired_servicebus.pipeline.table_store.table_reader import opened_engine

# Events: those of journal files, written by Spark's tasks, and what they hold.


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What some written events hold.

    spans: of their numbers. receiving: boots with receivers' records. troubled: files of lines without a number.
    numbered, receipts: how many.
    """

    paths: tuple[Place, ...] = ()
    """The written files."""
    spans: tuple[RecordSpan, ...] = ()
    receiving: tuple[tuple[str, str], ...] = ()
    troubled: tuple[str, ...] = ()
    numbered: int = 0
    receipts: int = 0

    def repeats(self, manifest: Manifest) -> bool:
        """Whether a record is in it twice, or may be in the tables already."""
        once = held(self.spans) == self.numbered
        new = held(merged(manifest.seen + self.spans)) == held(manifest.seen) + held(self.spans)
        return not (once and new and set(self.troubled).isdisjoint(manifest.troubled))


_COUNTED_BY_NUMBER: Final = f"""
select engine, boot, bitmap_bucket_number(seq) as bucket, count(*) as n,
       bitmap_count(bitmap_construct_agg(bitmap_bit_position(seq))) as numbers, min(seq) as first, max(seq) as last,
       unix_micros(min_by(event_time, seq)) as first_at, unix_micros(max_by(event_time, seq)) as last_at,
       count_if(kind = 'received') as received,
       count_if(kind in ({", ".join(f"'{kind}'" for kind in RECEIPT_KINDS)})) as receipts
from events where seq is not null group by 1, 2, 3
"""
"""One row for some thousand numbers of a boot: `numbers` of them are there, `n` with those that are there again."""
_ISLANDS: Final = """
select engine, boot, min(seq) as first, max(seq) as last, unix_micros(min_by(event_time, seq)) as first_at,
       unix_micros(max_by(event_time, seq)) as last_at
from (select *, seq - row_number() over (partition by engine, boot, bucket order by seq) as island
      from (select engine, boot, seq, max(event_time) as event_time, bitmap_bucket_number(seq) as bucket from events
            where seq is not null group by engine, boot, seq) left semi join gapped using (engine, boot, bucket))
group by engine, boot, bucket, island
"""
"""The spans of numbers that follow each other, where some are missing between them."""


def contents_of(spark: Any, paths: Sequence[Place]) -> Contents:
    """Return what written events hold; they are the view `events` from now on."""
    table_files.frame(spark, "events", paths).createOrReplaceTempView("events")
    rows = spark.sql(_COUNTED_BY_NUMBER).toArrow().to_pylist()
    gapped = [row for row in rows if row["numbers"] <= row["last"] - row["first"]]
    whole = [row for row in rows if row["numbers"] > row["last"] - row["first"]]
    if gapped:
        keys = [{name: row[name] for name in ("engine", "boot", "bucket")} for row in gapped]
        table_files.as_frame(spark, pa.Table.from_pylist(keys)).createOrReplaceTempView("gapped")
        whole += spark.sql(_ISLANDS).toArrow().to_pylist()
    troubled = spark.sql("select distinct file from events where seq is null").toArrow()
    return Contents(
        paths=tuple(paths),
        spans=merged(tuple(_span(row) for row in whole)),
        receiving=tuple(sorted({(row["engine"], row["boot"]) for row in rows if row["received"]})),
        troubled=tuple(sorted(troubled["file"].to_pylist())),
        numbered=sum(row["n"] for row in rows),
        receipts=sum(row["receipts"] for row in rows),
    )


def _span(row: Mapping[str, Any]) -> RecordSpan:
    times = (row["first_at"] or 0, row["last_at"] or 0)
    return RecordSpan(row["engine"], row["boot"], row["first"], row["last"], *times)


def _is_late(new: Iterable[RecordSpan], seen: Iterable[RecordSpan]) -> bool:
    """Return whether records came after later ones of the same boot."""
    last = {(span.engine, span.boot): span.last for span in sorted(seen)}
    return any(span.first < last.get((span.engine, span.boot), 0) for span in new)


def journal_events(lines: Any) -> Any:
    """Return the events of journal lines, a DataFrame of `value` and `file_name`, with their `date`."""
    text = "case when is_valid_utf8(value) then value else make_valid_utf8(value) end as line"
    texts = lines.selectExpr(text, "is_valid_utf8(value) as is_text", "file_name as file")
    texts.createOrReplaceTempView("lines")
    return lines.sparkSession.sql(events_sql(SPARK)).selectExpr("*", date_sql("events"))


_UNSEEN: Final = ONCE.format(
    events="""(
        select /*+ broadcast(seen, held) */ events.* from events
        left anti join seen on events.engine = seen.engine and events.boot = seen.boot
                           and events.seq between seen.first and seen.last
        left anti join held on events.seq is null and events.file = held.file and events.line = held.line) as unseen"""
)
"""The batch's events that the tables do not hold yet, each once. A record is known by its number, and a line without
one by its file's name and its text."""


def spans_of(spans: Iterable[RecordSpan]) -> Any:
    """Return spans of records as an Arrow table."""
    rows = [{**asdict(one), "first_at": one.first_at or None, "last_at": one.last_at or None} for one in spans]
    return pa.Table.from_pylist(rows, schema=arrow_schema(_SPAN))


_BOOT: Final = {"engine": "VARCHAR", "boot": "VARCHAR"}
_SPAN: Final = {**_BOOT, "first": "BIGINT", "last": "BIGINT", "first_at": "TIMESTAMP", "last_at": "TIMESTAMP"}
_RARE: Final = {"pings": "ping-accepted", "readings": "queue-read"}
"""Statements that read one kind of event, which few batches have."""


class BatchTables:
    """Adds batches of events to the tables of a lake."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self._large = spark
        self._small = session_for(spark, 0)
        self._spark = self._small
        self._lake = lake

    def add(self, lines: Any, fields: Mapping[str, Any]) -> Manifest:
        """Add the records of journal lines, a DataFrame of Spark's text source, and fields of the manifest.

        Raises Spark's errors and OSError; nothing is half taken.
        """
        lake = self._lake
        with lake.writing, lake.staged("batch") as place:
            table_files.write_dated(journal_events(lines), place / "read")
            found = contents_of(self._small, table_files.parts(place / "read"))
            self._spark = self._large if found.numbered > FEW_ROWS else self._small
            return self._add(found, place, dict(fields))

    def _add(self, found: Contents, place: Place, fields: dict[str, Any]) -> Manifest:
        """Add written events to the tables; `place` is for new files."""
        version = self._lake.version
        before = version.manifest
        came = found.numbered
        if found.repeats(before):
            found = self._write_unseen(found, before, place / "unseen")
        fields["repeated"] = before.repeated + came - found.numbered
        files = table_files.staged_parts(found.paths, "events", before.batch + 1)
        if not files:
            return self._lake.commit(lambda _: Change(fields=fields))
        seen = merged(before.seen + found.spans)
        after = replace(before, seen=seen)
        table_files.frame(self._spark, "events", found.paths).createOrReplaceTempView("events")
        changed = self._tables(place, after, found, version)
        if found.receipts:
            fields |= {"receipts": before.receipts + found.receipts, "receipts_batch": before.batch + 1}
        if _is_late(found.spans, before.seen):
            fields["late_batch"] = before.batch + 1
        fields |= {"seen": seen, "troubled": tuple(sorted({*before.troubled, *found.troubled}))}
        whole: dict[str, Files] = {"events": (*before.of("events"), *files), **changed}
        return self._lake.commit(lambda _: Change(files=whole, fields=fields))

    def _write_unseen(self, found: Contents, before: Manifest, place: Place) -> Contents:
        """Write the events that are not in the tables."""
        spark = self._spark
        existing = table_files.Existing(spark, self._lake.version)
        lines = existing.rows("events", existing.of("events") if before.troubled else ()).where("seq is null")
        lines.select("file", "line").distinct().createOrReplaceTempView("held")
        table_files.as_frame(spark, spans_of(before.seen)).createOrReplaceTempView("seen")
        table_files.frame(spark, "events", found.paths).createOrReplaceTempView("events")
        table_files.write_dated(spark.sql(_UNSEEN).selectExpr("*", date_sql("events")), place)
        return contents_of(spark, table_files.parts(place))

    # -- the other tables ---------------------------------------------------------------------------------------------

    def _tables(self, place: Place, after: Manifest, found: Contents, version: Version) -> dict[str, Files]:
        """Return the new files of all tables but the judged ones."""
        batch = after.batch + 1
        with opened_engine(version) as engine:
            self._put(engine, after, found)
            derive_sums(engine)
            changed: dict[str, Files] = {
                table: table_files.write_rows(place, table, engine.arrow(table), batch) for table in ("engines", "gaps")
            }
            for table in ("timeline", *SUMMED):
                dates = dates_of(engine, table) if table in SUMMED else set()
                kept = [file for file in version.manifest.of(table) if file.date not in dates]
                changed[table] = [*kept, *table_files.write_days(place, table, engine.arrow(table), batch)]
            if engine.rows("touched"):
                events = _around_begins(engine, found.paths, table_files.Existing(self._small, version))
                table_files.frame(self._small, "events", events).createOrReplaceTempView("events")
                engine.put("sends", self._small.sql(FROM_EVENTS["sends"]).toArrow())
                derive_episodes(engine)
                changed["episodes"] = table_files.write_rows(place, "episodes", engine.arrow("episodes"), batch)
        return changed

    def _put(self, engine: DuckdbEngine, after: Manifest, found: Contents) -> None:
        """Put the batch's rows that the tables are made of into the engine."""
        engine.put("spans", spans_of(after.seen))
        boots = [{"engine": name, "boot": boot} for name, boot in found.receiving]
        engine.put("receiving", pa.Table.from_pylist(boots, schema=arrow_schema(_BOOT)))
        timeline, sums = self._rows_of(FROM_EVENTS["timeline"], FROM_EVENTS["sums"])
        kinds = set(sums["kind"].to_pylist())
        rare = (FROM_EVENTS[name] + ("" if kind in kinds else " having false") for name, kind in _RARE.items())
        for name, rows in zip(("timeline", "sums", *_RARE), (timeline, sums, *self._rows_of(*rare)), strict=True):
            engine.put(name, rows)

    def _rows_of(self, *queries: str) -> list[Any]:
        """Return the rows of queries over the batch's events, as Arrow tables."""
        spark = self._spark
        return side_by_side(spark, [partial(lambda query: spark.sql(query).toArrow(), query) for query in queries])


def _around_begins(engine: DuckdbEngine, events: Sequence[Place], existing: table_files.Existing) -> list[Place]:
    """Return the files with sends around the batch's changes of state: the batch's, and older ones."""
    engine.make("begins", _BEGINS)
    (times,) = engine.rows("begins")
    if times["first"] is None:
        return []
    older = [
        file for file in existing.of("events") if file.last_at >= times["first"] and file.first_at <= times["last"]
    ]
    return [*events, *existing.paths("events", older)]


_BEGINS: Final = f"""
select epoch_us(min(event_time)) - {BEFORE * 1_000_000} as first, epoch_us(max(event_time)) as last
from timeline where kind = 'state-changed'
"""

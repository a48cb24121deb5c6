"""One batch: from journal files to the next version of every table but the judged ones. Spark's SQL makes them all.

    files ──▶ events ──▶ sums ──▶ minutes, failures, backlog, syphon, dead_letters, cost ──┐
                    └──▶ timeline, spans ──▶ engines, gaps ──▶ stories ────────────────────┴──▶ episodes

Events are parsed and written once; every other query reads the written files. The two lines run beside each other. A
table's rows of a batch are few, so they come to this process, and are written as one file for each day. Nothing changes
before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict, replace

from paired_servicebus.pipeline.ingest.journal_lines import SPARK, events_sql
from paired_servicebus.pipeline.ingest.table_files import (
    Existing,
    as_frame,
    days_of,
    frame,
    parts,
    staged_parts,
    write_dated,
    write_days,
    write_rows,
)
from paired_servicebus.pipeline.judging.derived_sql import (
    BEFORE,
    ENGINES,
    EPISODES,
    GAPS,
    ONCE,
    PINGS,
    READINGS,
    SENDS,
    STORIES,
    STORY,
    STORY_KINDS,
    SUMMED,
    SUMS,
    TIMELINE_OF_EVENTS,
    words,
)
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import side_by_side
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, held, merged
from paired_servicebus.pipeline.table_store.schema import RECEIPT_KINDS, arrow_schema, date_sql
from paired_servicebus.pipeline.table_store.store_path import Place

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
    frame(spark, "events", paths).createOrReplaceTempView("events")
    rows = spark.sql(_COUNTED_BY_NUMBER).toArrow().to_pylist()
    gapped = [row for row in rows if row["numbers"] <= row["last"] - row["first"]]
    whole = [row for row in rows if row["numbers"] > row["last"] - row["first"]]
    if gapped:
        keys = [{name: row[name] for name in ("engine", "boot", "bucket")} for row in gapped]
        as_frame(spark, pa.Table.from_pylist(keys)).createOrReplaceTempView("gapped")
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
_RARE: Final = (
    ("pings", PINGS, "ping-accepted"), ("readings", READINGS, "queue-read"),
)  # fmt: skip


SMALL: Final = 50_000
"""Events of a batch up to which Spark spends more on compiling a query than on running it."""


class BatchTables:
    """Adds batches of events to the tables of a lake."""

    def __init__(self, spark: Any, lake: Lake) -> None:
        self._large = spark
        self._small = spark_session.for_small_work(spark)
        self._spark = self._small
        self._lake = lake

    def add(self, lines: Any, fields: Mapping[str, Any]) -> Manifest:
        """Add the records of journal lines, a DataFrame of Spark's text source, and fields of the manifest.

        Raises Spark's errors and OSError; nothing is half taken.
        """
        lake = self._lake
        with lake.writing, lake.staged("batch") as place:
            write_dated(journal_events(lines), place / "read")
            found = contents_of(self._small, parts(place / "read"))
            self._spark = self._large if found.numbered > SMALL else self._small
            return self._add(found, place, dict(fields))

    def _add(self, found: Contents, place: Place, fields: dict[str, Any]) -> Manifest:
        """Add written events to the tables; `place` is for new files."""
        version = self._lake.version
        before = version.manifest
        came = found.numbered
        if found.repeats(before):
            found = self._write_unseen(found, before, place / "unseen")
        fields["repeated"] = before.repeated + came - found.numbered
        files = staged_parts(found.paths, "events", before.batch + 1)
        if not files:
            return self._lake.commit(lambda _: Change(fields=fields))
        seen = merged(before.seen + found.spans)
        after = replace(before, seen=seen)
        frame(self._spark, "events", found.paths).createOrReplaceTempView("events")
        changed = self._tables(found.paths, place, after, found, Existing(self._small, version))
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
        existing = Existing(spark, self._lake.version)
        lines = existing.rows("events", existing.of("events") if before.troubled else ()).where("seq is null")
        lines.select("file", "line").distinct().createOrReplaceTempView("held")
        as_frame(spark, spans_of(before.seen)).createOrReplaceTempView("seen")
        frame(spark, "events", found.paths).createOrReplaceTempView("events")
        write_dated(spark.sql(_UNSEEN).selectExpr("*", date_sql("events")), place)
        return contents_of(spark, parts(place))

    # -- the other tables ---------------------------------------------------------------------------------------------

    def _tables(
        self, events: Sequence[Place], place: Place, after: Manifest, found: Contents, existing: Existing
    ) -> dict[str, Files]:
        """Return the new files of all tables but the judged ones; `events` are the files of the batch's."""
        batch = after.batch + 1
        changed: dict[str, Files]
        work: Sequence[Callable[[], Any]] = (
            partial(self._engine_files, place, after, found, existing),
            partial(self._sums, place, existing, batch),
        )
        (told, changed, has_stories), summed = side_by_side(self._small, work)
        changed |= summed
        if has_stories:
            episodes = self._episodes(events, told, existing, changed)
            changed["episodes"] = write_rows(place, "episodes", episodes, batch)
        return changed

    def _engine_files(
        self, place: Place, after: Manifest, found: Contents, existing: Existing
    ) -> tuple[Any, dict[str, Files], bool]:
        """Return the batch's rows of `timeline`, the files of the engines' tables, and whether an episode changes."""
        spark, batch = self._small, after.batch + 1
        told = self._spark.sql(TIMELINE_OF_EVENTS).toArrow()
        as_frame(spark, told).createOrReplaceTempView("timeline")
        engines = self._engines(after, found, existing)
        changed: dict[str, Files] = {
            "engines": write_rows(place, "engines", engines, batch),
            "gaps": write_rows(place, "gaps", spark.sql(GAPS).toArrow(), batch),
        }
        if told.num_rows:
            changed["timeline"] = (*existing.of("timeline"), *write_days(place, "timeline", told, batch))
        return told, changed, self._find_stories(engines, existing, changed)

    def _sums(self, place: Place, existing: Existing, batch: int) -> dict[str, Files]:
        """Add the batch's sums to the rows of the days that it has records of."""
        days = self._sum_up()
        dates = {table: set().union(*(days.get(kind, set()) for kind in SUMMED[table].kinds)) for table in SUMMED}
        adding = [partial(self._added, table, some, place, existing, batch) for table, some in dates.items() if some]
        return dict(side_by_side(self._small, adding))

    def _added(self, table: str, dates: set[str], place: Place, existing: Existing, batch: int) -> tuple[str, Files]:
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
        sums = self._spark.sql(SUMS).toArrow()
        as_frame(spark, sums).createOrReplaceTempView("sums")
        days: dict[str, set[str]] = {}
        for kind, day in zip(sums["kind"].to_pylist(), days_of(sums["minute"]), strict=True):
            days.setdefault(kind, set()).add(day)

        new = self._rows_of(query if kind in days else f"{query} having false" for _, query, kind in _RARE)
        for (name, _, _), rows in zip(_RARE, new, strict=True):
            as_frame(spark, rows).createOrReplaceTempView(name)
        return days

    def _engines(self, after: Manifest, found: Contents, existing: Existing) -> Any:
        spark = self._small
        as_frame(spark, spans_of(after.seen)).createOrReplaceTempView("spans")
        boots = [{"engine": engine, "boot": boot} for engine, boot in found.receiving]
        receiving = pa.Table.from_pylist(boots, schema=arrow_schema(_BOOT))
        as_frame(spark, receiving).createOrReplaceTempView("receiving")
        existing.rows("engines").createOrReplaceTempView("known_engines")
        return spark.sql(ENGINES).toArrow()

    # -- episodes: the boots whose stories a batch goes on with are told again ---------------------------------------

    def _find_stories(self, engines: Any, existing: Existing, changed: Mapping[str, Files]) -> bool:
        """Make the views of the stories that a batch goes on with, and return whether there are any."""
        spark = self._small
        as_frame(spark, engines).createOrReplaceTempView("engines")
        touched = spark.sql(_TOUCHED).toArrow()
        if not touched.num_rows:
            return False
        as_frame(spark, touched).createOrReplaceTempView("touched")
        self._whole("timeline", existing, changed).createOrReplaceTempView("timeline")
        story = f"select * from ({STORY}) left semi join touched using (engine, boot)"
        spark.sql(story).createOrReplaceTempView("story")
        as_frame(spark, spark.sql(STORIES).toArrow()).createOrReplaceTempView("ended")
        return True

    def _episodes(self, events: Sequence[Place], told: Any, existing: Existing, changed: Mapping[str, Files]) -> Any:
        """Return all rows of `episodes` as an Arrow table; `told` are the batch's rows of `timeline`."""
        spark = self._small
        self._whole("minutes", existing, changed).createOrReplaceTempView("minutes")
        existing.rows("episodes").createOrReplaceTempView("episodes")
        for name, how in (("known", "semi"), ("others", "anti")):
            query = f"select * from episodes left {how} join touched using (engine, boot)"
            spark.sql(query).createOrReplaceTempView(name)
        begins = told.filter(pc.equal(told["kind"], "state-changed"))
        frame(spark, "events", _around(events, begins, existing)).createOrReplaceTempView("events")
        spark.sql(SENDS).createOrReplaceTempView("sends")
        return spark.sql(EPISODES).toArrow()

    def _whole(self, table: str, existing: Existing, changed: Mapping[str, Files]) -> Any:
        """Return a table as the batch leaves it."""
        files = changed.get(table, existing.of(table))
        old = existing.paths(table, [one for one in files if not isinstance(one, Staged)])
        return frame(self._small, table, [*old, *(one.path for one in files if isinstance(one, Staged))])


def _around(events: Sequence[Place], begins: Any, existing: Existing) -> list[Place]:
    """Return the files with sends around some changes of state: the batch's, and older ones."""
    if not begins.num_rows:
        return []
    times = pc.min_max(begins["event_time"].cast(pa.int64())).as_py()
    first, last = times["min"] - BEFORE * 1_000_000, times["max"]
    older = [file for file in existing.of("events") if file.last_at >= first and file.first_at <= last]
    return [*events, *existing.paths("events", older)]


_ENDS: Final = "select engine, boot, ended from"
_TOUCHED: Final = f"""
select engine, boot from timeline where kind in ({words(STORY_KINDS)})
union select engine, boot from ({_ENDS} engines except {_ENDS} known_engines) where ended <> 'running'
union select engine, boot from ({_ENDS} known_engines except {_ENDS} engines) where ended <> 'running'
"""
"""The boots with new events of a story, and those that ended since or turned out to go on."""

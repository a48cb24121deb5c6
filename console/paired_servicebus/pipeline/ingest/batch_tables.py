"""One batch: from journal files to the next version of every table but the judged ones. Spark's SQL makes them all.

    files ──▶ events ──▶ sums ──▶ minutes, failures, backlog, syphon, dead_letters, cost ──┐
                    └──▶ timeline, spans ──▶ engines, gaps ──▶ stories ────────────────────┴──▶ episodes

Events are parsed and written once; every other query reads the written files. The two lines run beside each other. A
table's rows of a batch are few, so they come to this process, and are written as one file for each day. Nothing changes
before the commit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from paired_servicebus.core.errors import PipelineError, SparkFailedError
from paired_servicebus.pipeline.ingest.episode_tables import episode_rows, find_stories
from paired_servicebus.pipeline.ingest.event_writer import TYPES, Contents, arrow_schema, write_batches, write_files
from paired_servicebus.pipeline.ingest.journal_files import JournalFile
from paired_servicebus.pipeline.ingest.table_files import (
    Existing,
    days_of,
    frame,
    rows_in,
    staged_parts,
    write_days,
    write_rows,
)
from paired_servicebus.pipeline.judging.audit_sql import PAIRING_BY_NAME
from paired_servicebus.pipeline.spark import spark_session
from paired_servicebus.pipeline.spark.spark_session import side_by_side
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, merged
from paired_servicebus.pipeline.table_store.schema import COUNTED_KINDS, GAPS, TABLES, TIMELINE

# The tables whose rows are sums by minute: their keys, their measures, and the SQL that makes them. All of Spark's.
#
# A batch's events are first summed up in one pass (SUMS, PINGS, READINGS): a row for each minute, kind and key. Each
# table's rows of the batch are then added to its rows of the same minutes, so that a key has one row. Nothing depends
# on how events were cut into batches.

MEASURES: Final = (
    "accepted", "failed", "count", "sends", "parked", "pings", "receives", "moves", "settlements",
    "sent_bytes", "parked_bytes", "moved_bytes",
)  # fmt: skip
"""Fields of counted kinds that are summed."""
_COUNTED: Final = (
    "sends", "failures", "operations", "diverted", "moved", "dead-lettered", "destination-failed", "pump-stopped",
    "ping-sent", "ping-failed", "ping-accepted", "queue-read",
)  # fmt: skip

_MINUTE: Final = "date_trunc('minute', event_time)"
_WITHIN: Final = "(unix_micros(event_time) % 60000000) / 1e6D"

SUMS: Final = f"""
select engine, {_MINUTE} as minute, kind, entity, queue, route, failure,
       case when kind = 'dead-lettered' then reason end as reason, count(*) as n,
       {", ".join(f"try_sum(`{name}`) as `{name}`" for name in MEASURES)},
       max(case when kind = 'sends' and route = 'primary' and accepted > 0
                then timestamp_micros(unix_micros(event_time) - bigint(seconds * 1e6D)) end) as last_good_at
from events
where trouble is null and event_time is not null and kind in ({", ".join(f"'{kind}'" for kind in _COUNTED)})
group by 1, 2, 3, 4, 5, 6, 7, 8
"""
PINGS: Final = f"""
select engine, {_MINUTE} as minute, entity,
       collect_list(took) as ping_seconds
from events where trouble is null and event_time is not null and kind = 'ping-accepted' group by 1, 2, 3
"""
READINGS: Final = f"""
select engine, {_MINUTE} as minute, queue, max(event_time) as read_at,
       max_by(depth, event_time) as depth, max(depth) as depth_max,
       max_by(size_bytes, event_time) as bytes, max_by(dead_lettered, event_time) as dead_lettered,
       max_by(scheduled, event_time) as scheduled, count(*) as n, sum({_WITHIN}) as sum_t, sum(double(depth)) as sum_d,
       sum({_WITHIN} * {_WITHIN}) as sum_tt, sum({_WITHIN} * depth) as sum_td
from events where trouble is null and event_time is not null and kind = 'queue-read' group by 1, 2, 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedTable:
    """One of them.

    Args:
        keys: the columns that a row is known by.
        measures: the other columns that add up, each with its aggregate; `{0}` is the column.
        kinds: of the events that it is made of.
        source: the batch's rows, from `sums`, `pings` and `readings`; any number for a key.
        derived: columns that follow from the others, each with its expression.
    """

    keys: tuple[str, ...]
    measures: Mapping[str, str]
    kinds: tuple[str, ...]
    source: str
    derived: Mapping[str, str] = field(default_factory=dict)

    def query(self, table: str) -> str:
        """Return the query of the table's new rows, from the batch and the view `known_TABLE` of its present rows."""
        names = (*self.keys, *self.measures)
        rows = f"select {_listed(names)} from ({self.source}) union all select {_listed(names)} from known_{table}"
        sums = ", ".join(f"{how.format(f'`{name}`')} as `{name}`" for name, how in self.measures.items())
        whole = f"select {_listed(self.keys)}, {sums} from ({rows}) group by {_listed(self.keys)}"
        columns = ", ".join(
            f"cast({self.derived.get(name, f'`{name}`')} as {_spark(kind)}) as `{name}`"
            for name, kind in TABLES[table].items()
        )
        return f"select {columns} from ({whole})"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _spark(kind: str) -> str:
    return {"VARCHAR": "string", "DOUBLE[]": "array<double>"}.get(kind, kind)


def _nothing(*names: str) -> str:
    return ", ".join(f"null as `{name}`" for name in names)


def _quantile(share: float) -> str:
    """Return the SQL of a quantile of `ping_seconds`, which are sorted: between two values by their distance."""
    place = f"(size(ping_seconds) - 1) * {share}D"
    low, high = f"ping_seconds[int(floor({place}))]", f"ping_seconds[int(ceil({place}))]"
    return f"case when size(ping_seconds) > 0 then {low} + ({high} - {low}) * ({place} - floor({place})) end"


SUM: Final = "coalesce(try_sum({0}), 0)"
LATEST: Final = "max_by({0}, read_at)"
_SENT: Final = (
    "primary_accepted", "primary_failed", "backlog_accepted", "backlog_failed", "pings_sent", "pings_accepted",
    "pings_failed",
)  # fmt: skip
_FIGURES: Final = ("read_at", "depth", "depth_max", "bytes", "dead_lettered", "scheduled")
_FIT: Final = ("n", "sum_t", "sum_d", "sum_tt", "sum_td")
_COSTS: Final = {
    "sends": "sent_bytes", "parked": "parked_bytes", "pings": "0", "receives": "0", "moves": "moved_bytes",
    "settlements": "0",
}  # fmt: skip

SUMMED: Final = {
    "minutes": SummedTable(
        keys=("engine", "entity", "minute"),
        measures={
            **dict.fromkeys(_SENT, SUM),
            "ping_seconds": "array_sort(flatten(collect_list({0})))",
            "last_good_at": "max({0})",
        },
        kinds=("sends", "ping-sent", "ping-accepted", "ping-failed"),
        source=f"""
            select engine, entity, minute,
                   case when kind = 'sends' and route = 'primary' then accepted end as primary_accepted,
                   case when kind = 'sends' and route = 'primary' then failed end as primary_failed,
                   case when kind = 'sends' and route <> 'primary' then accepted end as backlog_accepted,
                   case when kind = 'sends' and route <> 'primary' then failed end as backlog_failed,
                   case when kind = 'ping-sent' then n end as pings_sent,
                   case when kind = 'ping-accepted' then n end as pings_accepted,
                   case when kind = 'ping-failed' then n end as pings_failed,
                   null as ping_seconds, last_good_at
            from sums where kind in ('sends', 'ping-sent', 'ping-accepted', 'ping-failed')
            union all select engine, entity, minute, {_nothing(*_SENT)}, ping_seconds, null from pings""",
        derived={
            "availability": "primary_accepted / nullif(primary_accepted + primary_failed, 0)",
            "accepted_share": "(primary_accepted + backlog_accepted) / "
            "nullif(primary_accepted + primary_failed + backlog_accepted + backlog_failed, 0)",
            "ping_p50": _quantile(0.5),
            "ping_p95": _quantile(0.95),
            "ping_p99": _quantile(0.99),
        },
    ),
    "failures": SummedTable(
        keys=("engine", "entity", "minute", "route", "failure"),
        measures={"count": SUM},
        kinds=("failures",),
        source="select engine, entity, minute, route, failure, `count` from sums where kind = 'failures'",
    ),
    "backlog": SummedTable(
        keys=("engine", "queue", "minute"),
        measures={
            "parked": SUM,
            "read_at": "max({0})",
            "depth": LATEST,
            "depth_max": "max({0})",
            "bytes": LATEST,
            "dead_lettered": LATEST,
            "scheduled": LATEST,
            **dict.fromkeys(_FIT, "sum({0})"),
        },
        kinds=("diverted", "queue-read"),
        source=f"""
            select engine, queue, minute, n as parked, {_nothing(*_FIGURES, *_FIT)} from sums where kind = 'diverted'
            union all select engine, queue, minute, null, {_listed((*_FIGURES, *_FIT))} from readings""",
        derived={
            # of one reading the spread is 0 but for rounding
            "slope": "(n * sum_td - sum_t * sum_d) / nullif(round(n * sum_tt - sum_t * sum_t, 6), 0D)"
        },
    ),
    "syphon": SummedTable(
        keys=("engine", "queue", "entity", "minute"),
        measures=dict.fromkeys(("moved", "retries", "dead_lettered"), SUM),
        kinds=("moved", "dead-lettered", "destination-failed", "pump-stopped"),
        source="""
            select engine, queue, entity, minute, case when kind = 'moved' then n end as moved,
                   case when kind in ('destination-failed', 'pump-stopped') then n end as retries,
                   case when kind = 'dead-lettered' then n end as dead_lettered
            from sums where kind in ('moved', 'dead-lettered', 'destination-failed', 'pump-stopped')""",
    ),
    "dead_letters": SummedTable(
        keys=("engine", "queue", "entity", "minute", "reason"),
        measures={"count": SUM},
        kinds=("dead-lettered",),
        source="select engine, queue, entity, minute, reason, n as `count` from sums where kind = 'dead-lettered'",
    ),
    "cost": SummedTable(
        keys=("engine", "minute", "cause"),
        measures={"operations": SUM, "bytes": SUM},
        kinds=("operations",),
        source=" union all ".join(
            f"select engine, minute, '{cause}' as cause, `{cause}` as operations, {size} as bytes from sums "
            f"where kind = 'operations' and `{cause}` > 0"
            for cause, size in _COSTS.items()
        ),
    ),
}
"""By table."""


# Events, written by Spark's tasks: those of journal files, and those of a query that are new to the tables.


def write_journal(spark: Any, files: Sequence[JournalFile], folder: Path) -> Contents:
    """Write the events of journal files below a folder, in as many tasks as there are processors.

    Raises Spark's errors, and SparkFailedError: this process does not find all that the tasks wrote.
    """
    context = spark.sparkContext
    shares = _shares(files, context.defaultParallelism)
    written = context.parallelize(shares, len(shares)).map(partial(write_files, folder=str(folder))).collect()
    return _found(written, folder)


def write_events(events: Any, folder: Path) -> Contents:
    """Write the events of a query below a folder. Raises as `write_journal`."""
    rows = events.mapInArrow(partial(_written, folder=str(folder)), "contents binary").collect()
    return _found([_CONTENTS.decode(row["contents"]) for row in rows], folder)


def _written(batches: Iterator[Any], folder: str) -> Iterator[Any]:
    """In a Python worker of Spark's: Arrow batches of events in, what they hold out."""
    found = msgspec.json.encode(write_batches(batches, folder))
    yield pa.RecordBatch.from_pydict({"contents": pa.array([found], pa.binary())})


_CONTENTS = msgspec.json.Decoder(Contents)


def _shares(files: Sequence[JournalFile], most: int) -> list[list[tuple[str, int]]]:
    """Return the files in shares of as many bytes."""
    shares: list[tuple[int, int, list[tuple[str, int]]]] = [(0, number, []) for number in range(min(most, len(files)))]
    for one in sorted(files, key=lambda one: one.size, reverse=True):
        size, number, share = heapq.heappop(shares)
        share.append((str(one.path), one.size))
        heapq.heappush(shares, (size + one.size, number, share))
    return [share for _, _, share in shares]


def _found(written: Iterable[Contents], folder: Path) -> Contents:
    """Return what the tasks wrote; it has to be there. A worker may have written into a folder of its own."""
    whole = reduce(add, written, Contents())
    wanted, found = sum(whole.files.values()), rows_in(map(Path, whole.files))
    if found != wanted:
        raise SparkFailedError(
            f"of {wanted:,} rows that Spark's workers wrote into {folder}, {found:,} are there: nothing is taken; see "
            "that every worker has the same table folder"
        )
    return whole


def unseen(events: Any, seen: Iterable[RecordSpan], held: Any) -> Any:
    """Return the events that the tables do not hold yet, each once.

    A record is known by its number; of two with one number the readable one counts. A line without one is known by its
    file's name and its text: `held` are the tables' lines of that kind, None without any.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark = events.sparkSession
    spans = [(span.engine, span.boot, span.first, span.last) for span in seen]
    if spans:
        known = f.broadcast(spark.createDataFrame(spans, "s_engine string, s_boot string, first bigint, last bigint"))
        same = (f.col("engine") == f.col("s_engine")) & (f.col("boot") == f.col("s_boot"))
        events = events.join(known, same & f.col("seq").between(f.col("first"), f.col("last")), "left_anti")
    best = Window.partitionBy("engine", "boot", "seq").orderBy(f.col("trouble").isNotNull(), "trouble", "line")
    numbered = events.where("seq is not null").withColumn("rank", f.row_number().over(best)).where("rank = 1")
    numbered = numbered.drop("rank")
    others = events.where("seq is null")
    if held is not None:
        lines = f.broadcast(held.select(f.col("file").alias("h_file"), f.col("line").alias("h_line")).distinct())
        others = others.join(
            lines, (f.col("file") == f.col("h_file")) & (f.col("line") == f.col("h_line")), "left_anti"
        )
    return numbered.unionByName(others)


# The tables `engines` and `gaps`: each boot's records by their numbers, and how it ended. SQL of Spark's.
#
# ENGINES reads the views `spans` (of all records in the tables), `told` (the batch's rows of `timeline`), `receiving`
# (boots with a `received` record in the batch) and `known_engines` (the table before).

SILENT: Final = 15
"""Minutes without a record, before the newest one of its pairing's engines, after which an engine counts as gone."""
_TOLD: Final = ("primary", "secondary", "syphon", "backlog_queues", "version")

_NUMBERS: Final = """
    select engine, boot, min_by(first_at, first) as first_at, max_by(last_at, last) as last_at,
           min(first) as first_seq, max(last) as last_seq, sum(last - first + 1) as records,
           max(case when first = 1 then last_at end) as complete_to,
           case when count(*) > 1 or min(first) > 1 then max_by(first_at, first) end as complete_from
    from spans group by engine, boot
"""
_LAST: Final = """
    select * from (select *, row_number() over (partition by engine, boot order by seq desc) as place from told
                   where kind = '{0}') where place = 1
"""
_BOOTS: Final = f"""
    select numbers.*,
           coalesce(started.pairing, known.pairing_name, {PAIRING_BY_NAME.format(engine="numbers.engine")})
               as pairing_name,
           coalesce(started.event_time, known.started_at) as started_at,
           {", ".join(f"coalesce(started.{name}, known.{name}) as {name}" for name in _TOLD)},
           coalesce(stopped.event_time, case when known.ended = 'stopped' then known.ended_at end) as stopped_at,
           coalesce(stopped.reason, case when known.ended = 'stopped' then known.end_reason end) as stop_reason,
           coalesce(known.receives, false) or receiving.boot is not null as receives
    from numbers left join known_engines as known using (engine, boot) left join started using (engine, boot)
         left join stopped using (engine, boot) left join receiving using (engine, boot)
"""
_SHARED: Final = """
    select *, min(pairing_name) over (
        partition by lower(`primary`), lower(secondary), case when `primary` is null then pairing_name end
    ) as of_namespaces from named
"""
_GROUPED: Final = "select *, min(of_namespaces) over (partition by pairing_name) as pairing from shared"
"""Engines of the same two namespaces share backlog queues, whatever their names: they are one pairing."""
_PLACED: Final = """
    select *, max(first_at) over (partition by engine) as newest_boot,
           max(last_at) over (partition by pairing) as newest
    from boots
"""
_ENDED: Final = f"""
    select *, case when stopped_at is not null then 'stopped' when newest_boot > last_at then 'restarted'
                   when last_at < newest - interval {SILENT} minutes then 'silent' else 'running' end as ended
    from placed
"""
ENGINES: Final = f"""
with numbers as ({_NUMBERS}), started as ({_LAST.format("engine-started")}),
     stopped as ({_LAST.format("engine-stopped")}),
     named as ({_BOOTS}), shared as ({_SHARED}), boots as ({_GROUPED}), placed as ({_PLACED}), told as ({_ENDED})
select pairing, engine, boot, started_at, first_at, last_at, first_seq, last_seq, records,
       last_seq - records as missing, complete_to, complete_from, ended,
       case ended when 'stopped' then stopped_at when 'restarted' then newest_boot when 'silent' then last_at end
           as ended_at,
       case ended when 'stopped' then stop_reason when 'restarted' then 'the engine was killed, and started again'
                  when 'silent' then 'it recorded nothing for {SILENT} minutes, while others of its pairing did' end
           as end_reason,
       `primary`, secondary, syphon, backlog_queues, version, receives, pairing_name
from told
"""


def spans_of(manifest: Manifest) -> Any:
    """Return the spans of all records as an Arrow table."""
    spans = manifest.seen
    at = TYPES["TIMESTAMP"]
    columns = {
        "engine": pa.array([one.engine for one in spans], pa.string()),
        "boot": pa.array([one.boot for one in spans], pa.string()),
        "first": pa.array([one.first for one in spans], pa.int64()),
        "last": pa.array([one.last for one in spans], pa.int64()),
        "first_at": pa.array([one.first_at or None for one in spans], pa.int64()).cast(at),
        "last_at": pa.array([one.last_at or None for one in spans], pa.int64()).cast(at),
    }
    return pa.table(columns)


def receiving_of(boots: Iterable[tuple[str, str]]) -> Any:
    """Return boots as an Arrow table."""
    found = list(boots)
    return pa.table(
        {
            "engine": pa.array([one for one, _ in found], pa.string()),
            "boot": pa.array([one for _, one in found], pa.string()),
        }
    )


def gaps_of(manifest: Manifest) -> Any:
    """Return the rows of `gaps` as an Arrow table."""
    rows = [
        {"engine": gap.engine, "boot": gap.boot, "first_seq": gap.first, "last_seq": gap.last, "missing": gap.missing}
        for gap in manifest.gaps()
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(GAPS))


_LISTED: Final = ", ".join(f"'{kind}'" for kind in COUNTED_KINDS)
TIMELINE_OF_EVENTS: Final = f"""
select {", ".join(f"`{name}`" for name in TIMELINE)} from events
where trouble is null and kind not in ({_LISTED})
"""
_RARE: Final = (
    ("pings", PINGS, "ping-accepted"), ("readings", READINGS, "queue-read"),
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
        sums = self._spark.sql(SUMS).toArrow()
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

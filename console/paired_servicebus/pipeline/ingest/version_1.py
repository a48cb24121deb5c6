"""Tables of version 1, made into these: their history is longer than the journal's.

Version 1 kept sums as parts to be added, times as numbers, and events and settled messages for 30 days. Sums, episodes
and messages come from its tables; `timeline` and newer episodes come from its events. Its files are moved aside
afterwards. Where its manifest cannot be used they are moved aside as well, and the tables are made from the journal.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import UnreadableError
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.ingest.batch_tables import TIMELINE_OF_EVENTS
from paired_servicebus.pipeline.ingest.engine_tables import ENGINES, gaps_of, spans_of
from paired_servicebus.pipeline.ingest.episode_tables import EPISODES, SENDS, STORIES, STORY_KINDS
from paired_servicebus.pipeline.ingest.summed_tables import SUMMED
from paired_servicebus.pipeline.ingest.table_files import (
    frame,
    parts,
    staged_parts,
    write_dated,
    write_days,
    write_rows,
)
from paired_servicebus.pipeline.judging.receipts_sql import MERGE, PARTIAL
from paired_servicebus.pipeline.spark.spark_session import spark_path
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.empty_files import NO_DATE
from paired_servicebus.pipeline.table_store.lake import Change, Files, Lake
from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, merged
from paired_servicebus.pipeline.table_store.schema import EVENTS, TABLES, spark_ddl

ASIDE: Final = "aside"
OLD: Final = (
    "events", "episodes", "minutes", "backlog", "syphon", "cost", "audit", "verdicts", "story", "checkpoints",
    manifests.NAME,
)  # fmt: skip
"""The names that tables of version 1 had in their folder."""


class _File(msgspec.Struct):
    name: str
    batch: int


class _Manifest(msgspec.Struct):
    version: int
    files: dict[str, tuple[_File, ...]] = {}
    seen: tuple[tuple[str, str, int, int], ...] = ()
    troubled: tuple[str, ...] = ()
    repeated: int = 0
    judged: int = 0


_MANIFEST: Final = msgspec.json.Decoder(_Manifest)


def convert(spark: Any, lake: Lake) -> str:
    """Convert tables of version 1 that are in the folder; return a note about it, empty: there are none.

    Raises Spark's errors and OSError; then everything is as it was.
    """
    if not (lake.folder / manifests.NAME).exists():
        return ""
    place = lake.folder / ASIDE / "version-1"
    if lake.manifest.batch:  # a conversion that was killed before it moved the files
        _move_aside(lake.folder, place)
        return ""
    try:
        old = read_json(_MANIFEST, (lake.folder / manifests.NAME).read_bytes())
        why = "" if old.version == 1 else f"they are of version {old.version}"
    except UnreadableError as error:
        why = f"their manifest is damaged: {error}"
    if not why:
        with lake.staged("version-1") as staged:
            _Conversion(spark, lake, old, staged).commit()
    _move_aside(lake.folder, place)
    if why:
        return (
            f"the older tables cannot be converted ({why}): they are in {place}, and new ones are made from the journal"
        )
    return f"the tables of version 1 were converted; the old files are in {place}, and may be deleted"


def _move_aside(folder: Path, place: Path) -> None:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in OLD:  # the manifest is the last: until then the next start goes on
        if (folder / name).exists():
            shutil.move(folder / name, place / name)


def _ddl(columns: dict[str, str]) -> str:
    return spark_ddl({name: {"TIMESTAMP": "DOUBLE"}.get(kind, kind) for name, kind in columns.items()})


_MINUTE: Final = "timestamp_micros(minute_ts) as minute"
_SUMS: Final[dict[str, str]] = {
    "minutes": f"""
        select engine, entity, {_MINUTE},
               case when route = 'primary' then accepted end as primary_accepted,
               case when route = 'primary' then failed end as primary_failed,
               case when route <> 'primary' then accepted end as backlog_accepted,
               case when route <> 'primary' then failed end as backlog_failed,
               pings_sent, pings_accepted, pings_failed, took as ping_seconds, cast(null as timestamp) as last_good_at
        from old_minutes""",
    "failures": f"""
        select engine, entity, {_MINUTE}, route, failure, failures as `count` from old_minutes
        where failure is not null""",
    "backlog": f"""
        select engine, queue, {_MINUTE}, parked, timestamp_micros(read_ts) as read_at, depth, depth_max, bytes,
               dead_lettered, scheduled, n, sum_t, sum_d, sum_tt, sum_td from old_backlog""",
    "syphon": f"""
        select engine, queue, entity, {_MINUTE}, moved, retries, dead_lettered from old_syphon""",
    "dead_letters": f"""
        select engine, queue, entity, {_MINUTE}, reason, dead_lettered as `count` from old_syphon
        where dead_lettered > 0""",
    "cost": f"select engine, {_MINUTE}, cause, operations, bytes from old_cost",
}  # fmt: skip
"""The old rows of each summed table, in the new columns."""
_OLD_COLUMNS: Final = {
    "minutes": "engine string, minute_ts bigint, entity string, route string, accepted bigint, failed bigint, "
    "failure string, failures bigint, pings_sent bigint, pings_accepted bigint, pings_failed bigint, "
    "took array<double>",
    "backlog": "engine string, minute_ts bigint, queue bigint, parked bigint, read_ts bigint, depth bigint, "
    "depth_max bigint, bytes bigint, dead_lettered bigint, scheduled bigint, n bigint, sum_t double, sum_d double, "
    "sum_tt double, sum_td double",
    "syphon": "engine string, minute_ts bigint, queue bigint, entity string, moved bigint, retries bigint, "
    "dead_lettered bigint, reason string",
    "cost": "engine string, minute_ts bigint, cause string, operations bigint, bytes bigint",
    "episodes": "id string, version bigint, engine string, boot string, entity string, suspected_ts bigint, "
    "failed_over_ts bigint, first_ping_ts bigint, failed_back_ts bigint, backlog_empty_ts bigint, last_ts bigint, "
    "outcome string, forced boolean, cause string, why_back string, pings_sent bigint, pings_accepted bigint, "
    "pings_failed bigint, parked bigint, moved bigint, dead_lettered bigint, acts string",
    "audit": "message_id string, entity string, subscription string, stream string, number bigint, direct bigint, "
    "diverted bigint, in_doubt bigint, refused bigint, moved bigint, dead_lettered bigint, received bigint, "
    "queue bigint, reason string, first_ts bigint, accepted_ts bigint, diverted_ts bigint, moved_ts bigint, "
    "received_ts bigint, received_seq bigint, last_ts bigint",
    "events": _ddl(
        {"ts" if name == "at" else name: "BIGINT" if name == "at" else kind for name, kind in EVENTS.items()}
    ),
}
_EVENTS: Final = "select {} from old_events".format(
    ", ".join(
        "case when ts between 0 and 253402300799999999 then timestamp_micros(ts) end as at"
        if name == "at"
        else f"timestamp_micros(bigint(`{name}` * 1e6D)) as `{name}`"
        if kind == "TIMESTAMP"
        else f"`{name}`"
        for name, kind in EVENTS.items()
    )
)
_SPANS: Final = """
select spans.engine, spans.boot, first, last, coalesce(unix_micros(one.at), 0) as first_at,
       coalesce(unix_micros(other.at), 0) as last_at
from spans left join events one on one.engine = spans.engine and one.boot = spans.boot and one.seq = first
           left join events other on other.engine = spans.engine and other.boot = spans.boot and other.seq = last
"""
_RECEIVING: Final = "select distinct engine, boot from events where kind = 'received'"
_EPISODES: Final = """
select id, regexp_replace(engine, '@[^@]*$', '') as pairing, engine, boot, entity,
       timestamp_micros(coalesce(suspected_ts, failed_over_ts, last_ts)) as began_at,
       timestamp_micros(suspected_ts) as suspected_at, timestamp_micros(failed_over_ts) as failed_over_at,
       timestamp_micros(first_ping_ts) as first_ping_at, timestamp_micros(failed_back_ts) as failed_back_at,
       timestamp_micros(backlog_empty_ts) as backlog_empty_at, timestamp_micros(last_ts) as last_at,
       cast(null as timestamp) as last_good_at, cast(null as timestamp) as first_diverted_at, outcome, forced, cause,
       why_back as end_reason, pings_sent, pings_accepted, pings_failed, parked, moved, dead_lettered,
       to_json(transform(from_json(acts, 'array<struct<ts:bigint,what:string,by:string,why:string>>'), one -> struct(
           date_format(timestamp_micros(one.ts), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'") as at, one.what, one.by, one.why)))
           as orders
from (select *, row_number() over (partition by id order by version desc) as place from old_episodes)
where place = 1 and outcome <> 'withdrawn'
"""
_LONGER: Final = """
select lower(entity) as old_entity, message_id as old_id from old_audit
where first_ts < (select coalesce(min(unix_micros(at)), 0) from events)
"""
"""Messages whose first receipts are not among the events any more."""
_IS_LONGER: Final = "lower(entity) = old_entity and message_id = old_id"
_RECEIPTS: Final = f"""
select (select case when count(distinct pairing) = 1 then max(pairing) else '' end from engines) as pairing, entity,
       message_id, nullif(subscription, '') as subscription, nullif(stream, '') as stream, number, direct, diverted,
       in_doubt, refused, moved, dead_lettered, received, queue, reason, timestamp_micros(first_ts) as first_at,
       timestamp_micros(accepted_ts) as accepted_at, timestamp_micros(diverted_ts) as diverted_at,
       timestamp_micros(moved_ts) as moved_at, timestamp_micros(received_ts) as received_at, received_seq,
       timestamp_micros(coalesce(moved_ts, case when direct > 0 then accepted_ts end)) as reached_at,
       timestamp_micros(last_ts) as last_at
from old_audit left semi join longer on {_IS_LONGER}
"""


class _Conversion:
    """One conversion's steps, each with its files."""

    def __init__(self, spark: Any, lake: Lake, old: _Manifest, place: Path) -> None:
        self._spark = spark
        self._lake = lake
        self._old = old
        self._place = place
        self._batch = 1

    def commit(self) -> None:
        """Write all tables, and commit them as one version."""
        spark, old = self._spark, self._old
        for table in _OLD_COLUMNS:
            self._view(f"old_{table}", table, old.files.get(table, ()))
        files: dict[str, Files] = {"events": self._write("events", _EVENTS)}
        frame(spark, "events", [self._place / "events"] if files["events"] else []).createOrReplaceTempView("events")
        seen = self._spans()
        after = Manifest(batch=0, seen=seen)
        files |= self._sums()
        told = spark.sql(TIMELINE_OF_EVENTS).toArrow()
        files["timeline"] = write_days(self._place, "timeline", told, self._batch) if told.num_rows else ()
        files |= self._engines_and_episodes(after, told)
        files["receipts"] = self._write("receipts", self._receipts())
        fields = {"seen": seen, "troubled": old.troubled, "repeated": old.repeated, "judged": self._batch}
        self._lake.commit(lambda _: Change(files=files, fields=fields))

    def _view(self, name: str, table: str, files: Sequence[_File]) -> None:
        spark, schema = self._spark, _OLD_COLUMNS[table]
        paths = [spark_path(self._lake.folder / table / file.name) for file in files]
        reader = spark.read.schema(schema).option("recursiveFileLookup", "true")
        rows = reader.parquet(*paths) if paths else spark.createDataFrame([], schema)
        rows.createOrReplaceTempView(name)

    def _write(self, table: str, query: str) -> Files:
        day = "at" if table == "events" else "first_at"
        columns = ", ".join(f"`{name}`" for name in TABLES[table])
        folder = self._place / table
        rows = self._spark.sql(f"select {columns}, coalesce(to_date({day}), date '{NO_DATE}') as date from ({query})")
        write_dated(rows, folder)
        return staged_parts(parts(folder), table, self._batch)

    def _spans(self) -> tuple[RecordSpan, ...]:
        spans = tuple(RecordSpan(*span) for span in self._old.seen)
        self._spark.createDataFrame(spans_of(Manifest(seen=spans))).createOrReplaceTempView("spans")
        rows = self._spark.sql(_SPANS).collect()
        return merged(tuple(RecordSpan(*row) for row in rows))

    def _sums(self) -> dict[str, Files]:
        found: dict[str, Files] = {}
        for table, source in _SUMS.items():
            frame(self._spark, table, []).createOrReplaceTempView("known")
            rule = dataclasses.replace(SUMMED[table], source=source)
            rows = self._spark.sql(rule.query(table)).toArrow()
            found[table] = write_days(self._place, table, rows, self._batch) if rows.num_rows else ()
        return found

    def _engines_and_episodes(self, after: Manifest, told: Any) -> dict[str, Files]:
        spark = self._spark
        for name, rows in (("spans", spans_of(after)), ("told", told)):
            spark.createDataFrame(rows).createOrReplaceTempView(name)
        spark.sql(_RECEIVING).createOrReplaceTempView("receiving")
        frame(spark, "engines", []).createOrReplaceTempView("known")
        engines = spark.sql(ENGINES).toArrow()
        spark.createDataFrame(engines).createOrReplaceTempView("engines")
        kinds = ", ".join(f"'{kind}'" for kind in STORY_KINDS)
        spark.sql(f"select * from told where kind in ({kinds}) and at is not null").createOrReplaceTempView("story")
        spark.createDataFrame(spark.sql(STORIES).toArrow()).createOrReplaceTempView("ended")
        frame(spark, "minutes", []).createOrReplaceTempView("minutes")
        spark.sql(SENDS).createOrReplaceTempView("sends")
        spark.sql(_EPISODES).createOrReplaceTempView("known")
        spark.sql("select * from known left anti join ended on known.id = ended.id").createOrReplaceTempView("others")
        episodes = spark.sql(EPISODES).toArrow()
        return {
            "engines": write_rows(self._place, "engines", engines, self._batch),
            "gaps": write_rows(self._place, "gaps", gaps_of(after), self._batch),
            "episodes": write_rows(self._place, "episodes", episodes, self._batch),
        }

    def _receipts(self) -> str:
        """Return the query of all receipts: of messages older than the events from the old audit, else of events."""
        spark, old = self._spark, self._old
        spark.sql(_LONGER).createOrReplaceTempView("longer")
        names = [file for file in old.files.get("events", ()) if file.batch > old.judged]
        unjudged = {file.name for file in names}
        judged = [file for file in old.files.get("events", ()) if file.name not in unjudged]
        parts = []
        for name, files in (("judged", judged), ("unjudged", names)):
            self._view("old_events", "events", files)
            spark.sql(_EVENTS).createOrReplaceTempView(f"{name}_events")
            part = PARTIAL.format(events=f"{name}_events", engines="engines")
            if name == "judged":
                part = f"select * from ({part}) left anti join longer on {_IS_LONGER}"
            parts.append(part)
        frame(spark, "receipts", []).createOrReplaceTempView("no_receipts")
        whole = spark.sql("select * from no_receipts")
        for query in (_RECEIPTS, *parts):
            whole = whole.unionByName(spark.sql(query), allowMissingColumns=True)
        whole.createOrReplaceTempView("parts")
        return MERGE.format(partials="parts")

"""A batch's share of minutes, backlog, syphon and cost: rows that add up to the tables, from the events as written.

Two steps: `sums`, a row for each 10 seconds, kind, entity, queue, route and reason, over every receipt and count; and
`story`, the events that are few enough to be looked at one by one. duckdb does both, in the pipeline's own process.
`look_into` reads the content of a batch's file: a batch has at most 128 MB of the journal, and another Spark job costs
more than this. Nothing here knows Spark, and nothing depends on how events were cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from paired_servicebus.pipeline.table_store.manifest import Manifest, RecordSpan, held, merged
from paired_servicebus.pipeline.table_store.schema import TABLES

THREADS: Final = 2
SLOT: Final = 10_000_000
MINUTE: Final = 60_000_000
COUNTED: Final = (
    "sends", "failures", "operations", "delivered", "diverted", "in-doubt", "refused", "moved", "dead-lettered",
    "received",
)  # fmt: skip
"""Kinds that are summed up; all others are the story."""
MEASURES: Final = (
    "accepted", "failed", "count", "sends", "parked", "pings", "receives", "moves", "settlements",
    "sent_bytes", "parked_bytes", "moved_bytes",
)  # fmt: skip
"""Fields of counted kinds that are summed."""
PARTIALS: Final = ("minutes", "backlog", "syphon", "cost")

_LISTED: Final = ", ".join(f"'{kind}'" for kind in COUNTED)
_SUMS: Final = f"""
create temp table sums as
select engine, ts - ts % {SLOT} as slot, kind, entity, queue, route, failure,
       case when kind = 'dead-lettered' then reason end as reason, count(*) as n, max(ts) as last_ts,
       {", ".join(f'sum("{name}")::bigint as "{name}"' for name in MEASURES)}
from events where trouble is null and kind in ({_LISTED}) group by all
"""
_TOLD: Final = f"create temp table story as select * from events where trouble is null and kind not in ({_LISTED})"

_MINUTE_OF: Final = f"{{0}} - {{0}} % {MINUTE}"

_MINUTES: Final = f"""
select engine, {_MINUTE_OF.format("slot")} as minute_ts, entity, route, sum(accepted) as accepted, sum(failed) as failed
from sums where kind = 'sends' group by all
union all by name
select engine, {_MINUTE_OF.format("slot")} as minute_ts, entity, route, failure, sum("count") as failures
from sums where kind = 'failures' group by all
union all by name
select engine, {_MINUTE_OF.format("ts")} as minute_ts, entity,
       count(*) filter (kind = 'ping-sent') as pings_sent, count(*) filter (kind = 'ping-accepted') as pings_accepted,
       count(*) filter (kind = 'ping-failed') as pings_failed,
       list(took order by ts) filter (kind = 'ping-accepted') as took
from story where kind in ('ping-sent', 'ping-accepted', 'ping-failed') group by all
"""
_BACKLOG: Final = f"""
select engine, {_MINUTE_OF.format("slot")} as minute_ts, queue, sum(n) as parked
from sums where kind = 'diverted' group by all
union all by name
select engine, minute_ts, queue, max(ts) as read_ts, arg_max(depth, ts) as depth, max(depth) as depth_max,
       arg_max(size_bytes, ts) as bytes, arg_max(dead_lettered, ts) as dead_lettered,
       arg_max(scheduled, ts) as scheduled, count(*) as n,
       sum(t) as sum_t, sum(depth) as sum_d, sum(t * t) as sum_tt, sum(t * depth) as sum_td
from (select *, {_MINUTE_OF.format("ts")} as minute_ts, (ts % {MINUTE}) / 1e6 as t from story where kind = 'queue-read')
group by all
"""
_SYPHON: Final = f"""
select engine, {_MINUTE_OF.format("slot")} as minute_ts, queue, entity, reason,
       sum(n) filter (kind = 'moved') as moved, sum(n) filter (kind = 'dead-lettered') as dead_lettered
from sums where kind in ('moved', 'dead-lettered') group by all
union all by name
select engine, {_MINUTE_OF.format("ts")} as minute_ts, queue, entity, count(*) as retries
from story where kind in ('destination-failed', 'pump-stopped') group by all
"""
_CAUSES: Final = {
    "sends": "sum(sent_bytes)",
    "parked": "sum(parked_bytes)",
    "pings": "0",
    "receives": "0",
    "moves": "sum(moved_bytes)",
    "settlements": "0",
}
_COST: Final = " union all ".join(
    f"select engine, {_MINUTE_OF.format('slot')} as minute_ts, '{cause}' as cause, sum({cause}) as operations, "
    f"{size} as bytes from sums where kind = 'operations' group by all having sum({cause}) > 0"
    for cause, size in _CAUSES.items()
)
_MADE: Final = {"minutes": _MINUTES, "backlog": _BACKLOG, "syphon": _SYPHON, "cost": _COST}

_TALLIES: Final = """
select engine, '' as boot, 0::bigint as seq, max(last_ts) as ts, 'tally' as kind, lower(entity) as key,
       any_value(entity) as entity, kind as what, sum(n)::bigint as n
from sums where kind in ('diverted', 'moved', 'dead-lettered') and entity is not null
group by engine, slot, kind, lower(entity)
"""
_STORY: Final = """
select engine, boot, seq, ts, kind, lower(entity) as key, entity, was, now, why, "by"
from story
where kind in ('state-changed', 'ping-sent', 'ping-accepted', 'ping-failed', 'forced', 'pinned', 'released')
"""
_ENGINES: Final = """
select story.engine, boot, seq, ts, kind, lower(known.entity) as key, known.entity, null as was, null as now,
       reason as why, null as "by"
from story join known on story.engine = known.engine
where kind in ('engine-started', 'engine-stopped')
"""
STORY_COLUMNS: Final = {
    "engine": "VARCHAR", "boot": "VARCHAR", "seq": "BIGINT", "ts": "BIGINT", "kind": "VARCHAR", "key": "VARCHAR",
    "entity": "VARCHAR", "was": "VARCHAR", "now": "VARCHAR", "why": "VARCHAR", "by": "VARCHAR", "what": "VARCHAR",
    "n": "BIGINT",
}  # fmt: skip

MERGED: Final = {
    "minutes": "select engine, minute_ts, entity, route, sum(accepted) as accepted, sum(failed) as failed, failure, "
    "sum(failures) as failures, sum(pings_sent) as pings_sent, sum(pings_accepted) as pings_accepted, "
    "sum(pings_failed) as pings_failed, flatten(list(took) filter (took is not null)) as took from parts group by all",
    "backlog": "select engine, minute_ts, queue, sum(parked) as parked, max(read_ts) as read_ts, "
    "arg_max(depth, read_ts) as depth, max(depth_max) as depth_max, arg_max(bytes, read_ts) as bytes, "
    "arg_max(dead_lettered, read_ts) as dead_lettered, arg_max(scheduled, read_ts) as scheduled, sum(n) as n, "
    "sum(sum_t) as sum_t, sum(sum_d) as sum_d, sum(sum_tt) as sum_tt, sum(sum_td) as sum_td from parts group by all",
    "syphon": "select engine, minute_ts, queue, entity, reason, sum(moved) as moved, sum(retries) as retries, "
    "sum(dead_lettered) as dead_lettered from parts group by all",
    "cost": "select engine, minute_ts, cause, sum(operations) as operations, sum(bytes) as bytes "
    "from parts group by all",
    "episodes": "select * from parts qualify row_number() over (partition by id order by version desc) = 1",
}
"""Return the query that merges many files of a table: the same sums."""


def split(events: str, entities: set[tuple[str, str]]) -> dict[str, Any]:
    """Return the batch's rows of each partial table, and the entities' own part of the story under "story" (Arrow).

    Args:
        events: where its Parquet files are, as duckdb takes it.
        entities: engines and entities known so far; added to.
    """
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.read_parquet(events).create_view("events")
        connection.execute(_SUMS)
        connection.execute(_TOLD)
        named = connection.execute(
            "select distinct engine, entity from sums where kind in ('sends', 'diverted', 'delivered') "
            "union select distinct engine, entity from story where kind = 'state-changed'"
        ).fetchall()
        entities |= {(engine, entity) for engine, entity in named}
        connection.execute("create table known(engine varchar, entity varchar)")
        if entities:
            connection.executemany("insert into known values (?, ?)", sorted(entities))
        made = {table: _arrow(connection, query, TABLES[table]) for table, query in _MADE.items()}
        told = f"({_STORY}) union all by name ({_ENGINES}) union all by name ({_TALLIES})"
        made["story"] = _arrow(connection, told, STORY_COLUMNS)
        return made


def merge(table: str, parts: list[str]) -> Any:
    """Return the rows of a partial table's files as one Arrow table. `parts`: their paths."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"create view parts as {_read(parts, table)}")
        return _arrow(connection, MERGED[table], TABLES[table])


def with_all(verdicts: Any) -> Any:
    """Verdicts by entity, and one for all of them under no name. An Arrow table."""
    numbers = [name for name, kind in TABLES["verdicts"].items() if kind == "BIGINT"]
    counts = ", ".join(f'coalesce(sum("{name}"), 0) as "{name}"' for name in numbers)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("verdicts", verdicts)
        return _arrow(
            connection,
            f"select '' as entity, {counts}, max(in_flight_age) as in_flight_age, "
            "coalesce(bool_or(receivers_told), false) as receivers_told from verdicts "
            "union all by name select * from verdicts",
            TABLES["verdicts"],
        )


def _read(parts: list[str], table: str) -> str:
    empty = ", ".join(f'cast(null as {kind}) as "{name}"' for name, kind in TABLES[table].items())
    listed = ", ".join("'" + part.replace("'", "''") + "'" for part in parts)
    return f"select {empty} where false union all by name select * from read_parquet([{listed}], union_by_name = true)"


def _arrow(connection: duckdb.DuckDBPyConnection, query: str, columns: dict[str, str]) -> Any:
    """Return the query's rows in exactly these columns."""
    empty = ", ".join(f'cast(null as {kind}) as "{name}"' for name, kind in columns.items())
    cast = ", ".join(f'cast("{name}" as {kind}) as "{name}"' for name, kind in columns.items())
    return connection.sql(
        f"select {cast} from (select {empty} where false union all by name select * from ({query}))"
    ).to_arrow_table()


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of one file of events.

    `rows` are all rows, `numbered` those with a number; `last_ts` is the newest record's time, None without one;
    `troubled` are the journal files of its lines without a number.
    """

    rows: int
    numbered: int
    last_ts: int | None
    troubled: tuple[str, ...]
    spans: tuple[RecordSpan, ...]

    def repeats(self, manifest: Manifest) -> bool:
        """Whether a record is in it twice, or in the tables already."""
        once = held(self.spans) == self.numbered
        new = held(merged(manifest.seen + self.spans)) == held(manifest.seen) + held(self.spans)
        return not (once and new and set(self.troubled).isdisjoint(manifest.troubled))


def look_into(place: Path) -> Contents:
    """Return a folder of Parquet files of schema.EVENTS."""
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.read_parquet(f"{place}/*.parquet").create_view("events")
        whole = connection.execute(_WHOLE).fetchone()
        assert whole is not None, "a count has a row"
        spans = connection.execute(_SPANS).fetchall()
    rows, numbered, last_ts, troubled = whole
    return Contents(rows, numbered, last_ts, tuple(troubled or ()), merged(tuple(RecordSpan(*span) for span in spans)))


_WHOLE: Final = """
select count(*), count(seq), max(ts), list(distinct file) filter (seq is null) from events
"""
_SPANS: Final = """
select engine, boot, min(seq), max(seq) from (
    select engine, boot, seq, seq - dense_rank() over (partition by engine, boot order by seq) as island
    from events where seq is not null
) group by engine, boot, island
"""
"""Numbers that follow each other are as far from their ranks."""

"""Tables of a long history for the report's bench, made by duckdb in a minute, as the pipeline leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from paired_servicebus.pipeline.table_store.lake import Change, Lake, Staged
from paired_servicebus.pipeline.table_store.manifest import File
from paired_servicebus.pipeline.table_store.schema import DATED, TABLES
from paired_servicebus.pipeline.table_store.sql_engine import write_rows
from paired_servicebus.pipeline.table_store.store_path import Place

START: Final = 1_764_028_800
"""2025-11-25 00:00:00 UTC."""
DAY: Final = 86_400
PART: Final = 6
"""Hours of a file of a dated table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An engine's days: `rate` messages a second to each entity, an outage every `period` seconds.

    `all_receipts`: whether direct sends have receipts, as with journal = "all".
    """

    name: str
    days: int
    entities: int
    rate: int
    period: int
    """0: no outage."""
    outage: int
    all_receipts: bool

    @property
    def seconds(self) -> int:
        """The length of the history."""
        return self.days * DAY


QUIET: Final = History(name="a quiet day", days=1, entities=3, rate=2, period=0, outage=0, all_receipts=False)
EPISODES: Final = History(name="2,500 episodes", days=3, entities=4, rate=2, period=414, outage=120, all_receipts=False)
LARGE: Final = History(name="10 M events", days=1, entities=3, rate=38, period=43_200, outage=3600, all_receipts=True)


def make_history(folder: Path, history: History) -> int:
    """Write the history's tables to `folder`; return the number of its events."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": 2,
        "memory_limit": "2GB",
        "temp_directory": str(folder / "spill"),
    }
    with duckdb.connect(config=settings) as found:
        found.execute("set enable_progress_bar = false")
        for name, query in _QUERIES.items():
            kind = "table" if name == "ticks" else "view"
            found.execute(f"create {kind} {name} as {query.format(**_values(history))}")
        with Lake(folder) as lake, lake.staged("made") as place:
            files = {table: list(_staged(found, place, table, query)) for table, query in _TABLES.items()}
            lake.commit(lambda _: Change(files=files))
        count = found.execute("select count(*) from all_events").fetchone()
    return int(count[0]) if count else 0


def _values(history: History) -> dict[str, int]:
    period = history.period or 10 * history.seconds
    return {
        "start": START,
        "seconds": history.seconds,
        "entities": history.entities,
        "rate": history.rate,
        "period": period,
        "outage": history.outage,
        "direct": history.rate if history.all_receipts else 0,
    }


def _staged(connection: duckdb.DuckDBPyConnection, place: Place, table: str, query: str) -> Iterator[Staged]:
    columns = TABLES[table]
    time = next((name for name in ("event_time", "minute", "first_at") if name in columns), "")
    if table not in DATED:
        yield _written(connection, place / f"{table}.parquet", table, query, "made.parquet")
        return
    parts = connection.execute(
        f"""select distinct time_bucket(interval {PART} hour, "{time}") from ({query})"""
    ).fetchall()
    for (begin,) in sorted(parts):
        name = f"{begin:%Y-%m-%d-%H}"
        part = f"""
            select * from ({query}) where "{time}" >= timestamp '{begin}'
            and "{time}" < timestamp '{begin}' + interval {PART} hour order by "{time}"
        """
        file = f"date={begin:%Y-%m-%d}/{name}.parquet"
        yield _written(connection, place / f"{table}-{name}.parquet", table, part, file)


def _written(connection: duckdb.DuckDBPyConnection, path: Place, table: str, query: str, name: str) -> Staged:
    write_rows(connection, path, table, query)
    counted = connection.execute(f"select count(*) from read_parquet('{path}')").fetchone()
    assert counted is not None
    return Staged(path, File(name=name, rows=counted[0], first_at=0, last_at=0, batch=1))


_HEAD: Final = "'shop@bench' as engine, 'one' as boot"
_QUERIES: Final = {
    "ticks": """
        select s, entity, (s - 600) % {period} as since_begin,
               s >= 600 and (s - 600) % {period} < {outage} as is_out,
               s >= 600 and (s - 600) % {period} between 10 and {outage} as is_away,
               make_timestamp(({start}::bigint + s) * 1000000 + 999000) as at_second
        from range({seconds}) r(s), (select 'entity-' || e as entity from range({entities}) e(e))
    """,
    "counts": f"""
        select {_HEAD}, at_second as event_time, 'sends' as kind, entity,
               case when is_away then 'backlog/' || s % 4 else 'primary' end as route,
               case when is_out and not is_away then 0 else {{rate}} end as accepted,
               case when is_out and not is_away then 2 else 0 end as failed, 1.0 as seconds from ticks
        union all by name
        select {_HEAD}, at_second as event_time, 'failures' as kind, entity, 'primary' as route, 'timeout' as failure,
               2 as count from ticks where is_out and not is_away
        union all by name
        select {_HEAD}, at_second as event_time, 'queue-read' as kind, s % 4 as queue, since_begin * {{rate}} as depth,
               0 as size_bytes from ticks where is_away and entity = 'entity-0' and s % 5 = 0
    """,
    "messages": """
        select entity, s, at_second, is_away, s % 4 as queue, printf('%032x', s * 1000 + n) || entity as message_id
        from ticks, range(greatest({direct}, case when is_away then {rate} else 0 end)) m(n)
        where (not is_out or is_away)
    """,
    "receipts": f"""
        select {_HEAD}, at_second as event_time, case when is_away then 'diverted' else 'delivered' end as kind, entity,
               message_id, case when is_away then queue end as queue from messages
        union all by name
        select {_HEAD}, at_second + to_seconds({{outage}}) as event_time, 'moved' as kind, entity, message_id, queue
        from messages where is_away
    """,
    "told": f"""
        select {_HEAD}, make_timestamp({{start}}::bigint * 1000000) as event_time, 'engine-started' as kind,
               'shop' as pairing, 'weu' as "primary", 'neu' as secondary, 4 as backlog_queues, true as syphon,
               '1' as version
        union all by name
        select {_HEAD}, at_second as event_time, 'state-changed' as kind, entity, was, now, why
        from ticks join (values (0, 'healthy', 'suspect', 'timeout'),
            (10, 'suspect', 'failed over', 'no send accepted for 10 s'),
            ({{outage}}, 'failed over', 'healthy', 'a ping was accepted')) c(step, was, now, why) on since_begin = step
        where s >= 600 and {{outage}} > 0
        union all by name
        select {_HEAD}, at_second as event_time,
               case when since_begin = {{outage}} - 1 then 'ping-accepted' else 'ping-failed' end as kind,
               entity, since_begin as number, 'timeout' as reason, 2.0 as took
        from ticks where is_away and since_begin % 10 = 9
    """,
    "all_events": """
        select * from counts union all by name select * from receipts union all by name select * from told
    """,
    "outages": """
        select entity, at_second as began_at, row_number() over (order by s, entity) as n from ticks
        where since_begin = 0 and s >= 600 and s + {outage} < {seconds} and {outage} > 0
    """,
    "limits": "select {start} as start, {outage} as outage, {rate} as rate",
}
_TABLES: Final = {
    "events": "select *, epoch_us(event_time) as seq from all_events",
    "timeline": "select * from told",
    "engines": """
        select 'shop' as pairing, 'shop@bench' as engine, 'one' as boot, min(event_time) as started_at,
               min(event_time) as first_at,
               max(event_time) as last_at, 1 as first_seq, count(*) as last_seq, count(*) as records,
               0 as missing, max(event_time) as complete_to,
               'running' as ended, 'weu' as "primary", 'neu' as secondary, true as syphon
        from all_events
    """,
    "cost": """
        select 'shop@bench' as engine, date_trunc('minute', at_second) as minute, cause, count(*) as operations,
               1000 * count(*) as bytes
        from (select at_second, unnest(['parked', 'moves', 'settlements', 'receives']) as cause from messages
              where is_away) group by all
    """,
    "episodes": """
        select entity || '@shop@bench@' || n as id, 'shop' as pairing, 'shop@bench' as engine, 'one' as boot, entity,
               began_at, began_at as suspected_at, began_at + to_seconds(10) as failed_over_at,
               began_at + to_seconds(10) as first_diverted_at, began_at + to_seconds(outage) as failed_back_at,
               began_at + to_seconds(2 * outage) as backlog_empty_at, began_at + to_seconds(2 * outage) as last_at,
               began_at - to_seconds(1) as last_good_at, 'failed back' as outcome, false as forced,
               'no send accepted for 10 s' as cause, 10 as pings_sent, outage * rate as parked, outage * rate as moved
        from outages, limits
    """,
    "audit": """
        select 'shop' as pairing, entity, message_id, case when is_away then 'delivered' else 'accepted' end as status,
               'accepted' as answer, queue, cast(not is_away as bigint) as direct, cast(is_away as bigint) as diverted,
               cast(is_away as bigint) as moved, 0 as received, 0 as duplicates, false as out_of_order,
               at_second as first_at, at_second as accepted_at,
               case when is_away then at_second end as diverted_at,
               case when is_away then at_second + to_seconds(outage) end as moved_at,
               case when is_away then outage::double end as dwell
        from messages, limits
    """,
    "verdicts": """
        select 'shop' as pairing, '' as entity, '' as subscription, count(*) as attempted, count(*) as accepted,
               count(*) as delivered, 0 as lost, 0 as missing, 0 as unknown, 1 as journals, 1 as journals_complete,
               max(at_second) + interval 2 hour as judged_at, false as receivers_told, 'a bench' as rests_on
        from messages
    """,
}

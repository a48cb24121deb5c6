"""The readers' duckdb views over the files of one manifest. Each merges the partial rows of its files.

Every view exists with its columns, even if its table has no files yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from paired_servicebus.pipeline.table_store import audit_sql
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.schema import TABLES


def definitions(folder: Path, manifest: Manifest) -> list[str]:
    """Return the statements that make the views, in order."""
    raw = [f"create view raw_{table} as {_files(folder, table, manifest.of(table))}" for table in TABLES]
    judged = audit_sql.JUDGED.format(merged="merged_audit", now=manifest.end(manifest.written_at))
    return [
        *raw,
        f"create view gaps as {_gaps(manifest)}",
        f"create view new_events as {_files(folder, 'events', manifest.unjudged())}",
        f"create view new_audit as {audit_sql.PARTIAL.format(events='new_events')}",
        "create view receipts as select * from raw_audit union all by name select * from new_audit",
        f"create view merged_audit as {audit_sql.MERGE.format(partials='receipts')}",
        f"create view audit as {judged}",
        f"create view events as {_EVENTS}",
        f"create view episodes as {_EPISODES}",
        f"create view minutes as {_MINUTES}",
        f"create view dwells as {_DWELLS}",
        f"create view backlog as {_BACKLOG}",
        f"create view syphon as {_SYPHON}",
        f"create view cost as {_COST}",
        f"create view verdicts as {_VERDICTS.format(batch=manifest.judged)}",
    ]


def _files(folder: Path, table: str, files: Iterable[File]) -> str:
    """Return a table's files as they are; columns that older files lack are null."""
    empty = ", ".join(f'cast(null as {kind}) as "{name}"' for name, kind in TABLES[table].items())
    names = [_pattern(folder / table / file.name) for file in files]
    if not names:
        return f"select {empty} where false"
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    # the empty row makes the columns, whatever the files have
    return f"select {empty} where false union all by name select * from read_parquet([{listed}], union_by_name = true)"


def _pattern(path: Path) -> str:
    return str(path) if path.suffix == ".parquet" else f"{path}/*.parquet"


def _gaps(manifest: Manifest) -> str:
    rows = [
        f"({_text(gap.engine)}, {_text(gap.boot)}, {gap.first}::bigint, {gap.last}::bigint, {gap.missing}::bigint)"
        for gap in manifest.gaps()
    ]
    names = "engine, boot, from_seq, to_seq, missing"
    if not rows:
        return f"select * from (values ('', '', 0::bigint, 0::bigint, 0::bigint)) as gaps({names}) where false"
    return f"select * from (values {', '.join(rows)}) as gaps({names})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_EVENTS: Final = """
select * from raw_events
union all by name
select engine, boot, from_seq as seq, 'gap' as kind,
       'gap: ' || missing || ' record' || case when missing = 1 then '' else 's' end || ' missing' as trouble
from gaps
"""

_EPISODES: Final = """
select * exclude (version), outcome = 'open' as open from (
    select * from raw_episodes qualify row_number() over (partition by id order by version desc) = 1
) where outcome <> 'withdrawn'
"""

_MINUTES: Final = """
with flat as (
    select engine, entity, minute_ts,
           sum(accepted) filter (route = 'primary') as primary_accepted,
           sum(failed) filter (route = 'primary') as primary_failed,
           sum(accepted) filter (route <> 'primary') as backlog_accepted,
           sum(failed) filter (route <> 'primary') as backlog_failed,
           sum(pings_sent) as pings_sent, sum(pings_accepted) as pings_accepted, sum(pings_failed) as pings_failed,
           flatten(list(took) filter (took is not null)) as took
    from raw_minutes group by all
), kinds as (
    select engine, entity, minute_ts, map_from_entries(list((failure, number))) as failures from (
        select engine, entity, minute_ts, failure, sum(failures)::bigint as number from raw_minutes
        where failure is not null group by all order by failure
    ) group by all
), whole as (
    select engine, entity, minute_ts,
           coalesce(primary_accepted, 0)::bigint as primary_accepted,
           coalesce(primary_failed, 0)::bigint as primary_failed,
           coalesce(backlog_accepted, 0)::bigint as backlog_accepted,
           coalesce(backlog_failed, 0)::bigint as backlog_failed,
           coalesce(failures, map([]::varchar[], []::bigint[])) as failures,
           coalesce(pings_sent, 0)::bigint as pings_sent, coalesce(pings_accepted, 0)::bigint as pings_accepted,
           coalesce(pings_failed, 0)::bigint as pings_failed, took
    from flat left join kinds using (engine, entity, minute_ts)
)
select * exclude (took),
       primary_accepted / nullif(primary_accepted + primary_failed, 0) as availability,
       (primary_accepted + backlog_accepted)
           / nullif(primary_accepted + primary_failed + backlog_accepted + backlog_failed, 0) as accepted_share,
       list_aggregate(took, 'quantile_cont', 0.5) as ping_p50,
       list_aggregate(took, 'quantile_cont', 0.95) as ping_p95,
       list_aggregate(took, 'quantile_cont', 0.99) as ping_p99
from whole
"""

_DWELLS: Final = """
select queue, moved_ts - moved_ts % 60000000 as minute_ts,
       quantile_cont(dwell, 0.5) as dwell_p50, quantile_cont(dwell, 0.95) as dwell_p95,
       quantile_cont(dwell, 0.99) as dwell_p99, max(dwell) as dwell_max, count(*) as moved
from (select queue, moved_ts, (moved_ts - diverted_ts) / 1e6 as dwell from merged_audit)
where dwell is not null group by all
"""

_BACKLOG: Final = """
with readings as (
    select engine, queue, minute_ts, sum(parked)::bigint as parked,
           arg_max(depth, read_ts) as depth, max(depth_max) as depth_max, arg_max(bytes, read_ts) as bytes,
           arg_max(dead_lettered, read_ts) as dead_lettered, arg_max(scheduled, read_ts) as scheduled,
           max(read_ts) as read_ts,
           (sum(n) * sum(sum_td) - sum(sum_t) * sum(sum_d))
               / nullif(sum(n) * sum(sum_tt) - sum(sum_t) * sum(sum_t), 0) as slope
    from raw_backlog group by all
)
select engine, queue, minute_ts, depth, depth_max, bytes, dead_lettered, scheduled, slope, read_ts,
       coalesce(parked, 0)::bigint as parked, coalesce(moved, 0)::bigint as moved,
       dwell_p50, dwell_p95, dwell_p99, dwell_max
from readings full join dwells using (queue, minute_ts)
"""

_SYPHON: Final = """
with flat as (
    select engine, queue, entity, minute_ts, sum(moved)::bigint as moved, sum(moved) / 60.0 as rate,
           coalesce(sum(retries), 0)::bigint as retries, coalesce(sum(dead_lettered), 0)::bigint as dead_lettered
    from raw_syphon group by all
), reasons as (
    select engine, queue, entity, minute_ts, map_from_entries(list((reason, number))) as dead_reasons from (
        select engine, queue, entity, minute_ts, reason, sum(dead_lettered)::bigint as number from raw_syphon
        where dead_lettered > 0 group by all order by reason
    ) group by all
)
select flat.engine, flat.queue, flat.entity, flat.minute_ts, coalesce(moved, 0)::bigint as moved,
       coalesce(rate, 0)::double as rate, retries, dead_lettered,
       coalesce(dead_reasons, map([]::varchar[], []::bigint[])) as dead_reasons
from flat left join reasons
  on flat.engine = reasons.engine and flat.minute_ts = reasons.minute_ts
 and flat.queue is not distinct from reasons.queue and flat.entity is not distinct from reasons.entity
"""

_COST: Final = """
select engine, minute_ts, cause, sum(operations)::bigint as operations, sum(bytes)::bigint as bytes
from raw_cost group by all
"""

_VERDICTS: Final = "select *, {batch}::bigint as through_batch from raw_verdicts"

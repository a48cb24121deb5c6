"""The tables `engines` and `gaps`: each boot's records by their numbers, and how it ended. SQL of Spark's.

ENGINES reads the views `spans` (of all records in the tables), `told` (the batch's rows of `timeline`), `receiving`
(boots with a `received` record in the batch) and `known_engines` (the table before).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from paired_servicebus.pipeline.ingest.event_parser import TYPES, arrow_schema
from paired_servicebus.pipeline.judging.receipts_sql import PAIRING_BY_NAME
from paired_servicebus.pipeline.table_store.manifest import Manifest
from paired_servicebus.pipeline.table_store.schema import GAPS

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
           coalesce(started.at, known.started_at) as started_at,
           {", ".join(f"coalesce(started.{name}, known.{name}) as {name}" for name in _TOLD)},
           coalesce(stopped.at, case when known.ended = 'stopped' then known.ended_at end) as stopped_at,
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

"""Reads the tables, for consoles and reports: duckdb over the files of one manifest. No Spark, no JVM.

    with Tables.open(places.tables) as tables:
        tables.rows("select * from episodes where open")

The views merge the partial rows of their files, and each exists with its columns (schema.py), even without files. Times
end in `_ts` and are microseconds since the epoch (UTC); durations are seconds. A query blocks for tens of milliseconds:
not for an event loop's thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import NoTablesError
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.table_store import audit_sql
from paired_servicebus.pipeline.table_store import manifest as manifests
from paired_servicebus.pipeline.table_store.manifest import File, Manifest
from paired_servicebus.pipeline.table_store.schema import TABLES

MEMORY: Final = "512MB"
MOST_NAMED: Final = 5
"""Journal files with unreadable lines that are named."""
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": MEMORY,
    "TimeZone": "UTC",
    "autoinstall_known_extensions": False,
}


class Tables:
    """The tables as of one batch. A context manager; for one thread.

    `batch` counts the changes of the tables, `written_at` is when the last of them was made, `read_at` when they were
    opened (seconds since the epoch).
    """

    def __init__(self, folder: Path, manifest: Manifest, *, read_at: float) -> None:
        self.folder = folder
        self.read_at = read_at
        self._take(manifest)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Return the tables in `folder`. Raises NoTablesError."""
        return cls(folder, manifests.read(folder), read_at=time.time())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def batch(self) -> int:
        """How often the tables have changed."""
        return self.manifest.batch

    @property
    def written_at(self) -> float:
        """When they last changed."""
        return self.manifest.written_at

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the result of a query, a dict for each row; `?` is a parameter.

        Raises NoTablesError: a file of the tables is missing or broken.
        """
        try:
            return self._rows(query, parameters)
        except duckdb.IOException:  # tidied away since the manifest was read
            self._connection.close()
            self._take(manifests.read(self.folder))
        try:
            return self._rows(query, parameters)
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            raise NoTablesError(
                f"the tables in {self.folder} are damaged ({error}): remove the folder and run paired pipeline --once"
            ) from error

    def row(self, query: str, parameters: Sequence[object] = ()) -> dict[str, Any] | None:
        """Return the first row; None where there is none. Raises as `rows`."""
        found = self.rows(query, parameters)
        return found[0] if found else None

    def verdict(self) -> dict[str, Any] | None:
        """Return the audit over all entities; None: not judged yet. Raises as `rows`."""
        return self.row("select * from verdicts where entity = ''")

    def unreadable(self) -> tuple[int, str]:
        """How many lines of the journal could not be read, and how many in which file. Raises as `rows`."""
        found = self.rows(
            "select file, count(*) as lines from events where trouble is not null and kind is distinct from 'gap' "
            "group by file order by lines desc, file"
        )
        named = [f"{row['lines']:,} in {repeated(row['file'] or 'a file')}" for row in found[:MOST_NAMED]]
        rest = len(found) - len(named)
        return sum(row["lines"] for row in found), ", ".join([*named, *([f"the rest in {rest} more"] if rest else [])])

    def cost(self, price: Price | None = None) -> list[dict[str, Any]]:
        """Operations and bytes by cause over all time, with `price` and `currency` where a price is known."""
        found = self.rows(
            "select cause, sum(operations)::bigint as operations, sum(bytes)::bigint as bytes from cost group by cause "
            "order by operations desc, cause"
        )
        if price is None:
            return found
        return [{**row, "price": price.of(row["operations"]), "currency": price.currency} for row in found]

    def _take(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._connection = duckdb.connect(config=_SETTINGS)
        for statement in definitions(self.folder, manifest):
            self._connection.execute(statement)

    def _rows(self, query: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
        done = self._connection.execute(query, list(parameters))
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


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

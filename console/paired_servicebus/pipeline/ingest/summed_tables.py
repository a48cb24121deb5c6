"""The tables whose rows are sums by minute: their keys, their measures, and the SQL that makes them. All of Spark's.

A batch's events are first summed up in one pass (SUMS, PINGS, READINGS): a row for each minute, kind and key. Each
table's rows of the batch are then added to its rows of the same minutes, so that a key has one row. Nothing depends on
how events were cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.pipeline.table_store.schema import TABLES

MEASURES: Final = (
    "accepted", "failed", "count", "sends", "parked", "pings", "receives", "moves", "settlements",
    "sent_bytes", "parked_bytes", "moved_bytes",
)  # fmt: skip
"""Fields of counted kinds that are summed."""
_COUNTED: Final = (
    "sends", "failures", "operations", "diverted", "moved", "dead-lettered", "destination-failed", "pump-stopped",
    "ping-sent", "ping-failed", "ping-accepted", "queue-read",
)  # fmt: skip

_MINUTE: Final = "date_trunc('minute', at)"
_WITHIN: Final = "(unix_micros(at) % 60000000) / 1e6D"

SUMS: Final = f"""
select engine, {_MINUTE} as minute, kind, entity, queue, route, failure,
       case when kind = 'dead-lettered' then reason end as reason, count(*) as n,
       {", ".join(f"try_sum(`{name}`) as `{name}`" for name in MEASURES)},
       max(case when kind = 'sends' and route = 'primary' and accepted > 0
                then timestamp_micros(unix_micros(at) - bigint(seconds * 1e6D)) end) as last_good_at
from events
where trouble is null and at is not null and kind in ({", ".join(f"'{kind}'" for kind in _COUNTED)})
group by 1, 2, 3, 4, 5, 6, 7, 8
"""
PINGS: Final = f"""
select engine, {_MINUTE} as minute, entity,
       collect_list(took) as ping_seconds
from events where trouble is null and at is not null and kind = 'ping-accepted' group by 1, 2, 3
"""
READINGS: Final = f"""
select engine, {_MINUTE} as minute, queue, max(at) as read_at, max_by(depth, at) as depth, max(depth) as depth_max,
       max_by(size_bytes, at) as bytes, max_by(dead_lettered, at) as dead_lettered,
       max_by(scheduled, at) as scheduled, count(*) as n, sum({_WITHIN}) as sum_t, sum(double(depth)) as sum_d,
       sum({_WITHIN} * {_WITHIN}) as sum_tt, sum({_WITHIN} * depth) as sum_td
from events where trouble is null and at is not null and kind = 'queue-read' group by 1, 2, 3
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

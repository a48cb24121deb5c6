"""The operations that an incident caused: those in its minutes, less the rate of the minutes before."""

from __future__ import annotations

from math import ceil
from typing import Final

from paired_servicebus.pipeline.report.queries.table_source import Row, Scope
from paired_servicebus.pipeline.report.report_values import CauseCost, IncidentCost

BASE: Final = 3600.0
"""Seconds before the incident that the base rate is from."""
MINUTE: Final = 60.0
CAUSED: Final = ("parked", "moves", "pings", "settlements", "receives")
"""Causes of an incident. Sends to the primary are none: the application makes them anyway."""


def read_total(scope: Scope) -> IncidentCost:
    """Return all operations of the scope's time: nothing failed over that could have caused them."""
    first, last = scope.since // MINUTE * MINUTE, (scope.until // MINUTE + 1) * MINUTE
    causes = tuple(
        CauseCost(cause=row["cause"], operations=row["operations"], caused=row["operations"], bytes=row["bytes"])
        for row in _sums(scope, first, last)
    )
    return IncidentCost(minutes=round((last - first) / MINUTE), base_minutes=0, causes=causes)


def read_cost(scope: Scope, begin: float, end: float, recorded: float, before: float | None) -> IncidentCost:
    """Return the cost of the incident from `begin` to `end`.

    The base rate is that of the hour before `begin`, after the begin of the record, and after `before`: the end of the
    incident before it.
    """
    first, last = begin // MINUTE * MINUTE, (end // MINUTE + 1) * MINUTE
    known = [first - BASE, ceil(recorded / MINUTE) * MINUTE, *([(before // MINUTE + 1) * MINUTE] if before else [])]
    base_since = max(known)
    base_minutes = max(0, round((first - base_since) / MINUTE))
    minutes = max(1, round((last - first) / MINUTE))
    base = {row["cause"]: row for row in _sums(scope, base_since, first)} if base_minutes else {}
    share = minutes / base_minutes if base_minutes else 0.0
    causes = []
    for row in _sums(scope, first, last):
        usual = base.get(row["cause"], {"operations": 0, "bytes": 0})
        caused = row["cause"] in CAUSED
        causes.append(
            CauseCost(
                cause=row["cause"],
                operations=row["operations"],
                caused=max(0, round(row["operations"] - usual["operations"] * share)) if caused else 0,
                bytes=max(0, round(row["bytes"] - usual["bytes"] * share)) if caused else 0,
            )
        )
    return IncidentCost(minutes=minutes, base_minutes=base_minutes, causes=tuple(causes))


def _sums(scope: Scope, since: float, until: float) -> list[Row]:
    return scope.rows(_COST, begin=round(since * 1e6), end=round(until * 1e6))


_COST: Final = """
select cause, sum(operations)::bigint as operations, coalesce(sum(bytes), 0)::bigint as bytes
from cost where minute >= {begin} and minute < {end}
  and date between cast({begin} as date) and cast({end} as date) and list_contains({engines}, engine)
group by cause order by operations desc, cause
"""

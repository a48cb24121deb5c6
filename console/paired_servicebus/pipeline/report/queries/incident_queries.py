"""Episodes, engines, the cost of an incident, and the facts that the tables lack."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pipeline.report.queries.table_source import Row, Scope, TableSource, limit_of, micros, possible
from paired_servicebus.pipeline.report.report_values import (
    CauseCost,
    Chain,
    EngineBoot,
    IncidentCost,
    IncidentEpisode,
    incidents,
)

# Episodes, engines and the recorded time, from the tables `episodes` and `engines`.

STEPS: Final = (
    "last_good_at", "suspected_at", "failed_over_at", "first_diverted_at", "first_ping_at", "failed_back_at",
    "backlog_empty_at",
)  # fmt: skip


def read_incidents(tables: TableSource, *, pairing: str | None = None) -> list[Chain]:
    """Return every incident with a failover, of one pairing or of all; the oldest first."""
    return incidents(one for one in read_episodes(tables, pairing=pairing) if one.failed_over_at is not None)


def read_episodes(tables: TableSource, *, pairing: str | None = None) -> list[IncidentEpisode]:
    """Return all episodes of possible times, of one pairing or of all."""
    before = limit_of(tables)
    found = [_episode(row, before) for row in tables.rows(_EPISODES)]
    return [one for one in found if one is not None and pairing in (None, one.pairing)]


def _episode(row: Row, before: float) -> IncidentEpisode | None:
    """Return the episode; None if it has no possible time. Impossible times of its steps are unknown."""
    steps = {step: row[step] if possible(row[step], before=before) else None for step in STEPS}
    began = next((at for at in (row["began_at"], *steps.values()) if possible(at, before=before)), None)
    if began is None:
        return None
    last = row["last_at"] if possible(row["last_at"], before=before) else None
    values: Row = {
        **{name: str(row[name] or "") for name in ("id", "pairing", "engine", "boot", "entity", "cause", "end_reason")},
        **steps,
    }
    return IncidentEpisode(
        **values,
        outcome=row["outcome"] or "",
        forced=bool(row["forced"]),
        began_at=began,
        last_at=max(at for at in (last, began) if at is not None),
        parked=row["parked"],
        moved=row["moved"] or 0,
        dead_lettered=row["dead_lettered"] or 0,
        pings=row["pings_sent"] or 0,
    )


def recorded_span(tables: TableSource, engines: tuple[str, ...] | None = None) -> tuple[float, float]:
    """Return the first and the last possible time of the engines' records.

    Raises ConfigurationError: there is none.
    """
    before = limit_of(tables)
    chosen = [row for row in tables.rows(_SPANS) if engines is None or row["engine"] in engines]
    firsts = [row["first_at"] for row in chosen if possible(row["first_at"], before=before)]
    lasts = [row["last_at"] for row in chosen if possible(row["last_at"], before=before)]
    if not firsts or not lasts or len(lasts) < len(chosen):
        return _exact_span(tables, before, engines)
    return min(firsts), max(lasts)


def _exact_span(tables: TableSource, before: float, engines: tuple[str, ...] | None) -> tuple[float, float]:
    """Look at the records themselves, where an engine's last time is impossible."""
    names = [row["engine"] for row in tables.rows(_SPANS)] if engines is None else list(engines)
    found = tables.rows(_RECORDS, [micros(before), names])
    if not found or found[0]["first"] is None:
        raise ConfigurationError(f"the tables in {tables.folders[0]} are empty: no journal has been read into them yet")
    return found[0]["first"], found[0]["last"]


def read_pairings(tables: TableSource) -> dict[str, tuple[str, ...]]:
    """Return the pairings of the tables, each with its engines."""
    found: dict[str, dict[str, None]] = {}
    for row in tables.rows("select distinct pairing, engine from engines order by pairing, engine"):
        found.setdefault(row["pairing"] or "", {})[row["engine"]] = None
    return {pairing: tuple(engines) for pairing, engines in found.items()}


def read_engines(scope: Scope) -> tuple[EngineBoot, ...]:
    """Return the boots of the scope's engines with records in its time, and the incomplete ones before its end."""
    return tuple(EngineBoot(**row) for row in scope.rows(_ENGINES))


def count_recovered(scope: Scope) -> int:
    """Return how often an entity was suspect and recovered without a failover."""
    return scope.count(_RECOVERED)


def _times(*names: str) -> str:
    return ", ".join(f"epoch_us({name}) / 1e6 as {name}" for name in names)


_EPISODES: Final = f"""
select id, pairing, engine, boot, entity, cause, end_reason, outcome, forced, parked, moved, dead_lettered, pings_sent,
       {_times("began_at", "last_at", *STEPS)}
from episodes order by began_at, id
"""
_SPANS: Final = f"select engine, {_times('first_at', 'last_at')} from engines"
_RECORDS: Final = """
select epoch_us(min(event_time)) / 1e6 as first, epoch_us(max(event_time)) / 1e6 as last from events
where trouble is null and event_time >= timestamp '1970-01-01' and event_time < make_timestamp(?::bigint)
  and list_contains(?, engine)
"""
_TEXTS: Final = ", ".join(
    f"""coalesce("{name}", '') as "{name}\""""
    for name in ("pairing", "engine", "boot", "ended", "end_reason", "primary", "secondary", "version")
)
_ENGINES: Final = f"""
select {_TEXTS}, coalesce(records, 0) as records, coalesce(missing, 0) as missing,
       {_times("started_at", "last_at", "complete_to")}
from engines
where list_contains({{engines}}, engine) and coalesce(started_at, first_at, last_at) <= {{until}}
  and (last_at >= {{since}} or missing > 0)
order by pairing, engine, coalesce(started_at, first_at), boot
"""
_RECOVERED: Final = """
select count(*) as number from episodes
where list_contains({engines}, engine) and failed_over_at is null and began_at between {since} and {until}
"""


# The facts that a report cannot have, each with its reason. Those about journals are in the verdict's evidence.

MAX_NAMED: Final = 5
"""Files that are named."""


def read_unknowns(scope: Scope) -> Iterator[str]:
    """Yield a sentence for each fact that the tables lack."""
    rows = scope.rows(_UNREADABLE)
    if rows:
        named = [f"{row['lines']:,} in {repeated(row['file'] or 'a file')}" for row in rows[:MAX_NAMED]]
        rest = [f"the rest in {len(rows) - MAX_NAMED} more"] if len(rows) > MAX_NAMED else []
        total = sum(row["lines"] for row in rows)
        yield f"{plural(total, 'line')} of the journals could not be read: {', '.join([*named, *rest])}"
    impossible = scope.count(_IMPOSSIBLE, latest=micros(limit_of(scope.tables)))
    if impossible:
        yield f"{plural(impossible, 'record')} with an impossible time: not in any figure by time"
    if not scope.count(_COUNTS):
        yield "no sends were counted in this time: failures at callers are unknown"


_UNREADABLE: Final = """
select file, count(*) as lines from events where trouble is not null and kind is distinct from 'gap'
group by file order by lines desc, file
"""
_IMPOSSIBLE: Final = """
select count(*) as number from events
where trouble is null and (event_time is null or event_time < timestamp '1970-01-01' or event_time > {latest})
"""
_COUNTS: Final = """
select count(*) as number from events
where kind = 'sends' and trouble is null and {mine}
"""


# The operations that an incident caused: those in its minutes, less the rate of the minutes before.

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

"""The tables to a report's values: one query each, over one manifest, so that all figures belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.journal.records import LATEST
from paired_servicebus.pipeline.report.incident import (
    Audit,
    Availability,
    Cost,
    Curves,
    Dwell,
    IncidentEpisode,
    Report,
    Series,
    TimelineAct,
    Verdict,
    incidents,
    timeline_of,
)
from paired_servicebus.pipeline.table_store.table_reader import Tables

MICROSECONDS: Final = 1_000_000
BEFORE: Final = 30.0
"""Seconds of normal operation before an incident that its report includes."""
AFTER: Final = 15.0
BUCKETS: Final = 150
SHOWN: Final = 10
"""Message ids of each kind that are given as evidence."""
FIGURES: Final = (
    "attempted", "accepted", "refused", "in_doubt", "recovered", "delivered", "dead_lettered", "parked", "lost",
    "in_flight", "unexpected", "duplicates", "out_of_order",
)  # fmt: skip

STEPS: Final = ("suspected", "failed_over", "first_ping", "failed_back", "backlog_empty")
"""Of an episode, each with its time."""

Chain = tuple[IncidentEpisode, ...]


def read_incidents(tables: Tables) -> list[Chain]:
    """Every incident with a failover, oldest first."""
    episodes = [_episode(tables, row) for row in tables.rows(_EPISODES)]
    return incidents([one for one in episodes if one.failed_over_at is not None])


def last_report(tables: Tables) -> Report:
    """Of the latest incident; of all that is recorded, where nothing failed over.

    Raises ConfigurationError: nothing is recorded.
    """
    found = read_incidents(tables)
    return _of_chain(tables, found[-1]) if found else _report(tables, (), *_recorded(tables))


def report_of(tables: Tables, episode: str) -> Report:
    """Of the incident that an episode belongs to. Raises ConfigurationError: there is no such episode."""
    found = read_incidents(tables)
    for chain in found:
        if any(one.id == episode for one in chain):
            return _of_chain(tables, chain)
    known = ", ".join(one.id for chain in found[-3:] for one in chain) or "none"
    raise ConfigurationError(f"there is no episode {episode!r} in the tables; the latest are: {known}")


def report_since(tables: Tables, since: float) -> Report:
    """Of everything since a time (seconds since the epoch). Raises ConfigurationError: nothing is recorded since."""
    first, last = _recorded(tables)
    if since > last:
        raise ConfigurationError("nothing is recorded since then: the tables end earlier")
    chains = read_incidents(tables)
    chosen = tuple(one for chain in chains for one in chain if one.ended_at >= since)
    return _report(tables, chosen, max(since, first), last)


def _of_chain(tables: Tables, chain: Chain) -> Report:
    first, last = _recorded(tables)
    until = last if any(one.open for one in chain) else max(one.ended_at for one in chain) + AFTER
    return _report(tables, chain, max(first, min(one.began_at for one in chain) - BEFORE), min(last, until))


def _recorded(tables: Tables) -> tuple[float, float]:
    row = tables.row(
        "select min(ts) as first, max(ts) as last from events where trouble is null and ts >= 0 and ts < ?", [LATEST]
    )
    if row is None or row["first"] is None:
        raise ConfigurationError(f"the tables in {tables.folder} are empty: no journal has been read into them yet")
    return row["first"] / MICROSECONDS, row["last"] / MICROSECONDS


def _report(tables: Tables, episodes: Chain, since: float, until: float) -> Report:
    span = [_micros(since), _micros(until)]
    return Report(
        batch=tables.batch,
        written_at=tables.written_at,
        read_at=tables.read_at,
        since=since,
        until=until,
        episodes=episodes,
        recovered=_count(tables, _RECOVERED, span),
        availability=tuple(_availability(row) for row in tables.rows(_AVAILABILITY, span)),
        dwell=tuple(Dwell(**row) for row in tables.rows(_DWELL, span)),
        cost=tuple(Cost(**row) for row in tables.rows(_COST, [span[0] - 60 * MICROSECONDS, span[1]])),
        audit=_audit(tables),
        acts=tuple(TimelineAct(**row) for row in tables.rows(_ACTS, span)),
        timeline=timeline_of(tables.rows(_TIMELINE, span)),
        curves=_curves(tables, since, until),
        warnings=tuple(_warnings(tables, span)),
    )


def _micros(at: float) -> int:
    return round(at * MICROSECONDS)


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / MICROSECONDS


def _count(tables: Tables, query: str, parameters: Sequence[object]) -> int:
    row = tables.row(query, parameters)
    return int(row["number"]) if row and row["number"] is not None else 0


def _episode(tables: Tables, row: dict[str, Any]) -> IncidentEpisode:
    began = row["suspected_ts"] or row["failed_over_ts"] or row["last_ts"]
    good = tables.row(_LAST_GOOD, [row["engine"], row["entity"], began])
    parked = tables.row(_FIRST_DIVERTED, [row["engine"], row["entity"], row["failed_over_ts"] or began])
    return IncidentEpisode(
        id=row["id"],
        engine=row["engine"],
        entity=row["entity"],
        outcome=row["outcome"],
        open=bool(row["open"]),
        forced=bool(row["forced"]),
        cause=row["cause"] or "",
        last_good_at=_seconds(min(good["ts"], began) if good and good["ts"] is not None else None),
        first_diverted_at=_seconds(parked["ts"]) if parked else None,
        **{f"{step}_at": _seconds(row[f"{step}_ts"]) for step in STEPS},
        last_at=(row["last_ts"] or began) / MICROSECONDS,
        parked=row["parked"] or 0,
        moved=row["moved"] or 0,
        dead_lettered=row["dead_lettered"] or 0,
        pings=row["pings_sent"] or 0,
    )


def _availability(row: dict[str, Any]) -> Availability:
    known = {"failures": dict(row["failures"] or {}), "longest_without": row["longest_without"] or 0.0}
    return Availability(**{**row, **known})


# -- the audit -----------------------------------------------------------------------------------------------------


def _audit(tables: Tables) -> Audit:
    found = tables.verdict()
    if found is None:
        return Audit(
            verdict="not judged",
            figures={},
            receivers_told=False,
            evidence=("the tables hold no verdict yet: paired pipeline --once makes it",),
        )
    figures = {name: int(found[name] or 0) for name in FIGURES}
    lost = figures["lost"] or figures["unexpected"]
    verdict: Verdict = "messages lost" if lost else "nothing lost"
    told = bool(found["receivers_told"])
    return Audit(
        verdict=verdict,
        figures=figures,
        receivers_told=told,
        evidence=tuple(_evidence(tables, figures, told)),
        in_flight_age=found["in_flight_age"],
    )


def _evidence(tables: Tables, figures: dict[str, int], receivers_told: bool) -> list[str]:
    """Return the evidence of the verdict and the ids against it."""
    receipts = _count(tables, _RECEIPTS, [])
    rests = _rests(tables, receivers_told=receivers_told)
    said = [f"{receipts:,} receipts of {figures['attempted']:,} attempted messages; delivery is judged by {rests}"]
    for status, what in _TOLD_BY_ID:
        rows = tables.rows(_IDS, [status, SHOWN])
        if rows:
            total = _count(tables, "select count(*) as number from audit where status = ?", [status])
            more = f" and {total - len(rows):,} more" if total > len(rows) else ""
            ids = ", ".join(f"{row['message_id']} ({row['entity']})" for row in rows)
            said.append(f"{what}: {ids}{more}{_CAVEATS.get(status, '')}")
    return said


def _rests(tables: Tables, *, receivers_told: bool) -> str:
    """Return the basis of the delivery figures, and the entities of each."""
    rows = tables.rows("select entity, receivers_told from verdicts where entity <> '' order by entity")
    silent = [row["entity"] for row in rows if not row["receivers_told"]]
    if not receivers_told:
        return "the primary's answers; no receiver's receipts are recorded"
    if not silent:
        return "receivers' receipts"
    telling = [row["entity"] for row in rows if row["receivers_told"]]
    return (
        f"receivers' receipts at {', '.join(telling)}; by the primary's answers at {', '.join(silent)}, where no "
        "receiver's receipts are recorded"
    )


_TOLD_BY_ID: Final = (
    ("undelivered", "lost"), ("in flight", "in flight"), ("unexpected", "unexpected"), ("parked", "still parked"),
)  # fmt: skip
_CAVEATS: Final = {"undelivered": "; messages that expire at their destination leave no receipt and are among them"}

# -- curves --------------------------------------------------------------------------------------------------------


def _curves(tables: Tables, since: float, until: float) -> Curves:
    bucket = max(1.0, (until - since) / BUCKETS)
    count = max(1, int((until - since) / bucket) + 1)
    span = [_micros(since), _micros(bucket), _micros(since), _micros(until)]
    sends: dict[str, dict[str, list[float]]] = {}
    for row in tables.rows(_SENDS, span):
        found = sends.setdefault(row["entity"], {name: [0.0] * count for name in ("primary", "backlog", "failed")})
        for name, values in found.items():
            values[min(row["bucket"], count - 1)] += row[name] / bucket
    lying = [0.0] * count
    for row in tables.rows(_LYING, span):
        lying[min(row["bucket"], count - 1)] += row["change"]
    total, parked = 0.0, []
    for change in lying:
        total += change
        parked.append(max(0.0, total))
    return Curves(
        since=since,
        bucket=bucket,
        sends={
            entity: tuple(Series(name=name, values=tuple(values)) for name, values in found.items())
            for entity, found in sorted(sends.items())
        },
        parked=Series(name="parked", values=tuple(parked)),
    )


# -- what cannot be told -------------------------------------------------------------------------------------------


def _warnings(tables: Tables, span: Sequence[object]) -> list[str]:
    said = []
    missing = _count(tables, "select sum(missing) as number from gaps", [])
    if missing:
        said.append(f"{missing:,} records are missing from the journal: figures may be too small")
    troubled, files = tables.unreadable()
    if troubled:
        said.append(f"{troubled:,} {'line' if troubled == 1 else 'lines'} of the journal could not be read: {files}")
    if not _count(tables, "select count(*) as number from events where kind = 'sends' and ts between ? and ?", span):
        said.append("no sends were counted in this time: availability is unknown")
    return said


_EPISODES: Final = "select * from episodes order by coalesce(suspected_ts, failed_over_ts, last_ts), id"
_RECOVERED: Final = """
select count(*) as number from episodes where failed_over_ts is null and suspected_ts between ? and ?
"""
_LAST_GOOD: Final = """
select max(ts) as ts from events
where kind = 'sends' and route = 'primary' and accepted > 0 and engine = ? and lower(entity) = lower(?)
  and ts - seconds * 1000000 < ?
"""
_FIRST_DIVERTED: Final = """
select min(ts) as ts from events where kind = 'diverted' and engine = ? and lower(entity) = lower(?) and ts >= ?
"""
_AVAILABILITY: Final = """
with windows as (
    select entity, route, accepted, failed, ts, ts - seconds * 1000000 as since from events
    where kind = 'sends' and ts between ? and ?
), kinds as (
    select entity, map_from_entries(list((failure, number) order by number desc, failure)) as failures from (
        select entity, failure, sum(count)::bigint as number from events, (select min(since) as since, max(ts) as until
        from windows) where kind = 'failures' and ts between since and until group by all
    ) group by entity
), good as (
    select entity, since - lag(ts) over (partition by entity order by ts) as without from windows where accepted > 0
), longest as (select entity, greatest(max(without), 0) / 1e6 as longest_without from good group by entity)
select entity,
       coalesce(sum(accepted) filter (route = 'primary'), 0)::bigint as primary_accepted,
       coalesce(sum(accepted) filter (route <> 'primary'), 0)::bigint as backlog_accepted,
       sum(failed)::bigint as failed, any_value(failures) as failures, any_value(longest_without) as longest_without
from windows left join kinds using (entity) left join longest using (entity)
group by entity order by entity
"""
_DWELL: Final = """
select entity, count(*)::bigint as parked, count(dwell)::bigint as home, median(dwell) as middle,
       quantile_cont(dwell, 0.95) as most, max(dwell) as longest
from audit where diverted_ts between ? and ? group by entity order by entity
"""
_COST: Final = """
select cause, sum(operations)::bigint as operations, coalesce(sum(bytes), 0)::bigint as bytes
from cost where minute_ts between ? and ? group by cause order by operations desc, cause
"""
_ACTS: Final = """
select acts.ts / 1e6 as at, coalesce(acts."by", '') as "by", coalesce(acts.command, '') as what,
       coalesce(acts.target, '') as target, coalesce(acts.why, '') as why,
       coalesce(nullif(ends.outcome, ''), 'not known: the engine ended first') as outcome
from events acts left join events ends
  on ends.kind = 'command-ended' and ends.engine = acts.engine and ends.boot = acts.boot
 and ends.command_seq = acts.seq
where acts.kind = 'commanded' and acts.ts between ? and ? order by acts.ts, acts.seq
"""
_TIMELINE: Final = """
select * from events
where trouble is null and ts between ? and ?
  and kind not in ('sends', 'failures', 'operations', 'queue-read', 'ping-sent', 'delivered', 'diverted', 'in-doubt',
                   'refused', 'received', 'moved', 'command-ended')
order by ts, engine, boot, seq
"""
_RECEIPTS: Final = """
select count(*) as number from events
where kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')
"""
_IDS: Final = "select message_id, entity from audit where status = ? order by first_ts, message_id limit ?"
_SENDS: Final = """
select entity, ((ts - ?) // ?)::bigint as bucket,
       coalesce(sum(accepted) filter (route = 'primary'), 0)::double as "primary",
       coalesce(sum(accepted) filter (route <> 'primary'), 0)::double as backlog, sum(failed)::double as failed
from events where kind = 'sends' and ts between ? and ? group by all order by entity, bucket
"""
_LYING: Final = """
select ((ts - ?) // ?)::bigint as bucket,
       sum(case when kind = 'diverted' then 1 else -1 end)::double as change
from events where kind in ('diverted', 'moved', 'dead-lettered') and ts between ? and ? group by all order by bucket
"""

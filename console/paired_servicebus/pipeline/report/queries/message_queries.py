"""The messages at risk: the results of their sends, by entity, and the verdict on them, with messages by name.

At risk in a report are the messages that were first seen in its time, and those that were accepted before and not
received by then. A count is made once, for each entity; the verdict's are the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from paired_servicebus.pipeline.report.queries.table_source import Row, Scope, micros
from paired_servicebus.pipeline.report.report_values import Chain, EntityRow, failovers
from paired_servicebus.pipeline.report.verdict import Counts, Finding, Judgement, verdict_word

SHOWN: Final = 10
"""Message ids of each fate that are named."""
NAMED: Final = (
    "lost", "missing", "expired", "unknown", "in flight", "unexpected", "dead-lettered", "parked", "in doubt",
)  # fmt: skip
"""Fates with named messages, the worst first."""


def read_messages(scope: Scope, episodes: Chain) -> tuple[tuple[EntityRow, ...], Judgement]:
    """Return each entity's row, and the verdict on all messages at risk."""
    counted = scope.rows(_COUNTED)
    entities = _entities(scope, counted, episodes)
    return entities, _judgement(scope, counted)


def _entities(scope: Scope, counted: Sequence[Row], episodes: Chain) -> tuple[EntityRow, ...]:
    found: dict[str, Row] = {}
    for row in (*scope.rows(_SENDS), *scope.rows(_FAILURES), *map(_of_messages, counted)):
        found.setdefault(row["entity"], {}).update(row)
    refused = {row["entity"]: row for row in scope.rows(_REFUSED)}
    if any(row["recorded"] for row in refused.values()):  # else refusals are unknown
        for name, row in found.items():
            row["refused"] = refused.get(name, {}).get("refused", 0)
    for one in failovers(episodes):
        found.setdefault(one.entity.lower(), {"entity": one.entity.lower()})["failover"] = one
    rows = [EntityRow(**row) for row in found.values()]
    return tuple(sorted(rows, key=lambda one: (one.failover is None, -one.failed, one.entity)))


def _of_messages(row: Row) -> Row:
    """Return the part of an entity's row that is of its counted messages."""
    waited = {name: row[name] for name in ("entity", "home", "middle", "most", "longest")}
    return waited | {
        "parked": row["diverted"],
        "lost": row["lost"] + row["missing"],
        "undelivered": row["expired"] + row["dead_lettered"],
        "unknown": row["unknown"] + row["unexpected"] + row["unsent"],
    }


def _judgement(scope: Scope, counted: Sequence[Row]) -> Judgement:
    whole, entities = scope.rows(_WHOLE), scope.rows(_ENTITIES)
    judged_at = min((row["judged_at"] for row in whole if row["judged_at"] is not None), default=None)
    found = Judgement(
        incident=_at_risk(scope, counted),
        recorded=_recorded(whole),
        findings=tuple(_findings(scope)),
        receivers=tuple(row["entity"] for row in entities if row["receivers_told"]),
        silent=tuple(row["entity"] for row in entities if not row["receivers_told"]),
        rests_on=tuple(row["rests_on"] for row in whole if row["rests_on"]),
        journals=sum(row["journals"] or 0 for row in whole),
        journals_complete=sum(row["journals_complete"] or 0 for row in whole),
        complete_to=min((row["complete_to"] for row in whole if row["complete_to"] is not None), default=None),
        judged_at=judged_at,
        syphon_known=scope.count(_SYPHONS) > 0,
        unjudged=0 if judged_at is None else scope.count(_UNJUDGED, latest=micros(judged_at)),
    )
    return replace(found, verdict=verdict_word(found, has_receipts=scope.count(_RECEIPTS) > 0))


def _at_risk(scope: Scope, counted: Sequence[Row]) -> Counts:
    """Return the sums over all entities; parked messages that are in no queue are missing, though not by name."""
    sums = _sums(counted)
    unnamed = scope.count(_UNNAMED)
    return Counts.of({**sums, "parked": max(0, sums["parked"] - unnamed), "missing": sums["missing"] + unnamed})


def _recorded(whole: Sequence[Row]) -> Counts:
    """Return the sums of the table verdicts, where delivered is the receivers' number, if any records."""
    rows = [
        {
            **row,
            "delivered": row["delivered"] if row["receivers_told"] else row["reached"] or row["delivered"],
            "in_doubt": (row["in_doubt"] or 0) - (row["recovered"] or 0),
        }
        for row in whole
    ]
    return Counts.of(_sums(rows))


def _sums(rows: Sequence[Row]) -> dict[str, int]:
    return {one.name: sum(int(row.get(one.name) or 0) for row in rows) for one in fields(Counts)}


def _findings(scope: Scope) -> Iterator[Finding]:
    """Yield the messages by name, the worst first."""
    reasons: dict[str, list[str]] = {}
    for row in scope.rows(_REASONS):
        reasons.setdefault(row["status"], []).append(row["reason"])
    found = {row["status"]: row for row in scope.rows(_NAMED, statuses=list(NAMED))}
    for status in (status for status in NAMED if status in found):
        row = found[status]
        named = tuple(f"{one['id']} ({one['entity']})" for one in row["named"])
        yield Finding(
            status=status, total=row["total"], named=named, oldest_age=row["oldest_age"],
            reasons=tuple(reasons.get(status, ())),
        )  # fmt: skip


def lost_messages(scope: Scope, statuses: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages at risk of these fates, each with its times and place; the oldest first."""
    return scope.rows(_LOST, statuses=list(statuses))


_STATUSES: Final = ", ".join(
    f"count(*) filter (status = '{status}') as {status.replace(' ', '_').replace('-', '_')}"
    for status in (
        "lost", "missing", "expired", "unexpected", "in flight", "parked", "dead-lettered", "in doubt", "refused",
    )
)  # fmt: skip
_COUNTED: Final = f"""
select lower(entity) as entity, {_STATUSES},
       count(*) filter (status = 'unknown' or status not in ('delivered', 'accepted', 'lost', 'missing', 'expired',
           'unexpected', 'in flight', 'parked', 'dead-lettered', 'in doubt', 'refused')) as unknown,
       count(*) filter (status in ('delivered', 'accepted')) as delivered,
       count(*) filter (answer <> 'never attempted') as attempted, count(*) filter (answer = 'accepted') as accepted,
       count(*) filter (direct > 0) as direct, count(*) filter (diverted > 0) as diverted,
       count(*) filter (diverted > 0 and moved > 0) as home,
       count(*) filter (answer = 'never attempted' and received > 0 and status <> 'unexpected') as unsent,
       coalesce(sum(duplicates), 0)::bigint as duplicates, count(*) filter (out_of_order) as out_of_order,
       quantile_cont(dwell, 0.5) as middle, quantile_cont(dwell, 0.95) as most, max(dwell) as longest
from audit where {{at_risk}} group by lower(entity) order by 1
"""
"""A fate of another name is unknown."""
_UNNAMED: Final = """
select sum(number) as number
from (select max(among_missing) as number from audit where {at_risk} and status = 'parked' group by pairing)
"""
_NAMED: Final = f"""
select status, count(*) as total, max(age) as oldest_age,
       arg_min(struct_pack(id := message_id, entity := entity), (first_at, message_id), {SHOWN}) as named
from audit where {{at_risk}} and list_contains({{statuses}}, status) group by status
"""
_REASONS: Final = """
select status, reason from audit where {at_risk} and coalesce(reason, '') <> '' group by status, reason
qualify row_number() over (partition by status order by count(*) desc, reason) <= 3
order by status, count(*) desc, reason
"""
_LOST: Final = """
select status, entity, message_id, accepted_at, diverted_at, moved_at, queue, stream, number, reason from audit
where {at_risk} and list_contains({statuses}, status) order by first_at, message_id
"""
_WHOLE: Final = """
select * exclude (complete_to, judged_at), epoch_us(complete_to) / 1e6 as complete_to,
       epoch_us(judged_at) / 1e6 as judged_at
from verdicts where entity = '' and list_contains({pairings}, pairing)
"""
_ENTITIES: Final = """
select entity, bool_or(receivers_told) as receivers_told from verdicts
where entity <> '' and list_contains({pairings}, pairing) group by entity order by entity
"""
_SYPHONS: Final = """
select count(*) as number from engines
where list_contains({pairings}, pairing) and (syphon or engine like '%-drain@%')
"""
_RECEIPTS: Final = """
select count(*) as number from events
where kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')
  and trouble is null and {mine}
"""
_UNJUDGED: Final = f"{_RECEIPTS} and event_time > {{latest}}"

# Sends, in counts of about a second each.

_SENDS: Final = """
with counts as (
    select engine, lower(entity) as entity, epoch_us(event_time) as stop,
           epoch_us(event_time) - max(least(seconds, 3600) * 1e6)::bigint as start,
           sum(case when route = 'primary' then accepted else 0 end) as primary_accepted,
           sum(case when route = 'primary' then 0 else accepted end) as backlog_accepted, sum(failed) as failed
    from events where kind = 'sends' and trouble is null and {mine} group by engine, lower(entity), event_time
), good as (
    select engine, entity, start, stop, lag(stop) over (partition by engine, entity order by stop) as before
    from counts where primary_accepted + backlog_accepted > 0
), bad as (
    select engine, entity, start, stop from counts where primary_accepted + backlog_accepted = 0 and failed > 0
), placed as (
    select bad.*, good.start as next_start, good.before from bad asof left join good
      on bad.engine = good.engine and bad.entity = good.entity and bad.stop <= good.stop
), blocks as (
    select engine, entity, greatest(coalesce(next_start, max(stop)) - greatest(min(start), coalesce(before, 0)), 0)
        as blocked
    from placed group by engine, entity, next_start, before
), blocked as (
    select entity, max(blocked) / 1e6 as blocked
    from (select engine, entity, sum(blocked) as blocked from blocks group by engine, entity) group by entity
), longest as (
    select entity, greatest(max(start - before), 0) / 1e6 as longest_without from good group by entity
), sums as (
    select entity, sum(primary_accepted)::bigint as primary_accepted,
           sum(backlog_accepted)::bigint as backlog_accepted, sum(failed)::bigint as failed
    from counts group by entity
)
select sums.*, longest_without, blocked from sums left join longest using (entity) left join blocked using (entity)
order by entity
"""
"""Failed attempts without an accepted send beside them block until the next accepted one, or until the last of them."""
_FAILURES: Final = """
select entity, map(list(failure order by number desc, failure), list(number order by number desc, failure)) as failures
from (select lower(entity) as entity, failure, sum("count")::bigint as number from events
      where kind = 'failures' and trouble is null and {mine} group by lower(entity), failure)
group by entity
"""
_REFUSED: Final = """
select lower(entity) as entity, count(*) filter (kind = 'refused')::bigint as refused,
       bool_or(kind in ('refused', 'delivered')) as recorded
from events
where kind in ('refused', 'delivered') and trouble is null and {mine}
group by lower(entity)
"""

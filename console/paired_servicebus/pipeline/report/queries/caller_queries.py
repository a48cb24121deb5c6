"""The results for callers, and how long messages were parked, for each group of entities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from paired_servicebus.pipeline.report.queries.table_source import Row, Scope
from paired_servicebus.pipeline.report.report_values import Callers, Dwell, Fate


def read_callers(scope: Scope, fates: Sequence[Fate]) -> tuple[Callers, ...]:
    """Return the results of each fate's entities, then of all entities that stayed on the primary."""
    rows = scope.rows(_SENDS)
    failures = scope.rows(_FAILURES)
    refused = _refused(scope)
    groups = group_entities(fates, [row["entity"] for row in rows])
    found = []
    for names, stayed in groups:
        mine = [row for row in rows if row["entity"] in names]
        found.append(_callers(names, stayed, mine, failures, refused))
    return tuple(found)


def _callers(
    names: tuple[str, ...], stayed: bool, rows: list[Row], failures: list[Row], refused: dict[str, int] | None
) -> Callers:
    kinds: dict[str, int] = {}
    for row in failures:
        if row["entity"] in names:
            kinds[row["failure"]] = kinds.get(row["failure"], 0) + row["number"]
    without = [row["longest_without"] for row in rows if row["longest_without"] is not None]
    return Callers(
        entities=names,
        stayed=stayed,
        primary_accepted=sum(row["primary_accepted"] for row in rows),
        backlog_accepted=sum(row["backlog_accepted"] for row in rows),
        failed=sum(row["failed"] for row in rows),
        failures=dict(sorted(kinds.items(), key=lambda one: (-one[1], one[0]))),
        blocked=max((row["blocked"] or 0.0 for row in rows), default=0.0),
        longest_without=max(without, default=None),
        refused=None if refused is None else sum(refused.get(name, 0) for name in names),
    )


def group_entities(fates: Sequence[Fate], entities: Iterable[str]) -> list[tuple[tuple[str, ...], bool]]:
    """Return each fate's entities in lower case, then all others, marked as such; no entity is in two groups."""
    left = dict.fromkeys(entities)
    groups: list[tuple[tuple[str, ...], bool]] = []
    for fate in fates:
        mine = tuple(dict.fromkeys(name for entity in fate.entities if (name := entity.lower()) in left))
        if mine:
            groups.append((mine, False))
        for name in mine:
            del left[name]
    return [*groups, *([(tuple(left), True)] if left else [])]


def _refused(scope: Scope) -> dict[str, int] | None:
    """Return the refused messages of each entity; None: neither refusals nor deliveries are recorded one by one."""
    rows = scope.rows(_REFUSED)
    if not any(row["recorded"] for row in rows):
        return None
    return {row["entity"]: row["number"] for row in rows}


def read_dwell(scope: Scope, fates: Sequence[Fate]) -> tuple[Dwell, ...]:
    """Return how long the messages of each group were parked, of those diverted in the scope's time."""
    names = [row["entity"] for row in scope.rows(_DIVERTED_ENTITIES)]
    found = (scope.rows(_DWELL, entities=list(group)) for group, _ in group_entities(fates, names))
    return tuple(
        Dwell(entities=group, **rows[0])
        for (group, _), rows in zip(group_entities(fates, names), found, strict=True)
        if rows and rows[0]["parked"]
    )


_SENDS: Final = """
with counts as (
    select engine, lower(entity) as entity, epoch_us("at") as stop,
           epoch_us("at") - max(least(seconds, 3600) * 1e6)::bigint as start,
           sum(case when route = 'primary' then accepted else 0 end) as primary_accepted,
           sum(case when route = 'primary' then 0 else accepted end) as backlog_accepted, sum(failed) as failed
    from events where kind = 'sends' and trouble is null and {mine} group by engine, lower(entity), "at"
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
select lower(entity) as entity, failure, sum("count")::bigint as number from events
where kind = 'failures' and trouble is null and {mine}
group by all order by number desc, failure
"""
_REFUSED: Final = """
select lower(entity) as entity, count(*) filter (kind = 'refused')::bigint as number,
       bool_or(kind in ('refused', 'delivered')) as recorded
from events
where kind in ('refused', 'delivered') and trouble is null and {mine}
group by all
"""
_DIVERTED_ENTITIES: Final = """
select distinct lower(entity) as entity from audit
where {diverted} order by entity
"""
_DWELL: Final = """
select count(*)::bigint as parked, count(dwell)::bigint as home, quantile_cont(dwell, 0.5) as middle,
       quantile_cont(dwell, 0.95) as most, max(dwell) as longest
from audit
where {diverted}
  and list_contains({entities}, lower(entity))
"""

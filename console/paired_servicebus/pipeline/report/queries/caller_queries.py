"""The results for callers, and how long messages were parked, for each group of entities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from paired_servicebus.pipeline.report.incident import Fate
from paired_servicebus.pipeline.report.queries.table_source import Row, Scope
from paired_servicebus.pipeline.report.report_values import Callers, Dwell


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
    select engine, lower(entity) as entity, "at",
           min("at" - to_microseconds((least(seconds, 3600) * 1e6)::bigint)) as since,
           coalesce(sum(accepted) filter (route = 'primary'), 0) as primary_accepted,
           coalesce(sum(accepted) filter (route <> 'primary'), 0) as backlog_accepted, sum(failed) as failed
    from events
    where kind = 'sends' and trouble is null and {mine}
    group by all
), placed as (
    select *, primary_accepted + backlog_accepted > 0 as good,
           count(*) filter (primary_accepted + backlog_accepted > 0)
               over (partition by engine, entity order by "at" rows unbounded preceding) as part
    from counts
), parts as (
    select engine, entity, part, min(since) filter (good) as good_since, min("at") filter (good) as good_at,
           min(since) filter (not good and failed > 0) as bad_since,
           max("at") filter (not good and failed > 0) as bad_at
    from placed group by engine, entity, part
), gaps as (
    select *, lead(good_since) over (partition by engine, entity order by part) as next_since from parts
), lengths as (
    select engine, entity, max(epoch_us(next_since) - epoch_us(good_at)) filter (good_at is not null) as without,
           sum(epoch_us(coalesce(next_since, bad_at)) - epoch_us(greatest(bad_since, good_at)))
               filter (bad_since is not null) as blocked
    from gaps group by engine, entity
), longest as (
    select entity, greatest(max(without), 0) / 1e6 as longest_without, greatest(max(blocked), 0) / 1e6 as blocked
    from lengths group by entity
)
select entity, sum(primary_accepted)::bigint as primary_accepted, sum(backlog_accepted)::bigint as backlog_accepted,
       sum(failed)::bigint as failed, any_value(longest_without) as longest_without, any_value(blocked) as blocked
from counts left join longest using (entity) group by entity order by entity
"""
"""Counts between an accepted send and the next one make a part: without accepted sends, failed attempts block it."""
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

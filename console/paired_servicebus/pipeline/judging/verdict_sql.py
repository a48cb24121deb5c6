"""Verdicts: the audit summed up, and what each sum rests on.

A row is of an entity, of a pairing (`entity` ''), or of everything (`pairing` '' too). A topic has a row for each
subscription that records, with deliveries and duplicates only: its filter is not known here. The same SQL judges one
incident: the messages that were first seen in a span of time.

The views of `parts_sql`, over all messages, are made first; the statement itself reads their few rows.
"""

from __future__ import annotations

from typing import Final

_COUNTED: Final = (
    ("attempted", "answer <> 'never attempted'"),
    ("accepted", "answer = 'accepted'"),
    ("refused", "answer = 'refused'"),
    ("in_doubt", "answer = 'in doubt'"),
    ("recovered", "answer = 'in doubt' and (received > 0 or (not receivers_told and moved > 0))"),
    ("reached", "direct + moved > 0 or received > 0"),
    ("delivered", "received > 0"),
    ("dead_lettered", "status = 'dead-lettered'"),
    ("parked", "status = 'parked'"),
    ("in_flight", "status = 'in flight'"),
    ("missing", "status = 'missing'"),
    ("lost", "status = 'lost'"),
    ("unknown", "status = 'unknown'"),
    ("unexpected", "status = 'unexpected'"),
    ("unsent", "answer = 'never attempted' and received > 0 and status <> 'unexpected'"),
    ("out_of_order", "out_of_order"),
    ("direct", "direct > 0"),
    ("recorded", "receivers_told"),
)
_COUNTS: Final = ",\n           ".join(
    f"cast(count(case when {rule} then 1 end) as bigint) as {name}" for name, rule in _COUNTED
)

_JOURNALS: Final = """
journals as (
    select pairing, engine,
           max(case when missing > 0 and coalesce(unix_micros(complete_from) > {since}, true)
                     and coalesce(unix_micros(complete_to) < {until}, true) then missing else 0 end) as lacks,
           max(case when ended = 'silent' and unix_micros(last_at) < {until} then last_at end) as silent_at,
           max(last_at) as last_at, max(case when ended in ('stopped', 'restarted') then 0 else 1 end) as runs
    from {engines}
    where engine not like '%-drain@%' and unix_micros(first_at) <= {until}
      and (unix_micros(last_at) >= {since} or ended not in ('stopped', 'restarted'))
    group by pairing, engine
),
all_journals as (
    select * from journals
    union all select '' as pairing, engine, lacks, silent_at, last_at, runs from journals
),
known as (
    select pairing, cast(count(*) as bigint) as journals,
           cast(count(case when lacks = 0 and silent_at is null then 1 end) as bigint) as journals_complete,
           coalesce(min(case when lacks = 0 and silent_at is null and runs = 1 then last_at end),
                    max(case when lacks = 0 and silent_at is null then last_at end)) as complete_to,
           sort_array(collect_set(case
               when lacks > 0
                   then concat(engine, ' lacks ', lacks, case when lacks = 1 then ' record' else ' records' end)
               when silent_at is not null
                   then concat(engine, ' recorded nothing after ', substr(cast(silent_at as string), 1, 16), ' UTC')
               end)) as weak
    from all_journals group by pairing
),
syphons as (
    select pairing, max(case when syphon or engine like '%-drain@%' then 1 else 0 end) as syphon
    from (select pairing, engine, syphon from {engines} union all select '' as pairing, engine, syphon from {engines})
    group by pairing
)"""


def parts_sql(
    *, audit: str = "audit", receipts: str = "receipts", since: int | None = None, until: int | None = None
) -> dict[str, str]:
    """Return the statements of the views `counted` and `subscribed`, by name: a few rows for each entity.

    Args:
        since, until: only messages first seen between them, in microseconds; None: all.
    """
    scope = "true"
    if since is not None or until is not None:
        scope = f"unix_micros(first_at) between {_since(since)} and {_until(until)}"
    return {
        "counted": _COUNTED_BY_ENTITY.format(audit=audit, scope=scope),
        "subscribed": _COUNTED_BY_SUBSCRIPTION.format(receipts=receipts, scope=scope),
    }


def verdicts_sql(*, engines: str = "engines", now: int, since: int | None = None, until: int | None = None) -> str:
    """Return the statement over `engines` and the views of `parts_sql`, in the columns of schema.VERDICTS.

    Args:
        now: the time of the judgement, in microseconds since the epoch.
        since, until: as there.
    """
    return _VERDICTS.format(engines=engines, now=now, since=_since(since), until=_until(until))


def _since(at: int | None) -> int:
    return -1 if at is None else at


def _until(at: int | None) -> int:
    return 2**62 if at is None else at


_NUMBERS: Final = (*(name for name, _ in _COUNTED), "duplicates")
_SUM: Final = ", ".join(f"cast(coalesce(sum({name}), 0) as bigint) as {name}" for name in _NUMBERS)
_OWN: Final = ", ".join(_NUMBERS)
_OF_SUBSCRIPTION: Final = {
    "delivered": "count(*)",
    "duplicates": "sum(greatest(received - redelivered - 1, 0))",
}
_BY_SUBSCRIPTION: Final = ", ".join(
    f"cast({_OF_SUBSCRIPTION.get(name, 'null')} as bigint) as {name}" for name in _NUMBERS
)

_COUNTED_BY_ENTITY: Final = f"""
select pairing, entity,
       {_COUNTS},
       cast(coalesce(sum(duplicates), 0) as bigint) as duplicates,
       cast(coalesce(max(among_missing), 0) as bigint) as unnamed,
       max(case when status = 'in flight' then age end) as in_flight_age, max(received_at) as recorded_at
from {{audit}} where {{scope}} group by pairing, entity
"""
"""An entity whose name was written in several ways has as many rows: max(entity) would make Spark sort all messages."""
_COUNTED_BY_SUBSCRIPTION: Final = f"""
select pairing, max(entity) as entity, max(subscription) as subscription, {_BY_SUBSCRIPTION},
       max(received_at) as recorded_at
from {{receipts}} where subscription is not null and received > 0 and {{scope}}
group by pairing, lower(entity), lower(subscription)
"""

_RESTS_ON: Final = """
concat_ws(' ',
    case when subscription <> '' then concat('Only what receivers of ', entity, '/', subscription,
            ' recorded; its filter is not known here.')
         when entities = 0 then 'No message has a receipt here.'
         when recording_entities = 0 then concat('No receiver', of_entity,
            ' records what it gets: accepted means that the primary, or a backlog queue, accepted a message.')
         when recording_entities < entities then concat('Receivers of ', recording_entities, ' of ', entities,
            ' entities record what they get, last at ', substr(cast(recorded_at as string), 1, 16), ' UTC.')
         else concat('Receivers', of_entity,
            ' record what they get, last at ', substr(cast(recorded_at as string), 1, 16), ' UTC.') end,
    case when coalesce(journals, 0) = 0 then 'No engine is known.'
         else concat(journals_complete, ' of ', journals, case when journals = 1 then ' journal is complete'
            when journals_complete = 1 then ' journals is complete' else ' journals are complete' end,
            case when complete_to is null then ''
                 else concat(' to ', substr(cast(complete_to as string), 1, 16), ' UTC') end,
            case when journals_complete < journals then concat(': ', array_join(weak, ', ')) else '' end, '.') end,
    case when subscription = '' and attempted > 0 and direct = 0
         then 'Direct sends are not recorded; messages that stayed on the direct path are not counted.' end,
    case when parked > 0 and coalesce(syphon, 0) = 0
         then 'No journal here is of an engine with a syphon: parked messages may have been moved since.' end,
    case when among_missing > 0 then concat(among_missing,
         ' of the parked messages are not in the backlog queues; which ones is not known.') end,
    case when unsent > 0 then concat(unsent, ' received messages have no sender in these journals.') end,
    case when lost > 0 then concat('A lost message may have expired, or be in the dead-letter queue of its entity, ',
         'or have gone to a receiver that records nothing here.') end)"""

_VERDICTS: Final = f"""
with {_JOURNALS},
by_entity as (
    select pairing, lower(entity) as folded, max(entity) as entity, {_SUM}, cast(max(unnamed) as bigint) as unnamed,
           max(in_flight_age) as in_flight_age, max(recorded_at) as recorded_at
    from counted group by pairing, lower(entity)
),
levels as (select 'entity' as level union all select 'pairing' as level union all select 'all' as level),
leveled as (
    select level, case when level = 'all' then '' else pairing end as whole,
           case when level = 'entity' then folded else '' end as part, entity, {_OWN}, in_flight_age, recorded_at,
           1 as is_entity, case when level <> 'entity' and nth = 1 then pairing_unnamed else 0 end as unnamed
    from (select *, max(unnamed) over (partition by pairing) as pairing_unnamed,
                 row_number() over (partition by pairing order by folded) as nth from by_entity) as shared
    cross join levels
    union all
    select case when pairing = '' then 'all' else 'pairing' end as level, pairing as whole, '' as part, '' as entity,
           {", ".join(f"0 as {name}" for name in _NUMBERS)}, null as in_flight_age, null as recorded_at,
           0 as is_entity, 0 as unnamed
    from (select pairing from known union select '' as pairing) as spine
),
sums_and_parts as (
    select whole as pairing, max(case when level = 'entity' then entity else '' end) as entity, '' as subscription,
           {_SUM}, max(in_flight_age) as in_flight_age, max(recorded_at) as recorded_at, sum(is_entity) as entities,
           count(case when recorded > 0 then 1 end) as recording_entities,
           cast(sum(unnamed) as bigint) as among_missing
    from leveled group by level, whole, part
    union all
    select pairing, entity, subscription, {_OWN}, cast(null as double) as in_flight_age, recorded_at, 1 as entities,
           1 as recording_entities, 0 as among_missing
    from subscribed
),
rows as (select *, case when entity = '' then '' else concat(' of ', entity) end as of_entity from sums_and_parts)
select rows.pairing, entity, subscription, attempted, accepted, refused, in_doubt, recovered, reached, delivered,
       dead_lettered, parked - among_missing as parked, in_flight, missing + among_missing as missing, lost, unknown,
       unexpected, unsent, duplicates, out_of_order, in_flight_age, recording_entities > 0 as receivers_told,
       coalesce(journals, 0) as journals, coalesce(journals_complete, 0) as journals_complete, complete_to,
       timestamp_micros({{now}}) as judged_at, {_RESTS_ON} as rests_on
from rows
left join known on rows.pairing = known.pairing
left join syphons on rows.pairing = syphons.pairing
"""

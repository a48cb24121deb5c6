"""Verdicts: the audit summed up, what each sum rests on, and a finding.

A row is of an entity, of a pairing (`entity` ''), or of everything (`pairing` '' too). A topic has a row for each
subscription that records, with deliveries and duplicates only: its filter is not known here.

The finding is the first of these that holds:

    lost            messages are lost or missing, each by evidence of its own
    unknown         a fate is; or a journal is incomplete, or a message came from nowhere: nothing comforts
    not recorded    there is no message
    not delivered   messages were dead-lettered, or expired
    accepted        a destination accepted messages, and no receiver of it records what it gets
    open            messages are parked, in flight or in doubt
    nothing lost    none of these

PARTS, over all messages, are made first; VERDICTS reads their few rows, `engines` and the audit's `clocks`. Its
parameters are `now`, the time of the judgement in microseconds since the epoch, and `journals`, the rows of `engines`
that have to be complete. A report runs the same statements over the messages and journals of its time.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.pipeline.judging.audit_sql import CLOCK_DOUBT
from paired_servicebus.pipeline.judging.derived_sql import words

KNOWN: Final = (
    "delivered", "accepted", "in flight", "parked", "dead-lettered", "expired", "missing", "lost", "unexpected",
    "refused", "in doubt",
)  # fmt: skip
"""Every fate but unknown; one of another name is unknown."""
_COUNTED: Final = (
    ("attempted", "answer <> 'never attempted'"),
    ("accepted", "answer = 'accepted'"),
    ("refused", "answer = 'refused'"),
    ("in_doubt", "answer = 'in doubt'"),
    ("recovered", "answer = 'in doubt' and (received > 0 or (not receivers_told and moved > 0))"),
    ("reached", "direct + moved > 0 or received > 0"),
    ("delivered", "received > 0"),
    ("dead_lettered", "status = 'dead-lettered'"),
    ("expired", "status = 'expired'"),
    ("parked", "status = 'parked'"),
    ("in_flight", "status = 'in flight'"),
    ("missing", "status = 'missing'"),
    ("lost", "status = 'lost'"),
    ("unknown", f"status not in ({words(KNOWN)})"),
    ("unexpected", "status = 'unexpected'"),
    ("unsent", "answer = 'never attempted' and received > 0 and status <> 'unexpected'"),
    ("out_of_order", "out_of_order"),
    ("direct", "direct > 0"),
    ("diverted", "diverted > 0"),
    ("home", "diverted > 0 and moved > 0"),
    ("unconfirmed", "status = 'accepted'"),
    ("recorded", "receivers_told"),
    ("shared", "is_shared"),
)
_COUNTS: Final = ",\n           ".join(
    f"cast(count(case when {rule} then 1 end) as bigint) as {name}" for name, rule in _COUNTED
)

_JOURNALS: Final = f"""
boots as (
    select *, missing > 0 or not end_known or lacks_boot as is_incomplete
    from {{journals}} where engine not like '%-drain@%'
),
journals as (
    select pairing, engine, max(case when is_incomplete then missing else 0 end) as lacks,
           max(case when is_incomplete and not end_known then last_at end) as killed_at,
           max(case when is_incomplete and lacks_boot then first_at end) as lacks_before,
           max(case when ended = 'silent' then last_at end) as silent_at,
           max(case when ended = 'retired' then last_at end) as retired_at,
           max(last_at) as last_at, max(case when ended in ('running', 'silent') then 1 else 0 end) as runs,
           max(case when is_incomplete then 1 else 0 end) as incomplete
    from boots group by pairing, engine
),
all_journals as (
    select *, incomplete = 0 and silent_at is null as is_complete from journals
    union all select '' as pairing, engine, lacks, killed_at, lacks_before, silent_at, retired_at, last_at, runs,
                     incomplete, incomplete = 0 and silent_at is null from journals
),
known as (
    select pairing, cast(count(*) as bigint) as journals,
           cast(count(case when is_complete then 1 end) as bigint) as journals_complete,
           coalesce(min(case when is_complete and runs = 1 then last_at end),
                    max(case when is_complete then last_at end)) as complete_to,
           sort_array(collect_set(case
               when lacks > 0
                   then concat(engine, ' lacks ', lacks, case when lacks = 1 then ' record' else ' records' end)
               when killed_at is not null
                   then concat(engine, ' was killed after ', substr(cast(killed_at as string), 1, 16),
                               ' UTC, and its last records may not be here')
               when lacks_before is not null
                   then concat(engine, ' lacks a run before ', substr(cast(lacks_before as string), 1, 16), ' UTC')
               when silent_at is not null
                   then concat(engine, ' recorded nothing after ', substr(cast(silent_at as string), 1, 16), ' UTC')
               end)) as weak,
           sort_array(collect_set(case when retired_at is not null
               then concat(engine, ' was declared gone for good; its last record is of ',
                           substr(cast(retired_at as string), 1, 16), ' UTC.') end)) as retired
    from all_journals group by pairing
),
doubtful as (
    select pairing, sort_array(collect_set(concat('The clock of ', reached_by, ' is ',
               cast(cast(round(abs(fastest) / 6e7) as bigint) as string), case when fastest < 0
               then ' minutes ahead of that of a receiver.'
               else ' minutes behind that of a receiver, or its messages take as long.' end))) as clocks
    from (select pairing, reached_by, fastest from clocks
          union all select '', reached_by, fastest from clocks) as all_clocks
    where abs(fastest) > {CLOCK_DOUBT} group by pairing
),
syphons as (
    select pairing, max(case when syphon or engine like '%-drain@%' then 1 else 0 end) as syphon
    from (select pairing, engine, syphon from engines union all select '' as pairing, engine, syphon from engines)
    group by pairing
)"""


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

COUNTED: Final = f"""
select pairing, entity,
       {_COUNTS},
       cast(coalesce(sum(duplicates), 0) as bigint) as duplicates,
       cast(coalesce(max(among_missing), 0) as bigint) as unnamed,
       max(case when status = 'in flight' then age end) as in_flight_age, max(received_at) as recorded_at
from audit group by pairing, entity
"""
"""An entity whose name was written in several ways has as many rows: max(entity) would make Spark sort all messages."""
SUBSCRIBED: Final = f"""
select pairing, max(entity) as entity, max(subscription) as subscription, {_BY_SUBSCRIPTION},
       max(received_at) as recorded_at
from receipts where subscription is not null and received > 0
group by pairing, lower(entity), lower(subscription)
"""

MAX_NAMED: Final = 5
"""Incomplete journals that a sentence names."""
_FEW: Final = f"""array_join(slice(weak, 1, {MAX_NAMED}), ', '), case when size(weak) > {MAX_NAMED}
                 then concat(' and ', size(weak) - {MAX_NAMED}, ' more') else '' end"""
_RESTS_ON: Final = f"""
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
            case when journals_complete < journals then concat(': ', {_FEW}) else '' end, '.') end,
    case when subscription = '' and attempted > 0 and direct = 0
         then 'Direct sends are not recorded; messages that stayed on the direct path are not counted.' end,
    case when parked + among_missing > 0 and coalesce(syphon, 0) = 0
         then 'No journal here is of an engine with a syphon: parked messages may have been moved since.' end,
    case when among_missing > 0 then concat(among_missing,
         ' of the parked messages are not in the backlog queues; which ones is not known.') end,
    case when unsent > 0 then concat(unsent, ' received messages have no sender in these journals.') end,
    case when shared > 0 then concat(shared, ' messages are missing again and again between received ones: ',
         'receivers seem to record only a share.') end,
    nullif(array_join(retired, ' '), ''), nullif(array_join(clocks, ' '), ''),
    case when lost > 0 then concat('A lost message may have expired, or be in the dead-letter queue of its entity, ',
         'or have gone to a receiver that records nothing here.') end)"""

FINDING: Final = """
case when lost + missing > 0 then 'lost'
     when unknown + unexpected + unsent > 0 or coalesce(journals_complete, 0) < coalesce(journals, 0)
          or parked > 0 and coalesce(syphon, 0) = 0 then 'unknown'
     when attempted = 0 then 'not recorded' when dead_lettered + expired > 0 then 'not delivered'
     when unconfirmed > 0 then 'accepted'
     when parked + in_flight + in_doubt - recovered > 0 then 'open' else 'nothing lost' end"""
_ADJUSTED: Final = [
    {"parked": "parked - among_missing as parked", "missing": "missing + among_missing as missing"}.get(name, name)
    for name in _NUMBERS
]
VERDICTS: Final = f"""
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
                 row_number() over (partition by pairing order by folded) as nth from by_entity) as numbered
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
named as (
    select pairing, entity, subscription, {", ".join(_ADJUSTED)}, in_flight_age, recorded_at, entities,
           recording_entities, among_missing, case when entity = '' then '' else concat(' of ', entity) end as of_entity
    from sums_and_parts
),
rows as (
    select named.*, coalesce(journals, 0) as journals, coalesce(journals_complete, 0) as journals_complete,
           complete_to, {_RESTS_ON} as rests_on, {FINDING} as finding
    from named
    left join known on named.pairing = known.pairing
    left join syphons on named.pairing = syphons.pairing
    left join doubtful on named.pairing = doubtful.pairing
)
select pairing, entity, subscription, attempted, accepted, refused, in_doubt, recovered, reached, delivered,
       dead_lettered, expired, parked, in_flight, missing, lost, unknown, unexpected, unsent,
       duplicates, out_of_order, direct, diverted, home, unconfirmed,
       in_flight_age, recording_entities > 0 as receivers_told, journals, journals_complete,
       complete_to,
       timestamp_micros({{now}}) as judged_at, rests_on,
       case when subscription = '' then finding end as finding
from rows
"""
PARTS: Final = {"counted": COUNTED, "subscribed": SUBSCRIBED}

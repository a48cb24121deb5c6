"""The audit: the fate of every message, from receipts (SPEC.md section 11). SQL for both Spark and duckdb.

The rows of a message, from any number of batches, are summed (MERGE), then judged (JUDGED). Each entity either has
receivers' receipts or not. With them, "delivered" means that a receiver got the message. Without them it means that the
destination accepted it, and a message on the direct path is at most "accepted". A topic's receipts are summed for each
subscription: a message received once by each of two is no duplicate. One subscription with it is enough, since a filter
may exclude it from the others.

    accepted = delivered, parked, dead-lettered, in flight or LOST; in doubt and delivered = recovered; UNEXPECTED =
    delivered, though no sender of ours attempted it or it was definitely refused

"in flight": the destination accepted it and no receiver reported it, for less than IN_FLIGHT seconds before the
journal's end. "undelivered" is the same after that, and counts as lost.
"""

from __future__ import annotations

from typing import Final

IN_FLIGHT: Final = 900
"""Seconds until a message that no receiver reported counts as lost: Service Bus itself may be as late (section 10)."""

PARTIAL: Final = """
select concat(lower(entity), chr(31), message_id, case when coalesce(subscription, '') <> ''
           then concat(chr(31), lower(subscription)) else '' end) as key,
       message_id, entity, nullif(subscription, '') as subscription, stream, number,
       cast(case when kind = 'delivered' then 1 else 0 end as bigint) as direct,
       cast(case when kind = 'diverted' then 1 else 0 end as bigint) as diverted,
       cast(case when kind = 'in-doubt' then 1 else 0 end as bigint) as in_doubt,
       cast(case when kind = 'refused' then 1 else 0 end as bigint) as refused,
       cast(case when kind = 'moved' then 1 else 0 end as bigint) as moved,
       cast(case when kind = 'dead-lettered' then 1 else 0 end as bigint) as dead_lettered,
       cast(case when kind = 'received' then 1 else 0 end as bigint) as received,
       queue,
       case when kind = 'dead-lettered' then reason end as reason,
       ts as first_ts,
       case when kind in ('delivered', 'diverted') then ts end as accepted_ts,
       case when kind = 'diverted' then ts end as diverted_ts,
       case when kind = 'moved' then ts end as moved_ts,
       case when kind = 'received' then ts end as received_ts,
       case when kind = 'received' then seq end as received_seq,
       ts as last_ts
from {events}
where trouble is null and message_id is not null and entity is not null
  and kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')
"""
"""Receipts as rows that add up."""

MERGE: Final = """
select key, message_id, max(entity) as entity, max(subscription) as subscription, max(stream) as stream,
       max(number) as number,
       cast(sum(direct) as bigint) as direct, cast(sum(diverted) as bigint) as diverted,
       cast(sum(in_doubt) as bigint) as in_doubt, cast(sum(refused) as bigint) as refused,
       cast(sum(moved) as bigint) as moved, cast(sum(dead_lettered) as bigint) as dead_lettered,
       cast(sum(received) as bigint) as received,
       max(queue) as queue, max(reason) as reason, min(first_ts) as first_ts, min(accepted_ts) as accepted_ts,
       min(diverted_ts) as diverted_ts, max(moved_ts) as moved_ts, min(received_ts) as received_ts,
       min(received_seq) as received_seq, max(last_ts) as last_ts
from {partials}
group by message_id, key
"""

"""By the message's id first: ids differ early, where keys begin with the entity's name, and Spark compares them so."""

JUDGED: Final = f"""
with placed as (select *, coalesce(number, accepted_ts) as place from {{merged}}),
ordered as (
    select *, max(case when received > 0 then place end) over (
                  partition by lower(entity), subscription, stream order by received_ts, received_seq
                  rows between unbounded preceding and 1 preceding
              ) as newest_before
    from placed
),
messages as (
    select min(key) as key, message_id, max(entity) as entity, max(subscription) as subscription,
           max(stream) as stream, max(number) as number,
           cast(sum(direct) as bigint) as direct, cast(sum(diverted) as bigint) as diverted,
           cast(sum(in_doubt) as bigint) as in_doubt, cast(sum(refused) as bigint) as refused,
           cast(sum(moved) as bigint) as moved, cast(sum(dead_lettered) as bigint) as dead_lettered,
           cast(sum(received) as bigint) as received, cast(sum(greatest(received - 1, 0)) as bigint) as again,
           max(queue) as queue, max(reason) as reason, min(first_ts) as first_ts, min(accepted_ts) as accepted_ts,
           min(diverted_ts) as diverted_ts, max(moved_ts) as moved_ts, min(received_ts) as received_ts,
           min(received_seq) as received_seq, max(last_ts) as last_ts,
           max(place) as place, max(newest_before) as newest_before,
           max(case when received > 0 and place < newest_before then 1 else 0 end) > 0 as out_of_order
    from ordered group by lower(entity), message_id
),
receivers as (select lower(entity) as told_entity from messages where received > 0 group by lower(entity)),
told as (
    select messages.*, told_entity is not null as receivers_told, direct + diverted as accepted,
           case when direct + diverted > 0 then 'accepted' when in_doubt > 0 then 'in doubt'
                when refused > 0 then 'refused' else 'never attempted' end as answer,
           ({{now}} - coalesce(moved_ts, accepted_ts)) / 1e6 as age
    from messages left join receivers on lower(messages.entity) = told_entity
),
arrived as (
    select told.*, case when receivers_told then received > 0 else direct + moved > 0 end as has_arrived,
           case when receivers_told then again else greatest(direct + moved - 1, 0) end as duplicates
    from told
)
select *, (moved_ts - diverted_ts) / 1e6 as dwell,
       case when received > 0 and answer in ('refused', 'never attempted') then 'unexpected'
            when receivers_told and received > 0 then 'delivered'
            when not receivers_told and moved > 0 then 'delivered'
            when not receivers_told and direct > 0 then 'accepted'
            when dead_lettered > 0 and diverted <= moved + dead_lettered then 'dead-lettered'
            when diverted > moved + dead_lettered then 'parked'
            when answer = 'accepted' and age < {IN_FLIGHT} then 'in flight'
            when answer = 'accepted' then 'undelivered'
            when dead_lettered > 0 then 'dead-lettered'
            when answer = 'never attempted' then 'delivered'
            else answer end as status
from arrived
"""
"""`now`: the journal's end in microseconds, from which ages are counted; the clock of this machine, if that is earlier.

A message that only a syphon of ours knows (its sender is elsewhere) counts as delivered once it was moved."""

VERDICT: Final = """
select {entity} as entity,
       count(case when answer <> 'never attempted' then 1 end) as attempted,
       count(case when answer = 'accepted' then 1 end) as accepted,
       count(case when answer = 'refused' then 1 end) as refused,
       count(case when answer = 'in doubt' then 1 end) as in_doubt,
       count(case when answer = 'in doubt' and has_arrived then 1 end) as recovered,
       count(case when has_arrived then 1 end) as delivered,
       count(case when status = 'dead-lettered' then 1 end) as dead_lettered,
       count(case when status = 'parked' then 1 end) as parked,
       count(case when status = 'undelivered' then 1 end) as lost,
       count(case when status = 'in flight' then 1 end) as in_flight,
       max(case when status = 'in flight' then age end) as in_flight_age,
       count(case when status = 'unexpected' then 1 end) as unexpected,
       cast(coalesce(sum(duplicates), 0) as bigint) as duplicates,
       count(case when out_of_order then 1 end) as out_of_order,
       coalesce(max(receivers_told), false) as receivers_told
from {judged}
{group}
"""
"""Messages that expire at their destination leave no receipt and count as lost. Those that expire in a backlog are
dead-lettered, with the reason in their receipts."""

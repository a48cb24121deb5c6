"""Receipts: the journalled facts about a message, as rows that add up.

A row is of one pairing, entity (its case ignored), message and subscription. PARTIAL makes rows from events, MERGE sums
rows of any number of batches. A sender's receipts have no subscription, so a topic's message has several rows.

`reached_…` is the last acceptance by the destination: a direct send, or the syphon's move. `received_…` is the first
delivery to a receiver.
"""

from __future__ import annotations

from typing import Final

PAIRING_BY_NAME: Final = "regexp_replace({engine}, '(-drain)?@[^@]*$', '')"
"""An engine's pairing where no engine-started record gives it: its name up to the last "@". A drain's tasks add
"-drain" to the pairing's name."""

PARTIAL: Final = f"""
select coalesce(known.pairing, {PAIRING_BY_NAME.format(engine="event.engine")}) as pairing,
       event.entity, event.message_id, nullif(event.subscription, '') as subscription,
       nullif(event.stream, '') as stream,
       event.number, event.session, event.key,
       cast(case when kind = 'delivered' then 1 else 0 end as bigint) as direct,
       cast(case when kind = 'diverted' then 1 else 0 end as bigint) as diverted,
       cast(case when kind = 'in-doubt' then 1 else 0 end as bigint) as in_doubt,
       cast(case when kind = 'refused' then 1 else 0 end as bigint) as refused,
       cast(case when kind = 'moved' then 1 else 0 end as bigint) as moved,
       cast(case when kind = 'dead-lettered' then 1 else 0 end as bigint) as dead_lettered,
       cast(case when kind = 'received' then 1 else 0 end as bigint) as received,
       cast(case when kind = 'received' and event.delivery_count > 0 then 1 else 0 end as bigint) as redelivered,
       cast(case when event.is_scheduled then 1 else 0 end as bigint) as scheduled,
       event.queue,
       case when kind = 'dead-lettered' then event.reason end as reason,
       case when kind = 'diverted' then event.engine end as diverted_by,
       case when kind = 'diverted' then event.boot end as diverted_boot,
       case when kind = 'diverted' then event.seq end as diverted_seq,
       case when kind in ('delivered', 'moved') then event.engine end as reached_by,
       case when kind in ('delivered', 'moved') then event.boot end as reached_boot,
       case when kind in ('delivered', 'moved') then event.seq end as reached_seq,
       event.at as first_at,
       case when kind in ('delivered', 'diverted') then event.at end as accepted_at,
       case when kind = 'diverted' then event.at end as diverted_at,
       case when kind = 'moved' then event.at end as moved_at,
       case when kind = 'dead-lettered' then event.at end as dead_lettered_at,
       case when kind in ('delivered', 'moved') then event.at end as reached_at,
       case when kind = 'received' then event.at end as received_at,
       case when kind = 'received' then event.engine end as received_by,
       case when kind = 'received' then event.boot end as received_boot,
       case when kind = 'received' then event.seq end as received_seq,
       event.at as last_at
from (select /*+ repartition(message_id) */ raw.engine, raw.boot, raw.seq, raw.at, kind, reason, entity, number, queue,
             message_id, raw.key, is_scheduled, stream, subscription, session, delivery_count
      from {{events}} as raw
      where trouble is null and message_id is not null and entity is not null
        and kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')) as event
left join (select engine, boot, max(pairing) as pairing from {{engines}} group by engine, boot) as known
  on event.engine = known.engine and event.boot = known.boot
"""
"""Of the views `events` (not summed yet) and `engines`. Spark moves the rows to their messages while they are narrow,
and then sums them in one step."""

_SUMS: Final = ("direct", "diverted", "in_doubt", "refused", "moved", "dead_lettered", "received", "redelivered")

MERGE: Final = f"""
select pairing, max(entity) as entity, message_id, max(subscription) as subscription, max(stream) as stream,
       max(number) as number, max(session) as session, max(key) as key,
       {", ".join(f"cast(sum({name}) as bigint) as {name}" for name in _SUMS)},
       max(scheduled) as scheduled, max(queue) as queue, max(reason) as reason,
       min_by(diverted_by, diverted_at) as diverted_by, min_by(diverted_boot, diverted_at) as diverted_boot,
       min_by(diverted_seq, diverted_at) as diverted_seq,
       max_by(reached_by, reached_at) as reached_by, max_by(reached_boot, reached_at) as reached_boot,
       max_by(reached_seq, reached_at) as reached_seq,
       min(first_at) as first_at, min(accepted_at) as accepted_at, min(diverted_at) as diverted_at,
       max(moved_at) as moved_at, max(dead_lettered_at) as dead_lettered_at, max(reached_at) as reached_at,
       min(received_at) as received_at, min_by(received_by, received_at) as received_by,
       min_by(received_boot, received_at) as received_boot, min_by(received_seq, received_at) as received_seq,
       max(last_at) as last_at
from {{partials}}
group by message_id, pairing, lower(entity), lower(coalesce(subscription, ''))
"""
"""By the message's id first: ids differ early, where keys begin with the pairing's name, and Spark compares them so."""

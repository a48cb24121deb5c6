"""The audit: the fate of every message, judged from its receipts (SPEC.md section 11).

    delivered      a receiver got it
    accepted       its destination accepted it, and no receiver of the entity records what it gets
    in flight      its destination accepted it lately, or a receiver has not got past it: slow is not lost
    parked         in the backlog, as far as the journals go
    dead-lettered  by the syphon
    missing        parked by its receipts, and the backlog queues hold less than that
    lost           accepted by its destination, every receiver got past it, no journal is incomplete
    unknown        would be lost, missing or unexpected, but a journal is incomplete; `reason` has which
    refused, in doubt; unexpected: received, though refused or never attempted

A receiver got past a message when it got another one that was accepted later: by the same engine, in the order of its
records' numbers; or by another engine, by their clocks and with a margin for them. Receivers that got nothing else for
IN_FLIGHT after the message, and for twice as long as their slowest message took, are behind.

A topic's message may be kept out by each subscription's filter, a session may wait alone, a scheduled message is late,
and one without a sender here has a journal elsewhere: those are never lost, only unknown.

JUDGED is a statement over the view `receipts` (MERGE) and the views of PARTS. These are made first, in their order,
from `receipts`, `engines` and `backlog`; all but `late` have a few rows for each engine or entity.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.judging import receipts
from paired_servicebus.core.judging.receipts import (
    CLOCK_MARGIN,
    LOCK_CYCLES,
    ORDER_MARGIN,
    PASS_MARGIN,
    READING_MARGIN,
    RECEIVER_FORGOTTEN,
)

# Receipts: the journalled facts about a message, as rows that add up.
#
# A row is of one pairing, entity (its case ignored), message and subscription. PARTIAL makes rows from events, MERGE
# sums rows of any number of batches. A sender's receipts have no subscription, so a topic's message has several rows.
#
# `reached_…` is the last acceptance by the destination: a direct send, or the syphon's move. `received_…` is the first
# delivery to a receiver.

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
       event.event_time as first_at,
       case when kind in ('delivered', 'diverted') then event.event_time end as accepted_at,
       case when kind = 'diverted' then event.event_time end as diverted_at,
       case when kind = 'moved' then event.event_time end as moved_at,
       case when kind = 'dead-lettered' then event.event_time end as dead_lettered_at,
       case when kind in ('delivered', 'moved') then event.event_time end as reached_at,
       case when kind = 'received' then event.event_time end as received_at,
       case when kind = 'received' then event.engine end as received_by,
       case when kind = 'received' then event.boot end as received_boot,
       case when kind = 'received' then event.seq end as received_seq,
       event.event_time as last_at
from (select /*+ repartition(message_id) */ raw.engine, raw.boot, raw.seq, raw.event_time, kind, reason, entity,
             number, queue, message_id, raw.key, is_scheduled, stream, subscription, session, delivery_count
      from {{events}} as raw
      where trouble is null and message_id is not null and entity is not null
        and kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')) as event
left join (select engine, boot, max(pairing) as pairing from {{engines}} group by engine, boot) as known
  on event.engine = known.engine and event.boot = known.boot
"""
"""Of the views `events` (not summed yet) and `engines`. Spark moves the rows to their messages while they are narrow,
and then sums them in one step."""

_RECEIPT_SUMS: Final = (
    "direct",
    "diverted",
    "in_doubt",
    "refused",
    "moved",
    "dead_lettered",
    "received",
    "redelivered",
)

MERGE: Final = f"""
select pairing, max(entity) as entity, message_id, max(subscription) as subscription, max(stream) as stream,
       max(number) as number, max(session) as session, max(key) as key,
       {", ".join(f"cast(sum({name}) as bigint) as {name}" for name in _RECEIPT_SUMS)},
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


# The SQL of this room counts in microseconds and runs in Spark (ANSI mode) and in duckdb. Its limits are those of
# paired_servicebus.core.judging.receipts, which this module passes on.

IN_FLIGHT: Final = receipts.IN_FLIGHT // receipts.SECOND
"""Seconds that a message is in flight at least."""


def micros(seconds: float) -> int:
    """Return seconds as microseconds."""
    return round(seconds * 1_000_000)


_BOOTS: Final = """
select pairing, engine, boot, syphon, first_at, last_at,
       case when engine like '%-drain@%' then 'stopped' else coalesce(ended, 'running') end as ended,
       case when coalesce(missing, 0) = 0 then null when complete_from is not null then complete_from
            when missing = first_seq - 1 then first_at else last_at end as complete_from
from {engines}
"""
"""Boots of engines. A drain's task ends with its journal; it records nothing else. `complete_from`: the end of the
last gap."""

_COVER: Final = """
select pairing, max(complete_from) as covered_from,
       min(case when ended in ('running', 'silent') then last_at end) as covered_to,
       max(case when syphon then 1 else 0 end) > 0 or max(case when engine like '%-drain@%' then 1 else 0 end) > 0
           as syphon_known,
       max_by(engine, complete_from) as gap_engine,
       min_by(engine, case when ended in ('running', 'silent') then last_at end) as late_engine
from boots group by pairing
"""
"""The times between which every journal of a pairing is complete; null: no limit."""
_REACH: Final = """
select pairing, case when covered_to is null then {now}
                     when unix_micros(covered_to) >= {now} - {in_flight} then unix_micros(covered_to) - {in_flight}
                     else {now} - {in_flight} end as readings_to
from cover
"""
"""`readings_to`: the latest reading of a queue after which no journal here is behind by more than IN_FLIGHT."""

_PLACED: Final = "with placed as (select *, lower(entity) as folded from {receipts})"
_ENTITIES: Final = f"""
{_PLACED}
select pairing, folded, max(received) > 0 as recorded, max(direct) > 0 as records_all,
       max(subscription is not null) as is_topic, max(session is not null) as has_sessions
from placed group by pairing, folded
"""

_LATE: Final = f"""
{_PLACED},
deliveries as (
    select /*+ broadcast(boots) */
           placed.pairing, folded, message_id, lower(subscription) as listener, stream, received_by, received_boot,
           received_seq, number is not null as is_numbered, unix_micros(accepted_at) as accepted,
           boots.first_at as boot_at, coalesce(number, diverted_seq, reached_seq) as place,
           case when number is null then coalesce(diverted_boot, reached_boot, '') else ' ' end as sender
    from placed
    left join boots on received_by = boots.engine and received_boot = boots.boot and placed.pairing = boots.pairing
    where received > 0
),
ordered as (
    select *, max(place) over earlier as place_before, max(accepted) over earlier as accepted_before
    from deliveries
    window earlier as (partition by xxhash64(pairing, folded, coalesce(listener, ''), coalesce(stream, ''),
                                             received_by, sender)
                       order by boot_at, received_boot, received_seq rows between unbounded preceding and 1 preceding)
)
select distinct pairing, folded, message_id from ordered
where place < place_before and (is_numbered or accepted + {ORDER_MARGIN} < accepted_before)
"""
"""Order of receipt is by number within a receiver's engine. Without a sender's number, messages are compared with those
of the same sender. The six names are compared by a hash, in half the time: of two streams with one hash, which is one
pair in 2^64, messages could seem out of order."""

_SUMS: Final = (
    "direct", "diverted", "in_doubt", "refused", "moved", "dead_lettered", "received", "again",
)  # fmt: skip
_LEAST: Final = ("first_at", "accepted_at", "diverted_at", "received_at")
_GREATEST: Final = (
    "entity", "stream", "number", "key", "session", "scheduled", "queue", "reason", "reached_boot", "reached_seq",
    "moved_at", "dead_lettered_at", "reached_at", "last_at",
)  # fmt: skip
_COLUMNS: Final = ", ".join(("pairing", "folded", "message_id", *_SUMS, *_LEAST, *_GREATEST))
_MESSAGES: Final = f"""
parts as (
    select /*+ broadcast(entities) */ placed.*, greatest(received - redelivered - 1, 0) as again, is_topic from placed
    join entities on placed.pairing = entities.pairing and placed.folded = entities.folded
),
whole as (
    select {_COLUMNS} from parts where not is_topic
    union all
    select pairing, folded, message_id, {", ".join(f"cast(sum({name}) as bigint) as {name}" for name in _SUMS)},
           {", ".join(f"min({name}) as {name}" for name in _LEAST)},
           {", ".join(f"max({name}) as {name}" for name in _GREATEST)}
    from parts where is_topic group by pairing, folded, message_id
),
messages as (
    select whole.*, late.message_id is not null as out_of_order
    from whole left join late on whole.pairing = late.pairing and whole.folded = late.folded
                             and whole.message_id = late.message_id
)"""
"""A queue's message has one row in `receipts`; only a topic's are added up, which moves all rows."""

_RECEIVERS: Final = f"""
{_PLACED}
select pairing, folded, received_by, received_boot, max(reached_at) as position, max(received_at) as got_at,
       max(unix_micros(received_at) - unix_micros(reached_at)) as slowest, max(redelivered) > 0 as redelivers
from placed where received > 0 and subscription is null and direct + moved = 1
group by pairing, folded, received_by, received_boot
"""
_RECENT: Final = f"""
with engine_ends as (select pairing, engine, max_by(ended, first_at) as ended from boots group by pairing, engine),
ranked as (
    select receivers.*, coalesce(ended, 'running') as ended,
           max(case when coalesce(ended, 'running') <> 'stopped' then 1 else 0 end) over entity > 0 as any_runs,
           max(got_at) over entity as newest_at,
           row_number() over (partition by receivers.pairing, folded, received_by order by got_at desc) as nth
    from receivers left join engine_ends on received_by = engine and receivers.pairing = engine_ends.pairing
    window entity as (partition by receivers.pairing, folded)
)
select *, nth = 1 and (ended <> 'stopped' or not any_runs) as is_counted
from ranked where unix_micros(got_at) + {RECEIVER_FORGOTTEN} >= unix_micros(newest_at)
"""
_FRONTS: Final = f"""
with counted as (select * from recent where is_counted),
paces as (
    select pairing, folded, greatest(2 * max(slowest), {{in_flight}},
                                     max(case when redelivers then {LOCK_CYCLES} else 0 end)) as patience
    from recent group by pairing, folded
)
select counted.pairing, counted.folded, max(patience) as patience, count(*) as behind, min(position) as position,
       min(got_at) as got_at
from counted join paces on counted.pairing = paces.pairing and counted.folded = paces.folded
group by counted.pairing, counted.folded
"""
_BOOT_FRONTS: Final = f"""
{_PLACED},
counted as (select * from recent where is_counted),
boot_positions as (
    select /*+ broadcast(counted) */
           placed.pairing, placed.folded, placed.received_by, placed.received_boot, placed.reached_boot,
           max(reached_seq) as seq, max_by(reached_at, reached_seq) as reached_at
    from placed join counted on placed.pairing = counted.pairing and placed.folded = counted.folded
         and placed.received_by = counted.received_by and placed.received_boot = counted.received_boot
    where received > 0 and subscription is null and direct + moved = 1
    group by placed.pairing, placed.folded, placed.received_by, placed.received_boot, placed.reached_boot
)
select pairing, folded, reached_boot, count(*) as boot_behind, min(seq) as boot_seq, min(reached_at) as boot_at
from boot_positions group by pairing, folded, reached_boot
"""
"""How far receivers got, by their slowest: in the deliveries of each engine, and by the clock. An engine that stopped
is counted only where none runs. `patience`: twice the age of the oldest message that they got in a day, and at least
LOCK_CYCLES where they got copies again: prefetched messages whose locks end come in any order."""

_FACTS: Final = f"""
facts as (
    select /*+ broadcast(entities, cover, fronts, boot_fronts) */
           messages.*, entities.recorded, entities.records_all, entities.is_topic, entities.has_sessions,
           cover.covered_from, cover.covered_to, cover.gap_engine, cover.late_engine,
           coalesce(cover.syphon_known, false) as syphon_known,
           direct + diverted as accepted, direct + moved > 0 as reached,
           case when direct + diverted > 0 then 'accepted' when in_doubt > 0 then 'in doubt'
                when refused > 0 then 'refused' else 'never attempted' end as answer,
           ({{now}} - unix_micros(coalesce(reached_at, accepted_at))) / 1e6 as age,
           coalesce(unix_micros(reached_at) + patience <= unix_micros(fronts.got_at)
               and ((boot_behind = behind and reached_seq < boot_seq
                     and unix_micros(reached_at) + {PASS_MARGIN} < unix_micros(boot_fronts.boot_at))
                    or unix_micros(reached_at) + {CLOCK_MARGIN} < unix_micros(fronts.position)),
               false) as passed,
           cover.pairing is not null
               and coalesce(coalesce(reached_at, received_at) > covered_from, true)
               and coalesce(unix_micros(coalesce(reached_at, received_at)) + coalesce(patience, {{in_flight}})
                            <= unix_micros(covered_to), true) as covered,
           received = 0 and diverted > moved + dead_lettered and (recorded or direct + moved = 0) as in_backlog,
           dead_lettered > 0 and direct = 0 and received = 0 and diverted <= moved + dead_lettered
               and coalesce(moved_at <= dead_lettered_at, true) as is_dead
    from messages
    join entities on messages.pairing = entities.pairing and messages.folded = entities.folded
    left join cover on messages.pairing = cover.pairing
    left join fronts on messages.pairing = fronts.pairing and messages.folded = fronts.folded
    left join boot_fronts on messages.pairing = boot_fronts.pairing and messages.folded = boot_fronts.folded
                         and messages.reached_boot = boot_fronts.reached_boot
)"""

_NAMED: Final = f"""
{_PLACED},
depths as (
    select pairing, queue, read_at, held from (
        select pairing, queue, read_at, held,
               row_number() over (partition by pairing, queue order by read_at desc, held desc) as newest
        from (select coalesce(named.pairing, {PAIRING_BY_NAME.format(engine="readings.engine")}) as pairing,
                     queue, read_at,
                     coalesce(depth, 0) + coalesce(scheduled, 0) + coalesce(dead_lettered, 0) as held
              from {{backlog}} as readings
              left join (select engine, max(pairing) as pairing from boots group by engine) as named
                on readings.engine = named.engine
              where read_at is not null) as readings
        join reach using (pairing)
        where unix_micros(read_at) <= readings_to
    ) where newest = 1
),
backlogged as (
    select /*+ broadcast(entities) */ placed.pairing, placed.queue, placed.diverted_at
    from placed join entities on placed.pairing = entities.pairing and placed.folded = entities.folded
    left join (select pairing, folded, message_id from placed where subscription is not null and received > 0
               group by pairing, folded, message_id) as listened
      on placed.pairing = listened.pairing and placed.folded = listened.folded
     and placed.message_id = listened.message_id
    where subscription is null and received = 0 and diverted > moved + dead_lettered
      and listened.message_id is null and (recorded or direct + moved = 0)
),
parked as (
    select /*+ broadcast(depths) */ backlogged.pairing, backlogged.queue, depths.read_at, depths.held,
           count(*) as expected
    from backlogged join depths on backlogged.pairing = depths.pairing and backlogged.queue = depths.queue
    where unix_micros(diverted_at) + {READING_MARGIN} < unix_micros(read_at)
    group by backlogged.pairing, backlogged.queue, depths.read_at, depths.held
),
short as (
    select parked.pairing, sum(expected) - max(all_held) as short_by,
           sum(case when held = 0 then expected else 0 end) as of_empty
    from parked join (select pairing, sum(held) as all_held from depths group by pairing) as whole
      on parked.pairing = whole.pairing
    group by parked.pairing
)
select parked.pairing, parked.queue, parked.read_at, parked.held, parked.expected,
       cast(short_by as bigint) as short_by, held = 0 and of_empty <= short_by as is_named,
       cast(short_by - case when of_empty <= short_by then of_empty else 0 end as bigint) as unnamed
from parked join short on parked.pairing = short.pairing where short_by > 0
"""
"""The last readings of the backlog queues, beside the number that they should hold by the receipts. Queues are summed:
a queue's surplus may be another's deficit. A message is named where its queue held nothing."""

_CLOCK: Final = "substr(cast({at} as string), 1, 16)"
"""A time to the minute, UTC."""

_REASON: Final = f"""
case status
    when 'missing' then concat('queue ', queue, ' held none of its ', expected, ' at ', {_CLOCK.format(at="read_at")})
    when 'unknown' then case
        when in_backlog and not syphon_known
            then 'not in its queue: missing, or moved by an engine whose journal is not here'
        when is_topic then 'no subscription that records deliveries got it; a filter may have kept it out'
        when scheduled > 0 then 'it was scheduled for a later time'
        when has_sessions then 'its session may wait for a receiver'
        when answer = 'never attempted' then 'lost, or in a journal that is not here: its sender has none here'
        when covered_from is not null and unix_micros(coalesce(reached_at, diverted_at)) <= unix_micros(covered_from)
            then concat('lost, or in a journal that is not here: ', gap_engine, ' lacks records before ',
                        {_CLOCK.format(at="covered_from")})
        else concat('lost, or in a journal that is not here: ', coalesce(late_engine, pairing),
                    ' recorded nothing after ', coalesce({_CLOCK.format(at="covered_to")}, 'that')) end
    else reason end"""

PARTS: Final = (
    {"boots": _BOOTS, "entities": _ENTITIES},
    {"cover": _COVER, "receivers": _RECEIVERS},
    {"reach": _REACH, "recent": _RECENT},
    {"late": _LATE, "named": _NAMED, "boot_fronts": _BOOT_FRONTS, "fronts": _FRONTS},
)
"""By name; each from those of the lines above it. Parameters as of JUDGED."""
OF_PARTS: Final = ("cover", "reach", "recent", "fronts")
"""Parts that are made of others alone, and so of a few rows."""
JUDGED: Final = f"""
{_PLACED},{_MESSAGES},{_FACTS},
judged as (
    select /*+ broadcast(named) */ facts.*, named.read_at, named.expected, named.unnamed,
           case when received > 0 and answer = 'refused' then 'unexpected'
                when received > 0 and answer = 'never attempted' and moved = 0 and records_all and covered
                    then 'unexpected'
                when received > 0 then 'delivered'
                when in_backlog then
                    case when not coalesce(is_named, false) then 'parked'
                         when syphon_known and coalesce(diverted_at > covered_from, true)
                              and coalesce(unix_micros(read_at) + {{in_flight}} <= unix_micros(covered_to), true)
                             then 'missing'
                         else 'unknown' end
                when is_dead then 'dead-lettered'
                when reached and not recorded then 'accepted'
                when reached and (age < {{in_flight}} / 1e6 or not (passed or is_topic)) then 'in flight'
                when reached and (is_topic or has_sessions or scheduled > 0 or answer = 'never attempted'
                                  or not covered) then 'unknown'
                when reached then 'lost'
                when answer <> 'never attempted' then answer
                else 'dead-lettered' end as status
    from facts
    left join named on facts.pairing = named.pairing and facts.queue = named.queue and in_backlog
                   and unix_micros(diverted_at) + {READING_MARGIN} < unix_micros(read_at)
)
select pairing, entity, message_id, status, answer, key, queue, {_REASON} as reason, stream, number,
       direct, diverted, in_doubt, refused, moved, dead_lettered, received,
       cast(case when recorded then again else greatest(direct + moved - 1, 0) end as bigint) as duplicates,
       out_of_order,
       first_at, accepted_at, diverted_at, moved_at, reached_at, received_at, last_at,
       (unix_micros(moved_at) - unix_micros(diverted_at)) / 1e6 as dwell, age, recorded as receivers_told,
       case when status = 'parked' then nullif(unnamed, 0) end as among_missing
from judged
"""
"""Parameters: `now`, the journals' end in microseconds (this machine's clock, if that is earlier); `in_flight`, the
limit in microseconds."""

"""The audit: the fate of every message, judged from its receipts (SPEC.md section 11).

    delivered      a receiver got it; of a topic, every subscription that records
    accepted       its destination accepted it, and no receiver of the entity records what it gets
    in flight      its destination accepted it lately, or a receiver has not got past it: slow is not lost
    parked         in the backlog, as far as the journals go
    dead-lettered  by the syphon
    expired        its time to live ended before a receiver got to it
    missing        parked by its receipts, and the backlog queues hold less than that
    lost           accepted by its destination, every receiver got past it, and nothing speaks against it
    unknown        anything else that was accepted; `reason` has why
    refused, in doubt; unexpected: received, though refused or never attempted

A receiver got past a message when it got another one that was accepted later: by the same engine, in the order of its
records' numbers; or by another engine, by clocks that messages between the two have compared, and with a margin.
Receivers that got nothing else for IN_FLIGHT after the message, and for twice as long as their slowest message took,
are behind.

A message is not lost but unknown where blame has no evidence: a journal may lack its receipt; a topic's filter may have
kept it out; a session may wait alone; a scheduled message is late; its time to live may have ended; one without a
sender here has a journal elsewhere, and so may the messages of its entity have other ids; receivers that miss messages
again and again between others record only a share of the entity.

PARTS are made first, in their order, from `receipts`, `engines` and `backlog`; then AUDIT.

A judgement after another one judges only the messages of `scope`: those with new receipts (`touched`), those whose fate
is not settled, and those that a receiver got after one with a new receipt, since they may be out of order now. What
their entity's receivers and its journals tell comes from all receipts. The rows of the others, KEPT, are those of the
last audit (`known_audit`).
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.pipeline.judging.derived_sql import PAIRING_BY_NAME

# The limits of the audit, in microseconds.

SECOND: Final = 1_000_000
IN_FLIGHT: Final = 900 * SECOND
"""A message that its destination accepted is in flight for this long at least: Service Bus itself may be as late, and
a prefetching receiver holds messages until their locks end (section 10)."""
PASS_MARGIN: Final = 60 * SECOND
"""A receiver got past a message when it received one that the same engine delivered this much later: an engine's own
sends overlap."""
CLOCK_MARGIN: Final = 900 * SECOND
"""The same for a message that another engine delivered: their clocks differ."""
CLOCK_DOUBT: Final = 300 * SECOND
"""A difference of clocks from which on a verdict says it."""
LOCK_CYCLES: Final = 3600 * SECOND
"""A message may be held so long by receivers that let locks end: Service Bus dead-letters it after ten locks of at most
five minutes, by default."""
RECEIVER_FORGOTTEN: Final = 24 * 3600 * SECOND
"""A receiver without a message for so long, while others of the entity had some, does not hold others back."""
READING_MARGIN: Final = 60 * SECOND
"""A backlog queue's reading counts for messages that were diverted this long before it."""
ORDER_MARGIN: Final = 1 * SECOND
"""Messages without a sender's number are out of order if their sender had accepted answers this far apart."""
EXPIRY_MARGIN: Final = 60 * SECOND
"""A time to live is over for certain this long after its end."""
SETTLED: Final = "'delivered', 'accepted', 'refused', 'dead-lettered'"
"""Fates that only a new receipt changes, or the first delivery that an entity's receivers record."""
SCATTERED: Final = 3
RARE: Final = 50
"""Receivers of an entity seem to record only a share where messages of one sender were not received in SCATTERED
separate runs or more, between others that were, and more often than once in RARE messages."""

# Receipts: the journalled facts about a message, as rows that add up.
#
# A row is of one pairing, entity (its case ignored), message and subscription. PARTIAL makes rows from events, MERGE
# sums rows of any number of batches. A sender's receipts have no subscription, so a topic's message has several rows.
#
# `reached_…` is the last acceptance by the destination: a direct send, or the syphon's move. `received_…` is the first
# delivery to a receiver.

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
       event.queue, event.time_to_live,
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
             number, queue, message_id, raw.key, is_scheduled, stream, subscription, session, delivery_count,
             time_to_live
      from {{events}} as raw
      where trouble is null and message_id is not null and entity is not null
        and kind in ('delivered', 'diverted', 'in-doubt', 'refused', 'moved', 'dead-lettered', 'received')) as event
left join (select engine, boot, max(pairing) as pairing from engines group by engine, boot) as known
  on event.engine = known.engine and event.boot = known.boot
"""
"""Of the view `engines` and of `events`, those that are not summed yet. Spark moves the rows to their messages while
they are narrow, and then sums them in one step."""

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
       max(scheduled) as scheduled, max(queue) as queue,
       max(time_to_live) as time_to_live, max(reason) as reason,
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


_BOOTS: Final = "select pairing, engine, boot, syphon, first_at, last_at, ended, complete_from from engines"
_COVER: Final = """
select pairing, max(complete_from) as covered_from,
       min(case when ended in ('running', 'silent') then last_at end) as covered_to,
       min(case when ended = 'silent' then last_at end) as silent_from,
       max(case when syphon or engine like '%-drain@%' then 1 else 0 end) > 0 as syphon_known,
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

_PLACED: Final = "with placed as (select *, lower(entity) as folded from receipts)"
_ENTITIES: Final = f"""
{_PLACED}
select pairing, folded, max(received) > 0 as recorded, max(direct) > 0 as records_all,
       max(cast(subscription is not null as int)) > 0 as is_topic, max(cast(session is not null as int)) > 0
           as has_sessions
from placed group by pairing, folded
"""
CLOCKS: Final = f"""
{_PLACED}
select pairing, reached_by, min(unix_micros(received_at) - unix_micros(reached_at)) as fastest
from placed where received > 0 and subscription is null and direct + moved = 1 group by pairing, reached_by
"""
"""`fastest`: the shortest time from an engine's acceptance of a message to its delivery, by the two engines' clocks."""
_LISTENERS: Final = f"""
{_PLACED}
select pairing, folded, lower(subscription) as listener, max(subscription) as subscription, max(received_at) as got_at
from placed where received > 0 and subscription is not null group by pairing, folded, lower(subscription)
"""
_MISSED: Final = f"""
{_PLACED},
expected as (
    select /*+ broadcast(listeners) */ placed.pairing, placed.folded, message_id, listener, listeners.subscription,
           got_at
    from placed join listeners on placed.pairing = listeners.pairing and placed.folded = listeners.folded
    where placed.subscription is null and direct + moved > 0
      and unix_micros(reached_at) <= unix_micros(got_at) + {RECEIVER_FORGOTTEN}
),
heard as (
    select pairing, folded, message_id, lower(subscription) as listener from placed
    where received > 0 and subscription is not null
)
select expected.pairing, expected.folded, expected.message_id, min(got_at) as heard_to,
       array_join(sort_array(collect_set(subscription)), ', ') as missed
from expected anti join heard on expected.pairing = heard.pairing and expected.folded = heard.folded
     and expected.message_id = heard.message_id and expected.listener = heard.listener
group by expected.pairing, expected.folded, expected.message_id
"""
"""The subscriptions that record, and have not got a topic's message."""

_DELIVERIES: Final = f"""
{_PLACED},
got as (
    select placed.*, case when number is null then coalesce(diverted_boot, reached_boot, '') else ' ' end as sender
    from placed where received > 0
),
deliveries as (
    select /*+ broadcast(boots, turns) */
           got.pairing, got.folded, message_id, received_boot, received_seq, number is not null as is_numbered,
           unix_micros(accepted_at) as accepted, boots.first_at as boot_at,
           coalesce(number, diverted_seq, reached_seq) as place,
           xxhash64(got.pairing, got.folded, coalesce(lower(subscription), ''), coalesce(stream, ''),
                    got.received_by, sender) as sequence,
           turns.received_by is not null
               and (turn_at is null or boots.first_at > turn_at
                    or boots.first_at = turn_at and (received_boot > turn_boot
                                                     or received_boot = turn_boot and received_seq >= turn_seq))
               as is_after
    from got
    left join boots on got.received_by = boots.engine and received_boot = boots.boot and got.pairing = boots.pairing
    left join turns on got.pairing = turns.pairing and got.folded = turns.folded
                   and got.received_by = turns.received_by
)"""
"""Order of receipt is by number within a receiver's engine. Without a sender's number, messages are compared with those
of the same sender. The six names are compared by a hash, in half the time: of two streams with one hash, which is one
pair in 2^64, messages could seem out of order."""
TURNS: Final = f"""
{_PLACED},
moved as (
    select /*+ broadcast(entities, touched) */ placed.pairing, placed.folded, received_by, received_boot, received_seq
    from placed
    join entities on placed.pairing = entities.pairing and placed.folded = entities.folded
    left join touched on placed.pairing = touched.pairing and placed.folded = touched.folded
                     and placed.message_id = touched.message_id
    where received > 0 and (is_topic or touched.message_id is not null)
    union all
    select pairing, folded, received_by, received_boot, received_seq from touched_before
),
changed as (
    select /*+ broadcast(entities, boots) */ moved.pairing, moved.folded, received_by,
           case when not is_topic then boots.first_at end as boot_at, received_boot, received_seq
    from moved
    join entities on moved.pairing = entities.pairing and moved.folded = entities.folded
    left join boots on received_by = boots.engine and received_boot = boots.boot and moved.pairing = boots.pairing
),
ordered as (
    select *, row_number() over (partition by pairing, folded, received_by
                                 order by boot_at nulls first, received_boot, received_seq) as nth
    from changed
)
select pairing, folded, received_by, boot_at as turn_at, received_boot as turn_boot, received_seq as turn_seq
from ordered where nth = 1
"""
"""By entity and receiver's engine, its first delivery of a touched message, by the receipts before or now: from there
on the order is judged. `turn_at` null: all of it, as at the first judgement and for topics."""
ALL_TURNS: Final = """
select pairing, lower(entity) as folded, received_by, cast(null as timestamp) as turn_at, '' as turn_boot,
       cast(0 as bigint) as turn_seq
from receipts where received > 0 group by pairing, lower(entity), received_by
"""
HEIGHTS: Final = f"""
{_DELIVERIES}
select sequence, max(place) as place_before, max(accepted) as accepted_before
from deliveries where not is_after group by sequence
"""
"""How far each sequence of deliveries had got before its receiver's turn."""
NO_HEIGHTS: Final = """
select cast(0 as bigint) as sequence, cast(0 as bigint) as place_before, cast(0 as bigint) as accepted_before
where false
"""
TOUCHED: Final = """
select pairing, lower(entity) as folded, message_id from new_receipts group by pairing, lower(entity), message_id
"""
TOUCHED_BEFORE: Final = """
select known.pairing, lower(known.entity) as folded, received_by, received_boot, received_seq
from {known} as known semi join touched on known.pairing = touched.pairing and lower(known.entity) = touched.folded
                                       and known.message_id = touched.message_id
where received > 0
"""
"""The deliveries of touched messages by their receipts before."""
SCOPE: Final = f"""
{_DELIVERIES}
select pairing, folded, message_id from (
    select pairing, folded, message_id from touched
    union all
    select pairing, folded, message_id from deliveries where is_after
    union all
    select /*+ broadcast(entities) */ entities.pairing, entities.folded, message_id
    from known_audit join entities on known_audit.pairing = entities.pairing
                                  and lower(known_audit.entity) = entities.folded
    where status not in ({SETTLED}) or is_topic
          or receivers_told <> recorded or answer = 'never attempted' and received > 0 and records_all
) as found group by pairing, folded, message_id
"""
"""The keys of the messages that are judged."""
SCOPED: Final = """
select /*+ broadcast(scope) */ receipts.* from receipts
semi join scope on receipts.pairing = scope.pairing and lower(receipts.entity) = scope.folded
               and receipts.message_id = scope.message_id
"""
_LATE: Final = f"""
{_DELIVERIES},
ordered as (
    select *, max(place) over earlier as place_before, max(accepted) over earlier as accepted_before
    from deliveries where is_after
    window earlier as (partition by sequence
                       order by boot_at, received_boot, received_seq rows between unbounded preceding and 1 preceding)
),
compared as (
    select ordered.pairing, ordered.folded, message_id, place, is_numbered, accepted,
           greatest(ordered.place_before, heights.place_before) as place_before,
           greatest(ordered.accepted_before, heights.accepted_before) as accepted_before
    from ordered left join heights on ordered.sequence = heights.sequence
)
select distinct pairing, folded, message_id from compared
where place < place_before and (is_numbered or accepted + {ORDER_MARGIN} < accepted_before)
"""
_STILL_LATE: Final = """
union
select pairing, folded, message_id
from (select pairing, lower(entity) as folded, message_id from known_audit where out_of_order) as known_late
anti join (select * from deliveries where is_after) as again using (pairing, folded, message_id)
"""
KEPT: Final = """
select /*+ broadcast(scope) */ known_audit.* from known_audit
anti join scope on known_audit.pairing = scope.pairing and lower(known_audit.entity) = scope.folded
               and known_audit.message_id = scope.message_id
"""

_SUMS: Final = (
    "direct", "diverted", "in_doubt", "refused", "moved", "dead_lettered", "received", "redelivered", "again",
)  # fmt: skip
_LEAST: Final = ("first_at", "accepted_at", "diverted_at", "received_at")
_GREATEST: Final = (
    "entity", "stream", "number", "key", "session", "scheduled", "queue", "time_to_live", "reason", "reached_by",
    "reached_boot", "reached_seq", "moved_at", "dead_lettered_at", "reached_at", "last_at",
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
    select whole.*, late.message_id is not null as out_of_order, missed.missed, missed.heard_to
    from whole left join late on whole.pairing = late.pairing and whole.folded = late.folded
                             and whole.message_id = late.message_id
    left join missed on whole.pairing = missed.pairing and whole.folded = missed.folded
                    and whole.message_id = missed.message_id
)"""
"""A queue's message has one row in `receipts`; only a topic's are added up, which moves all rows."""

_RECEIVERS: Final = f"""
{_PLACED}
select pairing, folded, received_by, received_boot, max(least(reached_at, received_at)) as position,
       max(received_at) as got_at, max(unix_micros(received_at) - unix_micros(reached_at)) as slowest,
       max(redelivered) > 0 as redelivers
from placed where received > 0 and subscription is null and direct + moved = 1
group by pairing, folded, received_by, received_boot
"""
"""`position`: no message is received before it is accepted, whatever the sender's clock says."""
_RECENT: Final = f"""
with engine_ends as (select pairing, engine, max_by(ended, first_at) as ended from boots group by pairing, engine),
ranked as (
    select receivers.*, coalesce(ended, 'running') as ended,
           max(case when coalesce(ended, 'running') not in ('stopped', 'retired') then 1 else 0 end) over entity > 0
               as any_runs,
           max(got_at) over entity as newest_at,
           row_number() over (partition by receivers.pairing, folded, received_by order by got_at desc) as nth
    from receivers left join engine_ends on received_by = engine and receivers.pairing = engine_ends.pairing
    window entity as (partition by receivers.pairing, folded)
)
select *, nth = 1 and (ended not in ('stopped', 'retired') or not any_runs) as is_counted
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
           placed.pairing, placed.folded, placed.received_by, placed.received_boot, placed.reached_by,
           placed.reached_boot, max(reached_seq) as seq, max_by(reached_at, reached_seq) as reached_at
    from placed join counted on placed.pairing = counted.pairing and placed.folded = counted.folded
         and placed.received_by = counted.received_by and placed.received_boot = counted.received_boot
    where received > 0 and subscription is null and direct + moved = 1
    group by placed.pairing, placed.folded, placed.received_by, placed.received_boot, placed.reached_by,
             placed.reached_boot
)
select pairing, folded, reached_by, reached_boot, count(*) as boot_behind, min(seq) as boot_seq,
       min(reached_at) as boot_at
from boot_positions group by pairing, folded, reached_by, reached_boot
"""
"""How far receivers got, by their slowest: in the deliveries of each engine, and by the clock. An engine that stopped
is counted only where none runs. `patience`: twice the age of the oldest message that they got in a day, and at least
LOCK_CYCLES where they got copies again: prefetched messages whose locks end come in any order."""

_REACHED: Final = "unix_micros(reached_at)"
_FACTS: Final = f"""
facts as (
    select /*+ broadcast(entities, cover, fronts, boot_fronts, clocks) */
           messages.*, entities.recorded, entities.records_all, entities.is_topic, entities.has_sessions,
           cover.covered_from, cover.covered_to, cover.gap_engine, cover.late_engine,
           coalesce(cover.syphon_known, false) as syphon_known,
           direct + diverted as accepted, direct + moved > 0 as reached,
           case when direct + diverted > 0 then 'accepted' when in_doubt > 0 then 'in doubt'
                when refused > 0 then 'refused' else 'never attempted' end as answer,
           received > 0 and not is_topic and direct + diverted > 1 and direct + diverted > received - redelivered
               as lacks_copy,
           ({{now}} - unix_micros(coalesce(reached_at, accepted_at))) / 1e6 as age,
           coalesce({_REACHED} + patience <= unix_micros(fronts.got_at), false) as was_waited_for,
           coalesce(boot_behind = behind and reached_seq < boot_seq
                    and {_REACHED} + {PASS_MARGIN} < unix_micros(boot_fronts.boot_at), false) as passed_by_number,
           coalesce({_REACHED} + {CLOCK_MARGIN} < unix_micros(fronts.position), false) as passed_by_clock,
           clocks.fastest is not null as has_clock,
           cover.pairing is not null
               and coalesce(unix_micros(coalesce(reached_at, received_at)) + least(coalesce(fastest, 0), 0)
                            > unix_micros(covered_from) + {PASS_MARGIN}, true) as is_after_gap,
           coalesce(unix_micros(coalesce(reached_at, received_at)) + coalesce(patience, {{in_flight}})
                    <= unix_micros(covered_to), true) as is_before_end,
           coalesce({_REACHED} + {{in_flight}} > unix_micros(silent_from), false) as is_silent,
           coalesce({_REACHED} + time_to_live * 1e6 + {EXPIRY_MARGIN} <= least({{now}}, unix_micros(covered_to)),
                    false) as is_over,
           received = 0 and diverted > moved + dead_lettered and (recorded or direct + moved = 0) as in_backlog,
           dead_lettered > 0 and direct = 0 and received = 0 and diverted <= moved + dead_lettered
               and coalesce(moved_at <= dead_lettered_at, true) as is_dead
    from messages
    join entities on messages.pairing = entities.pairing and messages.folded = entities.folded
    left join cover on messages.pairing = cover.pairing
    left join fronts on messages.pairing = fronts.pairing and messages.folded = fronts.folded
    left join boot_fronts on messages.pairing = boot_fronts.pairing and messages.folded = boot_fronts.folded
                         and messages.reached_by = boot_fronts.reached_by
                         and messages.reached_boot = boot_fronts.reached_boot
    left join clocks on messages.pairing = clocks.pairing and messages.reached_by = clocks.reached_by
)"""

_NAMED: Final = f"""
{_PLACED},
depths as (
    select pairing, queue, read_at, held from (
        select pairing, queue, read_at, held,
               row_number() over (partition by pairing, queue order by read_at desc, held desc) as newest
        from (select coalesce(known.pairing, {PAIRING_BY_NAME.format(engine="readings.engine")}) as pairing,
                     queue, read_at,
                     coalesce(depth, 0) + coalesce(scheduled, 0) + coalesce(dead_lettered, 0) as held
              from backlog as readings
              left join (select engine, max(pairing) as pairing from boots group by engine) as known
                on readings.engine = known.engine
              where read_at is not null) as readings
        join reach using (pairing)
        where unix_micros(read_at) <= readings_to
    ) as numbered where newest = 1
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

_JUDGED: Final = f"""
with placed as (select *, lower(entity) as folded from {{scoped}}),{_MESSAGES},{_FACTS}
select /*+ broadcast(named) */ facts.*, named.read_at, named.expected, named.unnamed,
       case when received > 0 and answer = 'refused' then 'unexpected'
            when received > 0 and answer = 'never attempted' and moved = 0 and records_all and is_after_gap
                 and is_before_end then 'unexpected'
            when received > 0 and lacks_copy and diverted > moved + dead_lettered then 'parked'
            when received > 0 and lacks_copy and age < {{in_flight}} / 1e6 then 'in flight'
            when received > 0 and lacks_copy then 'unknown'
            when received > 0 and missed is null then 'delivered'
            when in_backlog then
                case when not coalesce(is_named, false) then 'parked'
                     when syphon_known and coalesce(diverted_at > covered_from, true)
                          and coalesce(unix_micros(read_at) + {{in_flight}} <= unix_micros(covered_to), true)
                         then 'missing'
                     else 'unknown' end
            when is_dead then 'dead-lettered'
            when reached and not recorded then 'accepted'
            when reached and is_topic and (age < {{in_flight}} / 1e6
                                           or {_REACHED} + {{in_flight}} > unix_micros(heard_to)) then
                case when is_silent then 'unknown' else 'in flight' end
            when reached and is_topic then 'unknown'
            when reached and is_over and is_after_gap and not has_sessions and scheduled = 0 then 'expired'
            when reached and age < {{in_flight}} / 1e6 then 'in flight'
            when reached and not (was_waited_for and (passed_by_number or passed_by_clock)) then
                case when is_silent then 'unknown' else 'in flight' end
            when reached and (has_sessions or scheduled > 0 or answer = 'never attempted' or not is_after_gap
                              or not is_before_end or not (passed_by_number or has_clock)) then 'unknown'
            when reached then 'lost'
            when answer <> 'never attempted' then answer
            else 'dead-lettered' end as fate
from facts
left join named on facts.pairing = named.pairing and facts.queue = named.queue and in_backlog
               and unix_micros(diverted_at) + {READING_MARGIN} < unix_micros(read_at)
"""
"""Each message's fate, as far as its own receipts and its entity's receivers tell."""
_SUSPECTS: Final = "select pairing, folded from judged where fate in ('lost', 'expired') group by pairing, folded"
_OF_SUSPECTS: Final = """
    select /*+ broadcast(suspects) */ suspects.pairing, suspects.folded, direct, diverted, moved, in_doubt, received,
           reached_by, reached_at, reached_seq, received_at
    from receipts as placed join suspects on placed.pairing = suspects.pairing
                                           and lower(placed.entity) = suspects.folded
    where received > 0
"""
"""Received messages: a suspect is no topic, so each has one row."""
_DOUBTS: Final = f"""
with of_suspects as ({_OF_SUSPECTS}),
candidates as (
    select pairing, folded, reached_by, received > 0 as is_received,
           lag(received = 0) over (partition by pairing, folded, reached_by order by reached_at, reached_seq)
               as was_missed
    from (select judged.pairing, judged.folded, reached_by, reached_at, reached_seq, received
          from judged join suspects on judged.pairing = suspects.pairing and judged.folded = suspects.folded
          where reached and fate in ('lost', 'in flight') and received = 0
          union all
          select of_suspects.pairing, of_suspects.folded, reached_by, reached_at, reached_seq, received
          from of_suspects where direct + moved > 0) as reaching
),
runs as (
    select pairing, folded,
           max(case when runs >= {SCATTERED} and runs * {RARE} >= messages then runs else 0 end) as runs
    from (select pairing, folded, reached_by, count(*) as messages,
                 count_if(is_received and was_missed) as runs
          from candidates group by pairing, folded, reached_by) as by_sender
    group by pairing, folded
),
strangers as (
    select pairing, folded, count(*) as strangers from of_suspects
    where direct + diverted = 0 and in_doubt = 0 group by pairing, folded
)
select suspects.pairing, suspects.folded, coalesce(runs, 0) as runs, coalesce(strangers, 0) as strangers
from suspects
left join runs on suspects.pairing = runs.pairing and suspects.folded = runs.folded
left join strangers on suspects.pairing = strangers.pairing and suspects.folded = strangers.folded
"""
"""What speaks against a loss, by entity. `runs`: the places where receivers seem to miss messages again and
again.
`strangers`: received messages whose sender has no journal here, or was refused."""
_OVERTAKEN: Final = f"""
with of_suspects as ({_OF_SUSPECTS})
select pairing, folded, message_id from (
    select *, min(received_at) over (partition by pairing, folded order by reached_at
                                     rows between 1 following and unbounded following) as later_at
    from (select pairing, folded, message_id, fate, reached_at, time_to_live, cast(null as timestamp) as received_at
          from judged where fate = 'expired'
          union all
          select pairing, folded, null, null, reached_at, null, received_at from of_suspects
          where direct + moved > 0) as reaching) as followed
where fate = 'expired' and unix_micros(later_at) < unix_micros(reached_at) + time_to_live * 1e6
"""
"""Messages whose receivers got a later one within their time to live: they may be lost instead of expired."""

Parts = tuple[dict[str, str], ...]


def parts(*, whole: bool, now: int, in_flight: int = IN_FLIGHT) -> Parts:
    """Return the statements of the parts, by name; each reads those of the lines above it, and the tables' own names.

    Args:
        whole: judge all messages; otherwise those of `scope`, from `touched` and `known_audit`.
        now: the journals' end in microseconds (this machine's clock, if that is earlier).
        in_flight: microseconds that a message is in flight at least.
    """
    turns = ALL_TURNS if whole else TURNS
    heights = {"heights": NO_HEIGHTS} if whole else {"heights": HEIGHTS, "scope": SCOPE}
    late = _LATE if whole else _LATE + _STILL_LATE
    found: Parts = (
        {"boots": _BOOTS, "entities": _ENTITIES},
        {"cover": _COVER, "receivers": _RECEIVERS, "clocks": CLOCKS, "listeners": _LISTENERS, "turns": turns},
        {"reach": _REACH, "recent": _RECENT, **heights},
        {} if whole else {"scoped": SCOPED},
        {"late": late, "named": _NAMED, "boot_fronts": _BOOT_FRONTS, "fronts": _FRONTS, "missed": _MISSED},
        {"judged": _JUDGED},
        {"suspects": _SUSPECTS},
        {"doubts": _DOUBTS, "overtaken": _OVERTAKEN},
    )  # fmt: skip
    given = {"now": now, "in_flight": in_flight, "scoped": "receipts" if whole else "scoped"}
    return tuple({name: query.format(**given) for name, query in group.items()} for group in found)


LARGE: Final = frozenset({"heights", "scope", "scoped", "late", "missed", "judged", "overtaken"})
"""Parts that may have a row for each message; the others have a few for each entity or boot."""
OF_PARTS: Final = ("cover", "reach", "recent", "fronts")
"""Parts that are made of small parts alone."""

_CLOCK: Final = "substr(cast({at} as string), 1, 16)"
"""A time to the minute, UTC."""
_SECONDS: Final = "cast(cast(round(time_to_live) as bigint) as string)"
_REASON: Final = f"""
case status
    when 'missing' then concat('queue ', queue, ' held none of its ', expected, ' at ', {_CLOCK.format(at="read_at")})
    when 'expired' then concat('it had ', {_SECONDS}, ' s to live, and no receiver got a later message within them')
    when 'unknown' then case
        when lacks_copy then concat('accepted ', accepted, ' times and received ', received - redelivered,
            ' times: one of two messages with this id is lost, or the entity drops duplicates')
        when in_backlog and not syphon_known
            then 'not in its queue: missing, or moved by an engine whose journal is not here'
        when is_silent then concat('lost, or in a journal that is not here: ', coalesce(late_engine, pairing),
                    ' recorded nothing after ', {_CLOCK.format(at="covered_to")})
        when missed is not null
            then concat('not received by the subscription ', missed, ': lost, or kept out by a filter')
        when is_topic then 'no subscription that records deliveries got it; a filter may have kept it out'
        when fate = 'expired' then concat('lost, or expired: it had ', {_SECONDS}, ' s to live')
        when scheduled > 0 then 'it was scheduled for a later time'
        when has_sessions then 'its session may wait for a receiver'
        when answer = 'never attempted' then 'lost, or in a journal that is not here: its sender has none here'
        when fate = 'lost' and strangers > 0 then concat('lost, or received with another id: ', strangers,
            ' received messages of its entity have no sender here')
        when fate = 'lost' then concat('lost, or received by a receiver that records nothing: in ', runs,
            ' places messages between received ones are not recorded')
        when covered_from is not null and unix_micros(coalesce(reached_at, diverted_at)) <= unix_micros(covered_from)
            then concat('lost, or in a journal that is not here: ', gap_engine, ' lacks records before ',
                        {_CLOCK.format(at="covered_from")})
        when not is_before_end then concat('lost, or in a journal that is not here: ', coalesce(late_engine, pairing),
                    ' recorded nothing after ', coalesce({_CLOCK.format(at="covered_to")}, 'that'))
        else concat('lost, or still on its way: no message of ', coalesce(reached_by, 'its sender'),
                    ' was received, so its clock cannot be compared') end
    else reason end"""

AUDIT: Final = f"""
with weighed as (
    select /*+ broadcast(doubts) */ judged.*, doubts.runs, doubts.strangers,
           case when fate = 'lost' and (doubts.runs > 0 or strangers > 0) then 'unknown'
                when fate = 'expired' and overtaken.message_id is not null then 'unknown' else fate end as status
    from judged
    left join doubts on judged.pairing = doubts.pairing and judged.folded = doubts.folded
    left join overtaken on judged.pairing = overtaken.pairing and judged.folded = overtaken.folded
                       and judged.message_id = overtaken.message_id
)
select pairing, entity, message_id, status, answer, key, queue, {_REASON} as reason, stream, number,
       direct, diverted, in_doubt, refused, moved, dead_lettered, received,
       cast(case when recorded then again else greatest(direct + moved - 1, 0) end as bigint) as duplicates,
       out_of_order,
       first_at, accepted_at, diverted_at, moved_at, reached_at, received_at, dead_lettered_at, last_at, time_to_live,
       (unix_micros(moved_at) - unix_micros(diverted_at)) / 1e6 as dwell,
       case when status not in ({SETTLED}) then age end as age, recorded as receivers_told,
       case when status = 'parked' then nullif(unnamed, 0) end as among_missing,
       case when status = 'unknown' and fate = 'lost' and strangers = 0 then true else false end as is_shared
from weighed
"""

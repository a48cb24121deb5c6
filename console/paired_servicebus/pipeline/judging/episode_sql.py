"""The table `episodes`: from the first failure of an entity to its return.

An episode belongs to one boot of one engine, which fails over by itself, and its records are in the order of their
numbers: no clock is compared with another one.

    suspect ──▶ failed over ──▶ first ping accepted ──▶ failed back
        └──▶ recovered: it never failed over

STORIES reads the views `story` (the boots' rows of `timeline` of STORY_KINDS) and `engines`. EPISODES reads its result,
`ended`, and `sends` (sends that the primary accepted, around the begins of episodes), `minutes`, `known` (the present
rows of these boots, whose figures of the latest judgement stay) and `others` (the rows of other boots).
EPISODE_FIGURES reads `receipts` and `episodes`.
"""

from __future__ import annotations

from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.pipeline.judging.derived_sql import listed, words
from paired_servicebus.pipeline.table_store.schema import TABLES

NEAR: Final = 2
"""Seconds that an operator's order may be before the change of state that it makes, or after it."""
BEFORE: Final = 120
"""Seconds before an episode in which the last accepted send is searched second by second."""
ORDERS: Final = ("forced", "pinned", "released")
STORY_KINDS: Final = ("state-changed", "ping-sent", "ping-accepted", "ping-failed", *ORDERS)
COLUMNS: Final = tuple(TABLES["episodes"])
FIGURES: Final = ("first_diverted_at", "backlog_empty_at", "parked", "moved", "dead_lettered")
"""Columns of a judgement."""

STORY: Final = f"""
select * from timeline
where kind in ({words(STORY_KINDS)}) and entity is not null and event_time is not null
"""
_DIVERTING: Final = words(tuple(state.value for state in DIVERTING))
_OPEN: Final = words((State.SUSPECT.value, *(state.value for state in DIVERTING)))
_ORDERS: Final = words(ORDERS)
_BOOT: Final = "partition by engine, boot, lower(entity) order by seq"
_EARLIER: Final = f"({_BOOT} rows between unbounded preceding and 1 preceding)"

_MARKED: Final = f"""
    select *, max_by(state, case when state is not null then seq end) over {_EARLIER} as state_before
    from (select *, case when kind = 'state-changed' then now end as state from story) as stated
"""
_OPENED: Final = f"""
    select *, coalesce(state in ({_OPEN}), false) and coalesce(state_before not in ({_OPEN}), true) as opens,
           coalesce(state_before in ({_OPEN}), false) as is_inside,
           coalesce(state not in ({_OPEN}), false) and coalesce(state_before in ({_OPEN}), false) as closes
    from marked
"""
_NUMBERED: Final = f"""
    select *, sum(cast(opens as int)) over ({_BOOT}) as nth,
           min_by(event_time, case when opens then seq end)
               over ({_BOOT} rows between 1 following and unbounded following) as next_begin,
           max_by(event_time, case when closes then seq end) over {_EARLIER} as last_end
    from opened
"""
_PLACED: Final = f"""
    select *, case when opens or is_inside then nth
                   when kind not in ({_ORDERS}) then 0
                   when next_begin <= event_time + interval {NEAR} seconds and next_begin >= event_time then nth + 1
                   when kind <> 'forced' and last_end + interval {NEAR} seconds >= event_time then nth
                   else 0 end as episode
    from numbered
"""
_ORDER: Final = """to_json(named_struct(
               'at', concat(replace(date_format(event_time, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), ' ', 'T'), 'Z'),
               'what', kind, 'by', coalesce(operator, ''), 'why', coalesce(why, '')))"""
"""Orders are sorted as texts: the time comes first."""
_SUMMED: Final = f"""
    select engine, boot, episode, max(case when opens then entity end) as entity,
           max(case when opens then event_time end) as began_at,
           max(case when opens and state = 'suspect' then event_time end) as suspected_at,
           min_by(event_time, seq) filter (where state in ({_DIVERTING})) as failed_over_at,
           min_by(event_time, seq) filter (where kind = 'ping-accepted') as first_ping_at,
           max(case when closes then event_time end) as closed_at, max(case when closes then state end) as closed_by,
           max_by(event_time, seq) as last_at, coalesce(bool_or(state = 'forced'), false) as forced,
           coalesce(min_by(why, seq) filter (where state in ({_DIVERTING})),
                    max(case when opens then why end)) as cause,
           max(case when closes then why end) as closed_why,
           count_if(kind = 'ping-sent') as pings_sent, count_if(kind = 'ping-accepted') as pings_accepted,
           count_if(kind = 'ping-failed') as pings_failed,
           concat('[', coalesce(array_join(sort_array(
               collect_list(case when kind in ({_ORDERS}) then {_ORDER} end)), ','), ''), ']') as orders
    from placed where episode > 0 group by engine, boot, lower(entity), episode
"""
_ENDED: Final = """
    select summed.*, engines.pairing, engines.ended_at,
           concat(entity, '@', summed.engine, '@', cast(unix_micros(began_at) as string)) as id,
           case when closed_by = 'pinned' then 'pinned'
                when closed_by is not null and failed_over_at is not null then 'failed back'
                when closed_by is not null then 'recovered'
                when engines.ended in ('stopped', 'restarted', 'retired') then 'engine ended'
                when engines.ended = 'silent' then 'engine silent' else 'open' end as outcome,
           case when closed_by is null then engines.end_reason else closed_why end as end_reason
    from summed join engines on summed.engine = engines.engine and summed.boot = engines.boot
    where began_at is not null
"""
_GOOD: Final = f"""
    select id, max(good_at) as good_at from (
        select id, sends.good_at from ended join sends
            on ended.engine = sends.engine and lower(ended.entity) = lower(sends.entity) and sends.good_at < began_at
            and sends.good_at >= began_at - interval {BEFORE} seconds
        union all
        select id, minutes.last_good_at from ended join minutes
            on ended.engine = minutes.engine and lower(ended.entity) = lower(minutes.entity)
            and minutes.last_good_at < began_at - interval {BEFORE} seconds
    ) as found group by id
"""
_CARRIED: Final = ", ".join(f"{name} as known_{name}" for name in ("last_good_at", *FIGURES))
_MADE: Final = {
    **{name: f"ended.{name}" for name in COLUMNS},
    "failed_back_at": "case when failed_over_at is not null then closed_at end",
    "last_at": "case when outcome = 'engine ended' then greatest(last_at, ended_at) else last_at end",
    "last_good_at": "coalesce(good_at, known_last_good_at)",
    **{name: f"known_{name}" for name in FIGURES},
}
STORIES: Final = f"""
with marked as ({_MARKED}), opened as ({_OPENED}), numbered as ({_NUMBERED}), placed as ({_PLACED}),
     summed as ({_SUMMED})
{_ENDED}
"""
EPISODES: Final = f"""
with good as ({_GOOD}), carried as (select id, {_CARRIED} from known)
select {", ".join(f"{how} as {name}" for name, how in _MADE.items())}
from ended left join good on ended.id = good.id left join carried on ended.id = carried.id
union all select {listed(COLUMNS)} from others
"""
SENDS: Final = """
select engine, entity, timestamp_micros(unix_micros(event_time) - cast(floor(seconds * 1e6) as bigint)) as good_at
from events where kind = 'sends' and trouble is null and route = 'primary' and accepted > 0
"""
_DIVERTED: Final = """
    select diverted_by as engine, diverted_boot as boot, lower(entity) as name, diverted_at as event_time, 1 as place,
           diverted_at, moved, dead_lettered, greatest(moved_at, dead_lettered_at) as left_at,
           moved + dead_lettered >= diverted as has_left, cast(null as string) as id
    from receipts where diverted > 0
    union all
    select engine, boot, lower(entity), began_at, 0, null, null, null, null, null, id from episodes
"""
EPISODE_FIGURES: Final = f"""
with ordered as (
    select *, row_number() over (partition by engine, boot, name order by event_time, place) as nth
    from ({_DIVERTED}) as diverted
),
placed as (
    select *, max_by(id, case when id is not null then nth end)
                  over (partition by engine, boot, name order by nth) as episode
    from ordered
)
select episode as id, min(diverted_at) as first_diverted_at,
       case when bool_and(has_left) then max(left_at) end as backlog_empty_at,
       count(diverted_at) as parked, count_if(moved > 0) as moved, count_if(dead_lettered > 0) as dead_lettered
from placed where episode is not null and place = 1 group by episode
"""
_FIGURED: Final = {
    **{
        name: f"greatest(coalesce(figures.{name}, 0), coalesce(episodes.{name}, 0))"
        for name in ("parked", "moved", "dead_lettered")
    },
    "first_diverted_at": "coalesce(episodes.first_diverted_at, figures.first_diverted_at)",
    "backlog_empty_at": "case when greatest(coalesce(figures.parked, 0), coalesce(episodes.parked, 0)) = 0 "
    "then episodes.failed_back_at when coalesce(figures.parked, 0) > 0 then figures.backlog_empty_at "
    "else episodes.backlog_empty_at end",
}
EPISODES_JUDGED: Final = f"""
select {", ".join(f"{_FIGURED.get(name, f'episodes.{name}')} as {name}" for name in COLUMNS)}
from episodes left join figures on episodes.id = figures.id
"""
"""The episodes with the figures of a judgement; figures of messages that were dropped stay."""

"""The tables that are made from events: engines, gaps, timeline, the sums by minute, and episodes.

FROM_EVENTS are made where the events are, by duckdb or by Spark; all others by duckdb from these few rows and from the
stored rows, `stored.TABLE`, which they add to.

    spans     from events: a row for each unbroken run of an engine's boot's numbers
    gaps      from spans
    timeline  from events
    engines   from spans, timeline, receiving (boots with a `received` record) and the stored ones
    sums, pings, readings      from events
    minutes, failures, backlog, syphon, dead_letters, cost      from these three and the stored rows of their days
    touched, ended, episodes   from timeline, engines, sends and minutes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.pipeline.table_store.schema import COUNTED_KINDS, TABLES

PAIRING_BY_NAME: Final = "regexp_replace({engine}, '(-drain)?@[^@]*$', '')"
"""An engine's pairing where no engine-started record gives it: its name up to the last "@". A drain's tasks add
"-drain" to the pairing's name."""
RETIRED_BOOT: Final = "retired-"
"""Begins the boot of the record by which an operator declares an engine gone; it is no boot of the engine."""
SILENT: Final = 15
"""Minutes without a record, before the newest one of its pairing's engines, after which an engine counts as gone."""


def listed(names: tuple[str, ...], of: str = "") -> str:
    """Return column names for a select list. Some are words of duckdb's, which a relation's name before them allows."""
    return ", ".join(f"{of}.{name}" if of else name for name in names)


def words(names: tuple[str, ...]) -> str:
    """Return texts for an `in`."""
    return ", ".join(f"'{name}'" for name in sorted(names))


TIMELINE_OF_EVENTS: Final = f"""
select {listed(tuple(TABLES["timeline"]), "events")} from events
where trouble is null and kind not in ({words(COUNTED_KINDS)})
"""
ONCE: Final = f"""
select {listed(tuple(TABLES["events"]), "ranked")} from (
    select *, row_number() over (
        partition by engine, boot, seq, case when seq is null then file end, case when seq is null then line end
        order by trouble is not null, trouble, line) as nth
    from {{events}}) as ranked where nth = 1
"""
"""Each record once, the readable one of two, and each line that is none."""
_RECEIVING: Final = "select distinct engine, boot from events where trouble is null and kind = 'received'"

_SPANS: Final = """
select engine, boot, min(seq) as first, max(seq) as last, min_by(event_time, seq) as first_at,
       max_by(event_time, seq) as last_at
from (select engine, boot, seq, event_time, seq - row_number() over (partition by engine, boot order by seq) as island
      from events where seq is not null) as numbered
group by engine, boot, island
"""
GAPS: Final = """
select engine, boot, before + 1 as first_seq, first - 1 as last_seq, first - 1 - before as missing
from (select *, coalesce(lag(last) over (partition by engine, boot order by first), 0) as before from spans) as ordered
where first > before + 1
"""

# Engines: each boot's records by their numbers, and how it ended.

_STARTED: Final = (
    "primary_namespace", "secondary_namespace", "syphon", "backlog_queues", "version", "predecessor", "predecessor_seq",
)  # fmt: skip
_NUMBERS: Final = f"""
    select engine, boot, min_by(first_at, first) as first_at, max_by(last_at, last) as last_at,
           min(first) as first_seq, max(last) as last_seq, cast(sum(last - first + 1) as bigint) as records,
           max(case when first = 1 then last_at end) as complete_to,
           case when count(*) > 1 or min(first) > 1 then max_by(first_at, first) end as gap_to
    from spans where boot not like '{RETIRED_BOOT}%' group by engine, boot
"""
_LAST: Final = """
    select * from (select *, row_number() over (partition by engine, boot order by seq desc) as place from timeline
                   where kind = '{0}') as ordered where place = 1
"""
_RETIRED: Final = """
    select engine, max(retired_at) as retired_at, max_by(retired_why, retired_at) as retired_why from (
        select engine, event_time as retired_at, coalesce(why, '') as retired_why from timeline
        where kind = 'engine-retired'
        union all select engine, retired_at, retired_why from stored.engines where retired_at is not null) as declared
    group by engine
"""
_NAMED: Final = f"""
    select numbers.*,
           coalesce(started.pairing, known.pairing_name, {PAIRING_BY_NAME.format(engine="numbers.engine")})
               as pairing_name,
           coalesce(started.event_time, known.started_at) as started_at,
           {", ".join(f"coalesce(started.{name}, known.{name}) as {name}" for name in _STARTED)},
           coalesce(stopped.event_time, case when known.ended = 'stopped' then known.ended_at end) as stopped_at,
           coalesce(stopped.reason, case when known.ended = 'stopped' then known.end_reason end) as stop_reason,
           coalesce(known.receives, false) or receiving.boot is not null as receives,
           case when retired.retired_at >= numbers.last_at then retired.retired_at end as retired_at,
           retired.retired_why
    from numbers
    left join stored.engines as known on numbers.engine = known.engine and numbers.boot = known.boot
    left join started on numbers.engine = started.engine and numbers.boot = started.boot
    left join stopped on numbers.engine = stopped.engine and numbers.boot = stopped.boot
    left join receiving on numbers.engine = receiving.engine and numbers.boot = receiving.boot
    left join retired on numbers.engine = retired.engine
"""
_SHARED: Final = """
    select *, min(pairing_name) over (
        partition by lower(primary_namespace), lower(secondary_namespace),
                     case when primary_namespace is null then pairing_name end
    ) as of_namespaces from named
"""
_GROUPED: Final = "select *, min(of_namespaces) over (partition by pairing_name) as pairing from shared"
"""Engines of the same two namespaces share backlog queues, whatever their names: they are one pairing."""
_ORDERED: Final = """
    select *, max(last_at) over (partition by pairing) as newest,
           lead(first_at) over (partition by engine order by first_at, boot) as next_boot_at,
           lead(grouped.predecessor) over (partition by engine order by first_at, boot) as next_names,
           lead(grouped.predecessor_seq) over (partition by engine order by first_at, boot) as next_knows,
           lag(boot) over (partition by engine order by first_at, boot) as boot_before
    from grouped
"""
_ENDED: Final = f"""
    select *, case when engine like '%-drain@%' or stopped_at is not null then 'stopped'
                   when next_boot_at is not null then 'restarted' when retired_at is not null then 'retired'
                   when last_at < newest - interval {SILENT} minutes then 'silent' else 'running' end as ended,
           predecessor is not null and predecessor <> coalesce(boot_before, '') as lacks_boot
    from ordered
"""
_TAILED: Final = """
    select *, case when ended <> 'restarted' then 0
                   when next_names = boot then greatest(next_knows - last_seq, 0) end as tail_missing
    from judged
"""
"""A killed boot's last number is known from its successor's first record alone; null: it is not known."""
ENGINES: Final = f"""
with numbers as ({_NUMBERS}), started as ({_LAST.format("engine-started")}),
     stopped as ({_LAST.format("engine-stopped")}), retired as ({_RETIRED}),
     named as ({_NAMED}), shared as ({_SHARED}), grouped as ({_GROUPED}), ordered as ({_ORDERED}),
     judged as ({_ENDED}), tailed as ({_TAILED})
select pairing, engine, boot, started_at, first_at, last_at, first_seq, last_seq, records,
       last_seq - records + coalesce(tail_missing, 0) as missing,
       case when not lacks_boot then complete_to end as complete_to,
       case when tail_missing is null or tail_missing > 0 then next_boot_at
            when gap_to is not null then gap_to when lacks_boot then first_at end as complete_from,
       tail_missing is not null as end_known, lacks_boot, ended,
       case ended when 'stopped' then coalesce(stopped_at, last_at) when 'restarted' then next_boot_at
                  when 'retired' then last_at when 'silent' then last_at end as ended_at,
       case ended when 'stopped' then stop_reason when 'restarted' then 'the engine was killed, and started again'
                  when 'retired' then concat('it was declared gone for good: ', retired_why)
                  when 'silent' then 'it recorded nothing for {SILENT} minutes, while others of its pairing did' end
           as end_reason,
       {listed(_STARTED, "tailed")}, receives, pairing_name, retired_at,
       case when retired_at is not null then retired_why end as retired_why
from tailed
"""

# Sums by minute. A batch's events are first summed in one pass: a row for each minute, kind and key.

MEASURES: Final = (
    "accepted", "failed", "count", "sends", "parked", "pings", "receives", "moves", "settlements",
    "sent_bytes", "parked_bytes", "moved_bytes",
)  # fmt: skip
"""Fields of counted kinds that are summed."""
_COUNTED: Final = (
    "sends", "failures", "operations", "diverted", "moved", "dead-lettered", "destination-failed", "pump-stopped",
    "ping-sent", "ping-failed", "ping-accepted", "queue-read",
)  # fmt: skip
_MINUTE: Final = "date_trunc('minute', event_time)"
_WITHIN: Final = "(unix_micros(event_time) % 60000000) / 1e6"

SUMS: Final = f"""
select engine, {_MINUTE} as minute, kind, entity, queue, route, failure,
       case when kind = 'dead-lettered' then reason end as reason, count(*) as n,
       {", ".join(f"try_cast(try_sum(events.{name}) as bigint) as {name}" for name in MEASURES)},
       max(case when kind = 'sends' and route = 'primary' and accepted > 0
                then timestamp_micros(unix_micros(event_time) - cast(floor(seconds * 1e6) as bigint)) end)
           as last_good_at
from events
where trouble is null and event_time is not null and kind in ({words(_COUNTED)})
group by 1, 2, 3, 4, 5, 6, 7, 8
"""
PINGS: Final = f"""
select engine, {_MINUTE} as minute, entity, collect_list(took) as ping_seconds
from events where trouble is null and event_time is not null and kind = 'ping-accepted' group by 1, 2, 3
"""
READINGS: Final = f"""
with reads as (
    select engine, {_MINUTE} as minute, queue, event_time, depth, size_bytes, dead_lettered, scheduled,
           {_WITHIN} as within,
           row_number() over (partition by engine, queue, {_MINUTE} order by event_time desc, boot, seq desc) as nth
    from events where trouble is null and event_time is not null and kind = 'queue-read'
)
select engine, minute, queue, max(event_time) as read_at, max(case when nth = 1 then depth end) as depth,
       max(depth) as depth_max, max(case when nth = 1 then size_bytes end) as bytes,
       max(case when nth = 1 then dead_lettered end) as dead_lettered,
       max(case when nth = 1 then scheduled end) as scheduled, count(*) as n, sum(within) as sum_t,
       sum(cast(depth as double)) as sum_d, sum(within * within) as sum_tt, sum(within * depth) as sum_td
from reads group by 1, 2, 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedTable:
    """A table whose rows are sums by minute.

    Args:
        keys: the columns that a row is known by.
        measures: the other columns that add up, each with its aggregate; `{0}` is the column.
        kinds: of the events that it is made of.
        source: the batch's rows, from `sums`, `pings` and `readings`; any number for a key.
        derived: columns that follow from the others, each with its expression.
    """

    keys: tuple[str, ...]
    measures: Mapping[str, str]
    kinds: tuple[str, ...]
    source: str
    derived: Mapping[str, str] = field(default_factory=dict)

    def query(self, table: str, dates: str) -> str:
        """Return the query of the rows of the days that `sums` has, from these and the table's stored rows."""
        names = (*self.keys, *self.measures)
        rows = (
            f"select {listed(names, 'new')} from ({self.source}) as new "
            f"union all select {listed(names, 'known')} from stored.{table} as known where date in ({dates})"
        )
        sums = ", ".join(f"{how.format(f'every.{name}')} as {name}" for name, how in self.measures.items())
        keys = listed(self.keys, "every")
        whole = f"select {keys}, {sums} from ({rows}) as every group by {keys}"
        columns = ", ".join(self._column(name, kind) for name, kind in TABLES[table].items())
        return f"select {columns} from ({whole}) as one"

    def _column(self, name: str, kind: str) -> str:
        if kind == "DOUBLE[]":
            return f"one.{name}"
        return f"cast({self.derived.get(name, f'one.{name}')} as {kind.replace('VARCHAR', 'string')}) as {name}"


def _nothing(*names: str) -> str:
    return ", ".join(f"null as {name}" for name in names)


def _quantile(share: float) -> str:
    """Return the SQL of a quantile of `ping_seconds`, which are sorted: between two values by their distance."""
    place = f"(size(ping_seconds) - 1) * cast({share} as double)"
    low = f"try_element_at(ping_seconds, cast(floor({place}) as int) + 1)"
    high = f"try_element_at(ping_seconds, cast(ceil({place}) as int) + 1)"
    return f"case when size(ping_seconds) > 0 then {low} + ({high} - {low}) * ({place} - floor({place})) end"


SUM: Final = "coalesce(try_cast(try_sum({0}) as bigint), 0)"
LATEST: Final = "max_by({0}, every.read_at)"
_SENT: Final = (
    "primary_accepted", "primary_failed", "backlog_accepted", "backlog_failed", "pings_sent", "pings_accepted",
    "pings_failed",
)  # fmt: skip
_FIGURES: Final = ("read_at", "depth", "depth_max", "bytes", "dead_lettered", "scheduled")
_FIT: Final = ("n", "sum_t", "sum_d", "sum_tt", "sum_td")
_COSTS: Final = {
    "sends": "sent_bytes", "parked": "parked_bytes", "pings": "0", "receives": "0", "moves": "moved_bytes",
    "settlements": "0",
}  # fmt: skip

SUMMED: Final = {
    "minutes": SummedTable(
        keys=("engine", "entity", "minute"),
        measures={
            **dict.fromkeys(_SENT, SUM),
            "ping_seconds": "case when count({0}) > 0 then array_sort(flatten(collect_list({0}))) end",
            "last_good_at": "max({0})",
        },
        kinds=("sends", "ping-sent", "ping-accepted", "ping-failed"),
        source=f"""
            select engine, entity, minute,
                   case when kind = 'sends' and route = 'primary' then accepted end as primary_accepted,
                   case when kind = 'sends' and route = 'primary' then failed end as primary_failed,
                   case when kind = 'sends' and route <> 'primary' then accepted end as backlog_accepted,
                   case when kind = 'sends' and route <> 'primary' then failed end as backlog_failed,
                   case when kind = 'ping-sent' then n end as pings_sent,
                   case when kind = 'ping-accepted' then n end as pings_accepted,
                   case when kind = 'ping-failed' then n end as pings_failed,
                   null as ping_seconds, last_good_at
            from sums where kind in ('sends', 'ping-sent', 'ping-accepted', 'ping-failed')
            union all select engine, entity, minute, {_nothing(*_SENT)}, ping_seconds, null from pings""",
        derived={
            "availability": "primary_accepted / nullif(primary_accepted + primary_failed, 0)",
            "accepted_share": "(primary_accepted + backlog_accepted) / "
            "nullif(primary_accepted + primary_failed + backlog_accepted + backlog_failed, 0)",
            "ping_p50": _quantile(0.5),
            "ping_p95": _quantile(0.95),
            "ping_p99": _quantile(0.99),
        },
    ),
    "failures": SummedTable(
        keys=("engine", "entity", "minute", "route", "failure"),
        measures={"count": SUM},
        kinds=("failures",),
        source="select engine, entity, minute, route, failure, sums.count from sums where kind = 'failures'",
    ),
    "backlog": SummedTable(
        keys=("engine", "queue", "minute"),
        measures={
            "parked": SUM,
            "read_at": "max({0})",
            "depth": LATEST,
            "depth_max": "max({0})",
            "bytes": LATEST,
            "dead_lettered": LATEST,
            "scheduled": LATEST,
            **dict.fromkeys(_FIT, "sum({0})"),
        },
        kinds=("diverted", "queue-read"),
        source=f"""
            select engine, queue, minute, n as parked, {_nothing(*_FIGURES, *_FIT)} from sums where kind = 'diverted'
            union all select engine, queue, minute, null, {listed((*_FIGURES, *_FIT))} from readings""",
        derived={
            # of one reading the spread is 0 but for rounding
            "slope": "(n * sum_td - sum_t * sum_d) / nullif(round(n * sum_tt - sum_t * sum_t, 6), 0)"
        },
    ),
    "syphon": SummedTable(
        keys=("engine", "queue", "entity", "minute"),
        measures=dict.fromkeys(("moved", "retries", "dead_lettered"), SUM),
        kinds=("moved", "dead-lettered", "destination-failed", "pump-stopped"),
        source="""
            select engine, queue, entity, minute, case when kind = 'moved' then n end as moved,
                   case when kind in ('destination-failed', 'pump-stopped') then n end as retries,
                   case when kind = 'dead-lettered' then n end as dead_lettered
            from sums where kind in ('moved', 'dead-lettered', 'destination-failed', 'pump-stopped')""",
    ),
    "dead_letters": SummedTable(
        keys=("engine", "queue", "entity", "minute", "reason"),
        measures={"count": SUM},
        kinds=("dead-lettered",),
        source="select engine, queue, entity, minute, reason, n as count from sums where kind = 'dead-lettered'",
    ),
    "cost": SummedTable(
        keys=("engine", "minute", "cause"),
        measures={"operations": SUM, "bytes": SUM},
        kinds=("operations",),
        source=" union all ".join(
            f"select engine, minute, '{cause}' as cause, sums.{cause} as operations, {size} as bytes from sums "
            f"where kind = 'operations' and sums.{cause} > 0"
            for cause, size in _COSTS.items()
        ),
    ),
}
"""By table."""


# Episodes: from the first failure of an entity to its return.
#
# An episode belongs to one boot of one engine, which fails over by itself, and its records are in the order of their
# numbers: no clock is compared with another one.
#
#     suspect ──▶ failed over ──▶ first ping accepted ──▶ failed back
#         └──▶ recovered: it never failed over
#
# The stories of the `touched` boots are read again, from their stored rows of `timeline` too: STORIES. EPISODES reads
# its result, `ended`, and `sends` (sends that the primary accepted, around the begins of episodes) and `minutes`. Of
# the stored episodes, the figures of the latest judgement stay, and the rows of other boots. EPISODE_FIGURES reads
# `receipts` and `episodes`.

NEAR: Final = 2
"""Seconds that an operator's order may be before the change of state that it makes, or after it."""
BEFORE: Final = 120
"""Seconds before an episode in which the last accepted send is searched second by second."""
ORDERS: Final = ("forced", "pinned", "released")
STORY_KINDS: Final = ("state-changed", "ping-sent", "ping-accepted", "ping-failed", *ORDERS)
COLUMNS: Final = tuple(TABLES["episodes"])
FIGURES: Final = ("first_diverted_at", "backlog_empty_at", "parked", "moved", "dead_lettered")
"""Columns of a judgement."""

_ENDS: Final = "select engine, boot, ended from"
TOUCHED: Final = f"""
select engine, boot from timeline where kind in ({words(STORY_KINDS)})
union select engine, boot from ({_ENDS} engines except {_ENDS} stored.engines) as ended where ended <> 'running'
union select engine, boot from ({_ENDS} stored.engines except {_ENDS} engines) as reopened where ended <> 'running'
"""
"""The boots with new events of a story, and those that ended since or turned out to go on."""
_TIMELINE: Final = ", ".join(TABLES["timeline"])
_STORY: Final = f"""
    select told.* from (select {_TIMELINE} from stored.timeline union all select {_TIMELINE} from timeline) as told
    semi join touched using (engine, boot)
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
_STORY_ENDS: Final = """
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
_GOOD_MINUTES: Final = """
    select engine, entity, last_good_at from minutes
    union all select engine, entity, last_good_at from stored.minutes
    where date not in (select cast(minute as date) from minutes)
"""
_GOOD: Final = f"""
    select id, max(good_at) as good_at from (
        select id, sends.good_at from ended join sends
            on ended.engine = sends.engine and lower(ended.entity) = lower(sends.entity) and sends.good_at < began_at
            and sends.good_at >= began_at - interval {BEFORE} seconds
        union all
        select id, minutes.last_good_at from ended join good_minutes as minutes
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
with story as ({_STORY}), marked as ({_MARKED}), opened as ({_OPENED}), numbered as ({_NUMBERED}),
     placed as ({_PLACED}), summed as ({_SUMMED})
{_STORY_ENDS}
"""
EPISODES: Final = f"""
with good_minutes as ({_GOOD_MINUTES}), good as ({_GOOD}), carried as (select id, {_CARRIED} from stored.episodes)
select {", ".join(f"{how} as {name}" for name, how in _MADE.items())}
from ended left join good on ended.id = good.id left join carried on ended.id = carried.id
union all select {listed(COLUMNS)} from stored.episodes as others anti join touched using (engine, boot)
"""
SENDS: Final = """
select engine, entity, timestamp_micros(unix_micros(event_time) - cast(floor(seconds * 1e6) as bigint)) as good_at
from events where kind = 'sends' and trouble is null and route = 'primary' and accepted > 0
"""
FROM_EVENTS: Final = {
    "timeline": TIMELINE_OF_EVENTS, "spans": _SPANS, "receiving": _RECEIVING, "sums": SUMS, "pings": PINGS,
    "readings": READINGS, "sends": SENDS,
}  # fmt: skip
"""By name, the statements over `events`."""
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

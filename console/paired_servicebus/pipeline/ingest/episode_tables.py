"""The table `episodes`: from the first failure of an entity to its return. SQL of Spark's, over a boot's `timeline`.

An episode belongs to one boot of one engine, which fails over by itself, and its records are in the order of their
numbers: no clock is compared with another one.

    suspect ──▶ failed over ──▶ first ping accepted ──▶ failed back
        └──▶ recovered: it never failed over

STORIES reads the views `story` (the boots' rows of STORY_KINDS) and `engines` (their rows). EPISODES reads its result,
`ended`, and `sends` (sends that the primary accepted, around the begins of episodes), `minutes` (those before), `known`
(the present rows of these boots, whose figures of the latest judgement stay) and `others` (the rows of other boots).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.pipeline.ingest.table_files import Existing, frame
from paired_servicebus.pipeline.table_store.lake import Files, Staged
from paired_servicebus.pipeline.table_store.schema import EPISODES as COLUMNS

NEAR: Final = 2
"""Seconds that an operator's order may stand before the change of state that it makes, or after it."""
BEFORE: Final = 120
"""Seconds before an episode in which the last accepted send is searched second by second."""
ORDERS: Final = ("forced", "pinned", "released")
STORY_KINDS: Final = ("state-changed", "ping-sent", "ping-accepted", "ping-failed", *ORDERS)
JUDGED: Final = ("first_diverted_at", "backlog_empty_at", "parked", "moved", "dead_lettered")
"""Columns of a judgement."""


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_DIVERTING: Final = _quoted(tuple(state.value for state in DIVERTING))
_OPEN: Final = _quoted((State.SUSPECT.value, *(state.value for state in DIVERTING)))
_ORDERS: Final = _quoted(ORDERS)
_BOOT: Final = "partition by engine, boot, lower(entity) order by seq"

_MARKED: Final = f"""
    select *, last_value(state, true) over ({_BOOT} rows between unbounded preceding and 1 preceding) as state_before
    from (select *, case when kind = 'state-changed' then now end as state from story)
"""
_OPENED: Final = f"""
    select *, coalesce(state in ({_OPEN}), false) and coalesce(state_before not in ({_OPEN}), true) as opens,
           coalesce(state_before in ({_OPEN}), false) as is_inside,
           coalesce(state not in ({_OPEN}), false) and coalesce(state_before in ({_OPEN}), false) as closes
    from marked
"""
_NUMBERED: Final = f"""
    select *, sum(int(opens)) over ({_BOOT}) as nth,
           first_value(case when opens then event_time end, true)
               over ({_BOOT} rows between 1 following and unbounded following) as next_begin,
           last_value(case when closes then event_time end, true)
               over ({_BOOT} rows between unbounded preceding and 1 preceding) as last_end
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
_SUMMED: Final = f"""
    select engine, boot, episode, max(case when opens then entity end) as entity,
           max(case when opens then event_time end) as began_at,
           max(case when opens and state = 'suspect' then event_time end) as suspected_at,
           min_by(event_time, seq) filter (where state in ({_DIVERTING})) as failed_over_at,
           min_by(event_time, seq) filter (where kind = 'ping-accepted') as first_ping_at,
           max(case when closes then event_time end) as closed_at, max(case when closes then state end) as closed_by,
           max_by(event_time, seq) as last_at, coalesce(max(state = 'forced'), false) as forced,
           coalesce(min_by(why, seq) filter (where state in ({_DIVERTING})),
                    max(case when opens then why end)) as cause,
           max(case when closes then why end) as closed_why,
           count_if(kind = 'ping-sent') as pings_sent, count_if(kind = 'ping-accepted') as pings_accepted,
           count_if(kind = 'ping-failed') as pings_failed,
           to_json(transform(
               array_sort(collect_list(case when kind in ({_ORDERS})
                                            then struct(seq, event_time, kind, `by`, why) end)),
               one -> struct(date_format(one.event_time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'") as at, one.kind as what,
                             coalesce(one.`by`, '') as by, coalesce(one.why, '') as why))) as orders
    from placed where episode > 0 group by engine, boot, lower(entity), episode
"""
_ENDED: Final = """
    select summed.*, engines.pairing, engines.ended_at,
           concat(entity, '@', engine, '@', unix_micros(began_at)) as id,
           case when closed_by = 'pinned' then 'pinned'
                when closed_by is not null and failed_over_at is not null then 'failed back'
                when closed_by is not null then 'recovered'
                when engines.ended in ('stopped', 'restarted') then 'engine ended'
                when engines.ended = 'silent' then 'engine silent' else 'open' end as outcome,
           case when closed_by is null then engines.end_reason else closed_why end as end_reason
    from summed join engines using (engine, boot)
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
    ) group by id
"""
_CARRIED: Final = ", ".join(f"{name} as known_{name}" for name in ("last_good_at", *JUDGED))
_MADE: Final = {
    **{name: name for name in COLUMNS},
    "failed_back_at": "case when failed_over_at is not null then closed_at end",
    "last_at": "case when outcome = 'engine ended' then greatest(last_at, ended_at) else last_at end",
    "last_good_at": "coalesce(good_at, known_last_good_at)",
    **{name: f"known_{name}" for name in JUDGED},
}
STORIES: Final = f"""
with marked as ({_MARKED}), opened as ({_OPENED}), numbered as ({_NUMBERED}), placed as ({_PLACED}),
     summed as ({_SUMMED})
{_ENDED}
"""
EPISODES: Final = f"""
with good as ({_GOOD}), carried as (select id, {_CARRIED} from known)
select {", ".join(f"{how} as `{name}`" for name, how in _MADE.items())}
from ended left join good using (id) left join carried using (id)
union all select {", ".join(f"`{name}`" for name in COLUMNS)} from others
"""
SENDS: Final = """
select engine, entity, timestamp_micros(unix_micros(event_time) - bigint(seconds * 1e6D)) as good_at
from events where kind = 'sends' and trouble is null and route = 'primary' and accepted > 0
"""


def find_stories(spark: Any, told: Any, engines: Any, existing: Existing, changed: Mapping[str, Files]) -> bool:
    """Make the views of the stories that a batch goes on with, and return whether there are any.

    Args:
        told: the batch's rows of `timeline`, an Arrow table.
        engines: the new table `engines`, an Arrow table.
        existing: the tables before the batch.
        changed: the files of the tables that the batch has changed already, `timeline` among them.
    """
    before = existing.rows("engines").select("engine", "boot", "ended").toArrow()
    boots = _touched(told) | _ended_otherwise(before, engines)
    if not boots:
        return False
    spark.createDataFrame(engines).createOrReplaceTempView("engines")
    spark.createDataFrame(_boots(boots)).createOrReplaceTempView("touched")
    _new(spark, "timeline", existing, changed).createOrReplaceTempView("timeline")
    story = f"select * from timeline left semi join touched using (engine, boot) where kind in ({_quoted(STORY_KINDS)})"
    spark.sql(f"{story} and entity is not null and event_time is not null").createOrReplaceTempView("story")
    spark.createDataFrame(spark.sql(STORIES).toArrow()).createOrReplaceTempView("ended")
    return True


def episode_rows(
    spark: Any, events: Sequence[Path], told: Any, existing: Existing, changed: Mapping[str, Files]
) -> Any:
    """Return all rows of `episodes` as an Arrow table, from the views of `find_stories`.

    Args:
        events: the files of the batch's events.
        told, existing: as there.
        changed: the files of the tables that the batch has changed, `minutes` among them.
    """
    _new(spark, "minutes", existing, changed).createOrReplaceTempView("minutes")
    existing.rows("episodes").createOrReplaceTempView("episodes")
    for name, how in (("known", "semi"), ("others", "anti")):
        spark.sql(f"select * from episodes left {how} join touched using (engine, boot)").createOrReplaceTempView(name)
    begins = told.filter(pc.equal(told["kind"], "state-changed"))
    _sends(spark, events, begins, existing).createOrReplaceTempView("sends")
    return spark.sql(EPISODES).toArrow()


def _touched(told: Any) -> set[tuple[str, str]]:
    some = told.filter(pc.is_in(told["kind"], value_set=pa.array(STORY_KINDS)))
    return set(zip(some["engine"].to_pylist(), some["boot"].to_pylist(), strict=True))


def _ended_otherwise(before: Any, engines: Any) -> set[tuple[str, str]]:
    """Return the boots that ended since, or turned out to go on."""
    names = ("engine", "boot", "ended")
    known, now = ({tuple(row[name] for name in names) for row in one.to_pylist()} for one in (before, engines))
    return {(engine, boot) for engine, boot, ended in now - known if ended != "running"} | {
        (engine, boot) for engine, boot, ended in known - now if ended != "running"
    }


def _boots(boots: Iterable[tuple[str, str]]) -> Any:
    found = sorted(boots)
    return pa.table({"engine": [one for one, _ in found], "boot": [one for _, one in found]})


def _new(spark: Any, table: str, existing: Existing, changed: Mapping[str, Files]) -> Any:
    """Return a table as the batch leaves it."""
    files = changed.get(table, existing.of(table))
    new = [one.path for one in files if isinstance(one, Staged)]
    return frame(spark, table, [*existing.paths(table, [one for one in files if not isinstance(one, Staged)]), *new])


def _sends(spark: Any, events: Sequence[Path], begins: Any, existing: Existing) -> Any:
    """Return the accepted sends around the changes of state of the batch, from it and from older files."""
    paths: list[Path] = []
    if begins.num_rows:
        times = pc.min_max(begins["event_time"].cast(pa.int64())).as_py()
        first, last = times["min"] - BEFORE * 1_000_000, times["max"]
        older = [file for file in existing.of("events") if file.last_at >= first and file.first_at <= last]
        paths = [*events, *existing.paths("events", older)]
    frame(spark, "events", paths).createOrReplaceTempView("events")
    return spark.sql(SENDS)

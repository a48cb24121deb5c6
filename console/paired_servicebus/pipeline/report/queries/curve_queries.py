"""The data of the plots, in buckets of whole seconds that begin at whole multiples of their length.

A count of sends covers the time since the count before it, about a second. It is spread over that time, so that a
bucket's rate is that of the data, wherever the counts begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Final

from paired_servicebus.pipeline.report.queries.table_source import Row, Scope, micros
from paired_servicebus.pipeline.report.report_values import (
    Act,
    Chain,
    Curves,
    Mark,
    Panel,
    Series,
)
from paired_servicebus.pipeline.report.sentences import few

MAX_BUCKETS: Final = 240
LENGTHS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Seconds that a bucket may have; longer ones are whole days."""
MAX_QUEUES: Final = 8
"""Curves of depths; the other queues are one sum."""
ROUTES: Final = ("primary", "backlog", "failed")
DWELLS: Final = ("half", "95 of 100", "longest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The buckets of the plots; those that are not wholly within the recorded time are unknown."""

    since: int
    """Seconds since the epoch."""
    length: int
    count: int
    first: int
    """The first bucket that is wholly recorded."""
    last: int
    """The last one."""

    @classmethod
    def of(cls, since: float, until: float, recorded: tuple[float, float]) -> Buckets:
        """Return the buckets that cover a time, with the shortest length that makes at most MAX_BUCKETS."""
        least = (until - since) / (MAX_BUCKETS - 1)
        length = next((one for one in LENGTHS if one >= least), ceil(least / 86_400) * 86_400)
        begin = floor(since / length) * length
        count = max(1, ceil((until - begin) / length))
        first = ceil((recorded[0] - 1 - begin) / length)
        last = floor((recorded[1] + 1 - begin) / length) - 1
        return cls(since=begin, length=length, count=count, first=first, last=last)

    def curve(self, rows: Iterable[Row], name: str, *, per: float = 1.0) -> tuple[float | None, ...]:
        """Return the rows' values, 0 where a recorded bucket has none, divided by `per`."""
        values: list[float | None] = [0.0 if self.first <= at <= self.last else None for at in range(self.count)]
        for row in rows:
            place = row["bucket"]
            if 0 <= place < self.count and (known := values[place]) is not None:
                values[place] = known + (row[name] or 0.0) / per
        return tuple(values)

    def parameters(self) -> dict[str, int]:
        """Return the parameters of the queries, in microseconds."""
        begin = micros(self.since)
        length = micros(self.length)
        return {"begin": begin, "end": begin + length * self.count, "start": begin, "length": length}


def read_curves(scope: Scope, episodes: Chain, acts: Sequence[Act], recorded: tuple[float, float]) -> Curves:
    """Return the data of all plots."""
    buckets = Buckets.of(scope.since, scope.until, recorded)
    away = _away(tuple(one.entity for one in episodes), episodes, scope.until)
    others = (_parked(scope, buckets), _depths(scope, buckets), _syphon(scope, buckets), _dwell(scope, buckets))
    panels = [
        *_sends(scope, buckets, episodes),
        *(replace(panel, away=away) for panel in others if panel is not None),
    ]
    return Curves(
        since=float(buckets.since),
        bucket=float(buckets.length),
        buckets=buckets.count,
        panels=tuple(panels),
        marks=tuple(Mark(at=act.at, kind="order", text=f"{act.what} by {_name(act.by)}") for act in acts),
    )


def _name(by: str) -> str:
    """Return an operator without the fingerprint of the key; the timeline has it, and a legend has no room."""
    return by.partition(" (SHA256:")[0]


def _sends(scope: Scope, buckets: Buckets, episodes: Chain) -> list[Panel]:
    """Return a panel for the entities that failed over, and one for those that stayed on the primary."""
    rows = scope.rows(
        _SENDS, **{**buckets.parameters(), "end": micros(buckets.since + buckets.length * buckets.count + 5)}
    )
    failed = {one.entity.lower() for one in episodes}
    names = sorted({row["entity"] for row in rows}, key=lambda name: (name not in failed, name))
    found = []
    for group, stayed in (([name for name in names if name in failed], False), ([*set(names) - failed], True)):
        mine = [row for row in rows if row["entity"] in group]
        curves = (Series(name=name, values=buckets.curve(mine, name, per=buckets.length)) for name in ROUTES)
        panel = Panel(
            name="stayed" if stayed else "sends",
            title=f"Sends: {few(sorted(group), 3)}{' (stayed on the primary)' if stayed and failed else ''}",
            unit="messages a second",
            series=tuple(one for one in curves if any(one.values)),
            away=() if stayed else _away(group, episodes, scope.until),
        )
        found += [panel] if panel.series else []
    return found


def _away(names: Sequence[str], episodes: Chain, until: float) -> tuple[tuple[float, float], ...]:
    """Return the times in which one of the entities was failed over, joined where they touch."""
    known = {name.casefold() for name in names}
    spans = sorted(
        (one.failed_over_at, one.failed_back_at or (until if one.open else one.last_at))
        for one in episodes
        if one.failed_over_at is not None and one.entity.casefold() in known
    )
    joined: list[tuple[float, float]] = []
    for since, end in spans:
        if joined and since <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((since, end))
    return tuple(joined)


def _parked(scope: Scope, buckets: Buckets) -> Panel | None:
    """Return the messages in the backlog by the receipts, from those that were parked when the plots begin."""
    before = scope.count(_PARKED_BEFORE, **buckets.parameters())
    changes = buckets.curve(scope.rows(_PARKED, **buckets.parameters()), "change")
    total, values = float(before), []
    for change in changes:
        total += change or 0.0
        values.append(None if change is None else max(0.0, total))
    if not any(values):
        return None
    return Panel(
        name="parked",
        title="Parked messages, all entities, by the receipts",
        unit="messages",
        series=(Series(name="parked", values=tuple(values)),),
    )


def _depths(scope: Scope, buckets: Buckets) -> Panel | None:
    """Return the depth of each backlog queue, as last read; the least filled ones beyond MAX_QUEUES are one sum."""
    readings: dict[str, dict[int, float]] = {}
    several = len(scope.pairings) > 1
    for row in scope.rows(_DEPTHS, **buckets.parameters()):
        name = f"{row['name']}/{row['queue']}" if several else f"queue {row['queue']}"
        readings.setdefault(name, {})[row["bucket"]] = row["depth"]
    curves = {name: _carried(found, buckets) for name, found in readings.items()}
    filled = [name for name in curves if any(curves[name])]
    if not filled:
        return None
    by_depth = sorted(filled, key=lambda name: -max(value or 0.0 for value in curves[name]))
    shown = by_depth if len(by_depth) <= MAX_QUEUES else by_depth[: MAX_QUEUES - 1]
    series = [Series(name=name, values=curves[name]) for name in filled if name in shown]
    if rest := [curves[name] for name in filled if name not in shown]:
        total = tuple(sum(value or 0.0 for value in values) for values in zip(*rest, strict=True))
        series.append(Series(name=f"{len(rest)} other queues together", values=total))
    return Panel(name="depths", title="Depth of each backlog queue, as counted", unit="messages", series=tuple(series))


def _carried(readings: dict[int, float], buckets: Buckets) -> tuple[float | None, ...]:
    """Return the last reading at each bucket's end; bucket -1 has the last one before the plots begin."""
    current, values = readings.get(-1), []
    for place in range(buckets.count):
        current = readings.get(place, current)
        values.append(current if place <= buckets.last + 1 else None)
    return tuple(values)


def _syphon(scope: Scope, buckets: Buckets) -> Panel | None:
    values = buckets.curve(scope.rows(_MOVED, **buckets.parameters()), "moved", per=buckets.length)
    if not any(values):
        return None
    return Panel(
        name="syphon",
        title="The syphon's rate, all entities",
        unit="messages a second",
        series=(Series(name="moved", values=values),),
    )


def _dwell(scope: Scope, buckets: Buckets) -> Panel | None:
    found = {row["bucket"]: row for row in scope.rows(_DWELL, **buckets.parameters())}
    if not found:
        return None
    series = tuple(
        Series(name=name, values=tuple(found[at][name] if at in found else None for at in range(buckets.count)))
        for name in DWELLS
    )
    return Panel(
        name="dwell", title="Waiting time in the backlog, by the time of parking", unit="seconds", series=series
    )


_SENDS: Final = """
with counts as (
    select lower(entity) as entity, route, accepted, failed, epoch_us(event_time) - {start} as stop,
           greatest(1000, least(seconds, 3600) * 1e6)::bigint as took
    from events
    where kind = 'sends' and {plotted}
), spread as (
    select *, {length}::bigint as length, unnest(range((stop - took) // {length}, (stop - 1) // {length} + 1))
        as bucket
    from counts
), parts as (
    select *, (least(stop, (bucket + 1) * length) - greatest(stop - took, bucket * length)) / took as share from spread
)
select entity, bucket::bigint as bucket,
       coalesce(sum(accepted * share) filter (route = 'primary'), 0)::double as "primary",
       coalesce(sum(accepted * share) filter (route <> 'primary'), 0)::double as backlog,
       sum(failed * share)::double as failed
from parts group by all order by entity, bucket
"""
_PARKED_BEFORE: Final = """
select count(*) as number from audit
where list_contains({pairings}, pairing) and diverted_at < {begin}
  and (moved_at is null or moved_at >= {begin}) and status <> 'dead-lettered'
"""
_PARKED: Final = """
select ((epoch_us(event_time) - {start}) // {length})::bigint as bucket,
       sum(case when kind = 'diverted' then 1 else -1 end)::double as change
from events where kind in ('diverted', 'moved', 'dead-lettered') and {plotted}
group by all order by bucket
"""
_DEPTHS: Final = """
select coalesce(known.pairing, '') as name, queue,
       greatest(-1, (epoch_us(event_time) - {start}) // {length})::bigint as bucket,
       arg_max(depth, event_time)::double as depth
from events left join (select engine, any_value(pairing) as pairing from engines group by engine) known using (engine)
where kind = 'queue-read' and event_time >= {begin} - interval 1 day and event_time < {end} and trouble is null
  and list_contains({engines}, engine) and date between cast({begin} as date) - 1 and cast({end} as date)
group by all order by name, queue, bucket
"""
_MOVED: Final = """
select ((epoch_us(event_time) - {start}) // {length})::bigint as bucket, count(*)::double as moved
from events where kind = 'moved' and {plotted} group by all order by bucket
"""
_DWELL: Final = """
select ((epoch_us(diverted_at) - {start}) // {length})::bigint as bucket, quantile_cont(dwell, 0.5) as half,
       quantile_cont(dwell, 0.95) as "95 of 100", max(dwell) as longest
from audit
where list_contains({pairings}, pairing) and diverted_at >= {begin} and diverted_at < {end} and dwell is not null
  and date between cast({begin} as date) - 2 and cast({end} as date)
group by all order by bucket
"""

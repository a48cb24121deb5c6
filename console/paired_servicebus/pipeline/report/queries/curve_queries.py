"""The data of the plots, in buckets of whole seconds that begin at whole multiples of their length.

A count of sends covers the time since the count before it, about a second. It is spread over that time, so that a
bucket's rate is that of the data, wherever the counts begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

from paired_servicebus.pipeline.report.queries.table_source import Row, Scope, micros
from paired_servicebus.pipeline.report.report_values import (
    Chain,
    Curves,
    Mark,
    Panel,
    Series,
    TimelineEntry,
)
from paired_servicebus.pipeline.report.sentences import few

MAX_BUCKETS: Final = 240
LENGTHS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Seconds that a bucket may have; longer ones are whole days."""
_SIGNED: Final = re.compile(r"^order | \(SHA256:[^)]*\)")
"""Words of an order that a legend has no room for."""
ROUTES: Final = ("primary", "backlog", "failed")
Spans = tuple[tuple[float, float], ...]


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


def read_curves(
    scope: Scope, episodes: Chain, timeline: Sequence[TimelineEntry], recorded: tuple[float, float]
) -> Curves:
    """Return the data of all plots."""
    buckets = Buckets.of(scope.since, scope.until, recorded)
    away = _away(tuple(one.entity for one in episodes), episodes, scope.until)
    panels = [*_sends(scope, buckets, episodes), *_parked(scope, buckets, away)]
    return Curves(
        since=float(buckets.since),
        bucket=float(buckets.length),
        buckets=buckets.count,
        panels=tuple(panels),
        marks=tuple(Mark(at=one.at, text=_SIGNED.sub("", one.text)) for one in timeline if one.is_order),
    )


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


def _away(names: Sequence[str], episodes: Chain, until: float) -> Spans:
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


def _parked(scope: Scope, buckets: Buckets, away: Spans) -> list[Panel]:
    """Return the messages in the backlog by the receipts, and as counted in its queues."""
    before = scope.count(_PARKED_BEFORE, **buckets.parameters())
    changes = buckets.curve(scope.rows(_PARKED, **buckets.parameters()), "change")
    total, parked = float(before), []
    for change in changes:
        total += change or 0.0
        parked.append(None if change is None else max(0.0, total))
    series = (Series(name="parked", values=tuple(parked)), Series(name="counted", values=_counted(scope, buckets)))
    shown = tuple(one for one in series if any(one.values))
    title = "Messages in the backlog, all entities"
    return [Panel(name="parked", title=title, unit="messages", series=shown, away=away)] if shown else []


def _counted(scope: Scope, buckets: Buckets) -> tuple[float | None, ...]:
    """Return the sum of the queues' last readings at each bucket's end; bucket -1 has those before the plots begin."""
    readings: dict[int, dict[tuple[str, int], float]] = {}
    for row in scope.rows(_DEPTHS, **buckets.parameters()):
        readings.setdefault(row["bucket"], {})[row["name"], row["queue"]] = row["depth"]
    current, values = dict(readings.get(-1, {})), []
    for place in range(buckets.count):
        current |= readings.get(place, {})
        values.append(sum(current.values()) if current and place <= buckets.last + 1 else None)
    return tuple(values)


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

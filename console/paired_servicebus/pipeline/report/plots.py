"""A report's plots: their data, and their drawings as SVG, readable without colour, by any viewer, in any width.

The data is in buckets of whole seconds that begin at whole multiples of their length. A count of sends covers the time
since the count before it, about a second. It is spread over that time, so that a bucket's rate is that of the data,
wherever the counts begin.

Drawn here and not by matplotlib: its import takes a second of the two that a report may take, and 180 MB of disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import DAY, written
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.report_values import (
    Chain,
    Curves,
    Mark,
    Panel,
    Series,
    TimelineEntry,
)
from paired_servicebus.pipeline.report.sentences import few
from paired_servicebus.pipeline.report.table_queries import Row, Scope, micros

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
    away = _away_spans(tuple(one.entity for one in episodes), episodes, scope.until)
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
            away=() if stayed else _away_spans(group, episodes, scope.until),
        )
        found += [panel] if panel.series else []
    return found


def _away_spans(names: Sequence[str], episodes: Chain, until: float) -> Spans:
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


# The axes of a plot: times in UTC and values, with ticks at round numbers.

TIME_STEPS: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
"""Seconds between two ticks."""


def time_ticks(since: float, until: float, most: int) -> list[tuple[float, str]]:
    """Return at most `most` + 1 times at whole multiples of a step, each with its label; midnight has its date."""
    span = max(1.0, until - since)
    step = next((one for one in TIME_STEPS if span / one <= most), ceil(span / most / DAY) * DAY)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < DAY else "%m-%d"
    first = ceil(since / step)
    ticks = [number * step for number in range(first, floor(until / step) + 1)]
    return [(at, written(at, "%m-%d" if at % DAY == 0 and span > step else form)) for at in ticks]


def value_ticks(most: float, unit: str, count: int = 4) -> list[tuple[float, str]]:
    """Return round numbers from 0 to at least `most`, each with its label."""
    raw = max(most, 1e-9) / count
    size = 10.0 ** floor(log10(raw))
    least = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    wanted = least if unit == "messages a second" else max(1.0, ceil(least))
    return [(at * wanted, _number(at * wanted)) for at in range(max(1, ceil(most / wanted - 1e-9)) + 1)]


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:,.6g} M"
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


WIDE: Final = 900
"""Pixels, for paper and screens."""
NARROW: Final = 400
"""Pixels, for phones."""
HEIGHT: Final = 150
"""Of the curves."""
LEFT, RIGHT, TOP, AXIS = 64, 34, 54, 24
LINE: Final = 18
"""Pixels of a line of the legend."""
CHARACTER: Final = 6.8
"""Pixels of a character, at most on average."""
MAX_MARKS: Final = 9
"""Marks with a number and a line in the legend; more are lines alone."""
LOOKS: Final = {
    "primary": ("#2f6fb0", "", "accepted by the primary"),
    "backlog": ("#b9770e", "7 3", "accepted by the backlog (dashed)"),
    "failed": ("#b3282d", "2 2", "attempts failed (dotted)"),
    "parked": ("#b9770e", "", "parked by the receipts"),
    "counted": ("#2f6fb0", "7 3", "counted in the queues (dashed)"),
}
"""Colour, dashes, and words of a curve."""
SPORADIC: Final = frozenset({"backlog", "failed"})
"""Curves that are drawn only where they are above 0."""
AWAY: Final = "#f5e8cd"
GRID: Final = "#e3e8ee"
INK: Final = "#3b4350"


@dataclass(frozen=True, slots=True)
class _Frame:
    """The places of one plot."""

    curves: Curves
    width: int
    highest: float

    def x(self, at: float) -> float:
        whole = self.curves.until - self.curves.since
        share = (at - self.curves.since) / whole if whole else 0.0
        return LEFT + min(max(share, 0.0), 1.0) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return TOP + HEIGHT * (1 - value / self.highest)


def draw_twice(curves: Curves, panel: Panel) -> tuple[str, str]:
    """Return one panel for wide and for narrow screens."""
    return draw(curves, panel), draw(curves, panel, width=NARROW)


def draw(curves: Curves, panel: Panel, *, width: int = WIDE) -> str:
    """Return one panel as an SVG document."""
    top_value = max((value for one in panel.series for value in one.values if value is not None), default=0.0)
    ticks = value_ticks(top_value, panel.unit)
    marks = [mark for mark in curves.marks if curves.since <= mark.at <= curves.until]
    frame = _Frame(curves, width, ticks[-1][0])
    legend, height = _legend(panel, marks, frame, TOP + HEIGHT + AXIS)
    parts = [
        *_title(panel, width), *_away(panel, frame), *_value_axis(ticks, frame), *_time_axis(frame),
        *_curves(panel, frame), *_marks(marks, frame), *legend,
    ]  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, DejaVu Sans, sans-serif" font-size="12" fill="{INK}" role="img" '
        f'aria-label="{_shown(panel.title)}">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _shown(text: str, most: int = 120) -> str:
    return escape(one_line(masked(text), most=most))


def _text(x: float, y: float, text: str, *, anchor: str = "start", more: str = "", most: int = 120) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{_shown(text, most)}</text>'


def _title(panel: Panel, width: int) -> list[str]:
    """Return title and unit, a line each."""
    room = int((width - 16) / (CHARACTER + 0.7))
    title = _text(8, 20, panel.title, more=' font-weight="600"', most=room)
    unit = _text(8, 38, panel.unit, more=' fill="#6b7585"')
    return [title, unit]


def _away(panel: Panel, frame: _Frame) -> list[str]:
    """Shade the times of failovers; those that are too near for a gap are one shade."""
    spans: list[tuple[float, float]] = []
    for since, until in panel.away:
        left, right = frame.x(since), max(frame.x(until), frame.x(since) + 1)
        if spans and left - spans[-1][1] < 0.5:
            spans[-1] = (spans[-1][0], max(right, spans[-1][1]))
        else:
            spans.append((left, right))
    return [
        f'<rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{HEIGHT}" fill="{AWAY}"/>'
        for left, right in spans
    ]


def _value_axis(ticks: Sequence[tuple[float, str]], frame: _Frame) -> list[str]:
    parts = []
    for value, label in ticks:
        y = frame.y(value)
        colour = "#8a94a3" if value == 0 else GRID
        parts.append(f'<path d="M{LEFT} {y:.1f}H{frame.width - RIGHT}" stroke="{colour}"/>')
        parts.append(_text(LEFT - 6, y + 4, label, anchor="end"))
    return parts


def _time_axis(frame: _Frame) -> list[str]:
    since, until = frame.curves.since, frame.curves.until
    bottom = TOP + HEIGHT
    parts = []
    for at, label in time_ticks(since, until, 9 if frame.width > NARROW else 4):
        x = frame.x(at)
        parts.append(f'<path d="M{x:.1f} {TOP}V{bottom + 4}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 17, label, anchor="middle"))
    return parts


def _curves(panel: Panel, frame: _Frame) -> list[str]:
    return [
        f'<path fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dashes}" '
        f'stroke-linejoin="round" d="{_steps(series, frame)}"/>'
        for series in panel.series
        for colour, dashes, _ in (LOOKS[series.name],)
    ]


def _steps(series: Series, frame: _Frame) -> str:
    """Return a path with a level for each bucket; unknown buckets leave a gap, and so do the long zeros of SPORADIC."""
    curves, path, before = frame.curves, [], None
    for place, value in enumerate(_without_zeros(series.values) if series.name in SPORADIC else series.values):
        if value is None:
            before = None
            continue
        left, right = (frame.x(curves.since + curves.bucket * at) for at in (place, place + 1))
        y = frame.y(value)
        if value != before:
            path.append(f"{'M' + format(left, '.1f') + ' ' if before is None else 'V'}{y:.1f}")
        path.append(f"H{right:.1f}")
        before = value
    return "".join(path)


def _without_zeros(values: Sequence[float | None]) -> list[float | None]:
    """Return the values without the zeros between two zeros."""
    around = [0.0, *(value or 0.0 for value in values), 0.0]
    return [value if any(around[place : place + 3]) else None for place, value in enumerate(values)]


def _marks(marks: Sequence[Mark], frame: _Frame) -> list[str]:
    """Draw a line for each order, and its number above the curves where there is room."""
    parts, free = [], 0.0
    for number, mark in enumerate(marks, 1):
        x = frame.x(mark.at)
        parts.append(f'<path d="M{x:.1f} {TOP - 3}V{TOP + HEIGHT}" stroke="#7b4fa3" stroke-dasharray="1 3"/>')
        if number <= MAX_MARKS and x >= free:
            parts.append(_text(x, TOP - 6, str(number), anchor="middle", more=' fill="#7b4fa3" font-size="11"'))
            free = x + 12
    return parts


def _legend(panel: Panel, marks: Sequence[Mark], frame: _Frame, top: int) -> tuple[list[str], int]:
    """Return the legend below the plot, and the height of the whole picture."""
    entries = [(_swatch(colour, dashes), words) for colour, dashes, words in (LOOKS[one.name] for one in panel.series)]
    if panel.away:
        entries.append((f'<rect x="{{x}}" y="{{high}}" width="24" height="10" fill="{AWAY}"/>', "failed over"))
    room = int((frame.width - 60) / CHARACTER)
    shown = marks[:MAX_MARKS]
    for number, mark in enumerate(shown, 1):
        words = f"{written(mark.at, '%H:%M:%S')} {mark.text}"
        entries.append((f'<text x="{{x}}" y="{{low}}" fill="#7b4fa3">{number}</text>', words))
    if len(marks) > len(shown):
        entries.append(("", f"and {len(marks) - len(shown):,} more orders, without a number"))
    parts, x, y = [], 8.0, top + LINE
    day = f"{written(frame.curves.since, '%Y-%m-%d')} UTC, {_bucket(frame.curves.bucket)} a step"
    for picture, words in [("", day), *entries]:
        words = one_line(masked(words), most=min(80, room))
        indent = 0 if not picture else 14 if picture.startswith("<text") else 32
        wide = indent + len(words) * CHARACTER + 18
        if x > 8 and x + wide > frame.width:
            x, y = 8.0, y + LINE
        parts.append(picture.format(x=f"{x:.1f}", y=y - 4, high=y - 10, low=y, end=f"{x + 24:.1f}"))
        parts.append(_text(x + indent, y, words, most=200))
        x += wide
    return parts, y + 12


def _swatch(colour: str, dashes: str) -> str:
    return f'<path d="M{{x}} {{y}}H{{end}}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'


def _bucket(length: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if length % size == 0:
            return f"{length / size:g} {unit}"
    return f"{length:g} s"

"""A report's plots as SVG: plain shapes with words, readable without colour, by any viewer, in any width.

Drawn here and not by matplotlib: its import takes a second of the two that a report may take, and 180 MB of disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import DAY, written
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.report_values import Curves, Mark, Panel, Series

# The axes of a plot: times in UTC and values, with ticks at round numbers.

TIME_STEPS: Final = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
"""Seconds between two ticks."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis with its label."""

    value: float
    label: str


def time_ticks(since: float, until: float, most: int) -> list[Tick]:
    """Return at most `most` + 1 ticks at whole multiples of a step; midnight has its date."""
    span = max(1.0, until - since)
    step = next((one for one in TIME_STEPS if span / one <= most), ceil(span / most / DAY) * DAY)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < DAY else "%m-%d"
    first = ceil(since / step)
    ticks = [number * step for number in range(first, floor(until / step) + 1)]
    return [Tick(at, written(at, "%m-%d" if at % DAY == 0 and span > step else form)) for at in ticks]


def value_ticks(most: float, unit: str, count: int = 4) -> list[Tick]:
    """Return ticks at round numbers from 0 to at least `most`."""
    raw = max(most, 1e-9) / count
    size = 10.0 ** floor(log10(raw))
    least = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    wanted = least if unit == "messages a second" else max(1.0, ceil(least))
    return [Tick(at * wanted, _number(at * wanted)) for at in range(max(1, ceil(most / wanted - 1e-9)) + 1)]


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
LEFT, RIGHT, TOP, AXIS = 64, 34, 50, 24
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
    top: int
    highest: float

    def x(self, at: float) -> float:
        whole = self.curves.until - self.curves.since
        share = (at - self.curves.since) / whole if whole else 0.0
        return LEFT + min(max(share, 0.0), 1.0) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.top + HEIGHT * (1 - value / self.highest)


def draw_twice(curves: Curves, panel: Panel) -> tuple[str, str]:
    """Return one panel for wide and for narrow screens."""
    return draw(curves, panel), draw(curves, panel, width=NARROW)


def draw(curves: Curves, panel: Panel, *, width: int = WIDE) -> str:
    """Return one panel as an SVG document."""
    top_value = max((value for one in panel.series for value in one.values if value is not None), default=0.0)
    ticks = value_ticks(top_value, panel.unit)
    marks = [mark for mark in curves.marks if curves.since <= mark.at <= curves.until]
    title, extra = _title(panel, width)
    frame = _Frame(curves, width, TOP + extra, ticks[-1].value)
    legend, height = _legend(panel, marks, frame, frame.top + HEIGHT + AXIS)
    parts = [
        *title, *_away(panel, frame), *_value_axis(ticks, frame), *_time_axis(frame), *_curves(panel, frame),
        *_marks(marks, frame), *legend,
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


def _title(panel: Panel, width: int) -> tuple[list[str], int]:
    """Return title and unit in one line, or in two if they are too long; and the pixels of the second."""
    room = int((width - 16) / (CHARACTER + 0.7))
    title = _text(8, 20, panel.title, more=' font-weight="600"', most=room)
    unit = _text(8, 38, panel.unit, more=' fill="#6b7585"')
    return [title, unit], 4


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
        f'<rect x="{left:.1f}" y="{frame.top}" width="{right - left:.1f}" height="{HEIGHT}" fill="{AWAY}"/>'
        for left, right in spans
    ]


def _value_axis(ticks: Sequence[Tick], frame: _Frame) -> list[str]:
    parts = []
    for tick in ticks:
        y = frame.y(tick.value)
        colour = "#8a94a3" if tick.value == 0 else GRID
        parts.append(f'<path d="M{LEFT} {y:.1f}H{frame.width - RIGHT}" stroke="{colour}"/>')
        parts.append(_text(LEFT - 6, y + 4, tick.label, anchor="end"))
    return parts


def _time_axis(frame: _Frame) -> list[str]:
    since, until = frame.curves.since, frame.curves.until
    bottom = frame.top + HEIGHT
    parts = []
    for tick in time_ticks(since, until, 9 if frame.width > NARROW else 4):
        x = frame.x(tick.value)
        parts.append(f'<path d="M{x:.1f} {frame.top}V{bottom + 4}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 17, tick.label, anchor="middle"))
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
        parts.append(
            f'<path d="M{x:.1f} {frame.top - 3}V{frame.top + HEIGHT}" stroke="#7b4fa3" stroke-dasharray="1 3"/>'
        )
        if number <= MAX_MARKS and x >= free:
            parts.append(_text(x, frame.top - 6, str(number), anchor="middle", more=' fill="#7b4fa3" font-size="11"'))
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

"""A report's curves as SVG: sends of each entity by where they went, and how many messages lay parked.

Plain shapes with words on them: readable without colour, by any viewer, and small.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pipeline.report.incident import Curves, Report, Series
from paired_servicebus.pipeline.report.markdown_report import clock

WIDTH: Final = 900
HEIGHT: Final = 130
"""Of one panel."""
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 30, 30
COLOURS: Final = {"primary": "#2f6fb0", "backlog": "#c98a1b", "failed": "#b3282d", "parked": "#c98a1b"}
DASHES: Final = {"primary": "", "backlog": "6 3", "failed": "2 2", "parked": ""}
WORDS: Final = {"primary": "to the primary", "backlog": "to the backlog (dashed)", "failed": "failed (dotted)"}
AWAY: Final = "#f3e3c3"
TICKS: Final = 6
LONGEST: Final = 120
"""Characters of a title; more have no room."""


def plots_of(report: Report) -> dict[str, tuple[str, str]]:
    """File name by title: the file's name and its text."""
    found = {}
    if report.curves.sends:
        found["Messages sent a second, by entity and route"] = ("sends.svg", sends_plot(report))
    if any(report.curves.parked.values):
        found["Messages parked"] = ("parked.svg", parked_plot(report))
    return found


def sends_plot(report: Report) -> str:
    """Draw a panel per entity, shaded while it was failed over."""
    panels = [
        _panel(report, index, f"{entity}: messages a second", series, away=entity)
        for index, (entity, series) in enumerate(report.curves.sends.items())
    ]
    return _svg(panels, [(name, WORDS[name]) for name in ("primary", "backlog", "failed")])


def parked_plot(report: Report) -> str:
    """One panel."""
    return _svg([_panel(report, 0, "messages parked, all entities", [report.curves.parked], away=None)], [])


def _svg(panels: Sequence[str], legend: Sequence[tuple[str, str]]) -> str:
    height = len(panels) * (HEIGHT + TOP + BOTTOM) + (24 if legend else 0)
    words = [
        f'<line x1="{LEFT + 220 * index}" x2="{LEFT + 24 + 220 * index}" y1="{height - 10}" y2="{height - 10}" '
        f'stroke="{COLOURS[name]}" stroke-width="2" stroke-dasharray="{DASHES[name]}"/>'
        f'<text x="{LEFT + 30 + 220 * index}" y="{height - 6}">{escape(word)}</text>'
        for index, (name, word) in enumerate(legend)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join([*panels, *words])
        + "\n</svg>\n"
    )


def _panel(report: Report, index: int, title: str, series: Sequence[Series], *, away: str | None) -> str:
    curves = report.curves
    top = index * (HEIGHT + TOP + BOTTOM) + TOP
    most = max((value for one in series for value in one.values), default=0.0) or 1.0
    parts = [f'<text x="{LEFT}" y="{top - 10}" font-weight="bold">{escape(one_line(title, most=LONGEST))}</text>']
    parts += _shades(report, top, away)
    parts += [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + HEIGHT}" y2="{top + HEIGHT}" stroke="#888"/>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>',
    ]
    parts += _ticks(curves, top)
    parts += [_curve(one, top, most) for one in series if any(one.values)]
    return "\n".join(parts)


def _across(curves: Curves, at: float) -> float:
    count = max(1, len(curves.parked.values) - 1)
    share = min(max((at - curves.since) / (count * curves.bucket), 0.0), 1.0)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _shades(report: Report, top: int, away: str | None) -> list[str]:
    found = []
    for one in report.episodes:
        if away is None or one.entity.casefold() != away.casefold() or one.failed_over_at is None:
            continue
        since = _across(report.curves, one.failed_over_at)
        until = _across(report.curves, one.failed_back_at or report.until)
        found.append(
            f'<rect x="{since:.1f}" y="{top}" width="{max(1.0, until - since):.1f}" height="{HEIGHT}" fill="{AWAY}"/>'
            f'<text x="{since + 3:.1f}" y="{top + 12}" fill="#7a5a17">failed over</text>'
        )
    return found


def _ticks(curves: Curves, top: int) -> list[str]:
    whole = (len(curves.parked.values) - 1) * curves.bucket
    times = [curves.since + whole * number / TICKS for number in range(TICKS + 1)]
    return [
        f'<text x="{_across(curves, at):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{clock(at)}</text>'
        for at in times
    ]


def _curve(series: Series, top: int, most: float) -> str:
    step = (WIDTH - LEFT - RIGHT) / max(1, len(series.values) - 1)
    points = " ".join(
        f"{LEFT + step * index:.1f},{top + HEIGHT - HEIGHT * value / most:.1f}"
        for index, value in enumerate(series.values)
    )
    return (
        f'<polyline fill="none" stroke="{COLOURS[series.name]}" stroke-width="1.5" '
        f'stroke-dasharray="{DASHES[series.name]}" points="{points}"/>'
    )

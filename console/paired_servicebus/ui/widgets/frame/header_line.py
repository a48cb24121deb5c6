"""The first line: pairing, environment, marks, engine and time of day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.containers import Horizontal

from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import Line, Role, Span, fit, line, spread
from paired_servicebus.ui.state.view import Page, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LONGEST_ENGINE: Final = 26
LEAST_ENGINE: Final = 8
"""Cells below which a part of its name is useless."""


class HeaderLine(Horizontal):
    """Names and engine on the left, the time of day on the right."""

    DEFAULT_CSS = """
    HeaderLine { height: 1; }
    HeaderLine HeaderNames { width: 1fr; }
    HeaderLine HeaderClock { width: 13; }
    """

    def compose(self) -> ComposeResult:
        yield HeaderNames()
        yield HeaderClock()


class HeaderNames(Lines):
    """Pairing, environment, engine: still valid when the engine is lost."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        names = _names(view)
        room = width - sum(span.width for span in names)
        return (spread(names, _engines(view, room), width),)


class HeaderClock(Lines):
    """The time of day, which runs without the engine: a clock that stops looks like a hung screen."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        return (line(Span(clock(view.clock), Role.TITLE), Span(" UTC", Role.MUTED)),)


def _engines(view: View, room: int) -> list[Span]:
    """Return the engine on screen and the state of the others, shortened to leave the names whole."""
    name = f"engine {fit(view.snapshot.engine, LONGEST_ENGINE).rstrip()}" if view.snapshot else ""
    if len(name) + 3 > room:
        name = name.removeprefix("engine ")
    if len(name) + 3 > room:
        name = fit(name, max(0, room - 3)).rstrip() if room > LEAST_ENGINE else ""
    if not view.neighbours:
        return [Span(f"{name}  " if name else "", Role.MUTED)]
    unwell = [one for one in view.neighbours if one.trouble]
    more = f" +{len(view.neighbours)}"
    others = f" {len(unwell)} unhealthy" if unwell else ""
    if len(unwell) == 1 and len(f"{name}{more} {unwell[0].name} {unwell[0].trouble}") + 3 <= room:
        others = f" {unwell[0].name} {unwell[0].trouble}"
    if len(name + more + others) + 3 > room:
        name = name.removeprefix("engine ")
    if len(name + more + others) + 3 > room:
        others = " !" if unwell else ""
    return [Span(f"{name}{more}", Role.MUTED), Span(others, Role.SUSPECT), Span("  ", Role.MUTED)]


def _names(view: View) -> list[Span]:
    names = [Span(" paired ", Role.TITLE), Span(view.pairing, Role.TITLE), Span("  ")]
    environment = view.snapshot.environment if view.snapshot else ""
    if environment:
        role = Role.PRODUCTION if environment.casefold().startswith("prod") else Role.ENVIRONMENT
        names += [Span(f" {environment.upper()} ", role), Span("  ")]
    if view.read_only:
        names += [Span("read-only", Role.SUSPECT), Span("  ")]
    if view.marked and view.page is not Page.ENTITY:  # its commands ignore marks
        names += [Span(f"{len(view.marked):,} marked", Role.KEY), Span("  ")]
    if view.chosen:
        reached = 1 + sum(not one.unreachable for one in view.reach)
        names += [Span(f"for {reached} of {1 + len(view.reach)} engines", Role.SUSPECT), Span("  ")]
    return names

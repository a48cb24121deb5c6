"""The first line: which pairing, which environment, whose news, and of when. It changes only with data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from console.core.why import clock
from console.ui.line import Line, Role, Span, fit, spread
from console.ui.view import View
from console.ui.widgets.lines import Lines

LONGEST_ENGINE: Final = 26


class HeaderLine(Lines):
    """Names on the left, engine and clock time of its newest snapshot on the right."""

    ages: ClassVar[bool] = False  # where one is stays true; the clock greys by itself

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """One line."""
        return (spread(_names(view), _source(view), width),)


def _names(view: View) -> list[Span]:
    names = [Span(" paired ", Role.TITLE), Span(view.pairing, Role.TITLE), Span("  ")]
    environment = view.snapshot.environment if view.snapshot else ""
    if environment:
        role = Role.PRODUCTION if environment.casefold().startswith("prod") else Role.ENVIRONMENT
        names += [Span(f" {environment.upper()} ", role), Span("  ")]
    if view.read_only:
        names += [Span("read-only", Role.SUSPECT), Span("  ")]
    return names


def _source(view: View) -> list[Span]:
    if view.snapshot is None:
        return []
    return [
        Span(f" engine {fit(view.snapshot.engine, LONGEST_ENGINE).rstrip()}  ", Role.MUTED),
        Span(clock(view.snapshot.at), Role.TITLE if view.fresh else Role.MUTED),
        Span(" UTC ", Role.MUTED),
    ]

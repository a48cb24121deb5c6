"""The summary as the first lines of every page: state, start, cause, failing callers, healing, action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, fit, line
from paired_servicebus.ui.state.summary import Level, summary
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

INDENT: Final = 3
LOUD: Final = frozenset({Level.LOST, Level.BLIND})
"""Levels stated across the whole width."""
ROLES: Final[dict[Level, Role]] = {Level.WELL: Role.HEALTHY, Level.NOTABLE: Role.SUSPECT, Level.WRONG: Role.FAILED_OVER}


class SummaryLines(Lines):
    """The summary in as many lines as the page gives it."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        found = summary(view)
        (first, _), *others = found.lines(width - INDENT, height)
        text = f" {found.glyph} {first}"
        loud = found.level in LOUD
        head = line(fit(text, width), ground=Role.STATEMENT) if loud else line(Span(text, ROLES[found.level]))
        drawn = [head, *(line(Span(" " * INDENT + text, role)) for text, role in others)]
        return [*drawn, *[BLANK] * (height - len(drawn))]

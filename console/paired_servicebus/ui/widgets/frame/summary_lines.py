"""Is anything wrong, since when, why, do callers fail, does it heal, what to do: the first lines of every page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, fit, line
from paired_servicebus.ui.state.summary import Level, summary
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

INDENT: Final = 3
LOUD: Final = frozenset({Level.LOST, Level.BLIND})
"""What is stated across the whole width."""
ROLES: Final[dict[Level, Role]] = {Level.WELL: Role.HEALTHY, Level.NOTABLE: Role.SUSPECT, Level.WRONG: Role.FAILED_OVER}


class SummaryLines(Lines):
    """The summary in as many lines as the page gives it."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """The first line with its glyph, the others below it."""
        said = summary(view)
        (first, _), *others = said.lines(width - INDENT, height)
        text = f" {said.glyph} {first}"
        loud = said.level in LOUD
        head = line(fit(text, width), ground=Role.STATEMENT) if loud else line(Span(text, ROLES[said.level]))
        drawn = [head, *(line(Span(" " * INDENT + text, role)) for text, role in others)]
        return [*drawn, *[BLANK] * (height - len(drawn))]

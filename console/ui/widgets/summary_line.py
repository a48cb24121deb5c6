"""Is anything wrong? One sentence; where there is room, the alarms it does not name are on the line below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from console.ui.line import BLANK, Line, Role, Span, cut, fit, line
from console.ui.summary import Level, summary
from console.ui.view import View
from console.ui.widgets.lines import Lines

ROLES: Final[dict[Level, Role]] = {
    Level.WELL: Role.HEALTHY,
    Level.NOTABLE: Role.SUSPECT,
    Level.WRONG: Role.FAILED_OVER,
    Level.BLIND: Role.TEXT,
}


class SummaryLine(Lines):
    """The sentence; a full-width statement when the engine's state is not known."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """The sentence, and the other alarms."""
        said = summary(view)
        text = f" {said.glyph} {said.text}"
        if said.level is Level.BLIND:
            first = line(fit(text, width), ground=Role.STATEMENT)
        else:
            first = Line(cut([Span(text, ROLES[said.level])], width))
        alarms = view.snapshot.alarms if view.snapshot and view.fresh else ()
        second = Line(cut([Span(f" ! {' · '.join(alarms[1:])}", Role.FAILED_OVER)], width)) if alarms[1:] else BLANK
        return [first, second][:height]

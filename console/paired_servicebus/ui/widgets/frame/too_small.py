"""Replaces the page in a terminal that is too small: the size that it needs, and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, line, wrap
from paired_servicebus.ui.state.summary import summary
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.frame.summary_lines import LOUD, ROLES


class TooSmall(Lines):
    """The size it has, the size it needs, and the summary."""

    DEFAULT_CSS = "TooSmall { height: 100%; }"
    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        size = self.app.size
        need = (
            f"This terminal has {size.width} columns and {size.height} rows; the dashboard needs 60 and 20. "
            f"Make it larger, or the letters smaller. {view.keys.label(CONSOLE_BY_ID['quit'])} quits."
        )
        found = summary(view)
        role = Role.FAILED_OVER if found.level in LOUD else ROLES[found.level]
        rows = max(1, (height - 1) // 2)
        return [
            *[line(Span(text, role)) for text in wrap(f"{found.glyph} {found.text}", width, lines=rows)],
            BLANK,
            *[line(text) for text in wrap(need, width, lines=rows)],
        ][:height]

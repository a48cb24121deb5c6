"""The keys, from the table of actions. An impossible one is grey and in brackets; pressing it shows why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, for_key, in_key_line, label_width
from paired_servicebus.ui.render.spans import Line, Role, Span, cut, fit
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines


class KeyLine(Lines):
    """The last line."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        spans: list[Span] = []
        for name in in_key_line(view, width):
            action = for_key(view.keys.names(CONSOLE_BY_ID[name])[0], view)
            key, label = view.keys.label(action), fit(action.label, label_width(action))
            if action.why_not(view):
                gap = " " * (len(label) - len(action.label))
                spans += [Span(f"({key} {action.label}){gap}", Role.MUTED), Span(" ")]
            else:
                spans += [Span(f" {key}", Role.KEY), Span(f" {label} "), Span(" ")]
        return (Line(cut(spans[:-1], width)),)

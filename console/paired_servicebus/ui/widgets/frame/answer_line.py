"""The outcome of the operator's last command, or why it is not possible now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import Line, Role, Span, cut
from paired_servicebus.ui.state.view import EngineLink, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines


class AnswerLine(Lines):
    """One line above the keys."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.waiting_for:
            return (Line(cut([Span(f" … {view.waiting_for}: ordered, no answer yet", Role.SUSPECT)], width)),)
        if view.asking:
            whose = f"{view.pairing}'" if view.pairing.endswith("s") else f"{view.pairing}'s"
            text = f" … asking {whose} engine: {view.asking} · esc cancels"
            return (Line(cut([Span(text, Role.SUSPECT)], width)),)
        if view.answer is None:
            trouble = f" retrying: {view.link_reason}" if view.link is EngineLink.UNREACHABLE else ""
            return (Line(cut([Span(trouble)], width)),)
        mark, role = ("✓", Role.HEALTHY) if view.answer.good else ("✗", Role.FAILED_OVER)
        at = Span(f"{clock(view.answer.at)} ", Role.MUTED)
        return (Line(cut([Span(f" {mark} ", role), at, Span(view.answer.text)], width)),)

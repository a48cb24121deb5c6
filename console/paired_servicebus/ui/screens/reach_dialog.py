"""The question before an order that the fleet could have too: who does it, the engine on screen or all engines.

Neither answer does anything yet: the next question names the reach in its first line, and wants another text typed.
The fleet is in focus where it can have the order, since the engine on screen may send nothing; else that engine is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button

from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator.targets import ActionTarget
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import plural, rate
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.render.spans import Line, Role, Span, line, wrap
from paired_servicebus.ui.screens.question_box import QuestionBox
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 13
ROWS_EACH: Final = 3


class Reach(StrEnum):
    """Who does it."""

    HERE = "here"
    FLEET = "fleet"


class ReachDialog(QuestionBox[Reach]):
    """Returns the reach, or None. signs: why this console cannot sign orders of the fleet; empty: it can."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "other_button(1)", show=False),
        Binding("up", "other_button(-1)", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(self, action: ConsoleAction, aim: ActionTarget, newest: Newest, *, cannot_sign: str) -> None:
        super().__init__()
        self.act = action
        self.aim = aim
        self._newest = newest
        self._cannot_sign = cannot_sign

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield ReachText(self)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Only this engine", id=Reach.HERE, compact=True)
                yield Button(self._fleet_label(), id=Reach.FLEET, compact=True)

    def _fleet_label(self) -> str:
        snapshot = self._newest().snapshot
        known = len(words.present(snapshot.fleet)) if snapshot is not None and snapshot.fleet is not None else 0
        return f"The fleet, {plural(known, 'engine')}"

    def on_mount(self) -> None:
        self.show(self._newest())
        for reach in (Reach.FLEET, Reach.HERE):
            button = self.query_one(f"#{reach}", Button)
            if not button.disabled:
                button.focus()
                return

    def show(self, view: View) -> None:
        """Recompute everything from the view."""
        for lines in self.query(Lines):
            lines.show(view)
        for reach in Reach:
            button = self.query_one(f"#{reach}", Button)
            impossible = bool(self.why_not(reach, view))
            if button.has_focus and impossible:
                self.query_one("#cancel", Button).focus()
            button.disabled = impossible

    def why_not(self, reach: Reach, view: View) -> str:
        """Return why that cannot be chosen now; empty if it can."""
        if reach is Reach.HERE:
            return self.act.why_not_here(view, self.aim)
        return self.act.why_not_over_fleet(view, self.aim) or self._cannot_sign

    def on_key(self, event: events.Key) -> None:
        """Keep letters that were typed too early out of the page."""
        if event.is_printable:
            event.stop()

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        reach = next((one for one in Reach if one == event.button.id), None)
        if reach is None or not self.why_not(reach, self._newest()):
            self.dismiss(reach)


class ReachText(Lines):
    """The order, then each reach with what it means now, or why it is not possible."""

    ages: ClassVar[bool] = False

    def __init__(self, dialog: ReachDialog) -> None:
        super().__init__(id="question")
        self.dialog = dialog

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the same number of lines for each reach."""
        dialog = self.dialog
        shown = [line(Span(f" {dialog.act.label.capitalize()} {dialog.aim}".rstrip() + ": who does it?", Role.SUSPECT))]
        for reach, label in ((Reach.HERE, "This engine"), (Reach.FLEET, "The fleet")):
            reason = dialog.why_not(reach, view)
            text = f"not possible: {reason}" if reason else _here(view) if reach is Reach.HERE else _fleet(view)
            role = Role.MUTED if reason else Role.TEXT
            for number, part in enumerate(wrap(text, width - LABEL - 1, lines=ROWS_EACH)):
                shown.append(line(Span(f" {label if number == 0 else '':<{LABEL - 1}}", Role.MUTED), Span(part, role)))
        return shown


def _here(view: View) -> str:
    snapshot = view.snapshot
    if snapshot is None or snapshot.fleet is None:
        return ""
    sends = rate(sum(one.sends_per_second for one in snapshot.entities))
    others = len(words.present(snapshot.fleet)) - 1
    marked = f" and {plural(len(view.chosen), 'marked engine')} of this machine" if view.chosen else ""
    rest = f"; {plural(others, 'other engine')} of the fleet go on as they are" if others > 0 else ""
    return f"{untrusted_text.name(snapshot.fleet.me)}{marked} alone, {sends} sends/s{rest}"


def _fleet(view: View) -> str:
    if view.snapshot is None or view.snapshot.fleet is None:
        return ""
    fleet = view.snapshot.fleet
    silent = words.silent_part(fleet, view.now)
    return "; ".join((words.engines_part(fleet)[0], *silent[:1]))

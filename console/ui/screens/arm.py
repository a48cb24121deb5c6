"""The question before a dangerous act: what it would do, from the newest snapshot, and Cancel in focus.

The data behind it stay alive: every line is recomputed from each view, and an act that became impossible meanwhile
cannot be fired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button

from console.core.why import clock
from console.ui.actions import Action
from console.ui.consequences import facts
from console.ui.line import BLANK, Line, Role, Span, cut, line, wrap
from console.ui.screens.showing import Newest
from console.ui.view import Link, View
from console.ui.widgets.lines import Lines

LABEL: Final = 13
ROWS_EACH: Final = 2
"""Lines kept for each fact, so that nothing moves when its text grows."""


class ArmDialog(ModalScreen[bool]):
    """Armed, not fired. Ends with True when fired, False when cancelled.

    Args:
        action: what would be done.
        target: path of the entity it would be done to.
        newest: gives the newest view.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("left,right,up,down", "other_button", show=False),
    ]
    CSS = """
    ArmDialog { align: center middle; background: transparent; }
    ArmDialog #box { width: 100%; max-width: 110; height: auto; border: round $state-suspect; background: $background; }
    ArmDialog Consequences { height: 16; }
    ArmDialog #buttons { height: 1; width: 100%; align-horizontal: right; background: $background; }
    ArmDialog Button { margin: 0 2 0 0; width: 12; background: $panel; color: $foreground; text-style: none; }
    ArmDialog Button:focus { background: $foreground; color: $background; text-style: bold; }
    ArmDialog Button:disabled { color: $role-muted; opacity: 100%; text-opacity: 100%; }
    """
    AUTO_FOCUS = "#cancel"

    def __init__(self, action: Action, target: str, newest: Newest) -> None:
        super().__init__()
        self.act = action
        self.target = target
        self._newest = newest
        self._view = replace(newest(), selected=target)

    def compose(self) -> ComposeResult:
        """Facts, then the two answers."""
        with Vertical(id="box"):
            yield Consequences(self.act, self.target)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Fire", id="fire", compact=True)

    def on_mount(self) -> None:
        """Shows what is known already."""
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Recomputes everything from the view."""
        self._view = view = replace(view, selected=self.target)  # the selection behind may move, the target may not
        self.query_one(Consequences).show(view)
        fire = self.query_one("#fire", Button)
        if fire.has_focus and self.why_not():
            self.query_one("#cancel", Button).focus()
        fire.disabled = bool(self.why_not())

    def why_not(self) -> str:
        """Why it cannot be fired now; empty if it can. What more is asked of a person than one key, is asked here."""
        return self.act.why_not(self._view)

    def action_cancel(self) -> None:
        """Nothing is done."""
        self.dismiss(False)

    def action_other_button(self) -> None:
        """Moves the focus to the other answer."""
        self.focus_next("Button")

    @on(Button.Pressed, "#cancel")
    def cancelled(self) -> None:
        """Nothing is done."""
        self.dismiss(False)

    @on(Button.Pressed, "#fire")
    def fired(self) -> None:
        """It is done, unless it became impossible."""
        if not self.why_not():
            self.dismiss(True)


class Consequences(Lines):
    """The title, the facts, and why it cannot be fired if so."""

    ages: ClassVar[bool] = False  # it says by itself how old its figures are

    def __init__(self, action: Action, target: str) -> None:
        super().__init__()
        self._action = action
        self._target = target

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Always as many lines as there are facts, two each."""
        title = f" {self._action.label.capitalize()}: {self._target}"
        lines = [Line(cut([Span(title, Role.SUSPECT)], width))]
        for label, text in facts(self._action.id, view, self._target):
            for number, part in enumerate(wrap(text, width - LABEL - 1, lines=ROWS_EACH)):
                lines.append(line(Span(f" {label if number == 0 else '':<{LABEL - 1}}", Role.MUTED), Span(part)))
        lines += [BLANK] * (height - 1 - len(lines))
        return [*lines, _last_line(self._action, view, width)]


def _last_line(action: Action, view: View, width: int) -> Line:
    reason = action.why_not(view)
    if reason:
        return Line(cut([Span(f" Cannot be fired now: {reason}.", Role.FAILED_OVER)], width))
    if view.link is Link.SILENT and view.snapshot:
        text = f" The engine is silent: all this is of {clock(view.snapshot.at)}."
        return Line(cut([Span(text, Role.FAILED_OVER)], width))
    return Line(cut([Span(" Enter on Cancel, or escape: nothing happens. Tab, then enter: fire.", Role.MUTED)], width))

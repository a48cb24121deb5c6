"""The frame of a small question: a box with its buttons at the bottom right, and the keys that move between them."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Result = TypeVar("Result")


class QuestionBox(ModalScreen[Result | None]):
    """Returns the answer, or None if it was cancelled. Subclasses yield `#box` with `#buttons` in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("right", "other_button(1)", show=False),
        Binding("left", "other_button(-1)", show=False),
    ]
    DEFAULT_CSS = """
    QuestionBox { align: center middle; background: transparent; }
    QuestionBox #box { width: 100%; max-width: 90; height: auto; border: round $state-suspect;
                       background: $background; }
    QuestionBox #question { height: 8; }
    QuestionBox .asked { height: 1; width: 100%; background: $background; }
    QuestionBox .label { width: 16; height: 1; padding: 0 1; color: $role-muted; background: $background; }
    QuestionBox Input { height: 1; width: 1fr; border: none; padding: 0 1; background: $panel;
                        color: $foreground; }
    QuestionBox Input:focus { border: none; background: $panel; text-style: bold; }
    QuestionBox #buttons { height: 1; width: 100%; align-horizontal: right; background: $background; }
    QuestionBox Button { margin: 0 2 0 0; background: $panel; color: $foreground; text-style: none; }
    QuestionBox Button:focus { background: $foreground; color: $background; text-style: bold; }
    QuestionBox Button:disabled { color: $role-muted; opacity: 100%; text-opacity: 100%; }
    """

    def action_other_button(self, way: int) -> None:
        """Move the focus to the next or the previous answer."""
        if way > 0:
            self.focus_next("Button")
        else:
            self.focus_previous("Button")

    def action_cancel(self) -> None:
        self.dismiss(None)

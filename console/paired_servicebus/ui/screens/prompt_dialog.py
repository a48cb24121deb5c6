"""An input over the answer line, for words of a filter or a time. The page behind stays alive and in sight."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Static

Changed = Callable[[str], None]


class Prompt(ModalScreen[str | None]):
    """Returns the typed text at enter, and None at escape.

    Args:
        label: the name of the input.
        value: the initial text.
        changed: called with each change.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]
    DEFAULT_CSS = """
    Prompt { align: left bottom; background: transparent; }
    Prompt Horizontal { height: 1; width: 100%; margin-bottom: 1; background: $panel; }
    Prompt Static { width: auto; padding: 0 1; color: $role-key; background: $panel; text-style: bold; }
    Prompt Input { width: 1fr; height: 1; border: none; padding: 0; background: $panel; color: $foreground; }
    Prompt Input:focus { border: none; background: $panel; }
    """

    def __init__(self, label: str, value: str, *, changed: Changed = lambda _: None) -> None:
        super().__init__()
        self._label = label
        self._value = value
        self._changed = changed

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(self._label, markup=False)
            yield Input(self._value, compact=True)

    def on_mount(self) -> None:
        """Stop the blinking cursor, which costs bytes."""
        self.query_one(Input).cursor_blink = False

    def on_key(self, event: events.Key) -> None:
        """Insert a key that was typed before the input existed."""
        if event.is_printable and event.character:
            event.stop()
            self.query_one(Input).insert_text_at_cursor(event.character)

    def action_leave(self) -> None:
        self.dismiss(None)

    @on(Input.Changed)
    def report_change(self, event: Input.Changed) -> None:
        if event.value != self._value:
            self._value = event.value
            self._changed(event.value)

    @on(Input.Submitted)
    def submit(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

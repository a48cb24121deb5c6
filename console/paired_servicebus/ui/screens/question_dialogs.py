"""Two small dialogs: the question before a command that stops something, and an input over the answer line.

The question shows the consequences, with Cancel in focus; no letter confirms it. The page behind the input stays alive
and in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from paired_servicebus.core.operator.action_row import Choice, Question
from paired_servicebus.core.operator.targets import ActionTarget
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.commands.action_table import ConsoleAction, only_here, question
from paired_servicebus.ui.render.spans import Line, Role, Span, line, wrap
from paired_servicebus.ui.screens.question_box import QuestionBox
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

ROWS_EACH = 2
"""Lines of a sentence."""
LONGEST_LABEL = 24


class ConfirmResult(NamedTuple):
    """The chosen targets, and the reason."""

    aim: ActionTarget
    why: str


class ConfirmDialog(QuestionBox[ConfirmResult]):
    """Returns the chosen targets, or None."""

    AUTO_FOCUS = "#cancel"

    def __init__(self, action: ConsoleAction, aim: ActionTarget, newest: Newest) -> None:
        super().__init__()
        self.act = action
        self.aim = aim
        self._newest = newest
        self._view = newest()
        self._choices: Sequence[Choice] = self.question().choices

    def question(self) -> Question:
        """Return the question for the present view."""
        snapshot = self._view.snapshot
        assert snapshot is not None, "without one no command is possible"
        return question(self.act, self.aim, snapshot, self._view.keys)

    def compose(self) -> ComposeResult:
        needed = self._view.snapshot is not None and self._view.snapshot.require_reason
        with Vertical(id="box"):
            yield ConfirmText(self)
            with Horizontal(classes="asked"):
                yield Static("Why, required" if needed else "Why (optional)", classes="label")
                yield Input(id="why")
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                for number, choice in enumerate(self._choices):
                    yield Button(harmless(choice.label)[:LONGEST_LABEL], id=f"choice-{number}", compact=True)

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False  # each blink costs bytes on a slow link
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Recompute everything from the view; the targets stay."""
        self._view = view
        for lines in self.query(Lines):
            lines.show(view)
        for number, choice in enumerate(self._choices):
            button = self.query_one(f"#choice-{number}", Button)
            impossible = bool(self.why_not(choice))
            if button.has_focus and impossible:
                self.query_one("#cancel", Button).focus()
            button.disabled = impossible

    def why_not(self, choice: Choice) -> str:
        """Return why that cannot be chosen now; empty if it can."""
        missing = self._view.snapshot is not None and self._view.snapshot.require_reason and not self._why()
        return self.act.why_not_here(self._view, choice.aim) or ("a reason is required here" if missing else "")

    def _why(self) -> str:
        return self.query_one("#why", Input).value.strip()

    @on(Input.Changed)
    def enable_answers(self) -> None:
        """Enable the answers once a required reason is typed."""
        self.show(self._view)

    @on(Input.Submitted)
    def focus_answers(self) -> None:
        """Move the focus to the answers."""
        self.focus_next("Button")

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        number = next((n for n, _ in enumerate(self._choices) if event.button.id == f"choice-{n}"), None)
        if number is None:
            self.dismiss(None)
        elif not self.why_not(self._choices[number]):
            self.dismiss(ConfirmResult(self._choices[number].aim, self._why()))


class ConfirmText(Lines):
    """The title, then each sentence."""

    ages: ClassVar[bool] = False

    def __init__(self, dialog: ConfirmDialog) -> None:
        super().__init__(id="question")
        self.dialog = dialog

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the same number of lines for all sentences."""
        asked = self.dialog.question()
        impossible = self.dialog.act.why_not_here(view, self.dialog.aim)
        shown = [line(Span(f" {only_here(self.dialog.act.order, view.snapshot)}{asked.title}?", Role.SUSPECT))]
        for text in asked.sentences:
            shown += [line(Span(f" {part}")) for part in wrap(text, width - 2, lines=ROWS_EACH)]
        shown.append(line(Span(f" Not possible now: {impossible}." if impossible else "", Role.FAILED_OVER)))
        return shown


Changed = Callable[[str], None]


class Prompt(ModalScreen[str | None]):
    """Returns the typed text at enter, and None at escape. `changed` is called with each change."""

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

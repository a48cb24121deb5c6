"""Two small dialogs: the question before a command that stops something, and an input over the answer line.

The question shows the consequences, with Cancel in focus; no letter confirms it. The page behind the input stays alive
and in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar, Final, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator.action_row import Choice, Question
from paired_servicebus.core.operator.targets import names_of
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import plural, rate
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.commands.action_table import ConsoleAction, only_here, question
from paired_servicebus.ui.render.spans import Line, Role, Span, line, wrap
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

# The frame of a small question: a box with its buttons at the bottom right, and the keys that move between them.

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


# The question before an order that the fleet could have too: who does it, the engine on screen or all engines.
#
# Neither answer does anything yet: the next question names the reach in its first line, and wants another text typed.
# The fleet is in focus where it can have the order, since the engine on screen may send nothing; else that engine is.

LABEL: Final = 13
REACH_ROWS: Final = 3


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

    def __init__(self, action: ConsoleAction, aim: Command, newest: Newest, *, cannot_sign: str) -> None:
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
        asked = f" {dialog.act.label.capitalize()} {names_of(dialog.aim)}".rstrip()
        shown = [line(Span(f"{asked}: who does it?", Role.SUSPECT))]
        for reach, label in ((Reach.HERE, "This engine"), (Reach.FLEET, "The fleet")):
            reason = dialog.why_not(reach, view)
            text = f"not possible: {reason}" if reason else _here(view) if reach is Reach.HERE else _fleet(view)
            role = Role.MUTED if reason else Role.TEXT
            for number, part in enumerate(wrap(text, width - LABEL - 1, lines=REACH_ROWS)):
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


ROWS_EACH = 2
"""Lines of a sentence."""
LONGEST_LABEL = 24


class ConfirmDialog(QuestionBox[Command]):
    """Returns the command with the chosen targets and the reason, or None."""

    AUTO_FOCUS = "#cancel"

    def __init__(self, action: ConsoleAction, aim: Command, newest: Newest) -> None:
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
            self.dismiss(replace(self._choices[number].aim, why=self._why()))


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

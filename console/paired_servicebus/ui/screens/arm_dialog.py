"""The dialog before a dangerous command: its consequences from the newest snapshot, with Cancel in focus.

The engine armed the command before the dialog opened, so what it refuses now is known already. The operator fires it
by typing the target's name, or the number of several with their kind. There is no deadline: an arming that ran out
meanwhile is renewed when it is fired (dispatch.py). Every line is recomputed from each view, and a command that became
impossible cannot be fired. In a small terminal the facts scroll; the title, the text to type and both answers stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator.action_row import spelled_out, typed_right
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.commands.action_table import ConsoleAction, expectation, facts, title
from paired_servicebus.ui.engines.feed import FireRequest
from paired_servicebus.ui.engines.other_engines import EngineReply
from paired_servicebus.ui.render.spans import Line, Role, Span, fit, line, spread, wrap
from paired_servicebus.ui.state.view import EngineLink, Neighbour, Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 13
MAX_ROWS: Final = 6
"""Lines of a fact at most; it has as many as it needs."""


ARM_CSS: Final = """
    ArmDialog { align: center middle; background: transparent; }
    ArmDialog #box { width: 100%; max-width: 110; height: auto; border: round $state-suspect; background: $background; }
    ArmDialog Facts { height: 12; overflow-y: auto; scrollbar-size-vertical: 1; }
    ArmDialog.-tiny Facts { height: 7; }
    ArmDialog.-tall Facts { height: 18; }
    ArmDialog .hidden { display: none; }
    ArmDialog.-narrow Armament { height: 2; }
    ArmDialog .asked { height: 1; width: 100%; background: $background; }
    ArmDialog .label { width: 16; height: 1; padding: 0 1; color: $role-muted; background: $background; }
    ArmDialog Input { height: 1; width: 1fr; border: none; padding: 0 1; background: $panel; color: $foreground; }
    ArmDialog Input:focus { border: none; background: $panel; text-style: bold; }
    ArmDialog #buttons { height: 1; width: 100%; align-horizontal: right; background: $background; }
    ArmDialog Button { margin: 0 2 0 0; min-width: 12; background: $panel; color: $foreground; text-style: none; }
    ArmDialog Button:focus { background: $foreground; color: $background; text-style: bold; }
    ArmDialog Button:disabled { color: $role-muted; opacity: 100%; text-opacity: 100%; }
"""
"""In the app's CSS, since it overrides Textual's buttons and inputs."""


class ArmDialog(ModalScreen[FireRequest | None]):
    """Armed, not fired. Returns how it was fired, or None. Without `others` it is for the engine on screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("left,right", "other_button", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(6)", show=False),
        Binding("pageup", "scroll(-6)", show=False),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (24, "-low"), (36, "-tall")]  # noqa: RUF012 - as Textual declares it
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (80, "-wide")]  # noqa: RUF012 - as Textual declares it
    AUTO_FOCUS = "#cancel"

    def __init__(
        self, action: ConsoleAction, aim: Command, armed: Armed, newest: Newest, others: Sequence[EngineReply] = ()
    ) -> None:
        super().__init__()
        self.others = tuple(others)
        self.to_type = text_to_type(action, aim, armed, others)
        self.act = action
        self.aim = aim
        self.armed = armed
        self.complaint = ""
        """Why the last enter did nothing; empty after the next letter."""
        self._newest = newest
        self._view = newest()

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Title(self)
            if unreached_statement(self.others):
                yield Unreached(self)
            yield Expected(self)
            yield Facts(self)
            yield Armament(self)
            with Horizontal(classes="asked"):
                yield Static("Type it here", classes="label")
                yield Input(id="typed", select_on_focus=False)
            with Horizontal(classes="asked"):
                yield Static("Why, required" if self.needs_reason else "Why (optional)", classes="label")
                yield Input(id="why", select_on_focus=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self.act.label.capitalize(), id="fire", compact=True)

    def on_mount(self) -> None:
        for field in self.query(Input):
            field.cursor_blink = False  # each blink costs bytes on a slow link
        self.show(self._newest())

    @property
    def needs_reason(self) -> bool:
        """Whether the engine requires a reason."""
        return self._view.snapshot is not None and self._view.snapshot.require_reason

    def show(self, view: View) -> None:
        """Recompute everything from the view; the targets stay, regardless of the selection."""
        self._view = view
        self.query_one(Expected).set_class(not self.expected(), "hidden")
        for lines in self.query(Lines):
            lines.show(view)
        fire = self.query_one("#fire", Button)
        if fire.has_focus and self.why_not():
            self.query_one("#cancel", Button).focus()
        fire.disabled = bool(self.why_not())

    def why_not(self) -> str:
        """Return why it cannot be fired now; empty if it can."""
        return self.impossible() or self._not_typed()

    def impossible(self) -> str:
        """Return why it cannot be fired, apart from the typed text."""
        return self.act.why_not_here(self._view, self.aim)

    def expected(self) -> str:
        """Return what the newest readings say against it; empty if nothing."""
        return expectation(self.act.id, self._view.snapshot, self.aim)

    def _not_typed(self) -> str:
        typed = self.query_one("#typed", Input).value.strip()
        if not typed_right(typed, self.to_type):
            return f"{repeated(typed)!r} is not {self.to_type!r}" if typed else f"type {self.to_type} first"
        return "type a reason" if self.needs_reason and not self._why() else ""

    def _why(self) -> str:
        return self.query_one("#why", Input).value.strip()

    def on_key(self, event: events.Key) -> None:
        """Pass printable keys from a focused button to the input."""
        if isinstance(self.focused, Button) and event.is_printable and event.character:
            field = self.query_one("#typed", Input)
            field.focus()
            field.insert_text_at_cursor(event.character)
            event.stop()

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_other_button(self) -> None:
        """Move the focus to the other answer."""
        self.focus_next("Button")

    def action_scroll(self, rows: int) -> None:
        """Scroll the facts."""
        self.query_one(Facts).scroll_relative(y=rows, animate=False)

    @on(Input.Changed)
    def enable_fire(self) -> None:
        """Enable the button after the last correct letter."""
        self.complaint = ""
        self.show(self._view)

    @on(Button.Pressed, "#cancel")
    def cancel(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#fire")
    @on(Input.Submitted)
    def fire(self) -> None:
        """Fire, or say why not: it is impossible, or not typed yet."""
        self.complaint = self.why_not()
        if self.complaint:
            self.show(self._view)
            return
        self.dismiss(FireRequest(token=self.armed.token, typed=self.armed.to_type, why=self._why()))


def text_to_type(action: ConsoleAction, aim: Command, armed: Armed, others: Sequence[EngineReply]) -> str:
    """Return the text to type, never one character: what every engine asks for, or else the number of engines."""
    wanted = {armed.to_type, *(one.armed.to_type for one in others if one.armed is not None)}
    if len(wanted) > 1:
        return plural(1 + sum(one.armed is not None for one in others), "engine")
    assert action.order is not None, "local actions are not armed"
    return spelled_out(action.order, aim, asked=armed.to_type)


def unreached_statement(others: Sequence[EngineReply]) -> str:
    """Return the full-width statement about unreachable engines; empty if it reaches all."""
    missing = [f"{one.name}: {one.text}" for one in others if one.armed is None]
    return f" ✗ {len(missing)} of {1 + len(others)} engines not reached: {'; '.join(missing)}" if missing else ""


class ArmPart(Lines):
    """A part of the dialog."""

    ages: ClassVar[bool] = False  # its text contains the age of its figures

    def __init__(self, dialog: ArmDialog) -> None:
        super().__init__()
        self.dialog = dialog


class Title(ArmPart):
    """The command and its targets."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        dialog = self.dialog
        asked = f" {title(dialog.act.id, dialog.act.label.capitalize(), view.snapshot, dialog.aim, view.pairing)}"
        hidden = self.dialog.query_one(Facts).max_scroll_y > 0
        return (spread([Span(asked, Role.SUSPECT)], [Span("↑ ↓ all of it " if hidden else "", Role.MUTED)], width),)


class Unreached(ArmPart):
    """The engines that it does not reach."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        return (line(fit(unreached_statement(self.dialog.others), width), ground=Role.STATEMENT),)


class Expected(ArmPart):
    """What the newest readings say against it: a refusal, or that it does not help."""

    DEFAULT_CSS = "Expected { height: 2; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        text = f"Expect: {self.dialog.expected()}."
        return [line(Span(f" {part}", Role.FAILED_OVER)) for part in wrap(text, width - 2, lines=height)]


class Facts(ArmPart):
    """The consequences. They scroll if they have no room, and take no more than they need."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        dialog = self.dialog
        left_out = [one for one in view.neighbours if one.name not in {other.name for other in dialog.others}]
        table = facts(dialog.act.id, view.snapshot, dialog.aim, view.keys, self._others(view), left_out)
        lines: list[Line] = []
        for label, text in table:
            for number, part in enumerate(wrap(text, width - LABEL - 2, lines=MAX_ROWS)):
                if number == 0 or part:
                    lines.append(line(Span(f" {label if number == 0 else '':<{LABEL - 1}}", Role.MUTED), Span(part)))
        self.styles.max_height = max(len(lines), len(table))
        return lines

    def _others(self, view: View) -> list[Neighbour]:
        """Return the present neighbours; those that did not arm it are excluded."""
        now = {one.name: one for one in view.neighbours}
        return [
            now.get(one.name, Neighbour(one.name, "gone")) if one.armed is not None else Neighbour(one.name, one.text)
            for one in self.dialog.others
        ]


class Armament(ArmPart):
    """The text to type, or why it cannot be fired."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        text, role = self._sentence(view)
        return [line(Span(f" {part}", role)) for part in wrap(text, width - 2, lines=height)]

    def _sentence(self, view: View) -> tuple[str, Role]:
        reason = self.dialog.impossible()
        if reason:
            return f"Not possible now: {reason}.", Role.FAILED_OVER
        if view.link is EngineLink.SILENT and view.snapshot:
            return f"The engine is silent: all this is of {clock(view.snapshot.at)}.", Role.FAILED_OVER
        if self.dialog.complaint:
            return f"Nothing was ordered: {self.dialog.complaint}.", Role.FAILED_OVER
        return f"Type {self.dialog.to_type} and enter; escape cancels.", Role.MUTED

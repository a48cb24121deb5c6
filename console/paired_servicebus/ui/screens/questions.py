"""The one dialog for questions before an order, each question, and the line to type in over the page.

The dialog is as high as its text and leaves the row that it is about in sight. Cancel is in focus unless a question
names a smaller harm; no letter confirms. What is typed or pasted before a field has the focus is typed into the
question's own field. Everything is recomputed from each view, and what became impossible cannot be chosen. In a small
terminal the facts scroll; title, fields and answers stay.

The engine armed a dangerous order before its dialog opened, so what it refuses now is known; an arming that ran out
meanwhile is renewed when it is fired (dispatch.py). An order over the fleet that leaves silent engines out needs a tick
for exactly those engines: if one more falls silent, the tick is gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from paired_servicebus.core.errors import ConfigurationError, PairedError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Order, OrderText, encode_order_text
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_fold import pairing_of
from paired_servicebus.core.operator import fleet_sentences as words
from paired_servicebus.core.operator.action_row import spelled_out, typed_right
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.fleet_question import (
    FleetRequest,
    OrderDraft,
    draft_request,
    engine_evidence,
    fleet_facts,
    fleet_title,
    silent_names,
)
from paired_servicebus.core.operator.targets import names_of
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import plural, rate
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.core.text.untrusted_text import harmless, repeated
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.settings import seconds_of
from paired_servicebus.ui.commands.action_table import ConsoleAction, expectation, facts, only_here, question, title
from paired_servicebus.ui.engines.feed import EngineReply, OrderSigner
from paired_servicebus.ui.render.spans import MAX_LINES, Line, Role, Span, cut, fit, line, paragraph, rule, spread, wrap
from paired_servicebus.ui.state.view import EngineLink, Neighbour, Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 13
MAX_WIDTH: Final = 110
NOTE_ROWS: Final = 3
LEAST_FACTS: Final = 5
"""Rows of facts that are enough to leave the row in sight, since they scroll."""
CANCEL: Final = "cancel"
TICK: Final = "partial"

Result = TypeVar("Result")


class Field(NamedTuple):
    """A line to type in. width: its cells, if another one is beside it; 0: the rest of the line."""

    id: str
    label: str
    value: str = ""
    hint: str = ""
    width: int = 0


class Fact(NamedTuple):
    """A label and a sentence. An empty label continues the fact before."""

    label: str
    text: str
    role: Role = Role.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A question as it is now.

    statement: a warning over the whole width. expected: what speaks against it. rows: lines below the facts.
    note: what is still needed, or why it is not possible. why_not: the reason against each answer, by its id.
    tick: the label of a box to tick; empty: there is none.
    """

    title: str
    facts: Sequence[Fact]
    note: Span
    why_not: Mapping[str, str]
    statement: str = ""
    expected: str = ""
    rows: Callable[[int], Sequence[Line]] = field(default=lambda _width: ())
    tick: str = ""
    is_ticked: bool = False


class QuestionDialog(ModalScreen[Result | None]):
    """Returns the answer, or None if it was cancelled. Subclasses say what is asked, as a Sheet for each view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("right", "other_button(1)", show=False),
        Binding("left", "other_button(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(6)", show=False),
        Binding("pageup", "scroll(-6)", show=False),
    ]
    AUTO_FOCUS = ""

    typed_into: ClassVar[str] = ""
    """Id of the field that has what is typed at a button; empty: the first field."""
    first_focus = CANCEL
    """Id of the button that has the focus first."""

    def __init__(self, newest: Newest, fields: Sequence[Field], answers: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._newest = newest
        self._fields = tuple(fields)
        self._answers = tuple(answers)
        self._early = ""
        """What was typed before the fields existed."""
        self._note_rows = 1
        self._is_ready = False
        """Whether its parts are there."""
        self._row: int | None = None
        """The row of the screen that the question is about."""
        self.view = newest()
        self.now: Sheet | None = None

    # -- what subclasses say ---------------------------------------------------------------------------------------

    def sheet(self, view: View) -> Sheet:
        """Return the question for this view and what is typed."""
        raise NotImplementedError

    def answer(self, chosen: str) -> None:
        """Return the chosen possible answer, or stay open."""
        raise NotImplementedError

    def tick(self) -> None:
        """Tick the box, or remove the tick."""

    def refused(self, why: str) -> None:
        """Note why an answer that is not possible was not given."""

    # -- drawing ---------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield QuestionHead(self)
            yield QuestionFacts(self)
            beside: list[Field] = []
            for one in self._fields:
                beside.append(one)
                if not one.width:
                    yield from _row(beside)
                    beside = []
            yield Button("", id=TICK, compact=True)
            yield QuestionNote(self)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id=CANCEL, compact=True)
                for name, label in self._answers:
                    yield Button(label, id=name, compact=True)

    def on_mount(self) -> None:
        for one in self.query(Input):
            one.cursor_blink = False  # each blink costs bytes on a slow link
        self._is_ready = True
        self._find_row()
        self.show(self._newest())
        self.query_one(f"#{self.first_focus}", Button).focus()
        early, self._early = self._early, ""
        self._type(early)

    def on_resize(self) -> None:
        self._find_row()
        self.show(self.view)

    def _find_row(self) -> None:
        behind = self.app.screen_stack[:-1][-1:]
        places = (one.selected_row for screen in behind for one in screen.query(Lines))
        self._row = next((place for place in places if place is not None), None)

    def show(self, view: View) -> None:
        """Recompute everything from the view; the targets stay, regardless of the selection."""
        self.view = view
        if not self._is_ready or not self.size.width:
            return
        now = self.now = self.sheet(view)
        ticked = self.query_one(f"#{TICK}", Button)
        ticked.display = bool(now.tick)
        label = f"\\[{'x' if now.is_ticked else ' '}] {now.tick}"
        if str(ticked.label) != label.replace("\\", ""):
            ticked.label = label
        for name, _ in self._answers:
            button = self.query_one(f"#{name}", Button)
            if button.has_focus and now.why_not.get(name):
                self.query_one(f"#{CANCEL}", Button).focus()
            button.disabled = bool(now.why_not.get(name))
        self._fit(view)
        for lines in self.query(Lines):
            lines.show(view)

    def _fit(self, view: View) -> None:
        """Make the dialog as high as its text, below or above the row that it is about if there is room."""
        width = min(self.size.width, MAX_WIDTH) - 2
        head, facts, note = self.query_one(QuestionHead), self.query_one(QuestionFacts), self.query_one(QuestionNote)
        self._note_rows = max(self._note_rows, len(note.lines(view, width, NOTE_ROWS)))
        fixed = len(head.lines(view, width, 0)) + self._note_rows + len(self.query(".row")) + bool(self.now_tick) + 3
        room = self.size.height - fixed
        below = room - (self._row + 1) if self._row is not None else 0
        rows = max(1, min(len(facts.lines(view, width, 0)), below if below >= LEAST_FACTS else room))
        for part, height in ((head, len(head.lines(view, width, 0))), (facts, rows), (note, self._note_rows)):
            part.styles.height = height
        self.query_one("#box").styles.margin = (self._top(fixed + rows), 0, 0, 0)

    @property
    def now_tick(self) -> str:
        """The label of the box to tick."""
        return self.now.tick if self.now is not None else ""

    def _top(self, height: int) -> int:
        """Return the first row of a dialog of that height: it leaves the selected row in sight if there is room."""
        free, row = self.size.height - height, self._row
        if row is not None and row < free:
            return row + 1
        if row is not None and row >= height:
            return row - height
        return max(0, free)  # the first lines stay in sight

    # -- keys --------------------------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        """Return what is typed in a field."""
        try:
            return self.query_one(f"#{name}", Input).value.strip()
        except NoMatches:
            return ""

    def _type(self, text: str) -> None:
        """Type the text into the question's own field; keep it if there is none yet."""
        if not self._fields or not text:
            return
        if not self._is_ready:
            self._early += text
            return
        one = self.query_one(f"#{self.typed_into or self._fields[0].id}", Input)
        one.insert_text_at_cursor(text)
        self.set_focus(one)  # at once: the next letter is its own

    def on_key(self, event: events.Key) -> None:
        """Tick with space; type other printable keys at a button into the field."""
        if not event.is_printable or not event.character:
            return
        event.stop()
        if event.character == " " and self.focused is not None and self.focused.id == TICK:
            self.tick()
            self.show(self.view)
        else:
            self._type(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Type the first line of a pasted text; a field in focus takes it by itself."""
        event.stop()
        self._type(next(iter(event.text.splitlines()), ""))

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_other_button(self, way: int) -> None:
        """Move the focus to the next or the previous button, the tick included."""
        if way > 0:
            self.focus_next("Button")
        else:
            self.focus_previous("Button")

    def action_scroll(self, rows: int) -> None:
        """Scroll the facts; without any hidden, move between the answers."""
        facts = self.query_one(QuestionFacts)
        if facts.max_scroll_y:
            facts.scroll_relative(y=rows, animate=False)
        else:
            self.action_other_button(rows)

    @on(Input.Changed)
    def changed(self) -> None:
        """Recompute what is needed."""
        self.refused("")
        self.show(self.view)

    @on(Button.Pressed)
    def pressed(self, event: Button.Pressed) -> None:
        if event.button.id == TICK:
            self.tick()
            self.show(self.view)
        elif event.button.id in (None, CANCEL):
            self.dismiss(None)
        else:
            self.choose(event.button.id)

    @on(Input.Submitted)
    def submitted(self, event: Input.Submitted) -> None:
        """Give the answer that a typed text is for; else move on."""
        is_last = event.input.id == self._fields[-1].id
        if self.typed_into and (is_last or event.input.id == self.typed_into):
            self.choose(self._answers[0][0])
        else:
            self.focus_next("Button" if is_last else "*")

    def choose(self, name: str) -> None:
        """Give the answer, or say why it is not possible now."""
        self.show(self._newest())
        why = self.now.why_not.get(name, "") if self.now is not None else ""
        self.refused(why)
        if why:
            self.show(self.view)
        else:
            self.answer(name)


def _row(fields: Sequence[Field]) -> ComposeResult:
    with Horizontal(classes="row"):
        for one in fields:
            yield Static(one.label, classes="label", markup=False)
            written = Input(one.value, id=one.id, placeholder=one.hint, select_on_focus=False)
            if one.width:
                written.styles.width = one.width
            yield written


class QuestionPart(Lines):
    """A part of the dialog."""

    ages: ClassVar[bool] = False  # its text contains the age of its figures

    def __init__(self, dialog: QuestionDialog[Result]) -> None:
        super().__init__()
        self._dialog = dialog

    @property
    def sheet(self) -> Sheet:
        now = self._dialog.now
        assert now is not None, "it is drawn once the question is there"
        return now


class QuestionHead(QuestionPart):
    """The title, the statement, and what speaks against it."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        sheet = self.sheet
        hidden = self._dialog.query_one(QuestionFacts).max_scroll_y > 0
        keys = Span("↑ ↓ all of it " if hidden else "", Role.MUTED)
        shown = [spread([Span(f" {sheet.title}", Role.SUSPECT)], [keys], width)]
        if sheet.statement:
            shown.append(line(fit(f" ✗ {sheet.statement}", width), ground=Role.STATEMENT))
        expected = f"Expect: {sheet.expected}." if sheet.expected else ""
        return [*shown, *paragraph(expected, width, Role.FAILED_OVER, lines=2)]


class QuestionFacts(QuestionPart):
    """The facts. They scroll if they have no room."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        labelled = LABEL if any(fact.label for fact in self.sheet.facts) else 1
        shown: list[Line] = []
        for label, text, role in self.sheet.facts:
            for number, part in enumerate(wrap(text, width - labelled - 2, lines=MAX_LINES) or [""]):
                head = f" {label if number == 0 else '':<{labelled - 1}}"
                shown.append(line(Span(head, Role.MUTED), Span(part, role)))
        return [*shown, *self.sheet.rows(width - 1)]


class QuestionNote(QuestionPart):
    """What is still needed, or why it is not possible."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        note = self.sheet.note
        return paragraph(note.text, width, note.role, lines=NOTE_ROWS)


QUESTION_CSS: Final = """
    QuestionDialog { align: center top; background: transparent; }
    QuestionDialog #box { width: 100%; max-width: 110; height: auto; border: round $state-suspect;
                          background: $background; }
    QuestionDialog QuestionFacts { overflow-y: auto; scrollbar-size-vertical: 1; }
    QuestionDialog .row { height: 1; width: 100%; background: $background; }
    QuestionDialog .label { width: 16; height: 1; padding: 0 1; color: $role-muted; background: $background; }
    QuestionDialog Input { height: 1; width: 1fr; border: none; padding: 0 1; background: $panel;
                           color: $foreground; }
    QuestionDialog Input:focus { border: none; background: $panel; text-style: bold; }
    QuestionDialog #partial { width: auto; margin: 0 1; }
    QuestionDialog #buttons { height: 1; width: 100%; align-horizontal: right; background: $background; }
    QuestionDialog Button { margin: 0 2 0 0; min-width: 12; background: $panel; color: $foreground;
                            text-style: none; }
    QuestionDialog Button:focus { background: $foreground; color: $background; text-style: bold; }
    QuestionDialog Button:disabled { color: $role-muted; opacity: 100%; text-opacity: 100%; }
"""
"""In the app's CSS, since it overrides Textual's buttons and inputs; in the dialog, it would reparse every style."""


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


Write = Callable[[Path], Awaitable[str]]
"""Writes the file and returns the outcome as a sentence. Raises OSError, ControlError: there is no file then."""


LONGEST_LABEL: Final = 24
NOTHING: Final = Span("", Role.MUTED)


def reason_field(view: View) -> Field:
    """Return the field for the order's reason."""
    needed = _needs_reason(view)
    hint = "a reason is required here" if needed else "optional"
    return Field("why", "Why, required" if needed else "Why (optional)", hint=hint)


def _needs_reason(view: View) -> bool:
    return view.snapshot is not None and view.snapshot.require_reason


def _silent(view: View) -> Span | None:
    """Return that the figures are old; None: they are not."""
    if view.link is not EngineLink.SILENT or view.snapshot is None:
        return None
    return Span(f"The engine is silent: all this is of {clock(view.snapshot.at)}.", Role.FAILED_OVER)


# The question before an order that the fleet could have too: who does it, the engine on screen or all engines.
#
# Neither answer does anything yet: the next question names the reach in its first line, and wants another text typed.
# The smallest reach that is possible is in focus.


class Reach(StrEnum):
    """Who does it."""

    HERE = "here"
    FLEET = "fleet"


class ReachDialog(QuestionDialog[Reach]):
    """Returns the reach, or None. cannot_sign: why this console cannot sign orders of the fleet; empty: it can."""

    def __init__(self, action: ConsoleAction, aim: Command, newest: Newest, *, cannot_sign: str) -> None:
        known = newest().fleet
        label = f"The fleet, {plural(words.present_count(known) if known is not None else 0, 'engine')}"
        super().__init__(newest, (), ((Reach.HERE, "Only this engine"), (Reach.FLEET, label)))
        self.act, self.aim = action, aim
        self._cannot_sign = cannot_sign
        possible = [reach for reach in Reach if not self._why_not(reach, newest())]
        self.first_focus = possible[0].value if possible else self.first_focus

    def _why_not(self, reach: Reach, view: View) -> str:
        """Return why that cannot be chosen now; empty if it can."""
        if reach is Reach.HERE:
            return self.act.why_not_here(view, self.aim)
        return self.act.why_not_over_fleet(view, self.aim) or self._cannot_sign

    def sheet(self, view: View) -> Sheet:
        reasons: dict[str, str] = {reach: self._why_not(reach, view) for reach in Reach}
        return Sheet(
            title=f"{self.act.label.capitalize()} {names_of(self.aim)}".rstrip() + ": who does it?",
            facts=[
                Fact(label, f"not possible: {reasons[reach]}", Role.MUTED) if reasons[reach] else Fact(label, text)
                for reach, label, text in (
                    (Reach.HERE, "This engine", _here(view)),
                    (Reach.FLEET, "The fleet", _fleet(view)),
                )
            ],
            note=NOTHING,
            why_not=reasons,
        )

    def answer(self, chosen: str) -> None:
        self.dismiss(Reach(chosen))


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
    if view.fleet is None:
        return ""
    return "; ".join((words.engines_part(view.fleet)[0], *words.silent_part(view.fleet, view.now)[:1]))


# Yes or no, before an order that stops something.


class ConfirmDialog(QuestionDialog[Command]):
    """Returns the command with the chosen targets and the reason, or None."""

    def __init__(self, action: ConsoleAction, aim: Command, newest: Newest) -> None:
        view = newest()
        assert view.snapshot is not None, "without one no command is possible"
        self.act, self.aim = action, aim
        choices = question(action, aim, view.snapshot, view.keys).choices
        self._aims = {f"choice-{number}": one.aim for number, one in enumerate(choices)}
        labels = [harmless(one.label)[:LONGEST_LABEL] for one in choices]
        super().__init__(newest, (reason_field(view),), tuple(zip(self._aims, labels, strict=True)))

    def sheet(self, view: View) -> Sheet:
        assert view.snapshot is not None, "without one no command is possible"
        asked = question(self.act, self.aim, view.snapshot, view.keys)
        missing = "a reason is required here" if _needs_reason(view) and not self.text("why") else ""
        impossible = self.act.why_not_here(view, self.aim)
        return Sheet(
            title=f"{only_here(self.act.order, view.snapshot)}{asked.title}?",
            facts=[Fact("", text) for text in asked.sentences],
            note=Span(f"Not possible now: {impossible}." if impossible else "", Role.FAILED_OVER),
            why_not={name: self.act.why_not_here(view, aim) or missing for name, aim in self._aims.items()},
        )

    def answer(self, chosen: str) -> None:
        self.dismiss(replace(self._aims[chosen], why=self.text("why")))


# A dangerous order to engines of this machine: armed, with its consequences; its target's name is typed.


class ArmDialog(QuestionDialog[Command]):
    """Armed, not fired. Returns the command and its reason, or None. Without `others`: of the engine on screen."""

    typed_into: ClassVar[str] = "typed"

    def __init__(
        self, action: ConsoleAction, aim: Command, armed: Armed, newest: Newest, others: Sequence[EngineReply] = ()
    ) -> None:
        fields = (Field("typed", "Type it here"), reason_field(newest()))
        super().__init__(newest, fields, (("fire", action.label.capitalize()),))
        self.act, self.aim, self.armed, self.others = action, aim, armed, tuple(others)
        self.to_type = text_to_type(action, aim, armed, others)
        self.complaint = ""
        """Why the last enter did nothing; empty after the next letter."""

    def refused(self, why: str) -> None:
        self.complaint = why

    def sheet(self, view: View) -> Sheet:
        asked = title(self.act.id, self.act.label.capitalize(), view.snapshot, self.aim, view.pairing)
        left_out = [one for one in view.neighbours if one.name not in {other.name for other in self.others}]
        table = facts(self.act.id, view.snapshot, self.aim, view.keys, self._reached(view), left_out)
        return Sheet(
            title=asked,
            statement=unreached_statement(self.others),
            expected=expectation(self.act.id, view.snapshot, self.aim),
            facts=[Fact(label, text) for label, text in table],
            note=self._note(view),
            why_not={"fire": self.act.why_not_here(view, self.aim) or self._not_typed(view)},
        )

    def _reached(self, view: View) -> list[Neighbour]:
        """Return the present neighbours; those that did not arm it are excluded."""
        now = {one.name: one for one in view.neighbours}
        return [
            now.get(one.name, Neighbour(one.name, "gone")) if one.armed is not None else Neighbour(one.name, one.text)
            for one in self.others
        ]

    def _not_typed(self, view: View) -> str:
        typed = self.text("typed")
        if not typed_right(typed, self.to_type):
            return f"{repeated(typed)!r} is not {self.to_type!r}" if typed else f"type {self.to_type} first"
        return "type a reason" if _needs_reason(view) and not self.text("why") else ""

    def _note(self, view: View) -> Span:
        if reason := self.act.why_not_here(view, self.aim):
            return Span(f"Not possible now: {reason}.", Role.FAILED_OVER)
        if old := _silent(view):
            return old
        if self.complaint:
            return Span(f"Nothing was ordered: {self.complaint}.", Role.FAILED_OVER)
        return Span(f"Type {self.to_type} and enter; escape cancels.", Role.MUTED)

    def answer(self, chosen: str) -> None:
        self.dismiss(replace(self.aim, why=self.text("why")))


def text_to_type(action: ConsoleAction, aim: Command, armed: Armed, others: Sequence[EngineReply]) -> str:
    """Return the text to type, never one character: what every engine asks for, or else the number of engines."""
    wanted = {armed.to_type, *(one.armed.to_type for one in others if one.armed is not None)}
    if len(wanted) > 1:
        return plural(1 + sum(one.armed is not None for one in others), "engine")
    assert action.order is not None, "local actions are not armed"
    return spelled_out(action.order, aim, asked=armed.to_type)


def unreached_statement(others: Sequence[EngineReply]) -> str:
    """Return the statement about unreachable engines; empty if it reaches all."""
    missing = [f"{one.name}: {one.text}" for one in others if one.armed is None]
    return f"{len(missing)} of {1 + len(others)} engines not reached: {'; '.join(missing)}" if missing else ""


# An order over the fleet: whom it reaches, who refuses, who is silent, how long it stands; the number is typed.

ALL: Final = "all"
USUAL: Final = "4h"


class FleetDialog(QuestionDialog[Order]):
    """Returns the signed order, or None. An order that cannot be signed stays here, with the reason.

    Args:
        signer: the operator's key.
        clock: seconds since the epoch.
    """

    typed_into: ClassVar[str] = "typed"

    def __init__(
        self,
        action: ConsoleAction,
        aim: Command,
        newest: Newest,
        *,
        signer: OrderSigner,
        clock: Callable[[], float],
    ) -> None:
        assert action.order is not None, "local actions are no orders"
        self.act, self.order, self.aim, self.signer = action, action.order, aim, signer
        self.verb = FLEET_VERBS[action.order.id]
        stands = (Field("for", "Stands for", USUAL, width=10),) if self.verb.stands else ()
        named = Field("engines", "Engines", ALL, hint="an engine's name")
        fields = (*stands, named, reason_field(newest()), Field("typed", "Type it here"))
        super().__init__(newest, fields, (("order", "Order"),))
        self._clock = clock
        self._left_out: frozenset[str] = frozenset()
        """The silent engines that the operator ticked."""
        self.draft: OrderDraft | None = None
        self.fault = ""
        """Why there is no draft."""
        self.trouble = ""
        """Why the last one could not be signed."""
        self.is_signing = False

    def sheet(self, view: View) -> Sheet:
        self._draw_up(view)
        silent, number = self.silent, self.silent_count
        asked, rows = self._facts(view)
        return Sheet(
            title=self._title(view),
            facts=asked,
            rows=rows,
            note=self._note(view),
            why_not={"order": "; ".join(self.needed(view))},
            tick=f"order the others, although {number} engine{' is' if number == 1 else 's are'} silent"
            if number
            else "",
            is_ticked=silent <= self._left_out,
        )

    def _draw_up(self, view: View) -> None:
        self.draft, self.fault = None, self.act.why_not_over_fleet(view, self.aim)
        if self.fault or view.snapshot is None:
            return
        try:
            draft = draft_request(view.snapshot, self.wanted(), now=self._clock())
            encode_order_text(draft.text)
        except (ConfigurationError, UnreadableError) as error:
            self.fault = str(error)
        else:
            self.draft = draft

    def wanted(self) -> FleetRequest:
        """Return the order as the fields have it. Raises ConfigurationError: one cannot be read."""
        named = tuple(filter(None, (one.strip() for one in self.text("engines").split(","))))
        stands_for = None
        if self.verb.stands:
            stands_for = seconds_of(self.text("for"))
            if stands_for is None:
                raise ConfigurationError(f"{repeated(self.text('for'))!r} is no time such as 30m, 4h or 72h")
        if not named:
            raise ConfigurationError("no engine is named; all is all of them")
        command = replace(self.aim, why=self.text("why"))
        return FleetRequest(command=command, engines=None if named == (ALL,) else named, stands_for=stands_for)

    def _title(self, view: View) -> str:
        try:
            wanted = self.wanted()
        except ConfigurationError:
            wanted = FleetRequest(command=self.aim)  # for all engines, while the fields cannot be read
        return fleet_title(wanted, view.fleet) if view.fleet is not None else "The fleet"

    def _facts(self, view: View) -> tuple[Sequence[Fact], Callable[[int], Sequence[Line]]]:
        draft, snapshot = self.draft, view.snapshot
        if draft is None or snapshot is None or (fleet := pairing_of(snapshot).fleet) is None:
            return (), lambda _width: ()
        wanted = self.wanted()
        shown = [
            Fact(label, text, Role.SUSPECT if label in ("Refuses", "Not reached") else Role.TEXT)
            for label, text in fleet_facts(snapshot, wanted, draft, now=view.now)
        ]

        def rows(width: int) -> Sequence[Line]:
            drawn = [rule("engine by engine: state, all its sends/s", width)]
            for one in engine_evidence(fleet, wanted, draft, view.now):
                figures = f" {one.glyph} {fit(one.engine, 16)} {fit(one.state, 23)} {fit(one.sends, 9, 'right')}  "
                drawn.append(Line(cut([Span(figures), Span(one.remark, Role.SUSPECT)], width)))
            return drawn

        return [*shown, Fact("Signed by", self.signer.key)], rows

    @property
    def to_type(self) -> str:
        """The text to type: the number of engines with the noun, or the target's name if it is one engine."""
        if self.draft is None:
            return ""
        asked, count = self.draft.to_type, self.draft.text.reach
        if count > 1:
            return plural(count, "engine")
        return spelled_out(self.order, self.aim, asked=asked)

    @property
    def silent(self) -> frozenset[str]:
        """The addressed engines that are silent."""
        return frozenset() if self.draft is None else silent_names(self.draft)

    @property
    def silent_count(self) -> int:
        """The number of silent engines, those without a name included."""
        return sum(int(one.split()[0]) if one.endswith(" unknown") else 1 for one in self.silent)

    def needed(self, view: View) -> tuple[str, ...]:
        """Return what keeps it from being ordered; empty if it can be."""
        if self.draft is None:
            return (self.fault or "the fleet is unknown",)
        needs = (
            "" if self.silent <= self._left_out else "tick the silent engines (left, space)",
            "give a reason" if _needs_reason(view) and not self.text("why") else "",
            "" if typed_right(self.text("typed"), self.to_type) else f"type {self.to_type}",
        )
        return tuple(filter(None, needs))

    def _note(self, view: View) -> Span:
        if self.draft is None:
            return Span(f"Cannot be ordered now: {self.fault or 'the fleet is unknown'}.", Role.FAILED_OVER)
        if old := _silent(view):
            return old
        if self.is_signing:
            text = f"Signing with {self.signer.key}: a token may wait for a touch. Escape cancels."
            return Span(text, Role.SUSPECT)
        if self.trouble:
            return Span(f"Nothing was ordered: {self.trouble}.", Role.FAILED_OVER)
        reach = self.draft.text.reach
        engines = plural(reach, "engine") if reach else "all engines"
        if needed := self.needed(view):
            return Span(f"To order {engines}: {', '.join(needed)}, then enter. Escape cancels.", Role.MUTED)
        later = f", {self.silent_count} of them later" if self.silent else ""
        return Span(f"Enter orders {engines}{later}. Escape cancels.", Role.SUSPECT)

    def tick(self) -> None:
        """Leave out the engines that are silent now, or take that back."""
        self._left_out = frozenset() if self.silent <= self._left_out else self.silent

    def refused(self, why: str) -> None:
        self.trouble = ""

    def answer(self, chosen: str) -> None:
        if self.draft is not None and not self.is_signing:
            self.is_signing = True
            self.run_worker(self._sign(self.draft.confirm(self.draft.to_type)), group="signing", exclusive=True)
            self.show(self.view)

    async def _sign(self, text: OrderText) -> None:
        signed = encode_order_text(text)
        try:
            signature = await self.signer.sign(signed)
        except PairedError as error:
            self.trouble, self.is_signing = str(error), False
            self.show(self.view)
        else:
            self.dismiss(Order(signed=signed.decode(), signature=signature))

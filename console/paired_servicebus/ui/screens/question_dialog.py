"""The one dialog for questions before an order, and the line to type in over the page.

The dialog is as high as its text and leaves the row that it is about in sight. Cancel is in focus unless a question
names a smaller harm; no letter confirms. What is typed or pasted before a field has the focus is typed into the
question's own field. Everything is recomputed from each view, and what became impossible cannot be chosen. In a small
terminal the facts scroll; title, fields and answers stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from paired_servicebus.ui.render.spans import Line, Role, Span, fit, line, spread, wrap
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

LABEL: Final = 13
MAX_WIDTH: Final = 110
MAX_ROWS: Final = 12
"""Lines of a fact: a hundred names."""
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
        expected = wrap(f"Expect: {sheet.expected}.", width - 2, lines=2) if sheet.expected else ()
        return [*shown, *(line(Span(f" {part}", Role.FAILED_OVER)) for part in expected if part)]


class QuestionFacts(QuestionPart):
    """The facts. They scroll if they have no room."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        labelled = LABEL if any(fact.label for fact in self.sheet.facts) else 1
        shown: list[Line] = []
        for label, text, role in self.sheet.facts:
            for number, part in enumerate(wrap(text, width - labelled - 2, lines=MAX_ROWS)):
                if part or number == 0:
                    head = f" {label if number == 0 else '':<{labelled - 1}}"
                    shown.append(line(Span(head, Role.MUTED), Span(part, role)))
        return [*shown, *self.sheet.rows(width - 1)]


class QuestionNote(QuestionPart):
    """What is still needed, or why it is not possible."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        note = self.sheet.note
        return [line(Span(f" {part}", note.role)) for part in wrap(note.text, width - 2, lines=NOTE_ROWS) if part]


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

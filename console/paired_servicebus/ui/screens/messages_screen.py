"""The messages of a backlog queue: a page of rows by peek, over the page of the backlog.

Small letters only look. `R` and the menu ask before an act on the marked messages, or on the selected one. A look that
is superseded is cancelled; the engine bounds it anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.message_view import MessageRow
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.render.spans import Line, Role, Span, cut
from paired_servicebus.ui.screens.message_screen import MessageScreen
from paired_servicebus.ui.screens.question_dialogs import Prompt
from paired_servicebus.ui.state import message_choices as state
from paired_servicebus.ui.state.message_choices import MessageChoices
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.frame.page_lines import AnswerLine, HeaderLine, SummaryLines
from paired_servicebus.ui.widgets.message_list import MessageFacts, MessageHead, MessageList

ALL_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageActs:
    """What the list can have the app do.

    redrive: asks before it re-drives dead letters of a queue, by index and sequence numbers. menu: the same and other
    acts, to pick from; with the reason why not, or empty. refuse: shows why something is not possible.
    """

    source: MessageSource
    by: str
    redrive: Callable[[str, Sequence[int]], None]
    menu: Callable[[str, Sequence[int], str], None]
    refuse: Callable[[str], None]
    copy: Callable[[str, str], None]
    show_help: Callable[[], None]


class MessagesScreen(Screen[None]):
    """The list. Escape closes it."""

    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (24, "-low"), (32, "-tall")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("ctrl+d", "move_screens(1)", show=False),
        Binding("ctrl+u", "move_screens(-1)", show=False),
        Binding("pagedown,ctrl+f", "move_screens(1)", show=False),
        Binding("space", "mark", show=False),
        Binding("a", "mark_listed", show=False),
        Binding("u", "unmark", show=False),
        Binding("x", "menu", show=False),
        Binding("pageup,ctrl+b", "move_screens(-1)", show=False),
        Binding("home,g", f"move(-{ALL_ROWS})", show=False),
        Binding("end,G", f"move({ALL_ROWS})", show=False),
        Binding("right,n,right_square_bracket", "turn(1)", show=False),
        Binding("left,p,left_square_bracket", "turn(-1)", show=False),
        Binding("tab", "switch(1)", show=False, priority=True),
        Binding("shift+tab", "switch(-1)", show=False, priority=True),
        Binding("enter", "open", show=False),
        Binding("slash", "filter", show=False),
        Binding("f", "find", show=False),
        Binding("r", "read_again", show=False),
        Binding("R", "redrive", show=False),
        Binding("y", "copy", show=False),
        Binding("question_mark", "help", show=False),
        Binding("escape", "leave", show=False),
    ]
    DEFAULT_CSS = """
    MessagesScreen { background: $background; }
    MessagesScreen SummaryLines { height: 2; }
    MessagesScreen.-tall SummaryLines { height: 4; }
    MessagesScreen MessageHead { height: 3; }
    MessagesScreen MessageList { height: 1fr; min-height: 3; }
    MessagesScreen MessageFacts { height: 6; }
    MessagesScreen.-tiny MessageFacts { height: 4; }
    MessagesScreen.-tall MessageFacts { height: 8; }
    """

    def __init__(self, newest: Newest, acts: MessageActs) -> None:
        super().__init__()
        self._newest = newest
        self._acts = acts
        self._tabs = state.tabs_of(newest())
        self._outcomes = newest().outcomes
        self.choices = MessageChoices(tab=state.first_tab(newest(), self._tabs), is_looking=True)

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield SummaryLines()
        yield MessageHead(self.choices, self._tabs)
        yield MessageList(self.choices, self._tabs)
        yield MessageFacts(self.choices, self._tabs)
        yield AnswerLine()
        yield MessageKeys()

    def on_mount(self) -> None:
        self.show(self._newest())
        self._ask()

    def on_screen_resume(self) -> None:
        """Show the news that arrived meanwhile."""
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Pass the view and the choices to every part; read again after the outcome of an act."""
        if view.outcomes is not self._outcomes:
            self._outcomes = view.outcomes
            self.choices = replace(self.choices, marks=frozenset(), is_looking=True)
            self._ask()
        for part in self.query(Lines):
            if isinstance(part, MessageHead | MessageList | MessageFacts):
                part.choices = self.choices
            part.show(view)

    def choose(self, choices: MessageChoices, *, ask: bool = False) -> None:
        """Show other choices; `ask`: the engine, for the messages."""
        is_other = choices.tab != self.choices.tab
        self.choices = choices
        if is_other:
            self.query_one(MessageList).scroll_to(y=0, animate=False, force=True)
        self.show(self._newest())
        if ask:
            self._ask()

    # -- asking --------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self.run_worker(self._look(self.choices), group="look", exclusive=True)

    async def _look(self, asked: MessageChoices) -> None:
        try:
            page = await self._acts.source.look_at_messages(
                asked.tab.path,
                asked.tab.kind,
                from_number=asked.starts[-1][0],
                wanted_id=asked.wanted_id,
                by=self._acts.by,
            )
        except ControlError as error:
            self.choose(replace(self.choices, page=None, trouble=str(error), is_looking=False))
        else:
            self.choose(state.with_page(self.choices, page))

    # -- keys ----------------------------------------------------------------------------------------------------

    def action_move(self, steps: int) -> None:
        self.choose(state.move(self.choices, steps))

    def action_move_screens(self, screens: int) -> None:
        """Move by a screen of rows; beyond the end of a page, turn it."""
        rows = max(1, self.query_one(MessageList).size.height - 1)
        moved = state.move(self.choices, screens * rows)
        if moved.selected == self.choices.selected or not self.choices.listed:
            self.action_turn(screens)
        else:
            self.choose(moved)

    def action_turn(self, pages: int) -> None:
        """Ask for the next or the previous page."""
        turned = state.following_page(self.choices) if pages > 0 else state.previous_page(self.choices)
        if turned is not None and not self.choices.is_looking:
            self.choose(turned, ask=True)

    def action_switch(self, steps: int) -> None:
        """Show another part of the queue, or an unused queue."""
        self.choose(state.next_tab(self.choices, self._tabs, steps), ask=True)

    def action_read_again(self) -> None:
        self.choose(replace(self.choices, is_looking=True, trouble=""), ask=True)

    def action_open(self) -> None:
        row = self.choices.row
        if row is not None:
            self.app.push_screen(
                MessageScreen(self._newest, self._acts.source, self.choices.tab, row, by=self._acts.by)
            )

    def action_filter(self) -> None:
        before = self.choices.filter

        def typed(words: str | None) -> None:
            self.choose(state.with_filter(self.choices, before if words is None else words))

        self.app.push_screen(Prompt("filter", before, changed=typed), typed)

    def action_find(self) -> None:
        """Ask for a part of an id, and have the engine look for it from the start of the queue."""

        def typed(words: str | None) -> None:
            if words is not None:
                tab = self.choices.tab
                marks = self.choices.marks
                self.choose(MessageChoices(tab=tab, wanted_id=words.strip(), is_looking=True, marks=marks), ask=True)

        self.app.push_screen(Prompt("find id", self.choices.wanted_id), typed)

    def action_mark(self) -> None:
        """Mark the selected message, where marked ones can be acted on."""
        if reason := state.why_no_redrive(self.choices):
            self._acts.refuse(f"not possible: {reason}")
        else:
            self.choose(state.toggle_mark(self.choices))

    def action_mark_listed(self) -> None:
        """Mark every listed message."""
        if reason := state.why_no_redrive(self.choices):
            self._acts.refuse(f"not possible: {reason}")
        else:
            self.choose(state.mark_listed(self.choices))

    def action_unmark(self) -> None:
        self.choose(replace(self.choices, marks=frozenset()))

    def action_redrive(self) -> None:
        """Ask the question of the order, or say why it is not possible."""
        if reason := state.why_no_redrive(self.choices):
            self._acts.refuse(f"not possible: {reason}")
        else:
            self._acts.redrive(self.choices.tab.index, self.choices.chosen)

    def action_menu(self) -> None:
        """Show the acts on the messages."""
        self._acts.menu(self.choices.tab.index, self.choices.chosen, state.why_no_redrive(self.choices))

    def action_copy(self) -> None:
        row = self.choices.row
        if row is not None:
            self._acts.copy(*_copied(row))

    def action_help(self) -> None:
        self._acts.show_help()

    def action_leave(self) -> None:
        """Remove filter, search or marks; without them, close."""
        if self.choices.filter:
            self.choose(state.with_filter(self.choices, ""))
        elif self.choices.wanted_id:
            self.choose(MessageChoices(tab=self.choices.tab, is_looking=True), ask=True)
        elif self.choices.marks:
            self.action_unmark()
        else:
            self.dismiss(None)


def _copied(row: MessageRow) -> tuple[str, str]:
    return ("message id", row.message_id) if row.message_id else ("sequence number", str(row.number))


class MessageKeys(Lines):
    """The keys of the list. One that is impossible now is grey and in brackets."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        screen = self.screen
        assert isinstance(screen, MessagesScreen), "only the list has it"
        choices = screen.choices
        more = choices.page is not None and bool(choices.page.next_number)
        can_redrive = not state.why_no_redrive(choices)
        marked = f" {len(choices.marks):,} marked" if choices.marks else ""
        keys = (
            ("enter", "open", choices.row is not None),
            ("tab", "part", True),
            ("/", "filter", True),
            ("f", "find id", True),
            ("space", "mark", can_redrive),
            ("R", f"re-drive{marked}", can_redrive),
            ("x", "acts", True),
            ("→", "next page", more),
            ("r", "read again", True),
            ("y", "copy id", choices.row is not None),
            ("esc", "back", True),
        )
        return (key_line(keys, width),)


def key_line(keys: Sequence[tuple[str, str, bool]], width: int) -> Line:
    """Return keys with their labels, as many as fit whole, the last one always."""
    spans: list[Span] = []
    *others, last = keys
    room = width - len(f" {last[0]} {last[1]} ")
    for key, label, possible in others:
        cells = len(key) + len(label) + 3 + (0 if possible else 1)
        if cells > room:
            continue
        room -= cells
        spans += _key(key, label, possible=possible)
    return Line(cut([*spans, *_key(*last[:2], possible=last[2])], width))


def _key(key: str, label: str, *, possible: bool) -> list[Span]:
    if possible:
        return [Span(f" {key}", Role.KEY), Span(f" {label} ")]
    return [Span(f" ({key} {label})", Role.MUTED)]

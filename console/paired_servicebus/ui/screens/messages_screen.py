"""The messages of a backlog queue: a page of rows by peek, over the page of the backlog.

Small letters only look. `R` and the menu ask before an act on the marked messages, or on the selected one. A look that
is superseded is cancelled; the engine bounds it anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import ClassVar, Final

from rich.cells import cell_len, chop_cells
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.message_view import MessageContent, MessagePage, MessageRow
from paired_servicebus.core.text.number_format import plural, size
from paired_servicebus.core.text.time_format import age
from paired_servicebus.core.text.untrusted_text import escape_json, harmless
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.engines.message_export import export_messages, export_name
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, rule, wrap
from paired_servicebus.ui.screens.new_file import Write
from paired_servicebus.ui.screens.question_dialog import Prompt
from paired_servicebus.ui.state import message_choices as state
from paired_servicebus.ui.state.message_choices import MessageChoices, MessageTab
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.frame.page_lines import AnswerLine, HeaderLine, SummaryLines
from paired_servicebus.ui.widgets.message_list import MessageFacts, MessageHead, MessageList

# The body of a message as lines: as text, as indented JSON, or as bytes in hex. Control characters never pass.
#
# Lines are computed once for a width. A body comes from a stranger and is cut by the engine, so JSON may be incomplete.

MAX_LINES: Final = 20_000
"""Lines of one body."""
HEX_BYTES: Final = 16
WIDE_HEX_BYTES: Final = 32
WIDE_HEX_FROM: Final = 140
"""Cells from which a line has WIDE_HEX_BYTES."""


class BodyForm(StrEnum):
    """How a body is shown."""

    TEXT = "text"
    JSON = "JSON"
    HEX = "hex"


def best_form(body: bytes) -> BodyForm:
    """Return the form in which a body is easiest to read."""
    text = as_text(body)
    if text is None:
        return BodyForm.HEX
    return BodyForm.JSON if as_json(body) is not None and text.lstrip()[:1] in ("{", "[") else BodyForm.TEXT


def as_text(body: bytes) -> str | None:
    """Return a body as text, without a character that was cut at its end; None if it is not UTF-8."""
    for missing in range(min(4, len(body) + 1)):
        try:
            return body[: len(body) - missing].decode()
        except UnicodeDecodeError as error:
            if error.start < len(body) - 4:
                return None
    return None


def as_json(body: bytes) -> str | None:
    """Return a body as indented JSON; None if it is not JSON."""
    try:
        return escape_json(json.dumps(json.loads(body), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def body_lines(body: bytes, form: BodyForm, width: int) -> tuple[list[str], str]:
    """Return a body's lines in at most `width` cells, and why it is not in this form; empty if it is."""
    if form is BodyForm.HEX:
        return _hex(body, width), ""
    if form is BodyForm.JSON:
        text = as_json(body)
        if text is not None:
            return _wrapped(text, width), ""
        reason = "not valid JSON, or not all of it is here"
        plain = as_text(body)
        return (_wrapped(plain, width) if plain is not None else _hex(body, width)), reason
    plain = as_text(body)
    if plain is not None:
        return _wrapped(plain, width), ""
    return _wrapped(body.decode("utf-8", "replace"), width), "not UTF-8: \ufffd stands for each byte that is no text"


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for written in text.splitlines():
        shown = harmless(written.replace("\t", "    "))
        lines += chop_cells(shown, max(1, width)) if cell_len(shown) > width else [shown]
        if len(lines) >= MAX_LINES:
            break
    return lines[:MAX_LINES]


def _hex(body: bytes, width: int) -> list[str]:
    number = WIDE_HEX_BYTES if width >= WIDE_HEX_FROM else HEX_BYTES if width >= 76 else 8
    lines = []
    for start in range(0, min(len(body), number * MAX_LINES), number):
        part = body[start : start + number]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * number - 1}}  {letters}")
    return lines


# One message: its properties, and its body as text, JSON or hex. The engine's audit has each look at a body.
#
# The engine sends the first part of a body only; the screen says so.

LABEL: Final = 26
COLUMNS_FROM: Final = 120
"""Cells from which the properties stand in two columns."""


class MessageScreen(Screen[None]):
    """The message. Escape closes it; arrows scroll."""

    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (24, "-low"), (32, "-tall")]  # noqa: RUF012 - as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "scroll_screens(1)", show=False),
        Binding("pageup,ctrl+b", "scroll_screens(-1)", show=False),
        Binding("ctrl+d", "scroll_screens(1)", show=False),
        Binding("ctrl+u", "scroll_screens(-1)", show=False),
        Binding("home,g", "scroll(-1000000)", show=False),
        Binding("end,G", "scroll(1000000)", show=False),
        Binding("tab", "next_form", show=False, priority=True),
        Binding("shift+tab", "next_form", show=False, priority=True),
        Binding("escape,q", "leave", show=False),
    ]
    DEFAULT_CSS = """
    MessageScreen { background: $background; }
    MessageScreen SummaryLines { height: 2; }
    MessageScreen MessageText { height: 1fr; overflow-y: scroll; scrollbar-size-vertical: 0; }
    """

    def __init__(self, newest: Newest, source: MessageSource, tab: MessageTab, row: MessageRow, *, by: str) -> None:
        super().__init__()
        self._newest = newest
        self._source = source
        self._tab = tab
        self._by = by
        self.row = row
        self.content: MessageContent | None = None
        self.trouble = ""
        self.form: BodyForm | None = None
        """None: the one that fits."""

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield SummaryLines()
        yield MessageTitle()
        yield MessageText()
        yield BodyKeys()

    def on_mount(self) -> None:
        self.show(self._newest())
        self.run_worker(self._look(), group="look", exclusive=True)

    def show(self, view: View) -> None:
        """Pass the view to every part."""
        for part in self.query(Lines):
            part.show(view)

    async def _look(self) -> None:
        try:
            self.content = await self._source.look_at_message(
                self._tab.path, self._tab.kind, self.row.number, by=self._by
            )
        except ControlError as error:
            self.trouble = str(error)
        self.show(self._newest())

    @property
    def tab(self) -> MessageTab:
        """The part of the queue that has it."""
        return self._tab

    @property
    def shown_form(self) -> BodyForm:
        """The form of the body: the chosen one, or the one that fits."""
        return self.form or best_form(self.content.body if self.content is not None else b"")

    def action_scroll(self, lines: int) -> None:
        self.query_one(MessageText).scroll_relative(y=lines, animate=False, force=True)

    def action_scroll_screens(self, screens: int) -> None:
        self.action_scroll(screens * max(1, self.query_one(MessageText).size.height - 1))

    def action_next_form(self) -> None:
        """Show the body in the next form."""
        forms = list(BodyForm)
        self.form = forms[(forms.index(self.shown_form) + 1) % len(forms)]
        self.show(self._newest())

    def action_leave(self) -> None:
        self.dismiss(None)


class _OfMessage(Lines):
    """A part of the screen of one message."""

    @property
    def message(self) -> MessageScreen:
        screen = self.screen
        assert isinstance(screen, MessageScreen), "only that screen has it"
        return screen


class MessageTitle(_OfMessage):
    """The rule with the message's id, and the age of the reading."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        message = self.message
        read_at = message.content.read_at if message.content is not None else None
        note = "not read" if message.trouble else "asking the engine …"
        if read_at is not None:
            note = f"peeked {age(max(0.0, view.now - read_at))} ago, locks nothing"
        name = message.row.message_id or f"sequence number {message.row.number}"
        return (rule(f"{message.tab.name} › {name}", width, note=Span(note, Role.MUTED)),)


class MessageText(_OfMessage):
    """Properties, then the body."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        message, content = self.message, self.message.content
        if message.trouble:
            return [BLANK, *[_indented(text, Role.FAILED_OVER) for text in wrap(message.trouble, width - 4, lines=3)]]
        if content is None:
            return [BLANK, _indented("asking the engine for the message …", Role.MUTED)]
        return [*_properties(content, width), BLANK, *_body(content, message.shown_form, width)]


def _indented(text: str, role: Role) -> Line:
    return line(Span(f"  {text}", role))


def _properties(content: MessageContent, width: int) -> list[Line]:
    """Return the row's facts and the properties, in two columns if there is room."""
    row = content.row
    pairs = [
        ("destination", row.destination or "unknown"),
        ("reason", row.reason),
        ("sequence number", str(row.number)),
        *content.properties,
    ]
    pairs = [pair for pair in pairs if pair[1]]
    if width < COLUMNS_FROM:
        return [Line(cut(_pair(pair, width), width)) for pair in pairs]
    half, rows = width // 2, (len(pairs) + 1) // 2
    lines = []
    for left, right in zip(pairs[:rows], [*pairs[rows:], ("", "")], strict=False):
        lines.append(Line(cut([*_pair(left, half - 2), Span("  "), *_pair(right, width - half)], width)))
    return lines


def _pair(pair: tuple[str, str], width: int) -> list[Span]:
    label = min(LABEL, width // 3)
    name, value = fit(pair[0], label - 1), fit(pair[1], max(0, width - label - 2))
    return [Span(f" {name} ", Role.MUTED), Span(f"{value} ")]


def _body(content: MessageContent, form: BodyForm, width: int) -> list[Line]:
    """Return the rule with the body's size, what is missing of it, and its lines."""
    shown = len(content.body)
    note = "all of it" if shown == content.body_size else f"the first {shown:,} of {content.body_size:,} bytes"
    if content.body_size and not shown:
        return [rule(f"body {size(content.body_size)}", width), _indented(content.body_note, Role.SUSPECT)]
    if not shown:
        return [rule("body", width), _indented(content.body_note or "empty", Role.MUTED)]
    found, trouble = body_lines(content.body, form, width - 2)
    remarks = [text for text in (content.body_note, trouble) if text]
    return [
        rule(f"body {size(content.body_size)}, as {form}", width, note=Span(note, Role.MUTED)),
        *[_indented(text, Role.SUSPECT) for text in remarks],
        *[line(f" {text}") for text in found],
    ]


class BodyKeys(_OfMessage):
    """The keys of one message."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        forms = [f"[{form}]" if form is self.message.shown_form else f"{form}" for form in BodyForm]
        spans = [
            Span(" ↑↓ PgDn", Role.KEY),
            Span(" scroll  "),
            Span("tab", Role.KEY),
            Span(f" {' '.join(forms)}  "),
            Span("esc", Role.KEY),
            Span(" back"),
        ]
        return (Line(cut(spans, width)),)


ALL_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageActs:
    """What the list can have the app do.

    redrive: asks before it re-drives dead letters of a queue, by index and sequence numbers. menu: the same and other
    acts, to pick from; with the reason why not, or empty. answer: shows an outcome; `good=False`: why not. save: asks
    for a new file's name, and writes it.
    """

    source: MessageSource
    by: str
    redrive: Callable[[str, Sequence[int]], None]
    menu: Callable[[str, Sequence[int], str], None]
    answer: Callable[..., None]
    copy: Callable[[str, str], None]
    save: Callable[[str, str, Write], None]
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
        Binding("slash", "search", show=False),
        Binding("e", "export", show=False),
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

    HEAD: ClassVar[tuple[type[Widget], ...]] = (HeaderLine, SummaryLines)

    def __init__(self, newest: Newest, acts: MessageActs, tabs: tuple[MessageTab, ...]) -> None:
        super().__init__()
        self._newest = newest
        self._acts = acts
        self._tabs = tabs
        self._outcomes = newest().outcomes
        self.choices = MessageChoices(tab=state.first_tab(newest(), self._tabs), is_looking=True)

    def compose(self) -> ComposeResult:
        yield from (part() for part in self.HEAD)
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
        """Ask for a page; of a search, until it is full, at its end, or at its bound."""
        page = await self._look_from(asked, asked.starts[-1][0])
        if page is not None:
            self.choose(state.with_page(self.choices, page))
        while page is not None and page.next_number and state.goes_on(self.choices):
            self.choose(replace(self.choices, is_looking=True))
            page = await self._look_from(asked, page.next_number)
            if page is not None:
                self.choose(state.with_more(self.choices, page))

    async def _look_from(self, asked: MessageChoices, number: int) -> MessagePage | None:
        tab = asked.tab
        try:
            return await self._acts.source.look_at_messages(
                tab.path, tab.kind, from_number=number, wanted=asked.wanted, by=self._acts.by
            )
        except ControlError as error:
            self.choose(replace(self.choices, page=None, trouble=str(error), is_looking=False))
            return None

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

    def action_search(self) -> None:
        """Ask for a text or JSON path: typed, it narrows the page; with enter, the whole queue is searched."""

        def narrowed(words: str) -> None:
            self.choose(state.with_filter(self.choices, words))

        def typed(words: str | None) -> None:
            if words is None:
                narrowed("")
            elif words.strip() != self.choices.wanted or self.choices.filter:
                self.choose(state.search(self.choices, words), ask=True)

        self.app.push_screen(
            Prompt("search (text or $.json.path = value)", self.choices.wanted, changed=narrowed), typed
        )

    def action_export(self) -> None:
        """Write the marked messages into a new file, or the selected one."""
        numbers, tab = self.choices.chosen, self.choices.tab
        look = partial(self._acts.source.look_at_message, tab.path, tab.kind, by=self._acts.by)
        if numbers:
            write = partial(export_messages, numbers=numbers, look=look, queue=tab.path, kind=tab.kind)
            self._acts.save(plural(len(numbers), "message"), export_name(self._newest().clock), write)

    def action_mark(self) -> None:
        """Mark the selected message."""
        self.choose(state.toggle_mark(self.choices))

    def action_mark_listed(self) -> None:
        """Mark every listed message."""
        self.choose(state.mark_listed(self.choices))

    def action_unmark(self) -> None:
        self.choose(replace(self.choices, marks=frozenset()))

    def action_redrive(self) -> None:
        """Ask the question of the order, or say why it is not possible."""
        if reason := state.why_no_redrive(self.choices):
            self._acts.answer(f"not possible: {reason}", good=False)
        else:
            self._acts.redrive(self.choices.tab.index, self.choices.chosen)

    def action_menu(self) -> None:
        """Show the acts on the messages."""
        self._acts.menu(self.choices.tab.index, self.choices.chosen, state.why_no_redrive(self.choices))

    def own_keys(self, marked: str, *, can_redrive: bool) -> Sequence[tuple[str, str, bool]]:
        """Return the keys that change something, for the key line."""
        return (("R", f"re-drive{marked}", can_redrive), ("x", "acts", True))

    def action_copy(self) -> None:
        row = self.choices.row
        if row is not None:
            self._acts.copy(*_copied(row))

    def action_help(self) -> None:
        self._acts.show_help()

    def action_leave(self) -> None:
        """Stop a search; else remove search or marks; without them, close."""
        if self.choices.wanted and self.choices.is_looking and self.choices.page is not None:
            self.workers.cancel_group(self, "look")
            self.choose(replace(self.choices, is_looking=False))
        elif self.choices.wanted:
            self.choose(state.search(self.choices, ""), ask=True)
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
            ("/", "search", True),
            ("space", "mark", choices.row is not None),
            ("e", f"export{marked}", choices.row is not None),
            *screen.own_keys(marked, can_redrive=can_redrive),
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

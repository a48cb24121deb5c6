"""The messages of a backlog queue: a page of rows by peek, over the page of the backlog; and one message.

Small letters only look. `R` and the menu ask before an act on the marked messages, or on the selected one. A look that
is superseded is cancelled; the engine bounds it anyway. Ages are those at the reading, so that a list at rest costs a
terminal nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import ClassVar, Final, Protocol, cast

from rich.cells import cell_len, chop_cells
from textual.binding import Binding, BindingType
from textual.widget import Widget

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.message_view import (
    MAX_SEARCHED,
    MessageContent,
    MessageKind,
    MessagePage,
    MessageRow,
    by_destination,
)
from paired_servicebus.core.text.number_format import NOT_KNOWN, plural, size
from paired_servicebus.core.text.time_format import age, day_and_clock
from paired_servicebus.core.text.untrusted_text import escape_json, harmless
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.engines.message_export import export_messages, export_name
from paired_servicebus.ui.render.spans import (
    BLANK,
    Column,
    Line,
    Role,
    Span,
    cut,
    fact,
    fit,
    fit_name,
    line,
    pack,
    paragraph,
    rule,
)
from paired_servicebus.ui.screens.questions import Prompt, Write
from paired_servicebus.ui.state import message_choices as state
from paired_servicebus.ui.state.message_choices import MessageChoices, MessageTab, number_in
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import LazyLines, Lines, LinesScreen
from paired_servicebus.ui.widgets.frame.page_lines import AnswerLine, HeaderLine, SummaryLines

MARK: Final = 2
LABEL: Final = 13
NO_DESTINATION: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumn(Column[MessageRow, float]):
    """One column, with its least width. share: its part of the free width; most: cells at most, 0: any number."""

    share: int = 0
    most: int = 0
    is_name: bool = False
    """Whether it is cut in the middle."""


def _waits(row: MessageRow, read_at: float) -> Span:
    return Span(NOT_KNOWN if row.enqueued_at is None else age(max(0.0, read_at - row.enqueued_at)))


def _tries(row: MessageRow, _: float) -> Span:
    text = NOT_KNOWN if row.deliveries is None else f"{row.deliveries:,}"
    return Span(text, Role.SUSPECT if row.is_poison else Role.TEXT)


def note_of(row: MessageRow) -> str:
    """Return what is special about a message; empty if nothing is."""
    return " · ".join(filter(None, ("poison?" if row.is_poison else "", row.state, row.reason)))


def _destination(row: MessageRow, _: float) -> Span:
    return Span(row.destination) if row.destination else Span(NO_DESTINATION, Role.SUSPECT)


C = MessageColumn
COLUMNS: Final = (
    C(title="number", width=6, draw=lambda row, _: Span(str(row.number), Role.MUTED)),
    C(title="destination", width=11, align="left", share=3, most=60, is_name=True, draw=_destination),
    C(title="message id", width=10, align="left", share=4, most=64, is_name=True,
      draw=lambda row, _: Span(row.message_id or NOT_KNOWN)),
    C(title="waiting", width=7, draw=_waits),
    C(title="size", width=8, draw=lambda row, _: Span(size(row.size))),
    C(title="tries", width=5, draw=_tries),
    C(title="session", width=7, align="left", share=1, most=24, draw=lambda row, _: Span(row.session or NOT_KNOWN)),
    C(title="note", width=7, align="left", share=4, draw=lambda row, _: Span(note_of(row), Role.SUSPECT)),
)  # fmt: skip
_NARROW: Final = ("number", "session")
"""The columns that a narrow terminal does not have."""
NARROW: Final = 76


def columns_in(width: int) -> tuple[tuple[MessageColumn, int], ...]:
    """Return the columns of a terminal of that width, each with its cells."""
    shown = [column for column in COLUMNS if width >= NARROW or column.title not in _NARROW]
    free = width - MARK - sum(column.width + 1 for column in shown)
    widths: list[int] = []
    shares = sum(column.share for column in shown)
    for column in shown:
        more = max(0, free) * column.share // shares if shares else 0
        wide = column.width + more
        wide = min(wide, column.most) if column.most else wide
        free -= wide - column.width
        shares -= column.share
        widths.append(wide)
    return tuple(zip(shown, widths, strict=True))


class _MessageLines(Lines):
    """Lines about the messages."""

    @property
    def messages(self) -> MessagesScreen:
        """The screen, which has the choices."""
        screen = self.screen
        assert isinstance(screen, MessagesScreen), "only that screen has it"
        return screen

    @property
    def choices(self) -> MessageChoices:
        return self.messages.choices


class MessageHead(_MessageLines):
    """The rule with the reading, the parts of the queue, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        choices = self.choices
        kind = "dead letters" if choices.tab.kind is MessageKind.DEAD else "messages"
        titles = "".join(f"{fit(column.title, cells, column.align)} " for column, cells in columns_in(width))
        return [
            rule(f"{choices.tab.name} › {kind}", width, note=_reading(choices, view)),
            Line(cut(_tabs(choices, self.messages.tabs, view), width)),
            line(Span(" " * MARK + titles.rstrip(), Role.MUTED)),
        ]


def _tabs(choices: MessageChoices, tabs: tuple[MessageTab, ...], view: View) -> list[Span]:
    spans = [Span("  ")]
    for tab in tabs or (choices.tab,):
        number = number_in(view, tab)
        text = f"{tab.title} {NOT_KNOWN if number is None else f'{number:,}'}"
        shown = tab == choices.tab
        spans += [Span(f"[{text}]" if shown else f" {text} ", Role.TITLE if shown else Role.MUTED), Span("  ")]
    marked = f"{len(choices.marks):,}" if choices.marks else ""
    for what, words in (("marked", marked), ("filter", choices.filter), ("search", choices.wanted)):
        if words:
            spans += [Span(f"{what}: ", Role.MUTED), Span(words, Role.KEY), Span("  ")]
    return spans


def _reading(choices: MessageChoices, view: View) -> Span:
    """Return what was read, of how many, when; that it locks nothing."""
    if choices.trouble:
        return Span("not read", Role.FAILED_OVER)
    page = choices.page
    if page is None:
        return Span("asking the engine …", Role.MUTED)
    first, number = choices.starts[-1][1], number_in(view, choices.tab)
    of = f" of {number:,}" if number is not None and number >= first + page.looked_at else ""
    if choices.wanted:
        part = f"{plural(len(page.rows), 'match', 'matches')} in {first + page.looked_at:,}{of}"
        if choices.is_looking:
            return Span(f"esc stops · {part} · reads {MAX_SEARCHED:,} at most", Role.KEY)
    elif page.looked_at != len(page.rows):
        part = f"{len(page.rows):,} of {first + page.looked_at:,} peeked"
    else:
        part = f"peek {first + 1:,}–{first + page.looked_at:,}{of}" if page.looked_at else "peek found none"
    again = " · asking …" if choices.is_looking else ""
    return Span(f"{part}, read {age(max(0.0, view.now - page.read_at))} ago, locks nothing{again}", Role.MUTED)


class MessageList(_MessageLines):
    """The rows, with the selected one in sight."""

    DEFAULT_CSS = "MessageList { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        choices = self.choices
        if choices.trouble:
            return _alone(choices.trouble, width, Role.FAILED_OVER)
        page = choices.page
        if page is None:
            return _alone("asking the engine for the messages …", width)
        return _Rows(choices, page.read_at, width) if choices.listed else _alone(_none(choices, page), width)

    def show(self, view: View) -> None:
        """Show the view, with the selected row in sight."""
        super().show(view)
        self.keep_in_sight(min(self.choices.selected, max(0, len(self.choices.listed) - 1)))


def _alone(text: str, width: int, role: Role = Role.MUTED) -> list[Line]:
    """Return a sentence in the place of what is not there."""
    return [BLANK, *paragraph(text, width, role, indent=2, lines=3)]


class _Rows(LazyLines):
    """The listed messages; only those in sight are drawn."""

    def __init__(self, choices: MessageChoices, read_at: float, width: int) -> None:
        self._rows = choices.listed
        self._selected = min(choices.selected, len(self._rows) - 1)
        self._marks = choices.marks
        self._read_at = read_at
        self._columns = columns_in(width)

    def __len__(self) -> int:
        return len(self._rows)

    def line_at(self, place: int) -> Line:
        """Return the row of one message."""
        row, selected = self._rows[place], place == self._selected
        spans = [Span(("*" if row.number in self._marks else " ") + ("▸" if selected else " "), Role.KEY)]
        for column, cells in self._columns:
            drawn = column.draw(row, self._read_at)
            text = fit_name(drawn.text, cells) if column.is_name else fit(drawn.text, cells, column.align)
            spans.append(Span(f"{text} ", drawn.role))
        return line(*spans, ground=Role.SELECTED if selected else None)


def _none(choices: MessageChoices, page: MessagePage) -> str:
    """Return why no row is listed."""
    looked = f"{plural(page.looked_at, 'message')} peeked"
    more = "; page down looks further" if page.next_number else "; this is the end of the queue"
    if page.rows:
        return f"no message of this page matches “{choices.filter}”; escape removes the filter"
    if choices.wanted:
        return f"no message matches “{choices.wanted}”: {looked}{f'; {page.note}' if page.note else ''}{more}"
    return f"no {choices.tab.kind} messages: {looked}{more}"


class MessageFacts(_MessageLines):
    """The sums by destination, and the selected message in words."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        choices, row = self.choices, self.choices.row
        note = choices.page.note if choices.page is not None else ""
        shown = [line(Span(fit(f"  {note}", width), Role.SUSPECT)) if note else _sums(choices, width)]
        if row is None or height < 2:
            return shown
        at = "unknown" if row.enqueued_at is None else day_and_clock(row.enqueued_at)
        tries = NOT_KNOWN if row.deliveries is None else f"{row.deliveries:,}"
        facts = (
            ("destination", row.destination or f"{NO_DESTINATION}: {row.reason}"),
            ("note", note_of(row)),
            ("enqueued", f"{at} · {size(row.size)} · delivered {tries} times before"),
            ("session", row.session or "none"),
            ("state", row.state or choices.tab.kind.value),
        )
        shown.append(rule(row.message_id or "message without an id", width, note=f"sequence number {row.number}"))
        return shown + [fact(label, text, LABEL, width) for label, text in facts if text]


def _sums(choices: MessageChoices, width: int) -> Line:
    """Return the numbers by destination, of the peeked messages only."""
    page = choices.page
    if page is None or not page.rows:
        return BLANK
    parts = [(f"{name or NO_DESTINATION} {number:,}",) for name, number in by_destination(page.rows)]
    first, *others = parts
    text = pack([(f"peeked by destination: {first[0]}", *first), *[(*part, "") for part in others]], width - 2)
    return line(Span(f"  {text}", Role.MUTED))


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

PROPERTY_LABEL: Final = 26
COLUMNS_FROM: Final = 120
"""Cells from which the properties stand in two columns."""


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
        return (rule(f"{message.tab.name} › {name}", width, note=note),)


class MessageText(_OfMessage):
    """Properties, then the body."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        message, content = self.message, self.message.content
        if message.trouble:
            return _alone(message.trouble, width, Role.FAILED_OVER)
        if content is None:
            return _alone("asking the engine for the message …", width)
        return [*_properties(content, width), BLANK, *_body(content, message.shown_form, width)]


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
    label = min(PROPERTY_LABEL, width // 3)
    name, value = fit(pair[0], label - 1), fit(pair[1], max(0, width - label - 2))
    return [Span(f" {name} ", Role.MUTED), Span(f"{value} ")]


def _body(content: MessageContent, form: BodyForm, width: int) -> list[Line]:
    """Return the rule with the body's size, what is missing of it, and its lines."""
    shown = len(content.body)
    note = "all of it" if shown == content.body_size else f"the first {shown:,} of {content.body_size:,} bytes"
    if not shown:
        title, role = (f"body {size(content.body_size)}", Role.SUSPECT) if content.body_size else ("body", Role.MUTED)
        return [rule(title, width), *paragraph(content.body_note or "empty", width, role, indent=2)]
    found, trouble = body_lines(content.body, form, width - 2)
    remarks = (row for text in (content.body_note, trouble) for row in paragraph(text, width, Role.SUSPECT, indent=2))
    head = rule(f"body {size(content.body_size)}, as {form}", width, note=note)
    return [head, *remarks, *[line(f" {text}") for text in found]]


class BodyKeys(_OfMessage):
    """The keys of one message."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        forms = " ".join(f"[{form}]" if form is self.message.shown_form else f"{form}" for form in BodyForm)
        return (key_line((("↑↓ PgDn", "scroll", True), ("tab", forms, True), ("esc", "back", True)), width),)


class MessageScreen(LinesScreen):
    """The message. Escape closes it; arrows scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,ctrl+f,space,ctrl+d", "scroll_screens(1)", show=False),
        Binding("pageup,ctrl+b,ctrl+u", "scroll_screens(-1)", show=False),
        Binding("home,g", "scroll(-1000000)", show=False),
        Binding("end,G", "scroll(1000000)", show=False),
        Binding("tab,shift+tab", "next_form", show=False, priority=True),
        Binding("escape,q", "leave", show=False),
    ]
    DEFAULT_CSS = """
    MessageScreen { background: $background; }
    MessageScreen SummaryLines { height: 2; }
    MessageScreen MessageText { height: 1fr; overflow-y: scroll; scrollbar-size-vertical: 0; }
    """

    PARTS = (HeaderLine, SummaryLines, MessageTitle, MessageText, BodyKeys)

    def __init__(self, newest: Newest, source: MessageSource, tab: MessageTab, row: MessageRow, *, by: str) -> None:
        super().__init__(newest)
        self._source = source
        self._by = by
        self.tab = tab
        self.row = row
        self.content: MessageContent | None = None
        self.trouble = ""
        self.form: BodyForm | None = None
        """None: the one that fits."""

    def on_mount(self) -> None:
        self.run_worker(self._look(), group="look", exclusive=True)

    async def _look(self) -> None:
        try:
            look = self._source.look_at_message
            self.content = await look(self.tab.path, self.tab.kind, self.row.number, by=self._by)
        except ControlError as error:
            self.trouble = str(error)
        self.show(self._newest())

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


ALL_ROWS: Final = 1_000_000


class MessageKeys(_MessageLines):
    """The keys of the list. One that is impossible now is grey and in brackets."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        choices = self.choices
        more = choices.page is not None and bool(choices.page.next_number)
        can_redrive = not state.why_no_redrive(choices)
        marked = f" {len(choices.marks):,} marked" if choices.marks else ""
        keys = (
            ("enter", "open", choices.row is not None),
            ("tab", "part", True),
            ("/", "search", True),
            ("space", "mark", choices.row is not None),
            ("e", f"export{marked}", choices.row is not None),
            *self.messages.own_keys(marked, can_redrive=can_redrive),
            ("→", "next page", more),
            ("r", "read again", True),
            ("y", "copy id", choices.row is not None),
            ("esc", "back", True),
        )
        return (key_line(keys, width),)


class MessageApp(Protocol):
    """The app of a list of messages."""

    @property
    def source(self) -> MessageSource: ...
    @property
    def by(self) -> str: ...

    def answer(self, text: str, *, good: bool) -> None: ...
    def copy_text(self, label: str, text: str) -> None: ...
    def ask_new_file(self, what: str, name: str, write: Write) -> None: ...
    def show_help(self) -> None: ...
    def redrive(self, index: str, numbers: Sequence[int]) -> None: ...
    def show_message_menu(self, index: str, numbers: Sequence[int], why_not: str) -> None: ...


class MessagesScreen(LinesScreen):
    """The list. Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown,ctrl+f,ctrl+d", "move_screens(1)", show=False),
        Binding("pageup,ctrl+b,ctrl+u", "move_screens(-1)", show=False),
        Binding("space", "mark", show=False),
        Binding("a", "mark_listed", show=False),
        Binding("u", "unmark", show=False),
        Binding("x", "menu", show=False),
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

    LIST: ClassVar[tuple[type[Widget], ...]] = (MessageHead, MessageList, MessageFacts, AnswerLine, MessageKeys)
    PARTS = (HeaderLine, SummaryLines, *LIST)

    def __init__(self, newest: Newest, tabs: tuple[MessageTab, ...]) -> None:
        super().__init__(newest)
        self.tabs = tabs
        self._outcomes = newest().outcomes
        self.choices = MessageChoices(tab=state.first_tab(newest(), tabs), is_looking=True)

    def on_mount(self) -> None:
        self._ask()

    def show(self, view: View) -> None:
        """Pass the view to every part; read again after the outcome of an act."""
        if view.outcomes is not self._outcomes:
            self._outcomes = view.outcomes
            self.choices = replace(self.choices, marks=frozenset(), is_looking=True)
            self._ask()
        super().show(view)

    def choose(self, choices: MessageChoices, *, ask: bool = False) -> None:
        """Show other choices; `ask`: the engine, for the messages."""
        is_other = choices.tab != self.choices.tab
        self.choices = choices
        if is_other:
            self.query_one(MessageList).scroll_to(y=0, animate=False, force=True)
        self.show(self._newest())
        if ask:
            self._ask()

    @property
    def acts(self) -> MessageApp:
        """What can be done from the list."""
        return cast(MessageApp, self.app)

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
            return await self.acts.source.look_at_messages(
                tab.path, tab.kind, from_number=number, wanted=asked.wanted, by=self.acts.by
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
        turned = state.turn_page(self.choices, pages)
        if turned is not None and not self.choices.is_looking:
            self.choose(turned, ask=True)

    def action_switch(self, steps: int) -> None:
        """Show another part of the queue, or an unused queue."""
        self.choose(state.next_tab(self.choices, self.tabs, steps), ask=True)

    def action_read_again(self) -> None:
        self.choose(replace(self.choices, is_looking=True, trouble=""), ask=True)

    def action_open(self) -> None:
        row = self.choices.row
        if row is not None:
            self.app.push_screen(MessageScreen(self._newest, self.acts.source, self.choices.tab, row, by=self.acts.by))

    def action_search(self) -> None:
        """Ask for a text or JSON path: typed, it narrows the page; with enter, the whole queue is searched."""

        def narrowed(words: str) -> None:
            self.choose(replace(self.choices, filter=words, selected=0))

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
        look = partial(self.acts.source.look_at_message, tab.path, tab.kind, by=self.acts.by)
        if numbers:
            write = partial(export_messages, numbers=numbers, look=look, queue=tab.path, kind=tab.kind)
            self.acts.ask_new_file(plural(len(numbers), "message"), export_name(self._newest().clock), write)

    def action_mark(self) -> None:
        """Mark the selected message."""
        self.choose(state.toggle_mark(self.choices))

    def action_mark_listed(self) -> None:
        """Mark every listed message."""
        listed = {row.number for row in self.choices.listed}
        self.choose(replace(self.choices, marks=self.choices.marks | listed))

    def action_unmark(self) -> None:
        self.choose(replace(self.choices, marks=frozenset()))

    def action_redrive(self) -> None:
        """Ask the question of the order, or say why it is not possible."""
        if reason := state.why_no_redrive(self.choices):
            self.acts.answer(f"not possible: {reason}", good=False)
        else:
            self.acts.redrive(self.choices.tab.index, self.choices.chosen)

    def action_menu(self) -> None:
        """Show the acts on the messages."""
        self.acts.show_message_menu(self.choices.tab.index, self.choices.chosen, state.why_no_redrive(self.choices))

    def own_keys(self, marked: str, *, can_redrive: bool) -> Sequence[tuple[str, str, bool]]:
        """Return the keys that change something, for the key line."""
        return (("R", f"re-drive{marked}", can_redrive), ("x", "acts", True))

    def action_copy(self) -> None:
        row = self.choices.row
        if row is not None:
            self.acts.copy_text(*_copied(row))

    def action_help(self) -> None:
        self.acts.show_help()

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

"""One message: its properties, and its body as text, JSON or hex. The engine's audit has each look at a body.

The engine sends the first part of a body only; the screen says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.message_view import MessageContent, MessageRow
from paired_servicebus.core.text.number_format import size
from paired_servicebus.core.text.time_format import age
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.render.body_text import BodyForm, best_form, body_lines
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, rule, wrap
from paired_servicebus.ui.state.message_choices import MessageTab
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.frame.page_lines import HeaderLine, SummaryLines

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

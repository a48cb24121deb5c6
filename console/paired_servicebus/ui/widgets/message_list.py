"""The messages of a backlog queue, a row each, and the selected one in words.

Ages are those at the reading, so that a list at rest costs a terminal nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from paired_servicebus.core.model.message_view import MAX_SEARCHED, MessageKind, MessagePage, MessageRow, by_destination
from paired_servicebus.core.text.number_format import NOT_KNOWN, plural, size
from paired_servicebus.core.text.time_format import age, day_and_clock
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, fit_name, line, pack, rule, wrap
from paired_servicebus.ui.state.message_choices import MessageChoices, MessageTab, number_in
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.frame.lines_widget import LazyLines, Lines

MARK: Final = 2
LABEL: Final = 13
NO_DESTINATION: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumn:
    """One column. `share`: its part of the free width, beside its least width."""

    title: str
    width: int
    draw: Callable[[MessageRow, float], Span]
    share: int = 0
    most: int = 0
    """Cells at most; 0: any number."""
    align: Literal["left", "right"] = "left"
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


COLUMNS: Final[tuple[MessageColumn, ...]] = (
    MessageColumn(title="number", width=6, align="right", draw=lambda row, _: Span(str(row.number), Role.MUTED)),
    MessageColumn(
        title="destination",
        width=11,
        share=3,
        most=60,
        is_name=True,
        draw=lambda row, _: Span(row.destination) if row.destination else Span(NO_DESTINATION, Role.SUSPECT),
    ),
    MessageColumn(
        title="message id",
        width=10,
        share=4,
        most=64,
        is_name=True,
        draw=lambda row, _: Span(row.message_id or NOT_KNOWN),
    ),
    MessageColumn(title="waiting", width=7, align="right", draw=_waits),
    MessageColumn(title="size", width=8, align="right", draw=lambda row, _: Span(size(row.size))),
    MessageColumn(title="tries", width=5, align="right", draw=_tries),
    MessageColumn(title="session", width=7, share=1, most=24, draw=lambda row, _: Span(row.session or NOT_KNOWN)),
    MessageColumn(title="note", width=7, share=4, draw=lambda row, _: Span(note_of(row), Role.SUSPECT)),
)
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
    """Lines about the messages; the screen sets the choices before each view."""

    def __init__(self, choices: MessageChoices, tabs: tuple[MessageTab, ...] = ()) -> None:
        super().__init__()
        self.choices = choices
        self.tabs = tabs


class MessageHead(_MessageLines):
    """The rule with the reading, the parts of the queue, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        choices = self.choices
        kind = "dead letters" if choices.tab.kind is MessageKind.DEAD else "messages"
        titles = "".join(f"{fit(column.title, cells, column.align)} " for column, cells in columns_in(width))
        return [
            rule(f"{choices.tab.name} › {kind}", width, note=_reading(choices, view)),
            Line(cut(_tabs(choices, self.tabs, view), width)),
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
            return [
                BLANK,
                *[line(Span(f"  {text}", Role.FAILED_OVER)) for text in wrap(choices.trouble, width - 4, lines=3)],
            ]
        page = choices.page
        if page is None:
            return [BLANK, line(Span("  asking the engine for the messages …", Role.MUTED))]
        if not choices.listed:
            return [
                BLANK,
                *[line(Span(f"  {text}", Role.MUTED)) for text in wrap(_none(choices, page), width - 4, lines=2)],
            ]
        return _Rows(choices, page.read_at, width)

    def show(self, view: View) -> None:
        """Show the view, with the selected row in sight."""
        super().show(view)
        self.keep_in_sight(min(self.choices.selected, max(0, len(self.choices.listed) - 1)))


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
            return [*shown, *[BLANK] * (height - 1)][:height]
        at = "unknown" if row.enqueued_at is None else day_and_clock(row.enqueued_at)
        tries = NOT_KNOWN if row.deliveries is None else f"{row.deliveries:,}"
        facts = (
            ("destination", row.destination or f"{NO_DESTINATION}: {row.reason}"),
            ("note", note_of(row)),
            ("enqueued", f"{at} · {size(row.size)} · delivered {tries} times before"),
            ("session", row.session or "none"),
            ("state", row.state or choices.tab.kind.value),
        )
        shown.append(
            rule(
                row.message_id or "message without an id", width, note=Span(f"sequence number {row.number}", Role.MUTED)
            )
        )
        kept = [pair for pair in facts if pair[1]]
        shown += [_fact(label, text, width) for label, text in kept]
        return [*shown, *[BLANK] * (height - len(shown))][:height]


def _fact(label: str, text: str, width: int) -> Line:
    return Line(cut([Span(f" {label:<{LABEL - 1}}", Role.MUTED), Span(text)], width))


def _sums(choices: MessageChoices, width: int) -> Line:
    """Return the numbers by destination, of the peeked messages only."""
    page = choices.page
    if page is None or not page.rows:
        return BLANK
    parts = [(f"{name or NO_DESTINATION} {number:,}",) for name, number in by_destination(page.rows)]
    text = pack(
        [(f"peeked by destination: {parts[0][0]}", parts[0][0]), *[(*part, "") for part in parts[1:]]], width - 2
    )
    return line(Span(f"  {text}", Role.MUTED))

"""Lines of the screen: spans of plain text, each with a role.

A role is a meaning; a theme gives it colours (frame/lines_widget.py). Colour only repeats words and glyphs. Width is
measured in cells. `pack` fits the parts of a line to a width: a part has shorter wordings, so that no sentence is cut
while one fits. The last part is shortened first and dropped first; an empty wording makes a part optional. A span
neutralises markup and control sequences in its text: no other place needs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Literal, TypeVar

from rich.cells import cell_len, set_cell_size

from paired_servicebus.core.model.entity_state import GLYPHS, State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.text.untrusted_text import harmless

ELLIPSIS: Final = "…"
RULE: Final = "─"
SHORTEST_MIDDLE: Final = 6
"""Cells below which a name is cut at its end."""
MAX_LINES: Final = 12
"""Lines of a paragraph."""
MAX_CHARACTERS_PER_CELL: Final = 8
"""Characters that may be drawn into one cell: a letter and its combining marks."""


class Role(StrEnum):
    """The meaning of a span, or of a whole line's ground."""

    TEXT = "text"
    MUTED = "muted"
    """Less important, unavailable now, or old."""
    TITLE = "title"
    KEY = "key"
    ENVIRONMENT = "environment"
    PRODUCTION = "production"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed-over"
    FORCED = "forced"
    PINNED = "pinned"
    SELECTED = "selected"
    """Ground of the selected row."""
    STATEMENT = "statement"
    """Ground of a full-width statement."""


@dataclass(frozen=True, slots=True)
class Span:
    """Text in one role."""

    text: str
    role: Role = Role.TEXT

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", harmless(self.text))

    @property
    def width(self) -> int:
        """In cells."""
        return cell_len(self.text)


@dataclass(frozen=True, slots=True)
class Line:
    """Spans from left to right, on a ground that fills the whole line if there is one."""

    spans: tuple[Span, ...] = ()
    ground: Role | None = None

    @property
    def width(self) -> int:
        """In cells."""
        return sum(span.width for span in self.spans)

    @property
    def text(self) -> str:
        """The line without colours."""
        return "".join(span.text for span in self.spans)

    def greyed(self) -> Line:
        """Return the same words, muted."""
        return Line(tuple(Span(span.text, Role.MUTED) for span in self.spans), self.ground)


BLANK: Final = Line()


def line(*spans: Span | str, ground: Role | None = None) -> Line:
    """Return a line of spans; a bare string is plain text."""
    return Line(tuple(span if isinstance(span, Span) else Span(span) for span in spans), ground)


def fit(text: str, width: int, align: Literal["left", "right"] = "left") -> str:
    """Return the text in exactly `width` cells, cut with an ellipsis or padded."""
    longest = width * MAX_CHARACTERS_PER_CELL
    text = harmless(text if len(text) <= longest else text[:longest] + ELLIPSIS)
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + ELLIPSIS if width > 0 else ""
    padding = " " * (width - size)
    return padding + text if align == "right" else text + padding


def fit_name(name: str, width: int) -> str:
    """Return a name in exactly `width` cells, cut in the middle: long names of one family differ at their ends."""
    most = width * MAX_CHARACTERS_PER_CELL
    text = harmless(name if len(name) <= 2 * most else name[:most] + name[-most:])
    if cell_len(text) <= width or width < SHORTEST_MIDDLE:
        return fit(text, width)
    head = set_cell_size(text, (width - 1) // 2)
    tail, room = "", width - 1 - cell_len(head)
    for sign in reversed(text):
        if cell_len(sign + tail) > room:
            break
        tail = sign + tail
    return fit(head + ELLIPSIS + tail, width)


def cut(spans: Iterable[Span], width: int) -> tuple[Span, ...]:
    """Return the part of the spans that fits into `width` cells, with an ellipsis if something is missing."""
    kept: list[Span] = []
    room = width
    for span in spans:
        if span.width > room:
            if room == 0 and kept:  # the ellipsis replaces the last character kept
                span = kept.pop()
                room = span.width
                span = Span(span.text + ELLIPSIS, span.role)
            kept.append(Span(fit(span.text, room), span.role))
            break
        if span.text:
            kept.append(span)
        room -= span.width
    return tuple(kept)


def shorten(text: str, width: int) -> str:
    """Return a sentence in at most `width` cells, with its last clause, the next step, if there is room."""
    text = harmless(text)
    if cell_len(text) <= width:
        return text
    head, mark, last = text.rpartition("; ")
    room = width - cell_len(mark + last)
    whole = mark and last.count("(") == last.count(")")  # not the rest of a reason in brackets
    return fit(head, room) + mark + last if whole and room >= width // 3 else fit(text, width)


def spread(left: Iterable[Span], right: Iterable[Span], width: int, *, ground: Role | None = None) -> Line:
    """Return left and right apart in `width` cells; the left is cut if necessary, the right never."""
    right = tuple(right)
    room = max(0, width - sum(span.width for span in right))
    kept = cut(left, room - 1)
    gap = room - sum(span.width for span in kept)
    return Line((*kept, Span(" " * gap), *right), ground)


def rule(title: str, width: int, *, note: Span | str | None = None) -> Line:
    """Return a rule across the screen with a title on its left and an optional note on its right; a text is muted."""
    left = (Span(f"{RULE * 2} ", Role.MUTED), Span(title, Role.TITLE), Span(" ", Role.MUTED))
    used = sum(span.width for span in left)
    if note is None:
        return Line((*left, Span(RULE * max(0, width - used), Role.MUTED)))
    note = Span(note, Role.MUTED) if isinstance(note, str) else note
    room = max(0, width - used - 4)
    text = fit(note.text, room).rstrip()
    end = (Span(f" {text} ", note.role), Span(RULE, Role.MUTED))
    gap = max(0, width - used - sum(span.width for span in end))
    return Line((*left, Span(RULE * gap, Role.MUTED), *end))


def fact(label: str, text: str, label_cells: int, width: int, role: Role = Role.TEXT) -> Line:
    """Return a label in `label_cells` cells, and its text, cut to `width` cells."""
    return Line(cut([Span(fit(f" {label}", label_cells), Role.MUTED), Span(text, role)], width))


def wrap(text: str, width: int, *, lines: int) -> list[str]:
    """Return the text in at most `lines` lines of at most `width` cells, broken at spaces, and cut at the end."""
    words = harmless(text).split(" ")
    wrapped: list[str] = []
    while words and len(wrapped) < lines - 1:
        taken = _words_that_fit(words, width)
        wrapped.append(fit(" ".join(words[:taken]), width).rstrip())
        words = words[taken:]
    wrapped.append(fit(" ".join(words), width).rstrip())
    return [part for part in wrapped if cell_len(part)]


def paragraph(text: str, width: int, role: Role = Role.TEXT, *, indent: int = 1, lines: int = MAX_LINES) -> list[Line]:
    """Return a text as at most `lines` lines, broken at spaces, each behind `indent` spaces and with a cell free."""
    return [line(Span(" " * indent + part, role)) for part in wrap(text, max(1, width - indent - 1), lines=lines)]


def _words_that_fit(words: list[str], width: int) -> int:
    used = -1
    for count, word in enumerate(words):
        used += 1 + cell_len(word)
        if used > width:
            return max(1, count)
    return len(words)


BETWEEN: Final = " · "
MAX_NAMES: Final = 8
SHORTEST_NAME: Final = 12
"""Cells of a single name at least."""
SHORTEST_TEXT: Final = 20
STEP: Final = 4

Part = tuple[str, ...]
"""Wordings of one part, the longest first."""


def pack(parts: Sequence[Part], width: int) -> str:
    """Return the parts in at most `width` cells, each in the longest wording that leaves room for those before it."""
    chosen = [0] * len(parts)
    for place in range(len(parts) - 1, -1, -1):
        while cell_len(_joined(parts, chosen)) > width and chosen[place] + 1 < len(parts[place]):
            chosen[place] += 1
    for place in range(len(parts)):  # shortening one part by much may leave room for the others
        while chosen[place] and cell_len(_joined(parts, _longer(chosen, place))) <= width:
            chosen = _longer(chosen, place)
    text = _joined(parts, chosen)
    if cell_len(text) > width and len(parts) > 1:
        return pack(parts[:-1], width)
    return fit(text, width).rstrip()


def _longer(chosen: Sequence[int], place: int) -> list[int]:
    return [number - (index == place) for index, number in enumerate(chosen)]


def _joined(parts: Sequence[Part], chosen: Sequence[int]) -> str:
    texts = (part[number] for part, number in zip(parts, chosen, strict=True) if part)
    return BETWEEN.join(text for text in texts if text)


def shortenable(text: str, *, least: int = SHORTEST_TEXT, after: str = "") -> Part:
    """Return an untrusted text in many lengths, each followed by `after`, which is never cut."""
    text = harmless(text)
    lengths = range(cell_len(text) - STEP, least - 1, -STEP)
    return (text + after, *(fit(text, length).rstrip() + after for length in lengths))


def name_list(paths: Sequence[str], *, before: str = "") -> Part:
    """Return the names in as many wordings as there is room for: all, then fewer and the number of the others."""
    paths = [harmless(path) for path in paths]
    listed = [_listed(paths, number) for number in range(min(len(paths), MAX_NAMES), 0, -1)]
    if not listed:
        return (before,)
    rest = f" and {len(paths) - 1} more" if paths[1:] else ""
    lengths = range(cell_len(paths[0]) - STEP, SHORTEST_NAME - 1, -STEP)
    shorter = (fit_name(paths[0], length).rstrip() + rest for length in lengths)
    return tuple(before + text for text in (*listed, *shorter))


def _listed(paths: Sequence[str], number: int) -> str:
    first, left = list(paths[:number]), len(paths) - number
    if left:
        return f"{', '.join(first)} and {left:,} more"
    return ", ".join(first[:-1]) + (" and " if first[:-1] else "") + first[-1]


# The columns of a table that has one line for each row.

Row = TypeVar("Row")
Around = TypeVar("Around")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row, Around]):
    """One column. `draw` returns the text and role of a row; its second argument is the same for all rows."""

    title: str
    width: int
    draw: Callable[[Row, Around], Span]
    align: Literal["left", "right"] = "right"
    from_width: int = 0
    """Cells of the narrowest terminal that has it."""
    fleet_from: int | None = None
    """The same over a fleet; None: `from_width`."""


def columns_in(
    width: int, columns: Sequence[Column[Row, Around]], *, fleet: bool = False
) -> tuple[Column[Row, Around], ...]:
    """Return the columns of a terminal of that width, for one engine or over a fleet."""
    least = [one.from_width if one.fleet_from is None or not fleet else one.fleet_from for one in columns]
    return tuple(column for column, cells in zip(columns, least, strict=True) if width >= cells)


# The look of each state: glyph, role and meaning, as one table.


@dataclass(frozen=True, slots=True)
class StateLook:
    """A look. The greater `weight`, the earlier the state is named."""

    glyph: str
    role: Role
    weight: int
    meaning: str


LOOKS: Final[dict[State, StateLook]] = {
    State.HEALTHY: StateLook(GLYPHS[State.HEALTHY], Role.HEALTHY, 0, "sends go to the primary"),
    State.UNKNOWN: StateLook(GLYPHS[State.UNKNOWN], Role.UNKNOWN, 1, "no recent send by this engine: state unknown"),
    State.PINNED: StateLook(GLYPHS[State.PINNED], Role.PINNED, 2, "held on the primary by hand, even if it fails"),
    State.SUSPECT: StateLook(GLYPHS[State.SUSPECT], Role.SUSPECT, 3, "a send failed; fails over unless one succeeds"),
    State.FORCED: StateLook(GLYPHS[State.FORCED], Role.FORCED, 4, "sends go to the backlog by hand, until released"),
    State.FAILED_OVER: StateLook(
        GLYPHS[State.FAILED_OVER], Role.FAILED_OVER, 5, "sends go to the backlog until a ping is accepted"
    ),
}

SYPHON_LOOKS: Final[dict[SyphonStatus, StateLook]] = {
    SyphonStatus.RUNNING: StateLook("●", Role.HEALTHY, 0, "messages move from the backlog to their destinations"),
    SyphonStatus.IDLE: StateLook("○", Role.TEXT, 0, "nothing to move"),
    SyphonStatus.WAITING: StateLook("◐", Role.SUSPECT, 3, "parked messages wait for unavailable destinations"),
    SyphonStatus.PAUSED: StateLook("■", Role.FORCED, 4, "paused; parked messages wait"),
    SyphonStatus.STUCK: StateLook("▲", Role.FAILED_OVER, 5, "messages wait and none moves"),
    SyphonStatus.OFF: StateLook("–", Role.MUTED, 0, "this engine runs no syphon"),
}


def ping_mark(good: bool | None) -> Span:
    """Return a ping's outcome: a tick, a cross, or a dash if there is none."""
    if good is None:
        return Span("–", Role.MUTED)
    return Span("✓", Role.HEALTHY) if good else Span("✗", Role.FAILED_OVER)


QUIET: Final = (State.HEALTHY, State.UNKNOWN)
"""States that need no operator."""

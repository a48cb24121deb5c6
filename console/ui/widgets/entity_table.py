"""The entities: a row each, and under it why it is where it is.

How many lines an entity has depends on the room and the number of entities, not on what happens to them: with room for
all why-lines nothing ever moves. Without, the selected entity and those that are not healthy have theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, overload

from textual import events

from console.core.entity import State
from console.core.snapshot import EntityView
from console.ui.figures import count, duration, plural, rate, when
from console.ui.line import BLANK, Line, Role, Span, cut, fit, line, rule, shorten
from console.ui.states import LOOKS, ping_mark
from console.ui.view import View
from console.ui.widgets.lines import Lines

WIDEST_NAME: Final = 32
ALL_COLUMNS: Final = 132
"""From so many cells on, every column is there."""
INDENT: Final = "     "
Cell = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: `draw` gives its spans; they are cut or padded to `width` cells."""

    title: str
    width: int
    draw: Callable[[EntityView, float], Cell]
    align: Literal["left", "right"] = "left"
    from_width: int = 0
    """Shown in terminals of at least so many cells."""


def _state(entity: EntityView, _now: float) -> Cell:
    return (Span(entity.state, LOOKS[entity.state].role),)


def _since(entity: EntityView, now: float) -> Cell:
    return (Span(when(entity.since, now)),)


def _ping(entity: EntityView, now: float) -> Cell:
    mark = ping_mark(entity.last_ping_good)
    return (mark, Span(f" {when(entity.last_ping_at, now)}", Role.TEXT)) if entity.last_ping_at else (mark,)


COLUMNS: Final[tuple[Column, ...]] = (
    Column(title="state", width=11, draw=_state),
    Column(title="since", width=8, draw=_since, from_width=78),
    Column(title="route", width=10, draw=lambda it, _: (Span(it.route),)),
    Column(
        title="send/s", width=7, align="right", from_width=70, draw=lambda it, _: (Span(rate(it.sends_per_second)),)
    ),
    Column(title="last ping", width=10, draw=_ping),
    Column(
        title="next ping",
        width=9,
        from_width=100,
        draw=lambda it, now: (Span(when(it.next_ping_at, now)),),
    ),
    Column(title="accepted", width=11, align="right", from_width=112, draw=lambda it, _: (Span(count(it.accepted)),)),
    Column(title="parked", width=10, align="right", from_width=124, draw=lambda it, _: (Span(count(it.diverted)),)),
    Column(
        title="failed", width=8, align="right", from_width=ALL_COLUMNS, draw=lambda it, _: (Span(count(it.failed)),)
    ),
)


class EntityHead(Lines):
    """The rule above the table, which carries a demo's caption, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Two lines."""
        caption = view.snapshot.caption if view.snapshot else ""
        columns = columns_in(width)
        titles = [Span("    " + fit("entity", name_width(width)), Role.MUTED)]
        titles += [Span("  " + fit(column.title, column.width, column.align), Role.MUTED) for column in columns]
        return (rule(_title(view), width, note=Span(caption, Role.KEY) if caption else None), Line(tuple(titles)))


def _title(view: View) -> str:
    """How many there are, and what the person has done to the list."""
    if view.snapshot is None:
        return "entities"
    title = plural(len(view.snapshot.entities), "entity", "entities")
    if view.filter:
        title = f"{len(view.listed):,} of {title} with “{view.filter}”"
    marked = f"{len(view.marks):,} marked" if view.marks else ""
    return " · ".join(part for part in (title, view.sort, marked) if part)


class EntityTable(Lines):
    """The rows. Keeps the selected one in sight."""

    DEFAULT_CSS = "EntityTable { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Rows and why-lines, drawn when they are asked for."""
        return Rows(view, width, height)

    def show(self, view: View) -> None:
        """Shows the view and scrolls to the selection where it would be out of sight."""
        super().show(view)
        self._keep_in_sight()

    def on_resize(self, event: events.Resize) -> None:
        """Draws anew, and keeps the selection in sight."""
        super().on_resize(event)
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        rows = self._lines
        if not isinstance(rows, Rows) or not self.size.height:
            return
        first, last = rows.span_of_selection()
        top = self.scroll_offset.y
        if first < top:
            self.scroll_to(y=first, animate=False, force=True)
        elif last > top + self.size.height:
            self.scroll_to(y=last - self.size.height, animate=False, force=True)


class Rows(Sequence[Line]):
    """Every line of the table, computed one by one."""

    def __init__(self, view: View, width: int, height: int) -> None:
        self._view = view
        self._width = width
        self._entities = view.listed
        self._now = view.snapshot.at if view.snapshot else 0.0
        self._places = self._plan(height)
        """Entity and line within it, for each line of the table."""

    def _plan(self, height: int) -> list[tuple[int, int]]:
        number = len(self._entities)
        each = min(len(_PARTS), height // number) if number else 0
        if each >= 2:
            return [(entity, part) for entity in range(number) for part in range(each)]
        places: list[tuple[int, int]] = []
        for index, entity in enumerate(self._entities):
            places.append((index, 0))
            if entity.path == self._view.selected or entity.state not in (State.HEALTHY, State.UNKNOWN):
                places.append((index, 1))
        return places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Line: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Line]: ...
    def __getitem__(self, place: int | slice) -> Line | Sequence[Line]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        index, part = self._places[place]
        entity = self._entities[index]
        if part == 0:
            marked = entity.path in self._view.marks
            return _row(entity, self._now, self._width, entity.path == self._view.selected, marked=marked)
        return _PARTS[part](entity, self._now, self._width, entity.path == self._view.selected)

    def span_of_selection(self) -> tuple[int, int]:
        """First line of the selected entity, and the one after its last."""
        own = [
            place for place, (index, _) in enumerate(self._places) if self._entities[index].path == self._view.selected
        ]
        return (own[0], own[-1] + 1) if own else (0, 0)


def columns_in(width: int) -> tuple[Column, ...]:
    """The columns that a terminal of that width has."""
    return tuple(column for column in COLUMNS if width >= column.from_width)


def name_width(width: int) -> int:
    """What is left for the entity's path."""
    taken = sum(column.width + 2 for column in columns_in(width))
    return max(8, min(WIDEST_NAME, width - taken - 5))


def _row(entity: EntityView, now: float, width: int, selected: bool, *, marked: bool = False) -> Line:
    look = LOOKS[entity.state]
    spans = [
        Span(("*" if marked else " ") + ("▸" if selected else " "), Role.KEY),
        Span(f"{look.glyph} ", look.role),
        Span(fit(entity.path, name_width(width)), Role.TITLE if selected else Role.TEXT),
    ]
    for column in columns_in(width):
        cell = cut(column.draw(entity, now), column.width)
        padding = " " * (column.width - sum(span.width for span in cell))
        spans += [Span("  " + padding), *cell] if column.align == "right" else [Span("  "), *cell, Span(padding)]
    return line(*spans, ground=Role.SELECTED if selected else None)


def _why(entity: EntityView, _now: float, width: int, selected: bool) -> Line:
    quiet = entity.state in (State.HEALTHY, State.UNKNOWN)
    text = shorten(entity.why, width - len(INDENT))
    return Line((Span(INDENT + text, Role.MUTED if quiet else Role.TEXT),), Role.SELECTED if selected else None)


def _history(entity: EntityView, _now: float, width: int, selected: bool) -> Line:
    sends = [
        f"{count(entity.accepted)} accepted",
        f"{count(entity.diverted)} parked",
        f"{count(entity.failed)} failed",
    ]
    parts = [
        *(sends if width < ALL_COLUMNS else ()),
        f"{count(entity.pings_accepted)} of {plural(entity.pings_sent, 'ping')} accepted"
        if entity.pings_sent
        else "no ping",
        f"failed over {count(entity.failovers)}×, {duration(entity.seconds_failed_over)} in all"
        if entity.failovers
        else "never failed over",
    ]
    text = Span(INDENT + " · ".join(parts), Role.MUTED)
    return Line(cut([text], width), Role.SELECTED if selected else None)


def _gap(_entity: EntityView, _now: float, _width: int, _selected: bool) -> Line:
    return BLANK


_PARTS: Final[tuple[Callable[[EntityView, float, int, bool], Line], ...]] = (_row, _why, _history, _gap)

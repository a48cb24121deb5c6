"""The widgets of the table of entities: its head and its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rich.cells import cell_len
from textual import events

from paired_servicebus.core.gateway.gateway_sentences import senders_text
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView
from paired_servicebus.core.text.number_format import count, duration, plural, rate
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import (
    BETWEEN,
    BLANK,
    MAX_NAMES,
    Line,
    Role,
    Span,
    cut,
    fit,
    line,
    name_list,
    pack,
    rule,
    shorten,
    spread,
)
from paired_servicebus.ui.render.state_looks import LOOKS, QUIET
from paired_servicebus.ui.state.folded_rows import TableRows, needs_eyes
from paired_servicebus.ui.state.row_order import SORTS, WORST_FIRST, by_state, groups_of
from paired_servicebus.ui.state.situation import why_now
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.entities.entity_columns import (
    ALL_COLUMNS,
    columns_in,
    fleet_width,
    name_width,
    next_change,
    state,
)
from paired_servicebus.ui.widgets.entities.fleet_rows import FleetRows, fleet_of
from paired_servicebus.ui.widgets.frame.attach_steps import attach_lines
from paired_servicebus.ui.widgets.frame.lines_widget import LazyLines, Lines

# The lines of the table of entities, computed on demand.
#
# If all why-lines fit, each entity has its own. Otherwise the selected one has, and those that are not quiet while they
# all fit, else the worst of them that leave every row in sight; from WHY_FOR_ALL cells on all where not every row is.
# The quiet ones share a line while they are folded (folded_rows.py). The last line counts rows out of sight, by state
# if they are not healthy.

# The lines of one entity: its row, the reason of its state, and its past.

INDENT: Final = "     "


def row_line(
    entity: EntityView,
    now: float,
    width: int,
    selected: bool,
    *,
    marked: bool = False,
    fleet: FleetRows | None = None,
) -> Line:
    look = fleet.look(entity) if fleet is not None else LOOKS[entity.state]
    spans = [
        Span(("*" if marked else " ") + ("▸" if selected else " "), Role.KEY),
        Span(f"{look.glyph} ", look.role),
        Span(fit(entity.path, name_width(width, fleet=fleet is not None)), Role.TITLE if selected else Role.TEXT),
    ]
    spans += [Span("  "), fleet.cell(entity, fleet_width(width))] if fleet is not None else []
    for column in columns_in(width, fleet=fleet is not None):
        cell = cut(column.draw(entity, now), column.width)
        padding = " " * (column.width - sum(span.width for span in cell))
        spans += [Span("  " + padding), *cell] if column.align == "right" else [Span("  "), *cell, Span(padding)]
    return line(*spans, ground=Role.SELECTED if selected else None)


def why_line(entity: EntityView, now: float, width: int, selected: bool, *, fleet: FleetRows | None = None) -> Line:
    differing = fleet.differing(entity) if fleet is not None else ()
    quiet = entity.state in QUIET and not differing
    room = width - len(INDENT)
    before = f"{pack((differing,), room // 2)} · here: " if differing else ""
    in_column = next_change in [column.draw for column in columns_in(width, fleet=fleet is not None)]
    clients, why = senders_text(entity), why_now(entity, now, counts_down=not in_column)
    if clients and (quiet or cell_len(f"{before}{clients} · {why}") <= room):  # an outage's reason comes first
        before += f"{clients} · "
    text = before + shorten(why, room - cell_len(before))
    return Line((Span(INDENT + text, Role.MUTED if quiet else Role.TEXT),), Role.SELECTED if selected else None)


def _history(entity: EntityView, _now: float, width: int, selected: bool) -> Line:
    sends = [
        f"{count(entity.accepted)} accepted",
        f"{count(entity.diverted)} diverted",
        f"{count(entity.failed)} failed",
    ]
    parts = [
        *(sends if width < ALL_COLUMNS else ()),
        f"{count(entity.pings_accepted)} of {plural(entity.pings_sent, 'ping')} accepted"
        if entity.pings_sent
        else "no ping",
        f"failed over {count(entity.failovers)}×, {duration(entity.seconds_failed_over)} total"
        if entity.failovers
        else "never failed over",
    ]
    text = Span(INDENT + " · ".join(parts), Role.MUTED)
    return Line(cut([text], width), Role.SELECTED if selected else None)


def _gap(_entity: EntityView, _now: float, _width: int, _selected: bool) -> Line:
    return BLANK


PARTS: Final[tuple[Callable[[EntityView, float, int, bool], Line], ...]] = (row_line, why_line, _history, _gap)


WHY_FOR_ALL: Final = 120
"""Cells from which every unwell entity has its why-line where rows are out of sight anyway."""
WIDE_HINT: Final = 80
"""Cells from which the fold names its key."""


class EntityRows(LazyLines):
    """The lines of the table."""

    def __init__(self, view: View, width: int, height: int) -> None:
        self._view = view
        self._width = width
        self._table = view.rows
        self._rows = _with_fold(self._table)
        self._now = view.now
        self._fleet = fleet_of(view)
        self._places = self._plan(height)
        """Row and line within it, for each line of the table."""
        self.overflows = len(self._places) > height
        """Whether rows are out of sight, which the last visible line counts."""
        self.height = max(1, height - 1) if self.overflows else height
        """Visible lines."""

    def _plan(self, height: int) -> list[tuple[int, int]]:
        number = len(self._rows)
        each = min(len(PARTS), height // number) if number else 0
        if each >= 2:
            return [(row, part) for row in range(number) for part in range(each if self._rows[row] else 1)]
        unwell = [entity for entity in self._table.entities if self._needs_eyes(entity)]
        every, rows = self._with_why(unwell), self._with_why(())
        if len(every) <= height or 2 * len(unwell) < height:
            return every
        if len(rows) <= height:
            others = [entity for entity in unwell if entity.path != self._view.selected]
            return self._with_why(others[: height - len(rows)])
        return every if self._width >= WHY_FOR_ALL else rows

    def _needs_eyes(self, entity: EntityView) -> bool:
        return needs_eyes(entity) or (self._fleet is not None and self._fleet.is_unwell(entity))

    def _is_selected(self, row: EntityView | None) -> bool:
        return self._view.on_fold if row is None else row.path == self._view.selected

    def _with_why(self, wanted: Sequence[EntityView]) -> list[tuple[int, int]]:
        """Return a line for each row, and a why-line for the selected entity and the wanted ones."""
        paths = {self._view.selected, *(entity.path for entity in wanted)}
        places: list[tuple[int, int]] = []
        for index, row in enumerate(self._rows):
            places.append((index, 0))
            if row is not None and row.path in paths:
                places.append((index, 1))
        return places

    def __len__(self) -> int:
        return len(self._places) + self.overflows

    def out_of_sight(self, top: int) -> Line:
        """Return the number of entities above and below the window at `top`, their states, and the names of a few."""
        seen = {index for index, part in self._places[top : top + self.height] if part == 0}
        first, last = min(seen, default=0), max(seen, default=-1)
        above, below = self._entities_in(self._rows[:first]), self._entities_in(self._rows[last + 1 :])
        spans = [
            Span("  "),
            *_hidden("↑", above, self._view.selected, self._needs_eyes),
            *_hidden("↓", below, self._view.selected, self._needs_eyes),
        ]
        if 0 < len(below) <= MAX_NAMES and not any(self._needs_eyes(one) for one in below):
            room = self._width - sum(span.width for span in spans)
            spans += [Span(pack((name_list([one.path for one in below]),), room), Role.MUTED)]
        return Line(cut(spans, self._width))

    def _entities_in(self, rows: Sequence[EntityView | None]) -> list[EntityView]:
        """Return the entities of the rows, once each; a closed fold stands for its own."""
        found = [row for row in rows if row is not None]
        return found if self._table.is_open or None not in rows else [*found, *self._table.quiet]

    def line_at(self, place: int) -> Line:
        if place == len(self._places):
            return BLANK
        index, part = self._places[place]
        entity = self._rows[index]
        selected = self._is_selected(entity)
        if entity is None:
            return _fold(self._table, self._width, selected)
        if part == 0:
            marked = entity.path in self._view.marks
            return row_line(entity, self._now, self._width, selected, marked=marked, fleet=self._fleet)
        if part == 1 and self._fleet is not None:
            return why_line(entity, self._now, self._width, selected, fleet=self._fleet)
        return PARTS[part](entity, self._now, self._width, selected)

    def span_of_selection(self) -> tuple[int, int]:
        """Return the selected row's first line, and the one after its last."""
        own = [place for place, (index, _) in enumerate(self._places) if self._is_selected(self._rows[index])]
        return (own[0], own[-1] + 1) if own else (0, 0)


def _with_fold(table: TableRows) -> tuple[EntityView | None, ...]:
    """Return the rows from top to bottom; None stands for the fold."""
    if not table.quiet:
        return table.entities
    return (*table.entities[: table.fold_at], None, *table.entities[table.fold_at :])


def _fold(table: TableRows, width: int, selected: bool) -> Line:
    """Return how many are quiet, their sends, and names as far as there is room; on the right, the key."""
    key = f"enter {'folds' if table.is_open else 'shows'} them " if width >= WIDE_HINT or selected else ""
    states = by_state(table.quiet)
    spans = [Span(" ▸" if selected else "  ", Role.KEY)]
    for place, (name, found) in enumerate(states.items()):
        look = LOOKS[name]
        spans += [Span(BETWEEN if place else "", Role.MUTED), Span(f"{look.glyph} {len(found):,} {name}", look.role)]
    sends = sum(one.sends_per_second for one in table.quiet)
    room = width - sum(span.width for span in spans) - len(key) - len(BETWEEN) - 1
    names = () if table.is_open else (name_list([one.path for one in table.quiet]),)
    rest = pack(((f"{rate(sends)} sends/s", ""), *names), room) if room > 0 else ""
    spans += [Span(BETWEEN + rest if rest else "", Role.MUTED)]
    return spread(spans, [Span(key, Role.MUTED)], width, ground=Role.SELECTED if selected else None)


def _hidden(
    sign: str, entities: Sequence[EntityView], selected: str, needs_eyes: Callable[[EntityView], bool]
) -> tuple[Span, ...]:
    if not entities:
        return ()
    unwell = [one for one in entities if one.state not in QUIET]
    elsewhere = sum(needs_eyes(one) for one in entities) - len(unwell)
    quiet = ", all healthy" if _all_healthy(entities) else f" ({states_text(entities)})"
    which = f" ({states_text(unwell)})" if unwell else "" if elsewhere else quiet
    which += f", {elsewhere} not healthy elsewhere" if elsewhere else ""
    own = f", the selected {selected}" if any(one.path == selected for one in entities) else ""
    role = LOOKS[next(iter(by_state(unwell)))].role if unwell else Role.MUTED
    return (Span(f"{sign} {len(entities):,} more{which}{own}  ", role),)


def _all_healthy(entities: Sequence[EntityView]) -> bool:
    return all(one.state is State.HEALTHY for one in entities)


def states_text(entities: Sequence[EntityView]) -> str:
    """Return the number of entities in each state, the worst first."""
    return " · ".join(f"{len(found):,} {state}" for state, found in by_state(entities).items())


class EntityHead(Lines):
    """The rule above the table, with a demo's caption, and the columns' titles."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        fleet = fleet_of(view) is not None
        columns = columns_in(width, fleet=fleet)
        titles = [Span("    " + fit("entity", name_width(width, fleet=fleet)), Role.MUTED)]
        titles += [Span("  " + fit("all engines", fleet_width(width)), Role.MUTED)] if fleet else []
        titles += [
            Span(
                "  " + fit("here" if fleet and column.draw is state else column.title, column.width, column.align),
                Role.MUTED,
            )
            for column in columns
        ]
        return (rule(_title(view), width, note=_note(view)), Line(tuple(titles)))


def _note(view: View) -> Span | None:
    """Return a demo's caption, else the number of entities in each state, unless all are healthy."""
    if view.snapshot is None:
        return None
    if view.snapshot.caption:
        return Span(view.snapshot.caption, Role.KEY)
    groups = groups_of(view.snapshot)
    if set(groups) <= {State.HEALTHY}:
        return None
    here = "here: " if view.snapshot.fleet is not None else ""
    return Span(here + states_text(view.snapshot.entities), LOOKS[next(iter(groups))].role)


def _title(view: View) -> str:
    """Return the number of entities, their order, and the marks."""
    if view.snapshot is None:
        return "entities"
    title = plural(len(view.snapshot.entities), "entity", "entities")
    if view.filter:
        title = f"{len(view.listed):,} of {title} with “{view.filter}”"
    sorted_at = "" if SORTS[view.sort].live else f" as of {clock(view.sorted_at)}"
    order = f", {view.sort}{sorted_at}"
    if view.snapshot.caption and view.sort == WORST_FIRST:
        order = ""  # a caption needs the room
    return " · ".join(part for part in (title + order, _marked(view)) if part)


def _marked(view: View) -> str:
    """Return the number of marks, and of the marked ones that a command reaches, if that differs."""
    if not view.marks:
        return ""
    hit, marked = len(view.marked), f"{len(view.marks):,} marked"
    if hit == len(view.marks):
        return marked
    return f"{marked}, keys act on {hit:,} listed" if hit else f"{marked}, none listed: keys act on {view.selected}"


class EntityTable(Lines):
    """The rows, with the selected one in sight."""

    DEFAULT_CSS = "EntityTable { overflow-y: scroll; scrollbar-size-vertical: 0; }"

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return rows and why-lines, drawn on demand; before the first figures, the steps until they come."""
        if view.snapshot is None:
            return attach_lines(view, width)
        return EntityRows(view, width, height)

    def show(self, view: View) -> None:
        """Show the view. A new order or filter starts at its first row, an unfolding at the fold.

        The selection is scrolled to when it moves, or when news move it out of a scrolled window.
        """
        before = self._view
        super().show(view)
        if before is None or before.sort != view.sort or before.filter != view.filter:
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        elif view.is_unfolded and not before.is_unfolded and isinstance(self._lines, EntityRows):
            first, _ = self._lines.span_of_selection()
            self.scroll_to(y=first, animate=False, force=True, immediate=True)
        elif before.selected != view.selected or before.on_fold != view.on_fold or self.scroll_offset.y:
            self._keep_in_sight()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._keep_in_sight()

    def _keep_in_sight(self) -> None:
        rows = self._lines
        if not isinstance(rows, EntityRows) or not self.size.height:
            return
        (first, last), top, height = rows.span_of_selection(), self.scroll_offset.y, rows.height
        if first < top:
            self.scroll_to(y=first, animate=False, force=True, immediate=True)
        elif last > top + height:
            self.scroll_to(y=last - height, animate=False, force=True, immediate=True)

    def _line_at(self, y: int) -> Line:
        rows = self._lines
        if isinstance(rows, EntityRows) and rows.overflows and y == rows.height:
            line = rows.out_of_sight(self.scroll_offset.y)
            return line if self._view is None or self._view.fresh else line.greyed()
        return super()._line_at(y)

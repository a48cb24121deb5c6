"""The widgets of the table of entities: its head and its rows."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.render.spans import Line, Role, Span, fit, rule
from paired_servicebus.ui.render.state_looks import LOOKS
from paired_servicebus.ui.state.row_order import SORTS, WORST_FIRST, groups_of
from paired_servicebus.ui.state.view import View
from paired_servicebus.ui.widgets.entities.entity_columns import columns_in, fleet_width, name_width, state
from paired_servicebus.ui.widgets.entities.entity_rows import EntityRows, states_text
from paired_servicebus.ui.widgets.entities.fleet_rows import fleet_of
from paired_servicebus.ui.widgets.frame.attach_steps import attach_lines
from paired_servicebus.ui.widgets.frame.lines_widget import Lines


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

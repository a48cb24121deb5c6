"""The frame of every page: summary on top, answer and keys at the bottom, the page's own widgets between them.

The layout depends only on the terminal's size, so that nothing moves with the page or with new data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, Protocol, cast

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID
from paired_servicebus.ui.render.spans import Line, Role
from paired_servicebus.ui.state.folded_rows import QUIET_ROWS, QUIET_ROWS_HIGH
from paired_servicebus.ui.state.selection import move_selection
from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.frame.page_lines import (
    AnswerLine,
    HeaderLine,
    KeyLine,
    SummaryLines,
    TooSmall,
    do_action,
)
from paired_servicebus.ui.widgets.graph_strip import WIDE

LEAST: Final = Size(60, 20)
"""The smallest terminal that fits a page and the consequences of a dangerous command."""
ROOMY: Final = Size(80, 24)
"""From this size on everything fits."""
TALL: Final = 32
"""From this number of rows on, there is room for more about each thing."""

HIGH: Final = 46
"""From this number of rows on, graphs are large."""


class PageScreen(Screen[None]):
    """One page. Subclasses set PARTS."""

    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (ROOMY.height, "-low"), (TALL, "-tall")]  # noqa: RUF012 - as Textual declares it
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as Textual declares it
    DEFAULT_CSS = """
    PageScreen { background: $background; }
    PageScreen TooSmall { display: none; }
    PageScreen SummaryLines { height: 2; }
    PageScreen.-tall SummaryLines { height: 4; }
    PageScreen.-small > Lines, PageScreen.-small HeaderLine { display: none; }
    PageScreen.-small TooSmall { display: block; }
    """

    PARTS: ClassVar[tuple[type[Widget], ...]] = ()
    """The widgets between summary and answer, from top to bottom."""

    def __init__(self, newest: Newest) -> None:
        super().__init__()
        self._newest = newest

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield HeaderLine()
        yield SummaryLines()
        yield from (part() for part in self.PARTS)
        yield AnswerLine()
        yield KeyLine()

    def on_mount(self) -> None:
        self.show(self._newest())

    def scrolled(self, steps: int) -> bool:
        """Scroll a part that is read rather than selected; return whether this page shows one now."""
        return False

    def on_screen_resume(self) -> None:
        """Show the news that arrived meanwhile."""
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Pass the view to every part."""
        self.set_class(not view.legible, "-small")
        self.set_class(self.size.height >= HIGH, "-high")
        self.set_class(view.snapshot is not None and view.snapshot.fleet is not None, "-fleet")
        for lines in self.query(Lines):
            lines.show(view)

    # -- the mouse ---------------------------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Select the clicked row, as the arrows would; open it if it is selected already."""
        lines = event.widget
        if not isinstance(lines, Lines):
            return
        view, y = self._newest(), event.get_content_offset_capture(lines).y + lines.scroll_offset.y
        steps = steps_to_row(lines, view, y)
        if steps:
            cast(Selects, self.app).select(steps)
        elif steps == 0:
            do_action(self, CONSOLE_BY_ID["details"])

    def on_mouse_scroll_down(self) -> None:
        do_action(self, CONSOLE_BY_ID["select-next"])

    def on_mouse_scroll_up(self) -> None:
        do_action(self, CONSOLE_BY_ID["select-previous"])


class Selects(Protocol):
    """The app, for a click on a row."""

    def select(self, steps: int) -> None: ...


def steps_to_row(lines: Lines, view: View, y: int) -> int | None:
    """Return how many rows the selection moves to be at that line; None if no row is there.

    A row that is shown only while it is selected leaves: the rows below it are then further up.
    """
    drawn = _drawn(lines, view)
    if _is_selected(drawn, y):
        return 0
    for way in (1, -1):
        moved = view
        for steps in range(1, lines.size.height + 1):
            before, moved = moved, move_selection(moved, way)
            if moved == before:
                break
            then = _drawn(lines, moved)
            if _is_selected(then, y) or (way == 1 and _is_selected(then, y - (len(drawn) - len(then)))):
                return steps * way
    return None


def _drawn(lines: Lines, view: View) -> Sequence[Line]:
    return lines.lines(view, lines.size.width, lines.size.height)


def _is_selected(drawn: Sequence[Line], y: int) -> bool:
    return 0 <= y < len(drawn) and drawn[y].ground is Role.SELECTED


def with_size(view: View, size: Size) -> View:
    """Return the view in a terminal of that size."""
    legible = size.width >= LEAST.width and size.height >= LEAST.height
    return replace(view, legible=legible, quiet_rows=QUIET_ROWS_HIGH if size.height >= HIGH else QUIET_ROWS)

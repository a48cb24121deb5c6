"""The base of all widgets: lines computed from the View, of which only changed ones are painted.

Subclasses compute the lines, perhaps as a lazy sequence, since only visible ones are read. Changed cells are found
later (terminal_app.py). Only this module turns roles into colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, overload

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from paired_servicebus.ui.render.spans import BLANK, Line, Role
from paired_servicebus.ui.state.view import Newest, View

ROLE_CLASSES: Final = frozenset(f"lines--{role}" for role in Role)
ROLE_CSS: Final = """
    .lines--text { color: $foreground; }
    .lines--muted { color: $role-muted; }
    .lines--title { color: $foreground; text-style: bold; }
    .lines--key { color: $role-key; text-style: bold; }
    .lines--environment { color: $foreground; text-style: bold reverse; }
    .lines--production { color: $role-production; text-style: bold reverse; }
    .lines--unknown { color: $state-unknown; }
    .lines--healthy { color: $state-healthy; }
    .lines--suspect { color: $state-suspect; }
    .lines--failed-over { color: $state-failed-over; text-style: bold; }
    .lines--forced { color: $state-forced; text-style: bold; }
    .lines--pinned { color: $state-pinned; text-style: bold; }
    .lines--selected { background: $ground-selected; }
    .lines--statement { color: $state-failed-over; text-style: bold reverse; }
"""
"""The look of each role; the app takes it, so that it is computed once and not for each widget."""


class LazyLines(Sequence[Line]):
    """Lines that are computed when they are read. Subclasses implement `line_at` and `__len__`."""

    def line_at(self, place: int) -> Line:
        """Return one line."""
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Line: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Line]: ...
    def __getitem__(self, place: int | slice) -> Line | Sequence[Line]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        return self.line_at(place)


TALL: Final = 32
"""From this number of rows on, there is room for more about each thing."""


class LinesScreen(Screen[None]):
    """A screen of lines from top to bottom, which follows the view. Subclasses set PARTS."""

    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (24, "-low"), (TALL, "-tall")]  # noqa: RUF012 - as Textual declares it
    PARTS: ClassVar[tuple[type[Widget], ...]] = ()

    def __init__(self, newest: Newest) -> None:
        super().__init__()
        self._newest = newest

    def compose(self) -> ComposeResult:
        yield from (part() for part in self.PARTS)

    def on_mount(self) -> None:
        self.show(self._newest())

    def on_screen_resume(self) -> None:
        """Show the news that arrived meanwhile."""
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Pass the view to every part."""
        for lines in self.query(Lines):
            lines.show(view)


class Lines(ScrollView, can_focus=False):
    """A block of lines. Subclasses implement `lines`."""

    DEFAULT_CSS = "Lines { height: 1; overflow: hidden; background: $background; color: $foreground; }"

    ages: ClassVar[bool] = True
    """Whether its text turns grey when the engine's news stop."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view: View | None = None
        self._lines: Sequence[Line] = ()
        self._painted: dict[int, Line] = {}
        """The line in each row of the screen, as last rendered."""
        self._laid_out: Size | None = None
        """The size of the present lines."""
        self._styles_of: dict[Role, Style] = {}

    def on_mount(self) -> None:
        """Follow changes of the theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._restyle())

    def notify_style_update(self) -> None:
        """Compute the roles' styles again."""
        self._styles_of.clear()
        super().notify_style_update()

    def _restyle(self) -> None:
        self._styles_of.clear()
        self.refresh()

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        """Return the view in `width` x `height` cells; more lines than `height` can be scrolled to."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Show the view; repaint changes."""
        self._view = view
        if self.size.width and self.size.height:
            self._draw(view)

    def keep_in_sight(self, first: int, rows: int = 1) -> None:
        """Scroll as far as necessary to show `rows` lines from `first` on."""
        top, height = self.scroll_offset.y, self.size.height
        if height and not top <= first <= top + height - rows:
            self.scroll_to(y=max(0, first if first < top else first - height + rows), animate=False, force=True)

    @property
    def selected_row(self) -> int | None:
        """The row of the screen that has the selection; None: it is not in sight here."""
        rows = (y for y in range(self.size.height) if self._line_at(y).ground is Role.SELECTED)
        place = next(rows, None)
        return None if place is None else self.region.y + place

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new size, unless the first paint did so."""
        if self._view is None:
            return
        known = self._laid_out == self.size
        self._draw(self._view)
        if not known:
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one row of the screen."""
        if self._view is not None and self._laid_out != self.size:  # Textual paints before it reports the size
            self._lay_out(self._view)
        line = self._line_at(y)
        self._painted[y] = line
        ground = self._style(line.ground) if line.ground else self.rich_style
        segments = [Segment(span.text, self._span_style(span.role, line, ground)) for span in line.spans]
        return Strip(segments).adjust_cell_length(self.size.width, ground)

    def _draw(self, view: View) -> None:
        self._lay_out(view)
        if self.virtual_size.height != len(self._lines):
            self.virtual_size = Size(self.size.width, len(self._lines))
        for y in range(self.size.height):
            if self._painted.get(y) != self._line_at(y):
                self.refresh(Region(0, y, self.size.width, 1))

    def _lay_out(self, view: View) -> None:
        if self._laid_out != self.size:
            self._painted.clear()
        self._laid_out = self.size
        self._lines = self.lines(view, self.size.width, self.size.height)

    def _line_at(self, y: int) -> Line:
        place = y + self.scroll_offset.y
        line = self._lines[place] if place < len(self._lines) else BLANK
        old = self.ages and self._view is not None and self._view.snapshot is not None and not self._view.fresh
        return line.greyed() if old else line

    def _style(self, role: Role) -> Style:
        """Return the role's style on the ground of this widget."""
        style = self._styles_of.get(role)
        if style is None:
            own = self.app.get_component_styles(f"lines--{role}").partial_rich_style
            style = self._styles_of[role] = self.rich_style + own
        return style

    def _span_style(self, role: Role, line: Line, ground: Style) -> Style:
        if line.ground is None:
            return self._style(role)
        if line.ground is Role.STATEMENT:
            return ground
        return self._style(role) + Style(bgcolor=ground.bgcolor)

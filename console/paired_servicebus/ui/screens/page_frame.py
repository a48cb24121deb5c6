"""What every page shares: on top whether anything is wrong, at the bottom answer and keys, between them its own.

Pages differ in their body alone, so that no figure of the frame moves when a person turns from one to the next. The
layout depends on the terminal's size alone, so that nothing moves its place when data come.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from paired_servicebus.ui.state.view import Newest, View
from paired_servicebus.ui.widgets.frame.answer_line import AnswerLine
from paired_servicebus.ui.widgets.frame.header_line import HeaderLine
from paired_servicebus.ui.widgets.frame.key_line import KeyLine
from paired_servicebus.ui.widgets.frame.lines_widget import Lines
from paired_servicebus.ui.widgets.frame.summary_lines import SummaryLines
from paired_servicebus.ui.widgets.frame.too_small import TooSmall

LEAST: Final = Size(60, 20)
"""The smallest terminal in which pages can be read, and what a dangerous act would do can be shown."""
ROOMY: Final = Size(80, 24)
"""From this size on everything has its place."""
TALL: Final = 32
"""From so many rows on, there is room for more about each thing."""


class PageScreen(Screen[None]):
    """One page. Subclasses say what stands in the middle."""

    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (ROOMY.height, "-low"), (TALL, "-tall")]  # noqa: RUF012 - declared so by Textual
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
        """From the first line to the last."""
        yield TooSmall()
        yield HeaderLine()
        yield SummaryLines()
        yield from (part() for part in self.PARTS)
        yield AnswerLine()
        yield KeyLine()

    def on_mount(self) -> None:
        """Shows what is known already."""
        self.show(self._newest())

    def on_screen_resume(self) -> None:
        """Turned to again: news came meanwhile."""
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Hands the view to every part."""
        self.set_class(not view.legible, "-small")
        for lines in self.query(Lines):
            lines.show(view)


def sized(view: View, size: Size) -> View:
    """The view in a terminal of that size."""
    return replace(view, legible=size.width >= LEAST.width and size.height >= LEAST.height)

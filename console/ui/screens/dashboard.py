"""The dashboard: is anything wrong, what exactly, what can I do, in that order from top to bottom.

The layout depends on the terminal's size alone, so that nothing moves its place when data come.
"""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.screen import Screen

from console.ui import actions
from console.ui.screens.showing import Newest
from console.ui.view import View
from console.ui.widgets.answer_line import AnswerLine
from console.ui.widgets.backlog_strip import BacklogStrip
from console.ui.widgets.entity_table import EntityHead, EntityTable
from console.ui.widgets.event_log import EventLog
from console.ui.widgets.header_line import HeaderLine
from console.ui.widgets.key_line import KeyLine
from console.ui.widgets.lines import Lines
from console.ui.widgets.pairing_line import PairingLine
from console.ui.widgets.summary_line import SummaryLine
from console.ui.widgets.syphon_line import SyphonLine
from console.ui.widgets.too_small import TooSmall

LEAST: Final = Size(80, 24)
TALL: Final = 32
"""From so many rows on, there is room for more about alarms and queues."""


class DashboardScreen(Screen[None]):
    """One engine on one screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"app.press({key!r})", show=False) for key in actions.all_keys()
    ]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (TALL, "-tall")]  # noqa: RUF012 - declared so by Textual
    DEFAULT_CSS = """
    DashboardScreen { background: $background; }
    DashboardScreen EntityHead { height: 2; }
    DashboardScreen EntityTable { height: 3fr; min-height: 6; }
    DashboardScreen BacklogStrip { height: 4; }
    DashboardScreen SyphonLine { height: 2; }
    DashboardScreen EventLog { height: 2fr; min-height: 4; }
    DashboardScreen.-tall SummaryLine { height: 2; }
    DashboardScreen.-tall BacklogStrip { height: 6; }
    DashboardScreen TooSmall { display: none; }
    DashboardScreen.-small > Lines, DashboardScreen.-small HeaderLine { display: none; }
    DashboardScreen.-small TooSmall { display: block; }
    """

    def __init__(self, newest: Newest) -> None:
        super().__init__()
        self._newest = newest

    def compose(self) -> ComposeResult:
        """From the first line to the last."""
        yield TooSmall()
        yield HeaderLine()
        yield SummaryLine()
        yield PairingLine()
        yield EntityHead()
        yield EntityTable()
        yield BacklogStrip()
        yield SyphonLine()
        yield EventLog()
        yield AnswerLine()
        yield KeyLine()

    def on_mount(self) -> None:
        """Shows what is known already."""
        self.show(self._newest())

    def show(self, view: View) -> None:
        """Hands the view to every part."""
        self.set_class(not view.fits, "-small")
        for lines in self.query(Lines):
            lines.show(view)


def fits(size: Size) -> bool:
    """Whether a terminal of that size is large enough."""
    return size.width >= LEAST.width and size.height >= LEAST.height

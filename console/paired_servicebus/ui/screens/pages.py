"""The eight pages: the widgets of each between header and keys, and their heights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol, cast

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size

from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID
from paired_servicebus.ui.render.spans import Line, Role
from paired_servicebus.ui.state.selection import move_selection
from paired_servicebus.ui.state.view import QUIET_ROWS, QUIET_ROWS_HIGH, Page, View
from paired_servicebus.ui.widgets.client_table import ClientDetail, ClientHead, ClientTable
from paired_servicebus.ui.widgets.cost_table import CostTable
from paired_servicebus.ui.widgets.entity_table import EntityFacts, EntityHead, EntityTable
from paired_servicebus.ui.widgets.fleet_strip import EngineHead, EngineTable, FleetStrip
from paired_servicebus.ui.widgets.frame.lines_widget import Lines, LinesScreen
from paired_servicebus.ui.widgets.frame.page_lines import (
    AnswerLine,
    HeaderLine,
    KeyLine,
    PairingLine,
    SummaryLines,
    TooSmall,
    do_action,
)
from paired_servicebus.ui.widgets.graph_parts import EntityGraphs, GraphStrip
from paired_servicebus.ui.widgets.incident_list import IncidentList, IncidentReport
from paired_servicebus.ui.widgets.queue_table import (
    DestinationTable,
    QueueDetail,
    QueueHead,
    QueueTable,
    SyphonLine,
    UnusedTable,
)
from paired_servicebus.ui.widgets.timeline_list import (
    WIDE,
    EntityHistory,
    EventInFull,
    RecentEvents,
    TimelineHead,
    TimelineList,
)

# The frame of every page: summary on top, answer and keys at the bottom, the page's own widgets between them.
#
# The layout depends only on the terminal's size, so that nothing moves with the page or with new data.

LEAST: Final = Size(60, 20)
"""The smallest terminal that fits a page and the consequences of a dangerous command."""
HIGH: Final = 46
"""From this number of rows on, graphs are large."""


class PageScreen(LinesScreen):
    """One page. PARTS are the widgets between summary and answer."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as Textual declares it
    DEFAULT_CSS = """
    PageScreen { background: $background; }
    PageScreen TooSmall { display: none; }
    PageScreen SummaryLines { height: 2; }
    PageScreen.-tall SummaryLines { height: 4; }
    PageScreen.-small > Lines, PageScreen.-small HeaderLine { display: none; }
    PageScreen.-small TooSmall { display: block; }
    """

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield HeaderLine()
        yield SummaryLines()
        yield from super().compose()
        yield AnswerLine()
        yield KeyLine()

    def scrolled(self, steps: int) -> bool:
        """Scroll a part that is read rather than selected; return whether this page shows one now."""
        return False

    def show(self, view: View) -> None:
        """Pass the view to every part."""
        self.set_class(not view.legible, "-small")
        self.set_class(self.size.height >= HIGH, "-high")
        self.set_class(view.fleet is not None, "-fleet")
        super().show(view)

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


class DashboardScreen(PageScreen):
    """One engine: what is wrong, in which detail, and what can be done, from top to bottom."""

    PARTS = (PairingLine, EntityHead, EntityTable, FleetStrip, GraphStrip, DestinationTable, SyphonLine, RecentEvents)
    DEFAULT_CSS = """
    DashboardScreen SummaryLines { height: 4; }
    DashboardScreen PairingLine { display: none; }
    DashboardScreen EntityHead { height: 2; }
    DashboardScreen EntityTable { height: 3fr; min-height: 6; }
    DashboardScreen FleetStrip { display: none; height: 4; }
    DashboardScreen GraphStrip { height: 4; }
    DashboardScreen DestinationTable { display: none; height: 5; }
    DashboardScreen SyphonLine { height: 2; }
    DashboardScreen RecentEvents { height: 2fr; min-height: 3; }
    DashboardScreen.-tall PairingLine { display: block; }
    DashboardScreen.-tall DestinationTable { display: block; }
    DashboardScreen.-tall.-wide GraphStrip { height: 6; }
    DashboardScreen.-high.-wide GraphStrip { height: 10; }
    DashboardScreen.-tiny EntityTable { min-height: 4; }
    DashboardScreen.-tiny RecentEvents { min-height: 2; }
    DashboardScreen.-tiny GraphStrip { height: 3; }
    DashboardScreen.-fleet FleetStrip { display: block; }
    DashboardScreen.-fleet.-tiny FleetStrip { height: 3; }
    DashboardScreen.-fleet GraphStrip { display: none; }
    DashboardScreen.-fleet.-tall GraphStrip { display: block; }
    DashboardScreen.-fleet.-tall DestinationTable { height: 3; }
    DashboardScreen.-fleet.-high DestinationTable { height: 5; }
    DashboardScreen.-fleet.-tall FleetStrip { height: 4; }
    DashboardScreen.-fleet.-high FleetStrip { height: 6; }
    """


class EntityScreen(PageScreen):
    """The selected entity: its state and the reason, pings, sends and history."""

    PARTS = (EntityFacts, EntityGraphs, EntityHistory)
    DEFAULT_CSS = """
    EntityScreen EntityFacts { height: 13; }
    EntityScreen EntityGraphs { height: 2; }
    EntityScreen EntityHistory { height: 1fr; min-height: 3; }
    EntityScreen.-tall EntityFacts { height: 19; }
    EntityScreen.-tall EntityGraphs { height: 3; }
    EntityScreen.-tall.-wide EntityGraphs { height: 6; }
    EntityScreen.-high EntityFacts { height: 22; }
    EntityScreen.-high.-wide EntityGraphs { height: 10; }
    EntityScreen.-tiny EntityFacts { height: 12; }
    EntityScreen.-tiny EntityGraphs { display: none; }
    EntityScreen.-tiny EntityHistory { min-height: 3; }
    """


class BacklogScreen(PageScreen):
    """The backlog: parked by destination, each queue with its depth, the selected one in detail, the unused ones."""

    PARTS = (DestinationTable, QueueHead, QueueTable, QueueDetail, UnusedTable)
    DEFAULT_CSS = """
    BacklogScreen DestinationTable { height: 3; }
    BacklogScreen.-tiny DestinationTable { height: 2; }
    BacklogScreen.-tall DestinationTable { height: 5; }
    BacklogScreen QueueHead { height: 2; }
    BacklogScreen QueueTable { height: 3fr; min-height: 5; }
    BacklogScreen QueueDetail { height: 5; }
    BacklogScreen UnusedTable { height: 3; }
    BacklogScreen.-tiny QueueTable { min-height: 3; }
    BacklogScreen.-tiny UnusedTable { height: 2; }
    BacklogScreen.-tall QueueDetail { height: 10; }
    BacklogScreen.-tall UnusedTable { height: 2fr; min-height: 5; }
    """


class TimelineScreen(PageScreen):
    """Every event and operator command, and the selected one in full."""

    PARTS = (TimelineHead, TimelineList, EventInFull)
    DEFAULT_CSS = """
    TimelineScreen TimelineHead { height: 1; }
    TimelineScreen TimelineList { height: 1fr; min-height: 5; }
    TimelineScreen EventInFull { height: 4; }
    """


class CostScreen(PageScreen):
    """The operations that the pairing adds to the bill."""

    PARTS = (CostTable,)
    DEFAULT_CSS = "CostScreen CostTable { height: 1fr; }"


class HistoryScreen(PageScreen):
    """The incidents, and the selected one: below the list, or alone once it is opened."""

    PARTS = (IncidentList, IncidentReport)
    DEFAULT_CSS = """
    HistoryScreen IncidentList { height: 8; }
    HistoryScreen.-low IncidentList, HistoryScreen.-tall IncidentList { height: 1fr; max-height: 12; }
    HistoryScreen IncidentReport { height: 1fr; }
    HistoryScreen.-open IncidentList { display: none; }
    """

    def show(self, view: View) -> None:
        """Leave the whole page to an opened incident."""
        self.set_class(view.incident_open, "-open")
        super().show(view)

    def scrolled(self, steps: int) -> bool:
        """Scroll the opened incident."""
        if not self.has_class("-open"):
            return False
        self.query_one(IncidentReport).scroll_lines(steps)
        return True


class EnginesScreen(PageScreen):
    """The engines on this machine, those that commands are for, and the last answer of each."""

    PARTS = (EngineHead, EngineTable)
    DEFAULT_CSS = "EnginesScreen EngineTable { height: 1fr; }"


class ClientsScreen(PageScreen):
    """The gateway's clients: who is connected with what, whether their sends fail, where these go, what to do."""

    PARTS = (ClientHead, ClientTable, ClientDetail)
    DEFAULT_CSS = """
    ClientsScreen ClientHead { height: 3; }
    ClientsScreen ClientTable { height: 1fr; min-height: 4; }
    ClientsScreen ClientDetail { height: 8; }
    ClientsScreen.-tiny ClientDetail { height: 5; }
    ClientsScreen.-tall ClientDetail { height: 14; }
    """


PAGES: Final[dict[Page, type[PageScreen]]] = {
    Page.ENTITY: EntityScreen,
    Page.BACKLOG: BacklogScreen,
    Page.TIMELINE: TimelineScreen,
    Page.COST: CostScreen,
    Page.HISTORY: HistoryScreen,
    Page.ENGINES: EnginesScreen,
    Page.CLIENTS: ClientsScreen,
}
"""The pages over the dashboard, which is the default screen."""

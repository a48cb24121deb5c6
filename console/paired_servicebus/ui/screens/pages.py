"""The eight pages: the widgets of each between header and keys, and their heights."""

from __future__ import annotations

from typing import Final

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.state.view import Page, View
from paired_servicebus.ui.widgets.client_table import ClientDetail, ClientHead, ClientTable
from paired_servicebus.ui.widgets.cost_table import CostTable
from paired_servicebus.ui.widgets.dashboard_parts import BacklogStrip, PairingLine, RecentEvents, SyphonLine
from paired_servicebus.ui.widgets.engine_table import EngineHead, EngineTable
from paired_servicebus.ui.widgets.entities.entity_table import EntityHead, EntityTable
from paired_servicebus.ui.widgets.entity_facts import EntityFacts, EntityHistory
from paired_servicebus.ui.widgets.fleet_strip import FleetStrip
from paired_servicebus.ui.widgets.graph_strip import EntityGraphs, GraphStrip
from paired_servicebus.ui.widgets.incident_list import IncidentList, IncidentReport
from paired_servicebus.ui.widgets.queue_detail import QueueDetail
from paired_servicebus.ui.widgets.queue_table import QueueHead, QueueTable
from paired_servicebus.ui.widgets.timeline_list import EventInFull, TimelineHead, TimelineList
from paired_servicebus.ui.widgets.unused_table import UnusedTable


class DashboardScreen(PageScreen):
    """One engine: what is wrong, in which detail, and what can be done, from top to bottom."""

    PARTS = (PairingLine, EntityHead, EntityTable, FleetStrip, GraphStrip, BacklogStrip, SyphonLine, RecentEvents)
    DEFAULT_CSS = """
    DashboardScreen SummaryLines { height: 4; }
    DashboardScreen PairingLine { display: none; }
    DashboardScreen EntityHead { height: 2; }
    DashboardScreen EntityTable { height: 3fr; min-height: 6; }
    DashboardScreen FleetStrip { display: none; height: 4; }
    DashboardScreen GraphStrip { height: 4; }
    DashboardScreen BacklogStrip { display: none; height: 6; }
    DashboardScreen SyphonLine { height: 2; }
    DashboardScreen RecentEvents { height: 2fr; min-height: 3; }
    DashboardScreen.-tall PairingLine { display: block; }
    DashboardScreen.-tall BacklogStrip { display: block; }
    DashboardScreen.-tall.-wide GraphStrip { height: 6; }
    DashboardScreen.-high.-wide GraphStrip { height: 10; }
    DashboardScreen.-tiny EntityTable { min-height: 4; }
    DashboardScreen.-tiny RecentEvents { min-height: 2; }
    DashboardScreen.-tiny GraphStrip { height: 3; }
    DashboardScreen.-fleet FleetStrip { display: block; }
    DashboardScreen.-fleet.-tiny FleetStrip { height: 3; }
    DashboardScreen.-fleet GraphStrip { display: none; }
    DashboardScreen.-fleet.-tall GraphStrip { display: block; }
    DashboardScreen.-fleet.-tall BacklogStrip { display: none; }
    DashboardScreen.-fleet.-high BacklogStrip { display: block; }
    DashboardScreen.-fleet.-tall FleetStrip { height: 6; }
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
    """The backlog queues: each with its depth, the selected one in detail, and the unused ones."""

    PARTS = (QueueHead, QueueTable, QueueDetail, UnusedTable)
    DEFAULT_CSS = """
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

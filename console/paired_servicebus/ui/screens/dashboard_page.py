"""The dashboard: is anything wrong, what exactly, what can I do, in that order from top to bottom."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.backlog_strip import BacklogStrip
from paired_servicebus.ui.widgets.entity_table import EntityHead, EntityTable
from paired_servicebus.ui.widgets.pairing_line import PairingLine
from paired_servicebus.ui.widgets.recent_events import RecentEvents
from paired_servicebus.ui.widgets.syphon_line import SyphonLine


class DashboardScreen(PageScreen):
    """One engine on one screen."""

    DEFAULT_CSS = """
    DashboardScreen SummaryLines { height: 4; }
    DashboardScreen PairingLine { display: none; }
    DashboardScreen EntityHead { height: 2; }
    DashboardScreen EntityTable { height: 3fr; min-height: 6; }
    DashboardScreen BacklogStrip { height: 3; }
    DashboardScreen SyphonLine { height: 2; }
    DashboardScreen RecentEvents { height: 2fr; min-height: 3; }
    DashboardScreen.-tall PairingLine { display: block; }
    DashboardScreen.-tall BacklogStrip { height: 6; }
    DashboardScreen.-tiny EntityTable { min-height: 4; }
    DashboardScreen.-tiny RecentEvents { min-height: 2; }
    """

    def body(self) -> Iterable[Widget]:
        """Entities, backlog, syphon, events."""
        yield PairingLine()
        yield EntityHead()
        yield EntityTable()
        yield BacklogStrip()
        yield SyphonLine()
        yield RecentEvents()

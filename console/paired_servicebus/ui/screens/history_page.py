"""The history: every incident that the pipeline's tables hold, and what came of the selected one."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.incident_list import IncidentList, IncidentReport


class HistoryScreen(PageScreen):
    """What happened, also before this engine and this console were started."""

    DEFAULT_CSS = """
    HistoryScreen IncidentList { height: 8; }
    HistoryScreen.-low IncidentList, HistoryScreen.-tall IncidentList { height: 1fr; max-height: 12; }
    HistoryScreen IncidentReport { height: 1fr; }
    """

    def body(self) -> Iterable[Widget]:
        """The list, and the report below it."""
        yield IncidentList()
        yield IncidentReport()

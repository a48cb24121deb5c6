"""The timeline: every event and operator act that the engine told of, with the selected one in full."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.timeline_list import EventInFull, TimelineHead, TimelineList


class TimelineScreen(PageScreen):
    """What happened."""

    DEFAULT_CSS = """
    TimelineScreen TimelineHead { height: 1; }
    TimelineScreen TimelineList { height: 1fr; min-height: 5; }
    TimelineScreen EventInFull { height: 4; }
    """

    def body(self) -> Iterable[Widget]:
        """The list, then the selected event without a cut."""
        yield TimelineHead()
        yield TimelineList()
        yield EventInFull()

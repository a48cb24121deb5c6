"""The backlog: each queue with what lies in it and where that goes, the selected one in detail, and unused queues."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.queue_detail import QueueDetail
from paired_servicebus.ui.widgets.queue_table import QueueHead, QueueTable
from paired_servicebus.ui.widgets.unused_table import UnusedTable


class BacklogScreen(PageScreen):
    """The backlog queues of one engine."""

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

    def body(self) -> Iterable[Widget]:
        """Queues in use, the selected one, those not in use."""
        yield QueueHead()
        yield QueueTable()
        yield QueueDetail()
        yield UnusedTable()

"""The cost: billed operations by cause, what they come to in a month, and what standing arrangements cost."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.cost_table import CostTable


class CostScreen(PageScreen):
    """What the pairing adds to the bill."""

    DEFAULT_CSS = "CostScreen CostTable { height: 1fr; }"

    def body(self) -> Iterable[Widget]:
        """One table."""
        yield CostTable()

"""The engines: all that run on this machine, which of them commands are for, and what each last answered."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.engine_table import EngineHead, EngineTable


class EnginesScreen(PageScreen):
    """One engine or several to command."""

    DEFAULT_CSS = "EnginesScreen EngineTable { height: 1fr; }"

    def body(self) -> Iterable[Widget]:
        """One table."""
        yield EngineHead()
        yield EngineTable()

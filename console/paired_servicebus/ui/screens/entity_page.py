"""One entity: where it is and why, what would change that, its pings, its sends, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widget import Widget

from paired_servicebus.ui.screens.page_frame import PageScreen
from paired_servicebus.ui.widgets.entity_facts import EntityFacts
from paired_servicebus.ui.widgets.entity_history import EntityHistory


class EntityScreen(PageScreen):
    """The selected entity."""

    DEFAULT_CSS = """
    EntityScreen EntityFacts { height: 14; }
    EntityScreen EntityHistory { height: 1fr; min-height: 4; }
    EntityScreen.-tall EntityFacts { height: 22; }
    EntityScreen.-tiny EntityFacts { height: 12; }
    EntityScreen.-tiny EntityHistory { min-height: 3; }
    """

    def body(self) -> Iterable[Widget]:
        """What stands, then what happened."""
        yield EntityFacts()
        yield EntityHistory()

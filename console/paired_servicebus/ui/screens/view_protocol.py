"""What every screen here can do: show the newest View. The app hands it to each open one, dialogs' grounds included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from paired_servicebus.ui.state.view import View

Newest = Callable[[], View]
"""What a screen asks when it is mounted: news may have come since it was made."""


@runtime_checkable
class ShowsView(Protocol):
    """A screen that follows the engine while it is open."""

    def show(self, view: View) -> None:
        """Shows the view."""

"""What is made before anybody asks for it, a piece at a time, while the loop has nothing else to do.

The terminal library makes a page when it is first shown, and reads a widget's looks when its first one is mounted: that
took up to 150 ms after a key. Rules: each piece is small, and a key that comes meanwhile waits for one piece at most;
what was not made yet is made when it is asked for, as the library does. Python's collector rests until all is made,
and then leaves that alone: looking through it took up to 150 ms at a time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from textual.command import CommandInput, CommandList, SearchIcon
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Button, LoadingIndicator, Static

from paired_servicebus.ui.screens.help import HelpText
from paired_servicebus.ui.screens.palette import Actions, Palette
from paired_servicebus.ui.screens.prompt import Prompt
from paired_servicebus.ui.view import Page

if TYPE_CHECKING:
    from paired_servicebus.ui.app import PairedApp

FIRST: Final = 0.3
"""Seconds after the first paint until the first piece: the engine's first snapshot comes meanwhile."""
PAUSE: Final = 0.03
"""Seconds between two pieces."""
THRESHOLDS: Final = (700, 10, 100)
"""Of the collector: its long looks are made a tenth as often as by itself. Nearly all that a second brings goes by its
count of references, and needs none."""

_PARTS: Final[Sequence[Callable[[], Widget]]] = (
    HelpText,
    Vertical,
    Horizontal,
    Static,
    Button,
    CommandInput,
    SearchIcon,
    CommandList,
    LoadingIndicator,
    lambda: Prompt("", ""),
    lambda: Palette(Actions, ""),
)
"""What dialogs are made of."""


async def make_ahead(app: PairedApp) -> None:
    """Makes the pages, and reads how dialogs look."""
    await asyncio.sleep(FIRST)
    for part in _PARTS:
        part()._post_register(app)
        assert app.stylesheet.rules is not None  # reads what was added
        await asyncio.sleep(PAUSE)
    for page in Page:
        app.make_page(page)
        await asyncio.sleep(PAUSE)
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()

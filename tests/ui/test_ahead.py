"""Pages are made before they are turned to, unseen; what is typed ahead is for what the key before it opened."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from textual import events

from paired_servicebus.ui.ahead import make_ahead
from paired_servicebus.ui.screens.prompt import Prompt
from paired_servicebus.ui.view import Page


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was before."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


async def test_every_page_is_made_ahead_and_none_is_shown(open_console: Any, made: Any, collector: None) -> None:
    async with open_console(made.snapshot()) as console:
        shown = console.screen()
        gc.disable()
        await make_ahead(console.app)
        await console.pilot.pause()
        assert gc.isenabled()
        pages = [page for page in Page if page is not Page.PAIRING]
        assert all(console.app.get_screen(page.value).is_running for page in pages)
        assert console.screen() == shown
        await console.press("5")
        assert "standing arrangements" in console.screen()


def type_at_once(app: Any, text: str) -> None:
    for character in text:
        app.post_message(events.Key("slash" if character == "/" else character, character))


async def test_what_comes_with_the_key_that_opens_a_line_is_typed_into_it(open_console: Any, made: Any) -> None:
    """Each of f, p and q would do something on the page behind."""
    async with open_console(made.snapshot()) as console:
        type_at_once(console.app, "/fpq/")
        await console.pilot.pause()
        assert isinstance(console.app.screen, Prompt)
        await console.press("x")
        assert console.app.view.filter == "fpq/x"
        assert console.feed.armed == []
        assert console.feed.orders == []


async def test_what_is_pasted_is_no_key(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        before = console.app.view
        console.app.post_message(events.Paste("p/q\nf5"))
        await console.pilot.pause()
        assert console.app.view == before
        assert console.feed.orders == []
        await console.press("slash")
        console.app.post_message(events.Paste("orders/audit"))
        await console.pilot.pause()
        assert console.app.view.filter == "orders/audit"

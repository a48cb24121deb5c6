"""Keys typed ahead go to the page or line that the key before them opened."""

from __future__ import annotations

from typing import Any

from textual import events

from paired_servicebus.ui.screens.question_dialogs import Prompt


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

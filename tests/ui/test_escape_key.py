"""Contract of Textual's parser of keys, and what is read differently here."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.drivers import linux_driver

from paired_servicebus.ui.display.terminal_app import EscapeParser
from paired_servicebus.ui.screens.question_dialogs import Prompt
from paired_servicebus.ui.state.view import Page


def keys(text: str) -> list[str]:
    parser = EscapeParser()
    return [event.key for event in (*parser.feed(text), *parser.feed("")) if isinstance(event, events.Key)]


@pytest.mark.parametrize(
    ("second", "key"),
    [("/", "slash"), ("1", "1"), ("j", "j"), ("F", "F"), (" ", "space"), ("\r", "enter"), ("?", "question_mark"),
     (":", "colon"), ("=", "equals_sign"), ("é", "é")],
)  # fmt: skip
def test_escape_and_the_next_key_are_both_keys(second: str, key: str) -> None:
    assert keys(f"\x1b{second}") == ["escape", key]


def test_escape_twice_is_two_keys() -> None:
    assert keys("\x1b\x1b") == ["escape", "escape"]


@pytest.mark.parametrize(
    ("text", "key"),
    [("\x1b", "escape"), ("\x1b[A", "up"), ("\x1bOP", "f1"), ("\x1b[6~", "pagedown"), ("\x1b[1;3D", "alt+left"),
     ("\x1bf", "ctrl+right"), ("\x1b\x7f", "ctrl+w"), ("1", "1")],
)  # fmt: skip
def test_the_sequence_of_a_key_is_that_key(text: str, key: str) -> None:
    assert keys(text) == [key]


async def test_the_terminals_driver_reads_keys_so(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()):
        assert linux_driver.XTermParser is EscapeParser


async def test_a_key_right_after_escape_goes_to_the_page_behind_the_line(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("slash", "x")
        assert isinstance(console.app.screen, Prompt)
        for event in EscapeParser().feed("\x1b3"):
            console.app.post_message(event)
        await console.pilot.pause()
        assert console.app.view.filter == ""
        assert console.app.view.page is Page.BACKLOG

"""The one dialog for questions: its height, its place, its focus, and what is typed or pasted into it."""

from __future__ import annotations

from typing import Any

import pytest
from textual import events
from textual.widgets import Input

from paired_servicebus.ui.screens.questions import QuestionDialog
from tests.fleet_views import calm

from .test_fleet_question import signer

SIZES = [(80, 24), pytest.param((140, 40), marks=pytest.mark.slow)]
KEYS = {"F": "typed", "S": "why", "W": "why"}
"""Keys of questions, and the field that has what is typed."""


def box(console: Any) -> Any:
    return console.app.screen.query_one("#box").region


@pytest.mark.parametrize("size", SIZES)
async def test_a_question_is_as_high_as_its_text_and_leaves_its_row_in_sight(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    """Questions are one dialog, as high as its text, beside the row that it is about."""
    async with open_console(made.outage(), size=size) as console:
        place = next(lines.selected_row for lines in console.app.screen.query("EntityTable"))
        row = console.rows()[place]
        await console.press("S")
        assert isinstance(console.app.screen, QuestionDialog)
        asked = box(console)
        assert not asked.y <= place < asked.bottom
        assert console.rows()[place].strip() == row.strip()
        inside = console.rows()[asked.y + 1 : asked.bottom - 1]
        assert len([one for one in inside if not one.strip(" │")]) <= 1, "no half screens of nothing"


@pytest.mark.parametrize("key", KEYS)
async def test_fast_typing_and_a_paste_arrive(open_console: Any, made: Any, key: str) -> None:
    """Typing is never lost: spaces too, whatever has the focus; a paste arrives."""
    async with open_console(made.outage()) as console:
        await console.press(key)
        for letter in "a b  c":
            console.app.post_message(events.Key("space" if letter == " " else letter, letter))
        await console.pilot.pause()
        field = console.app.screen.query_one(f"#{KEYS[key]}", Input)
        assert field.value == "a b  c"
        console.app.screen.query_one("#cancel").focus()
        await console.pilot.pause()
        console.app.post_message(events.Paste("pasted text\nsecond line"))
        await console.pilot.pause()
        assert field.value == "a b  cpasted text"
        assert console.feed.orders == []


async def test_the_fleets_question_loses_no_space(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm()), signer=signer()) as console:
        await console.press("F", "right", "enter")
        for letter in "3 engines":
            console.app.post_message(events.Key("space" if letter == " " else letter, letter))
        await console.pilot.pause()
        assert console.app.screen.query_one("#typed", Input).value == "3 engines"
        await console.press("enter")
    assert len(console.feed.posted) == 1

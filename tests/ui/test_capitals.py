"""Only capital letters and the menu change anything: every other key is pressed on every page, and nothing is asked."""

from __future__ import annotations

import string
from typing import Any

import pytest

from paired_servicebus.core.operator.actions import ACTIONS
from paired_servicebus.ui.commands.action_table import CONSOLE_ACTIONS
from paired_servicebus.ui.state.view import Page

LOOKING = sorted(
    {*string.ascii_lowercase, *string.digits, *(key for action in CONSOLE_ACTIONS for key in action.keys)}
    - set(string.ascii_uppercase)
    - {"q"}
)


def test_every_order_has_a_capital_letter() -> None:
    assert all(action.key in string.ascii_uppercase for action in ACTIONS)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page is Page.ENTITY else pytest.mark.slow) for page in Page],
)
async def test_no_other_key_orders_or_asks_anything(open_console: Any, made: Any, page: Page) -> None:
    async with open_console(made.backlog()) as console:
        for key in LOOKING:
            await console.pilot.press(str(list(Page).index(page) + 1), key, "escape", "escape")
        await console.press("1")
        assert console.feed.orders == []
        assert console.feed.armed == []


async def test_the_keys_of_less_move_in_a_list(open_console: Any, made: Any) -> None:
    entities = tuple(made.entity(f"e-{number:02}") for number in range(40))
    async with open_console(made.snapshot(*entities)) as console:
        for key, place in (("G", 39), ("g", 0), ("ctrl+f", 12), ("ctrl+d", 18), ("ctrl+u", 12), ("ctrl+b", 0)):
            await console.press(key)
            listed = [entity.path for entity in console.app.view.listed]
            assert listed.index(console.app.view.selected) == place, key

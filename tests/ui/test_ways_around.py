"""Where one can go is on the screen: tabs, menu, command bar and mouse end where the keys end."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.pick_list import Choice, PickList, narrowed
from paired_servicebus.ui.state.view import Page
from paired_servicebus.ui.widgets.entity_table import EntityTable
from paired_servicebus.ui.widgets.frame.page_lines import AnswerLine, HeaderNames, KeyLine
from tests import fleet_views, gateway_views


@pytest.mark.parametrize(
    "size", [(60, 20), (140, 40), *(pytest.param(size, marks=pytest.mark.slow) for size in ((80, 24), (200, 50)))]
)
async def test_the_present_page_is_in_the_header(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    crowd = made.backlog(gateway=gateway_views.outage(), fleet=fleet_views.outage())
    async with open_console(crowd, size=size) as console:
        for number, page in enumerate(Page, start=1):
            await console.press(str(number))
            header = console.rows()[0]
            assert re.search(rf"\[{number} {page.title()}[ 0-9]*\]", header), header
            assert " PRODUCTION " in header


async def test_a_click_on_a_tab_opens_its_page(open_console: Any, made: Any) -> None:
    async with open_console(made.backlog(), size=(140, 40)) as console:
        for word, page in (("4 Events", Page.TIMELINE), ("3 Backlog", Page.BACKLOG), ("1 Overview", Page.PAIRING)):
            await console.pilot.click(HeaderNames, offset=(console.rows()[0].index(word), 0))
            assert console.app.view.page is page


async def test_a_click_selects_a_row_and_the_wheel_the_next(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        top = console.app.screen.query_one(EntityTable).region.y
        place = next(y for y, row in enumerate(console.rows()) if y >= top and "audit" in row)
        await console.pilot.click(EntityTable, offset=(5, place - top))
        assert console.app.view.selected == "audit"
        before = console.app.view.selected
        console.app.screen.on_mouse_scroll_up()
        assert console.app.view.selected != before


async def test_a_click_on_the_key_line_is_its_key(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.pilot.click(KeyLine, offset=(console.rows()[-1].index("F force") + 1, 0))
        await console.pilot.pause()
        assert isinstance(console.app.screen, ArmDialog)


async def test_the_menu_names_targets_and_reasons_and_a_key_picks(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("x")
        screen = console.screen()
        assert "F      force" in screen
        assert "not now" in screen
        await console.press("U")
        assert isinstance(console.app.screen, DashboardScreen)
        assert "not possible" in console.screen()
        await console.press("x", "F")
        assert isinstance(console.app.screen, ArmDialog)
        assert console.feed.orders == []


async def test_the_command_bar_knows_other_words_and_entities_and_says_if_nothing_is_found(
    open_console: Any, made: Any
) -> None:
    async with open_console(made.backlog()) as console:
        await console.press("colon", *"delete")
        assert "clean up" in console.screen()
        await console.press("escape", "colon", *"payments", "enter")
        assert (console.app.view.page, console.app.view.selected) == (Page.ENTITY, "payments")
        await console.press("colon", *"zebra")
        assert "“zebra”" in console.screen()
        await console.press("enter")
        assert isinstance(console.app.screen, PickList)


def test_a_label_that_begins_with_the_words_comes_first() -> None:
    def row(label: str, words: str = "") -> Choice:
        return Choice(label=label, about="", do=lambda: None, words=words)

    rows = [row("a", "force"), row("reinforce"), row("force failover"), row("b")]
    assert [one.label for one in narrowed(rows, "force")] == ["force failover", "reinforce", "a"]


async def test_an_answer_leaves_the_screen(open_console: Any, made: Any) -> None:
    passed = [0.0]
    async with open_console(made.snapshot(), now=lambda: made.AT + passed[0]) as console:
        await console.press("U")
        assert "not possible" in console.screen()
        passed[0] = 31.0
        await console.told(made.snapshot())
        assert console.app.screen.query_one(AnswerLine)
        assert "not possible" not in console.screen()

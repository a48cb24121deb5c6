"""Keys do what the table says, ask before what is dangerous, and change nothing before the engine does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.widgets import Button

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.ui.commands.action_table import ActionTarget, by_key, facts
from paired_servicebus.ui.engines.feed import FireRequest
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.text_screens import HelpScreen

PAUSE = ("right", "enter")
"""From the question whether to pause the syphon to the answer."""
AIM = ActionTarget(Scope.ENTITY, ("payments",))


async def test_arrows_and_vi_keys_select(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        for key, selected in [("down", "payments"), ("j", "audit"), ("k", "payments"), ("up", "orders")]:
            await console.press(key)
            assert f"▸● {selected}" in console.screen()


async def test_q_leaves_with_0(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("q")
    assert console.app.return_value == 0
    assert console.feed.orders == []


async def test_where_the_engine_ends_with_the_dashboard_q_says_so(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(), engine_stays=False) as console:
        assert "engine stops" in console.rows()[-1]
        await console.press("q")
    assert console.app.return_value == 0


async def test_the_syphon_is_paused_after_a_question_and_resumed_without_one(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("S", *PAUSE)
        assert console.feed.orders == [("pause-syphon", "", "kim")]
        assert "✓ 14:02:15" in console.screen()
        assert "○ idle" in console.screen(), "the engine has not said that it is paused"
        await console.told(made.snapshot(syphon=made.syphon(SyphonStatus.PAUSED, text="paused by kim")))
        assert "■ paused" in console.screen()
        await console.press("S")
        assert console.feed.orders[1:] == [("resume-syphon", "", "kim")]


async def test_a_refusal_is_one_line(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        console.feed.refusal = "refused: this engine is read-only, and pause-syphon changes something"
        await console.press("S", *PAUSE)
        assert "✗ 14:02:15" in console.screen()


async def test_while_an_answer_is_awaited_nothing_else_is_ordered(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        console.feed.hold = asyncio.Event()
        await console.press("S", *PAUSE, "S", "F")
        assert "no answer" in console.screen()
        assert isinstance(console.app.screen, DashboardScreen)
        assert len(console.feed.orders) == 1
        console.feed.hold.set()
        await console.pilot.pause()
        assert "✓ 14:02:15 pause syphon" in console.screen()


@pytest.mark.parametrize("key", ["F", "U", "S"])
async def test_read_only_gives_no_order(open_console: Any, made: Any, key: str) -> None:
    async with open_console(made.snapshot(made.failed_over("payments")), read_only=True) as console:
        assert "read-only" in console.rows()[0]
        await console.press(key, "tab", "enter")
        assert console.feed.orders == []
        assert "is read-only" in console.screen()


# -- the question before a dangerous act -------------------------------------------------------------------------


async def test_the_question_names_target_reach_and_consequence_with_cancel_in_focus(
    open_console: Any, outage_news: Any
) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F")
        screen = console.screen()
        assert "failover: payments" in screen
        assert "orders@web-1" in screen
        assert "the backlog" in screen
        assert isinstance(console.app.focused, Button)
        assert console.app.focused.id == "cancel"
        assert "over: payments" in console.rows()[1], "the summary stays in sight"


async def test_cancelling_does_nothing(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        for keys in (
            ("enter",),
            ("escape",),
            (*"payments", "tab", "tab", "enter"),
            ("right", "left", "enter"),
            (*"payment", "enter", "escape"),
        ):
            await console.press("F", *keys)
            assert isinstance(console.app.screen, DashboardScreen), keys
            assert console.feed.orders == [], keys


@pytest.mark.parametrize("keys", [("enter",), ("tab", "tab", "tab", "enter")])
async def test_typing_the_name_fires_exactly_one_command(
    open_console: Any, outage_news: Any, keys: tuple[str, ...]
) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F", *"payments", *keys)
        assert isinstance(console.app.screen, DashboardScreen)
        assert console.feed.orders == [("force", "payments", "kim")]
        assert console.feed.fired == [FireRequest(token="t", typed="payments")]
        assert "✓ 14:02:15" in console.screen()
        assert "failed over" in console.screen(), "forced only when the engine says so"


async def test_for_several_the_number_is_typed_and_their_marks_are_spent(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("space", "space", "F")
        assert "2 entities" in console.screen()
        await console.press("escape")
        assert len(console.app.view.marks) == 2, "nothing was done with them"
        await console.press("F", "2", "enter")
        assert console.feed.orders == [], "one character proves nothing"
        await console.press(*" entities", "enter")
        assert console.feed.orders == [("force", "orders payments", "kim")]
        assert console.app.view.marks == frozenset()


async def test_what_is_not_typed_right_fires_nothing(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        for typed in ("", "payment", "orders"):
            await console.press("F", "tab", "tab", "tab", *typed, "enter")
            assert console.feed.orders == [], typed
            while not isinstance(console.app.screen, DashboardScreen):
                await console.press("escape")


async def test_an_arming_that_ran_out_is_renewed_when_it_is_fired(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        console.feed.seconds = 0.0
        await console.press("F", *"payments", "enter")
        assert console.feed.armed == [("force", ("payments",))] * 2
        assert console.feed.orders == [("force", "payments", "kim")]


async def test_a_renewed_arming_that_asks_for_another_text_fires_nothing(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        console.feed.seconds = 0.0
        await console.press("F", *"payments")
        console.feed.to_type = "payments no other host uses it"
        await console.press("enter")
        assert console.feed.orders == []
        assert "now asks" in console.screen()


async def test_enter_after_a_wrong_name_says_so_and_the_next_letter_clears_it(
    open_console: Any, outage_news: Any
) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F", *"paymnts", "enter")
        assert "'paymnts'" in console.screen()
        await console.press("x")
        assert "Nothing was" not in console.screen()


async def test_a_reason_is_always_offered_and_goes_with_the_order(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F", *"payments", "tab")
        assert "Why (optional)" in console.screen()
        await console.press(*"drill", "enter")
        assert console.feed.fired == [FireRequest(token="t", typed="payments", why="drill")]


async def test_a_refused_arming_is_one_line_and_no_question(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        console.feed.refusal = "refused: this engine is read-only"
        await console.press("F")
        assert isinstance(console.app.screen, DashboardScreen)
        assert "✗ 14:02:15" in console.screen()


async def test_where_a_reason_is_required_it_is_asked_for(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(require_reason=True)) as console:
        await console.press("F", *"orders", "enter")
        assert console.feed.orders == []
        await console.press("tab", *"drill", "enter")
        assert console.feed.fired == [FireRequest(token="t", typed="orders", why="drill")]


async def test_release_is_fired_the_same_way(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(made.forced("payments"))) as console:
        await console.press("U", *"payments", "enter")
        assert console.feed.orders == [("release", "payments", "kim")]


async def test_what_the_question_says_is_alive(open_console: Any, made: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F")
        assert "now 38/s" in console.screen()
        await console.told(made.snapshot(made.entity("orders"), made.failed_over("payments", sends_per_second=57.0)))
        assert "now 57/s" in console.screen()
        assert "0 messages parked" in console.screen()


async def test_the_target_stays_when_the_entities_change(open_console: Any, made: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F", *"payments")
        await console.told(made.snapshot(made.entity("other")))
        assert "failover: payments" in console.screen()
        assert "entity 'payments'" in console.screen()
        await console.press("enter")
        assert console.feed.orders == []


async def test_what_became_impossible_cannot_be_fired(open_console: Any, made: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F", *"payments", "tab", "tab")
        await console.told(made.snapshot(made.entity("orders"), made.forced("payments")))
        assert "forced already" in console.screen()
        assert console.app.focused.id == "cancel"
        await console.press("enter")
        assert console.feed.orders == []


async def test_an_engine_lost_behind_the_question_is_said(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("F")
        console.feed.lose()
        await console.pilot.pause()
        assert "is unreachable" in console.screen()
        assert "engine unreachable" in console.rows()[1]


async def test_a_name_from_outside_is_plain_text_in_the_question(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(made.entity("[b]x[/]\x1b[2J"))) as console:
        await console.press("F")
        assert "[b]x[/]\\x1b[2J" in console.screen()


@pytest.mark.parametrize("reason", [False, True])
async def test_in_a_small_terminal_facts_scroll_and_the_rest_stays_in_sight(
    open_console: Any, made: Any, reason: bool
) -> None:
    async with open_console(made.outage(require_reason=reason), size=(60, 20)) as console:
        await console.press("F")
        seen = console.screen()
        for _ in range(12):
            for shown in ("Force failover: payments", "↑ ↓ all of it", "Type payments", "Why", "Cancel"):
                assert shown in console.screen()
            assert "over: payments" in console.rows()[1]
            await console.press("down", "down")
            seen += console.screen()
        assert all(f"│ {fact.label} " in seen for fact in facts("force", console.app.view.snapshot, AIM))
        await console.press("right", "left", *"payments", *(["tab", *"drill"] if reason else []), "enter")
        assert console.feed.orders == [("force", "payments", "kim")]


# -- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_the_help_is_made_from_the_tables(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    async with open_console(made.snapshot(), size=size) as console:
        await console.press("question_mark")
        screen = console.screen()
        for _ in range(4):
            await console.press(*["down"] * 15)
            screen += console.screen()
        for action in by_key(console.app.view):
            about = action.help if not action.why_not(console.app.view) else "not now: "
            key = console.app.view.keys.label(action)
            assert f"{key:<6}{action.label:<20}{about}" in screen
        assert "not now" in screen
        await console.press("end")
        assert all(f" {state} " in console.screen() for state in State)
        await console.press("escape")
        assert isinstance(console.app.screen, DashboardScreen)


async def test_the_help_gives_no_order(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("question_mark", "S", "F", "j")
        assert isinstance(console.app.screen, HelpScreen)
        assert console.feed.orders == []

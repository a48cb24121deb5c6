"""Keys do what the table says, ask before what is dangerous, and change nothing before the engine does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual.widgets import Button

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.ui.commands.action_table import by_key, facts
from paired_servicebus.ui.screens.pages import DashboardScreen
from paired_servicebus.ui.screens.text_screens import TextScreen
from paired_servicebus.ui.state.view import Records

from .plays import MADE, Play, fed, feed, focused, holds, lacks, lost, on, ordered, play, row, run, sees, told, viewed

PAUSE = ("right", "enter")
"""From the question whether to pause the syphon to the answer."""
AIM = Command(action_id="force", scope=Scope.ENTITY, targets=("payments",))
WELL, OUTAGE = MADE.snapshot(), (Records(MADE.records()), MADE.outage())
PAUSED = MADE.snapshot(syphon=MADE.syphon(SyphonStatus.PAUSED, text="paused by kim"))
FIRED = ("t", "payments", "")

PLAYS: dict[str, Play] = {
    "arrows and vi keys select": play(
        WELL, "down", sees("▸● payments"), "j", sees("▸● audit"), "k", sees("▸● payments"), "up", sees("▸● orders")
    ),
    "where the engine ends with the dashboard q says so": play(
        WELL, row(-1, "engine stops"), "q", holds(lambda console: console.app.return_value == 0), engine_stays=False
    ),
    "the syphon is paused after a question and resumed without one": play(
        WELL, "S", *PAUSE, ordered("pause-syphon"), sees("✓ 14:02:15", "○ idle"),  # the engine has not said it
        told(PAUSED), sees("■ paused"), "S", ordered("pause-syphon", "resume-syphon"),
    ),
    "a refusal is one line": play(WELL, feed(refusal="refused: read-only"), "S", *PAUSE, sees("✗ 14:02:15")),
    # -- the question before a dangerous act
    "the question names target, reach and consequence with cancel in focus, and the summary stays": play(
        *OUTAGE, "F", sees("failover: payments", "orders@web-1", "the backlog"), focused("cancel"),
        holds(lambda console: isinstance(console.app.focused, Button)), row(1, "over: payments"),
    ),
    "for several the number is typed, one character proves nothing, and their marks are spent": play(
        WELL, "space", "space", "F", sees("2 entities"), "escape", viewed(marks={"orders", "payments"}),
        "F", "2", "enter", ordered(), *" entities", "enter", ordered("force orders payments"),
        viewed(marks=frozenset()),
    ),
    "an arming that ran out is renewed when it is fired": play(
        *OUTAGE, feed(seconds=0.0), "F", *"payments", "enter", fed(armed=[("force", ("payments",))] * 2),
        ordered("force payments"),
    ),
    "a renewed arming that asks for another text fires nothing": play(
        *OUTAGE, feed(seconds=0.0), "F", *"payments", feed(to_type="payments no other host uses it"), "enter",
        ordered(), sees("now asks"),
    ),
    "enter after a wrong name says so and the next letter clears it": play(
        *OUTAGE, "F", *"paymnts", "enter", sees("'paymnts'"), "x", lacks("Nothing was")
    ),
    "a reason is always offered and goes with the order": play(
        *OUTAGE, "F", *"payments", "tab", sees("Why (optional)"), *"drill", "enter",
        fed(fired=[("t", "payments", "drill")]),
    ),
    "a refused arming is one line and no question": play(
        *OUTAGE, feed(refusal="refused: this engine is read-only"), "F", on(DashboardScreen), sees("✗ 14:02:15")
    ),
    "where a reason is required it is asked for": play(
        MADE.snapshot(require_reason=True), "F", *"orders", "enter", ordered(), "tab", *"drill", "enter",
        fed(fired=[("t", "orders", "drill")]),
    ),
    "release is fired the same way": play(
        MADE.snapshot(MADE.forced("payments")), "U", *"payments", "enter", ordered("release payments")
    ),
    "what the question says is alive": play(
        *OUTAGE, "F", sees("now 38/s"),
        told(MADE.snapshot(MADE.entity("orders"), MADE.failed_over("payments", sends_per_second=57.0))),
        sees("now 57/s"), "pagedown", sees("0 messages parked"),
    ),
    "the target stays when the entities change": play(
        *OUTAGE, "F", *"payments", told(MADE.snapshot(MADE.entity("other"))),
        sees("failover: payments", "entity 'payments'"), "enter", ordered(),
    ),
    "what became impossible cannot be fired": play(
        *OUTAGE, "F", *"payments", "tab", "tab", told(MADE.snapshot(MADE.entity("orders"), MADE.forced("payments"))),
        sees("forced already"), focused("cancel"), "enter", ordered(),
    ),
    "an engine lost behind the question is said": play(
        *OUTAGE, "F", lost(), sees("is unreachable"), row(1, "engine unreachable")
    ),
    "a name from outside is plain text in the question": play(
        MADE.snapshot(MADE.entity("[b]x[/]\x1b[2J")), "F", sees("[b]x[/]\\x1b[2J")
    ),
    "the help gives no order": play(WELL, "question_mark", "S", "F", "j", on(TextScreen), ordered()),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
async def test_a_key_does_what_the_table_says(open_console: Any, name: str) -> None:
    await run(open_console, PLAYS[name])


@pytest.mark.parametrize("key", ["F", "U", "S"])
async def test_read_only_gives_no_order(open_console: Any, key: str) -> None:
    snapshot = MADE.snapshot(MADE.failed_over("payments"))
    steps = row(0, "read-only"), key, "tab", "enter", ordered(), sees("is read-only")
    await run(open_console, play(snapshot, *steps, read_only=True))


async def test_q_leaves_with_0(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("q")
    assert console.app.return_value == 0
    assert console.feed.orders == []


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


async def test_cancelling_and_what_is_not_typed_right_do_nothing(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        for keys in (
            ("enter",),
            ("escape",),
            (*"payments", "tab", "tab", "enter"),
            ("right", "left", "enter"),
            (*"payment", "enter", "escape"),
            ("tab", "tab", "tab", *"orders", "enter", "escape"),
        ):
            await console.press("F", *keys)
            assert isinstance(console.app.screen, DashboardScreen), keys
            assert console.feed.orders == [], keys


@pytest.mark.parametrize("keys", [("enter",), ("tab", "tab", "tab", "enter")])
async def test_typing_the_name_fires_exactly_one_command(open_console: Any, keys: tuple[str, ...]) -> None:
    """Forced only when the engine says so."""
    steps = on(DashboardScreen), ordered("force payments"), fed(fired=[FIRED]), sees("✓ 14:02:15", "failed over")
    await run(open_console, play(*OUTAGE, "F", *"payments", *keys, *steps))


async def test_in_a_small_terminal_facts_scroll_and_the_rest_stays_in_sight(open_console: Any, made: Any) -> None:
    async with open_console(made.outage(require_reason=True), size=(60, 20)) as console:
        await console.press("F")
        seen = console.screen()
        for _ in range(12):
            for shown in ("Force failover: payments", "↑ ↓ all of it", "Type payments", "Why", "Cancel"):
                assert shown in console.screen()
            assert "over: payments" in console.rows()[1]
            await console.press("down", "down")
            seen += console.screen()
        assert all(f"│ {label} " in seen for label, _ in facts("force", console.app.view.snapshot, AIM))
        await console.press("right", "left", *"payments", "tab", *"drill", "enter")
        assert console.feed.orders == [("force", "payments", "kim")]


@pytest.mark.parametrize("size", [(80, 24), pytest.param((140, 40), marks=pytest.mark.slow)])
async def test_the_help_is_made_from_the_tables(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    async with open_console(made.snapshot(), size=size) as console:
        await console.press("question_mark")
        screen = console.screen()
        for _ in range(4):
            await console.press(*["down"] * 15)
            screen += console.screen()
        for action in by_key(console.app.view):
            about = action.help if not action.why_not(console.app.view) else "not now: "
            key = action.key(console.app.view.keys)
            assert f"{key:<6}{action.label:<20}{about}" in screen
        assert "not now" in screen
        await console.press("end")
        assert all(f" {state} " in console.screen() for state in State)
        await console.press("escape")
        assert isinstance(console.app.screen, DashboardScreen)

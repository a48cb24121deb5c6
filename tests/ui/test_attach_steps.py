"""A screen without figures says what is waited for, and since when: as `paired attach` and the demo begin."""

from __future__ import annotations

from typing import Any

from paired_servicebus.ui.state.view import Reached, Unreachable

from .conftest import AT


async def test_an_engine_without_an_answer_is_counted_in_seconds_with_the_reason(open_console: Any) -> None:
    async with open_console(Unreachable(AT - 2, "no engine answers at /run/s; start one with paired up")) as console:
        shown = console.screen()
        assert "… engine          no answer for 6 s: no engine answers at /run/s; start" in shown
        assert "one with paired up" in shown
        assert "· first figures   come with its answer" in shown


async def test_the_figures_of_an_engine_that_answered_are_waited_for(open_console: Any, made: Any) -> None:
    time = [AT]
    async with open_console(Reached(), now=lambda: time[0]) as console:
        assert "✓ engine          answers" in console.screen()
        assert "… first figures   asked for" in console.screen()
        await console.told(made.snapshot())
        assert "first figures" not in console.screen()
        assert "orders" in console.screen()


async def test_what_is_started_before_the_engine_is_shown(open_console: Any) -> None:
    steps = ["two namespaces"]
    async with open_console(Unreachable(AT, "no engine"), start_steps=lambda: steps) as console:
        assert "… start           two namespaces" in console.screen()
        steps.append("an engine")
        console.app.show(console.app.view)
        await console.pilot.pause()
        assert "✓ start           two namespaces" in console.screen()
        assert "· engine          answers once it runs" in console.screen(), "it is being started: nothing to do"
        assert "… start           an engine" in console.screen()


async def test_a_hostile_reason_stays_one_text(open_console: Any) -> None:
    async with open_console(Unreachable(AT, "\x1b]52;c;ZXZpbA==\x07 [b]" + "x" * 400)) as console:
        assert "\x1b" not in console.screen()
        assert "[b]" in console.screen()

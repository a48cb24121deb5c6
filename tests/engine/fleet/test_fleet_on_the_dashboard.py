"""An order over the fleet from a dashboard over a real engine: two engines do it, and the screen shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.widgets import Input

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.engines.order_signer import OrderSigner
from paired_servicebus.ui.screens.fleet_dialog import FleetDialog
from paired_servicebus.ui.screens.reach_dialog import ReachDialog
from paired_servicebus.ui.shell.app import PairedApp
from tests.engine.fleet.test_engines_meet import WAIT, Hosts
from tests.engine.fleet.test_orders_over_the_fleet import PEN, Pair, hosts, operators, state

__all__ = ["hosts", "operators"]


async def until(is_met: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT):
        while not is_met():
            await asyncio.sleep(0.02)


async def sign(signed: bytes) -> str:
    return PEN.sign(signed)


async def test_the_dashboard_orders_over_the_fleet_and_shows_the_answers(hosts: Hosts, operators: Path) -> None:
    shop, pay, _, _ = await Pair(hosts, operators).both(operators)
    shop.watch("payments")
    feed = EngineFeed(engine_paths("web-1").socket)
    app = PairedApp(feed, pairing="web-1", by="ada", signer=OrderSigner(key="k", sign=sign))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: app.view.entity is not None and len(app.view.snapshot.fleet.engines) == 2)  # type: ignore[union-attr]
        await until(lambda: not app.view.snapshot.fleet.trouble and app.view.snapshot.fleet.read_at)  # type: ignore[union-attr]
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ReachDialog) and app.focused is not None)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, FleetDialog))
        await until(lambda: app.screen.draft is not None and app.screen.to_type == "2 engines")  # type: ignore[attr-defined]
        assert (state(shop), state(pay)) != (State.FORCED, State.FORCED)
        app.screen.query_one("#typed", Input).focus()
        await pilot.press(*"2 engines", "enter")
        await until(lambda: app.view.answer is not None and "2 done" in app.view.answer.text)
        assert app.view.answer is not None
        assert app.view.answer.text.startswith("payments forced by operator-a until ")
    assert (state(shop), state(pay)) == (State.FORCED, State.FORCED)

"""A file of operators that changes while engines run: the right goes, and what stands by it; over two engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.model.entity_state import State
from tests.engine.fleet.pens import Pen
from tests.engine.fleet.test_engines_meet import WAIT, shown
from tests.engine.fleet.test_orders_over_the_fleet import (
    PEN,
    Pair,
    answered,
    draft,
    drafted,
    hosts,
    operators,
    pair,
    post,
    state,
)

__all__ = ["hosts", "operators", "pair"]


async def test_a_removed_operator_loses_the_right_and_what_stands_by_it_without_a_restart(
    pair: Pair, operators: Path
) -> None:
    shop, pay, console, view = await pair.both(operators)
    force = draft(view, "force")
    await post(console, force)
    await answered(console, force, lambda one: len(one.done) == 2)
    operators.write_text(f"operator-b {Pen(2).line}\n")
    with pytest.raises(CommandRefusedError, match="is not in the file of operators"):
        await post(console, draft(view, "pause-syphon", scope="all", targets=()))
    order = await answered(console, force, lambda one: len(one.refused) == 2)
    assert "is not in the file of operators" in order.void
    await shown(console, lambda fleet: State.FORCED not in (state(shop), state(pay)))


async def test_a_file_that_is_lost_refuses_orders_and_leaves_what_stands(pair: Pair, operators: Path) -> None:
    pay, console, view = await pair.first()
    force = draft(view, "force")
    await post(console, force)
    await answered(console, force, lambda one: one.done == ("web-2",))
    operators.unlink()
    async with asyncio.timeout(WAIT):
        async for update in console.updates():
            if any("there is no file of operators" in one for one in getattr(update, "alarms", ())):
                break
    await post(console, pause := draft(view, "pause-syphon", scope="all", targets=()))
    order = await answered(console, pause, lambda one: one.refused)
    assert "look only: there is no file of operators" in order.refused[0][1]
    assert state(pay) is State.FORCED


async def test_an_engine_with_another_file_is_named_before_the_order(pair: Pair, operators: Path, short: Path) -> None:
    other = short / "other"
    other.write_text(f"operator-a {PEN.line}\n# here\n")
    other.chmod(0o600)
    _, _, console, _ = await pair.both(other)
    snapshot = await shown(console, lambda fleet: any("file of signers" in one for one in fleet.remarks))
    assert snapshot.fleet is not None
    assert drafted(snapshot.fleet, "force").takes == ("may refuse (another file of signers): web-1",)

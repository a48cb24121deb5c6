"""`kill -9` of the engine that cleans the boards: no post that counts goes, and the others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import (
    PRESENCE_SECONDS,
    Board,
    Goodbye,
    Order,
    OrderText,
    Presence,
    Watch,
)
from paired_servicebus.core.fleet.orders.order_text import encode_order_text
from tests.engine.fleet.conftest import AUTHOR, answer, new_id, presence
from tests.fleet_processes.console import PEN
from tests.fleet_processes.host import Host
from tests.fleet_processes.kills import check_states
from tests.fleet_processes.setting import ENTITY, PATIENCE, Broken
from tests.fleet_processes.stage import Stage, stage

OVER: Final = 300
"""Posts on each board that do not count, behind one that does: a batch delete reaches none of them."""
AGE: Final = 900.0
"""Seconds since they were posted."""
CLEANERS: Final = 3
"""Consoles; the engine of each but the last is killed while it cleans."""
GONE: Final = replace(AUTHOR, engine="gone")
DAY: Final = 86_400.0
SLOW: Final = 0.05


async def cleaning_kills(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Kill the engines that clean the boards in the middle of it."""
    async with stage(seed) as world:
        counting = await _fill(world)
        before = {board: len(world.posts(board)) for board in Board}
        hosts, console = await world.watched(count)
        check_states(hosts, "force")
        consoles = [console, *[await world.console(host) for host in hosts[1:CLEANERS]]]
        for host in hosts[: CLEANERS - 1]:
            left = await _kill_cleaner(world, host, counting)
            say(f"{host.name} is killed while it cleans; {left}")
        await _cleaned(world, counting)
        after = {board: len(world.posts(board)) for board in Board}
        say("posts " + ", ".join(f"on {board}: {before[board]}, then {after[board]}" for board in Board))
        await world.start(hosts[: CLEANERS - 1])
        check(world, counting)
        world.check_first_sends(hosts[: CLEANERS - 1], "secondary")
        release = await consoles[-1].order("release")
        order = await consoles[-1].done_by_all(release, count)
        say(f"an order afterwards is done by {len(order.done)}")


async def _fill(world: Stage) -> frozenset[str]:
    """Post what counts, and much behind it that does not; let time pass. Return the ids of the former."""
    text = OrderText(
        id=new_id(), primary="primary", secondary="secondary", verb="force", scope="entity", targets=(ENTITY,),
        engines=None, typed=ENTITY, why="drill", issued_at=time.time(), act_within=60.0, stands_for=3 * 3600.0,
        on_top_of=0, seen=(("gone", "healthy"),),
    )  # fmt: skip
    signed = encode_order_text(text)
    kept, ended = answer(order_id=text.id), Goodbye(id=new_id(), author=GONE, reason="its time was over")
    async with world.board() as board:
        await board.write(Order(text=text, signed=signed, signature=PEN.sign(signed)), DAY)
        await board.write(kept, DAY)
        for _ in range(OVER):
            await board.write(Watch(id=new_id(), by="gone", look=5.0, report=15.0), 120.0)
            await board.write(presence(author=GONE), PRESENCE_SECONDS)
        await board.write(ended, PRESENCE_SECONDS)
    world.sandbox.advance(AGE)
    return frozenset({text.id, kept.id, ended.id})


async def _kill_cleaner(world: Stage, host: Host, counting: frozenset[str]) -> str:
    """Kill an engine as soon as it has deleted a few posts, and holds others; return what is left."""
    before = {board: len(world.on_board(board)) for board in Board}
    host.slow(SLOW)
    held = 0
    async with asyncio.timeout(PATIENCE):
        while True:
            held = sum(one.lock_token is not None for board in Board for one in world.on_board(board))
            if held and any(len(world.on_board(board)) < before[board] for board in Board):
                break
            before = {board: max(before[board], len(world.on_board(board))) for board in Board}
            await asyncio.sleep(0.005)
    await host.kill()
    host.slow(0.0)
    check(world, counting)
    return (
        ", ".join(f"{board}: {before[board]} posts, then {len(world.on_board(board))}" for board in Board)
        + f"; {held} held"
    )


async def _cleaned(world: Stage, counting: frozenset[str]) -> None:
    """Wait until little is left that does not count. Raises Broken."""
    try:
        async with asyncio.timeout(PATIENCE):
            while any(_over(world, board) > OVER / 10 for board in Board):
                check(world, counting)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise Broken(f"not cleaned: { {str(board): _over(world, board) for board in Board} }") from None
    check(world, counting)


def _over(world: Stage, board: Board) -> int:
    """Return the number of posts of `_fill` that do not count."""
    return sum(
        (isinstance(one.document, Watch) and one.document.by == "gone")
        or (isinstance(one.document, Presence) and one.document.author.engine == "gone")
        for one in world.posts(board)
    )  # fmt: skip


def check(world: Stage, counting: frozenset[str]) -> None:
    """Raise Broken unless the posts of these ids, and a presence of each present boot, are on the boards."""
    posts = [one for board in Board for one in world.posts(board)]
    ids = {one.copies for one in posts}
    if gone := counting - ids:
        raise Broken(f"deleted, though they count: {gone}")
    present = {one.document.author.engine for one in posts if isinstance(one.document, Presence)}
    if missing := [host.name for host in world.hosts if host.name not in present]:
        raise Broken(f"the presence of {missing} was deleted")

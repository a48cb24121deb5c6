"""`kill -9` of the engine that a console posts through: between watch and order, and in the middle of the post."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.fleet.fleet_documents import Board, Order, OrderText
from tests.fleet_processes.console import Console
from tests.fleet_processes.host import Host
from tests.fleet_processes.kills import check_states
from tests.fleet_processes.setting import Broken
from tests.fleet_processes.stage import Stage, stage

POSTS: Final = 8
"""Kills in the middle of a post."""
LONGEST_POST: Final = 0.4
"""Seconds of a post through a slow gate, about."""
SLOW: Final = 0.02
QUIET: Final = 12.0
"""Seconds in which nobody may act on an order that is not on the board: more than two looks."""


async def posting_kills(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Kill the engine through which a console posts, after its watch and in the middle of a post."""
    async with stage(seed) as world:
        hosts, console = await world.watched(count)
        await _between(world, hosts, console, say)
        landed = 0
        for number in range(POSTS):
            landed += await _within(world, hosts, ("force", "release")[number % 2])
        say(f"{POSTS} kills in the middle of a post: {landed} orders on the board and done by all, the others by none")


async def _between(world: Stage, hosts: list[Host], console: Console, say: Callable[[str], None]) -> None:
    text = console.draft("force")
    await hosts[0].kill()
    try:
        await console.post(text)
    except PairedError as error:
        say(f"the console says: {error}")
    else:
        raise Broken("a post through a killed engine succeeded")
    await asyncio.sleep(QUIET)
    check_states(hosts[1:], "release")
    if _is_on_board(world, text):
        raise Broken("an order that was not posted is on the board")
    other = await world.console(hosts[1])
    await other.until(lambda view: view.watched and view.read_at is not None, "it is watched")
    force = await other.order("force")
    await other.answered(force, len(hosts) - 1)
    await world.start([hosts[0]])
    world.check_first_sends([hosts[0]], "secondary")
    await other.answered(force, len(hosts))
    release = await other.order("release")
    await other.answered(release, len(hosts))
    await other.close()


async def _within(world: Stage, hosts: list[Host], verb: str) -> bool:
    """Kill the posting engine during a post; return whether the order is on the board."""
    first, others = hosts[0], hosts[1:]
    console = await world.console(first)
    await console.reporting(len(hosts))
    before = [host.state for host in others]
    text = console.draft(verb)
    first.slow(SLOW)
    posting = asyncio.create_task(console.post(text))
    await asyncio.sleep(world.draw.uniform(0.0, LONGEST_POST))
    await first.kill()
    first.slow(0.0)
    refused = (await asyncio.gather(posting, return_exceptions=True))[0]
    if is_there := _is_on_board(world, text):
        for host in others:
            await host.until(lambda host=host: (host.state == "forced") == (verb == "force"), 30.0, f"does {verb}")  # type: ignore[misc]
    else:
        if refused is None:
            raise Broken("the console was told that the order is posted, and it is not on the board")
        await asyncio.sleep(QUIET)
        if [host.state for host in others] != before:
            raise Broken("engines acted on an order that is not on the board")
    await console.close()
    await first.start()
    return is_there


def _is_on_board(world: Stage, text: OrderText) -> bool:
    posts = world.posts(Board.ORDERS)
    return any(isinstance(one.document, Order) and one.copies == text.id for one in posts)

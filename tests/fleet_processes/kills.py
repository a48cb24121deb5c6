"""`kill -9` of engines in the middle of orders and of boots: the next boot holds what stands before its first send."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import OrderText
from tests.fleet_processes.console import Console
from tests.fleet_processes.host import Host
from tests.fleet_processes.setting import Broken
from tests.fleet_processes.stage import Stage, stage

VICTIMS: Final = 4
"""Engines that are killed in one order."""
ROUNDS: Final = 6
LOOK: Final = 5.0
"""Seconds within which a watched engine looks."""
BOOT_KILLS: Final = 4
"""Kills of one engine in the middle of its boot."""
ANSWERED: Final = 90.0
SLOW: Final = 0.03
"""Seconds that each chunk takes between a booting engine and the secondary namespace."""


async def order_kills(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Kill engines after an order was posted and before they answer; also in the middle of its release."""
    async with stage(seed) as world:
        hosts, console = await world.watched(count)
        moments: Counter[str] = Counter()
        for number in range(ROUNDS):
            verb = ("force", "release")[number % 2]
            victims = world.draw.sample(hosts[1:], min(VICTIMS, count - 1))
            text = await console.order(verb)
            kills = (_kill(world, console, one, text, is_exact=one is victims[0]) for one in victims)
            moments.update(await asyncio.gather(*kills))
            for host in victims:
                host.slow(SLOW)
            await world.start(victims)
            for host in victims:
                host.slow(0.0)
            world.check_first_sends(victims, "secondary" if verb == "force" else "primary")
            await console.done_by_all(text, count, ANSWERED)
            check_states(hosts, verb)
        say(f"{sum(moments.values())} kills in {ROUNDS} orders: {_told(moments)}")


async def _kill(world: Stage, console: Console, host: Host, text: OrderText, *, is_exact: bool) -> str:
    """Kill a host at a random moment, or right after its act; return which it was."""
    before = len(host.states)
    if is_exact:
        await host.until(lambda: len(host.states) > before, 3 * LOOK, "has acted")
    else:
        await asyncio.sleep(world.draw.uniform(0.0, LOOK))
    await host.kill()
    order = console.find(text)
    if order is not None and host.name in order.done:
        return "after the answer was shown"
    return "after the act" if len(host.states) > before else "before the act"


def check_states(hosts: list[Host], verb: str) -> None:
    """Raise Broken unless all are forced after a force, and none after a release."""
    wrong = [host.name for host in hosts if (host.state == "forced") != (verb == "force")]
    if wrong:
        raise Broken(f"after {verb}, the wrong state in {wrong}")


async def boot_kills(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Kill engines again and again while they boot and take up what stands."""
    async with stage(seed) as world:
        hosts, console = await world.watched(count)
        force = await console.order("force")
        await console.answered(force, count)
        victims = world.draw.sample(hosts[1:], min(VICTIMS, count - 1))
        moments: Counter[str] = Counter()
        for text, side in ((force, "secondary"), (None, "primary")):
            for host in victims:
                await host.kill()
                host.slow(SLOW)
            text = text or await console.order("release")
            for found in await asyncio.gather(*(_kill_boots(world, one, side) for one in victims)):
                moments.update(found)
            for host in victims:
                host.slow(0.0)
            await world.start(victims)
            world.check_first_sends(victims, side)
            await console.done_by_all(text, count, ANSWERED)
            check_states(hosts, text.verb)
        say(f"{sum(moments.values())} kills of boots: {_told(moments)}")


async def _kill_boots(world: Stage, host: Host, side: str) -> list[str]:
    """Kill boots, every other one after it has paired; no first send may go to another side. Raises Broken."""
    moments = []
    for number in range(BOOT_KILLS):
        await host.begin()
        if number % 2:
            await host.until(lambda: host.takes_up, 60.0, "takes up")
        await asyncio.sleep(world.draw.uniform(0.0, 1.0 if number % 2 else 4.0))
        await host.kill()
        if (found := world.where(host.greeting)) not in ("", side):
            raise Broken(f"the first send of {host.greeting} is on the {found} side, not the {side}")
        if host.has_greeted:
            moments.append("after the first send")
        else:
            moments.append("during the take-up" if host.takes_up else "before the take-up")
    return moments


def _told(moments: Counter[str]) -> str:
    return ", ".join(f"{count} {moment}" for moment, count in sorted(moments.items()))

"""Parking while credits throttle the secondary: a fleet that is watched may not cost parking its rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from paired_servicebus.engine.control.control_client import ControlClient
from servicebus_sandbox.specs import MAX_CREDITS
from tests.fleet_processes.engine import BATCH
from tests.fleet_processes.host import Host
from tests.fleet_processes.setting import BACKLOG, ENTITY, Broken
from tests.fleet_processes.stage import Stage, stage

CREDITS: Final = 200
"""Of the secondary in a second: a fifth of the tier Standard, so that they bound the rate and not this machine."""
PHASES: Final = 3
"""Of each kind, alternating."""
SETTLE: Final = 4.0
MEASURED: Final = 20.0
LEAST: Final = 0.95
"""The share of its rate without a fleet that parking keeps."""
BOUND: Final = 0.9
"""The share of the credits that parking uses without a fleet: less is bounded by something else."""
OFFERED: Final = 8.0
"""Messages that all offer together, for each credit: engines wait after "server busy"."""


async def throttled(seed: int, count: int, say: Callable[[str], None]) -> None:
    """All park through a throttled secondary, with a watched fleet and without one, by turns."""
    async with stage(seed, credits=MAX_CREDITS) as plain, stage(seed, credits=MAX_CREDITS) as fleet:
        hosts = {plain: await _begin(plain, count, has_fleet=False), fleet: await _begin(fleet, count, has_fleet=True)}
        console = await fleet.console(hosts[fleet][0])
        await console.reporting(count)
        rates: dict[Stage, list[float]] = {plain: [], fleet: []}
        for world in hosts:
            _throttle(world)
        for number in range(2 * PHASES):
            world = (plain, fleet)[number % 2]
            rates[world].append(await _park(world, hosts[world]))
        without, with_fleet = median(rates[plain]), median(rates[fleet])
        share = with_fleet / without
        say(f"parked in a second, without: {_shown(rates[plain])}; with: {_shown(rates[fleet])}")
        say(f"medians {without:.1f} and {with_fleet:.1f} by {CREDITS} credits: {share:.1%}; {console.told()}")
        if without < BOUND * CREDITS:
            raise Broken(f"{without:.0f} of {CREDITS} parked in a second without a fleet: credits do not bound it")
        if share < LEAST:
            raise Broken(f"parking keeps {share:.1%} of its rate, not {LEAST:.0%}")


async def _begin(world: Stage, count: int, *, has_fleet: bool) -> list[Host]:
    """Start engines that park by a local order."""
    hosts = await world.add(count, has_fleet=has_fleet)
    for host in hosts:
        host.each = count * BATCH / (OFFERED * CREDITS)
    await world.start(hosts)
    for host in hosts:
        client = await ControlClient.connect(host.socket, watches=False)
        await client.order("force", targets=(ENTITY,), by="ada", typed=ENTITY)
        await client.close()
    return hosts


def _throttle(world: Stage) -> None:
    bucket = world.sandbox["secondary"].node.namespace.queue(BACKLOG).messages._credits
    assert bucket is not None
    bucket.per_second = CREDITS


async def _park(world: Stage, hosts: list[Host]) -> float:
    """Have all park for a while; return the messages parked in a second."""
    for host in hosts:
        host.tell("park")
    await asyncio.sleep(SETTLE)
    queue = world.sandbox["secondary"].node.namespace.queue(BACKLOG)
    before, began = queue.counts().active, time.monotonic()
    await asyncio.sleep(MEASURED)
    rate = (queue.counts().active - before) / (time.monotonic() - began)
    for host in hosts:
        host.tell("rest")
    return rate


def _shown(rates: list[float]) -> str:
    return ", ".join(f"{rate:.0f}" for rate in rates)

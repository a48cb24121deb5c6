"""Parking while credits throttle the secondary: a fleet that is watched may not cost parking its rate.

What is compared is credits, not two rates: engines rest for ten seconds after "server busy", so rates of two runs
differ by more than a fleet could cost. A credit is given out once. While credits are short, one message less is parked
for each credit that something else gets. While they are not, the fleet takes nothing from parking. So what is not
parked of the credits given out, as a share of all credits, is the most that the fleet can cost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from paired_servicebus.engine.control.control_client import ControlClient
from servicebus_sandbox.broker.queues.credits import CreditBucket
from servicebus_sandbox.specs import MAX_CREDITS
from tests.fleet_processes.engine import BATCH
from tests.fleet_processes.host import Host
from tests.fleet_processes.setting import BACKLOG, ENTITY, Broken
from tests.fleet_processes.stage import Stage, stage

CREDITS: Final = 1000
"""Of the secondary in a second, as in the tier Standard."""
PHASES: Final = 3
SETTLE: Final = 4.0
MEASURED: Final = 30.0
MOST: Final = 0.05
"""The share of all credits that something other than parking takes, in each phase."""
OFFERED: Final = 4.0
"""Messages that all offer together, for each credit: engines wait after "server busy"."""


class _Ledger(CreditBucket):
    """Counts the credits given out, and the operations refused."""

    __slots__ = ("given", "refused")

    def __init__(self, per_second: int, now: float) -> None:
        super().__init__(per_second, now)
        self.given = self.refused = 0

    def spend(self, cost: int, now: float) -> bool:
        is_spent = super().spend(cost, now)
        if is_spent:
            self.given += cost
        else:
            self.refused += 1
        return is_spent


async def throttled(seed: int, count: int, say: Callable[[str], None]) -> None:
    """All park through a throttled secondary, in a watched fleet."""
    async with stage(seed, credits=MAX_CREDITS) as world:
        hosts = await world.add(count)
        await _begin(world, hosts)
        console = await world.console(hosts[0])
        await console.reporting(count)
        agenda = world.sandbox["secondary"].node.namespace._agenda
        ledger = agenda.credits = _Ledger(CREDITS, agenda.clock())
        for _ in range(PHASES):
            say(await _park(world, hosts, ledger))
        say(console.told())


async def _begin(world: Stage, hosts: list[Host]) -> None:
    """Start engines that park by a local order."""
    for host in hosts:
        host.each = len(hosts) * BATCH / (OFFERED * CREDITS)
    await world.start(hosts)
    for host in hosts:
        client = await ControlClient.connect(host.socket, watches=False)
        await client.order("force", targets=(ENTITY,), by="ada", typed=ENTITY)
        await client.close()


async def _park(world: Stage, hosts: list[Host], ledger: _Ledger) -> str:
    """Have all park for a while; return the figures. Raises Broken."""
    for host in hosts:
        host.tell("park")
    await asyncio.sleep(SETTLE)
    queue = world.sandbox["secondary"].node.namespace.queue(BACKLOG)
    given, refused, parked, began = ledger.given, ledger.refused, queue.counts().active, time.monotonic()
    await asyncio.sleep(MEASURED)
    given, refused = ledger.given - given, ledger.refused - refused
    parked, took = queue.counts().active - parked, time.monotonic() - began
    for host in hosts:
        host.tell("rest")
    other = (given - parked) / (CREDITS * took)
    told = (
        f"of {CREDITS} credits a second {given / took:.0f} were given out, {parked / took:.0f} to parking;"
        f" the rest is {other:.1%} of all; {refused} operations refused"
    )
    if not refused or not parked:
        raise Broken(f"nothing was parked, or credits were never short: {told}")
    if other > MOST:
        raise Broken(f"more than {MOST:.0%} of the credits are lost to parking: {told}")
    return told

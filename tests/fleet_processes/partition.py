"""An order over all while some are cut off: the others do it, and those take it up when they come back."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Final

from paired_servicebus.core.fleet import pace
from paired_servicebus.core.model.fleet_view import FleetStatus
from tests.fleet_processes.console import Console
from tests.fleet_processes.host import Host
from tests.fleet_processes.setting import ENTITY, Broken
from tests.fleet_processes.stage import Stage, stage

CUT: Final = 3
SILENT: Final = 150.0
"""Seconds in which the console shows it: a look unwatched, three reports of 15 s, and a busy machine."""
TWO_LOOKS: Final = 2 * pace.LOOK_WELL
"""Seconds in which a host that comes back acts: it does not know whether it is watched."""


async def partition(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Order over all with three cut off."""
    async with stage(seed) as world:
        ssh_key(world)
        hosts, console = await world.watched(count)
        others, away = hosts[:-CUT], hosts[-CUT:]
        for host in away[:-1]:
            host.cut("stall")
        away[-1].cut("refuse")
        began = time.monotonic()
        await console.until(lambda _view: silent(console) == {one.name for one in away}, f"{CUT} are silent", SILENT)
        say(f"{CUT} cut off are silent on the console after {time.monotonic() - began:.1f} s")
        await _order(world, hosts[0], count, say)
        for host in others:
            await host.until(lambda host=host: host.state == "forced", 1.0, "is forced")  # type: ignore[misc]
        if any(host.state == "forced" for host in away):
            raise Broken("an engine that is cut off is forced")
        await _come_back(console, away, count, say)
        began = time.monotonic()
        release = await console.order("release")
        await console.answered(release, count)
        say(f"released by {count} after {time.monotonic() - began:.1f} s")
        if wrong := [host.name for host in hosts if host.state == "forced"]:
            raise Broken(f"released, and still forced: {wrong}")


async def _order(world: Stage, host: Host, count: int, say: Callable[[str], None]) -> None:
    order = ("failover", ENTITY, "--fleet", "--why", "drill", "--yes", str(count), "--key", str(world.folder / "key"))
    status, said = await world.paired(host, *order)
    if (status, f"{CUT} engines are silent" in said) != (2, True):
        raise Broken(f"without --partial: exit status {status}, {said!r}")
    began = time.monotonic()
    status, said = await world.paired(host, *order, "--partial", "--wait", "30s")
    wanted = (f"{count - CUT} done · {CUT} silent since ", "they take it up when they come back")
    if status != 1 or not all(text in said for text in wanted):
        raise Broken(f"with --partial: exit status {status}, {said!r}")
    say(f"the verb ended after {time.monotonic() - began:.1f} s: {said.splitlines()[-1]}")


async def _come_back(console: Console, away: list[Host], count: int, say: Callable[[str], None]) -> None:
    healed = time.time()
    for host in away:
        host.heal()
    await asyncio.gather(*(one.until(lambda one=one: one.state == "forced", TWO_LOOKS, "is forced") for one in away))  # type: ignore[misc]
    acted = ", ".join(f"{host.states[-1].at - healed:.1f}" for host in away)
    say(f"back, they act after {acted} s (two looks: {TWO_LOOKS:.0f} s)")
    await console.until(
        lambda view: any(len(one.done) == count and not one.silent for one in view.orders), f"{count} done"
    )
    say(f"the console shows {count} done after {time.time() - healed:.1f} s")


def silent(console: Console) -> set[str]:
    """Return the engines that the console shows as silent."""
    assert console.view is not None
    return {one.engine for one in console.view.engines if one.status is FleetStatus.SILENT}


def ssh_key(world: Stage) -> None:
    """Make a key by OpenSSH and add it to the operators. Raises Broken: ssh-keygen is missing."""
    if shutil.which("ssh-keygen") is None:
        raise Broken("ssh-keygen is not installed")
    key = world.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with world.operators.open("a") as file:
        file.write(f"operator-b {key.with_suffix('.pub').read_text()}")

"""How fast engines act on an order, and how fast a console shows their answers."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest import mock

from paired_servicebus import Fleet, Namespace, PairedServiceBusClient, pair_namespaces
from paired_servicebus.core.fleet.fleet_documents import WATCH_SECONDS, Order, OrderText
from paired_servicebus.core.fleet.orders.order_text import encode_order_text
from paired_servicebus.engine.instance.engine_paths import engine_paths
from tests.fleet_processes.console import PEN, Console
from tests.fleet_processes.host import Host
from tests.fleet_processes.setting import ENTITY, Broken
from tests.fleet_processes.stage import Stage, stage

ORDERS: Final = 6
"""Orders over watched processes: force and release by turns."""
MANY: Final = 500
"""Engines in one process."""
MANY_ORDERS: Final = 3
ACTED, SHOWN, UNWATCHED, MANY_ACTED = 10.0, 12.0, 65.0, 45.0
"""Bounds in seconds: 95 % have acted, all answers are shown, unwatched engines have acted, many have acted."""
LONGEST: Final = 120.0


@dataclass(frozen=True)
class Figures:
    """The seconds after the post until each engine has acted, and until the console shows all answers."""

    acted: tuple[float, ...]
    shown: float

    @property
    def p95(self) -> float:
        return self.acted[max(0, -(-len(self.acted) * 95 // 100) - 1)]

    def __str__(self) -> str:
        middle = self.acted[len(self.acted) // 2]
        return f"acted p50 {middle:.1f} s, p95 {self.p95:.1f} s, max {self.acted[-1]:.1f} s; answers {self.shown:.1f} s"


async def latency(seed: int, count: int, say: Callable[[str], None]) -> None:
    """Order over processes that are watched, then over processes that are not."""
    async with stage(seed) as world:
        hosts, console = await world.watched(count)
        for number in range(ORDERS):
            await asyncio.sleep(world.draw.uniform(0.0, 5.0))
            check(await _order(hosts, console, ("force", "release")[number % 2], say), ACTED, SHOWN)
        text = console.draft("force")
        await console.close()
        await asyncio.sleep(WATCH_SECONDS + 5.0)
        await _unwatched(world, hosts, text, say)


async def _order(hosts: list[Host], console: Console, verb: str, say: Callable[[str], None]) -> Figures:
    wanted = verb == "force"
    posted = time.time()
    text = await console.order(verb)
    await console.answered(text, len(hosts), LONGEST)
    figures = Figures(acted=_acts(hosts, posted), shown=time.time() - posted)
    if wrong := [host.name for host in hosts if (host.state == "forced") != wanted]:
        raise Broken(f"answered, and not done: {verb} by {wrong}")
    say(f"{verb}: {figures}")
    return figures


def _acts(hosts: list[Host], posted: float) -> tuple[float, ...]:
    return tuple(sorted(host.states[-1].at - posted for host in hosts))


async def _unwatched(world: Stage, hosts: list[Host], text: OrderText, say: Callable[[str], None]) -> None:
    """Post without an engine, so without a watch."""
    text = OrderText(**{name: getattr(text, name) for name in text.__slots__} | {"issued_at": time.time()})
    signed = encode_order_text(text)
    async with world.board() as board:
        posted = time.time()
        await board.write(Order(text=text, signed=signed, signature=PEN.sign(signed)), 3600.0)
    for host in hosts:
        await host.until(lambda host=host: host.state == "forced", LONGEST, "is forced")  # type: ignore[misc]
    acted = _acts(hosts, posted)
    say(f"unwatched: acted p50 {acted[len(acted) // 2]:.1f} s, max {acted[-1]:.1f} s")
    if acted[-1] > UNWATCHED:
        raise Broken(f"an unwatched engine acted after {acted[-1]:.1f} s; {UNWATCHED:.0f} s are allowed")


def check(figures: Figures, acted: float, shown: float) -> None:
    """Raise Broken if a bound is exceeded."""
    if figures.p95 > acted or figures.shown > shown:
        raise Broken(f"{figures}; allowed are p95 {acted:.0f} s and {shown:.0f} s")


# -- many engines in one process -------------------------------------------------------------------------------------


async def many(seed: int, _count: int, say: Callable[[str], None]) -> None:
    """Order over 500 engines in one process."""
    async with stage(seed) as world, AsyncExitStack() as stack:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fp-", ignore_cleanup_errors=True)))
        stack.enter_context(mock.patch.dict(os.environ, environ, clear=True))
        engines = [await _engine(world, stack, folder, "m1")]
        console = await Console.open(engine_paths("m1").socket)
        stack.push_async_callback(console.close)
        await console.until(lambda view: view.watched, "it is watched")
        began = time.monotonic()
        for number in range(2, MANY + 1):
            engines.append(await _engine(world, stack, folder, f"m{number}"))
        say(f"{MANY} engines have started after {time.monotonic() - began:.0f} s")
        await console.until(
            lambda view: sum(one.figures is not None for one in view.engines) == MANY, f"{MANY} report", 300.0
        )
        for number in range(MANY_ORDERS):
            verb = ("force", "release")[number % 2]
            posted = time.time()
            text = await console.order(verb)
            acted, _ = await asyncio.gather(_follow(engines, verb, posted), console.answered(text, MANY, LONGEST))
            figures = Figures(acted=acted, shown=time.time() - posted)
            say(f"{verb}: {figures}")
            check(figures, MANY_ACTED, MANY_ACTED)


async def _engine(world: Stage, stack: AsyncExitStack, folder: Path, name: str) -> PairedServiceBusClient:
    os.environ["XDG_STATE_HOME"] = str(folder / name)
    sides = (
        Namespace.from_connection_string(
            world.sandbox[side].connection_string, options={"connection_verify": str(world.sandbox.ca_file)}
        )
        for side in ("primary", "secondary")
    )
    fleet = Fleet(name=name, operators=world.operators)
    return await stack.enter_async_context(
        pair_namespaces(*sides, control=name, primary_name="primary", backlog_queue_count=1, fleet=fleet)
    )


async def _follow(engines: list[PairedServiceBusClient], verb: str, posted: float) -> tuple[float, ...]:
    """Return the seconds until each engine's state was seen changed."""
    waiting, acted = set(range(len(engines))), []
    async with asyncio.timeout(LONGEST):
        while waiting:
            for number in list(waiting):
                states: Mapping[str, str] = {view.path: str(view.state) for view in engines[number].entity_views()}
                if (states.get(ENTITY) == "forced") == (verb == "force"):
                    waiting.discard(number)
                    acted.append(time.time() - posted)
            await asyncio.sleep(0.1)
    return tuple(sorted(acted))

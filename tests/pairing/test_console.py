"""A person at the dashboard, an engine behind its socket, two namespaces: keys pressed here have their effect there."""

from __future__ import annotations

import asyncio
import os
import pwd
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from textual.pilot import Pilot

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Moved
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.screens.questions import ArmDialog
from paired_servicebus.ui.shell.app import PairedApp

from .conftest import PATIENCE, World, until


@dataclass
class Seat:
    """A running engine and the dashboard on it."""

    paired: PairedServiceBusClient
    app: PairedApp
    pilot: Pilot[int]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def fire(self, key: str, name: str) -> None:
        """Arm what the key does, and fire it by typing what it is done to."""
        await self.press(key)
        await self.until_shown(lambda: isinstance(self.app.screen, ArmDialog))
        await self.press(*name, "enter")

    async def until_shown(self, shown: Callable[[], Any]) -> None:
        """Wait until the screen has it."""
        async with asyncio.timeout(PATIENCE):
            while not shown():
                await self.pilot.pause(0.05)

    def state(self, path: str) -> State:
        return next(view.state for view in self.paired.entity_views() if view.path == path)


@asynccontextmanager
async def seated(world: World) -> AsyncIterator[Seat]:
    """An engine with a syphon on one backlog queue, and a person at its dashboard."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    for path in ("orders", "audit"):
        paired.watch(path)
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "s"
        identity = EngineIdentity.of("test")
        policy = paired._steering.policy
        async with EngineHost(identity, spool=Path(folder) / "journal", socket=socket, policy=policy) as host:
            await host.adopt(paired)
            app = PairedApp(EngineFeed(socket), pairing="test", by="kim")
            async with app.run_test(size=(80, 24)) as pilot:
                seat = Seat(paired, app, pilot)
                await seat.until_shown(lambda: app.view.snapshot is not None)
                yield seat


async def test_forcing_a_failover_at_the_dashboard_sends_the_next_message_to_the_secondary(world: World) -> None:
    async with seated(world) as seat, seat.paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"before"))
        await seat.fire("F", "orders")
        await until(lambda: seat.state("orders") is State.FORCED)
        await sender.send_messages(ServiceBusMessage(b"forced"))
        assert (world.depth("orders"), world.parked(1)) == (1, 1)
        assert next(view for view in seat.paired.entity_views() if view.path == "orders").why.startswith(
            f"forced by {pwd.getpwuid(os.getuid()).pw_name}"
        )
        await seat.until_shown(lambda: seat.app.view.snapshot.entities[0].state is State.FORCED)


@pytest.mark.slow
async def test_cancel_is_what_a_hasty_enter_hits(world: World) -> None:
    async with seated(world) as seat, seat.paired.get_queue_sender("orders") as sender:
        await seat.press("F")
        await seat.until_shown(lambda: isinstance(seat.app.screen, ArmDialog))
        await seat.press("enter")
        assert not isinstance(seat.app.screen, ArmDialog)
        await sender.send_messages(ServiceBusMessage(b"still here"))
        assert (world.depth("orders"), world.parked(1)) == (1, 0)


@pytest.mark.slow
async def test_pausing_the_syphon_at_the_dashboard_leaves_parked_messages_in_the_secondary(world: World) -> None:
    async with seated(world) as seat, world.to_backlog() as sender:
        await seat.press("S")
        await seat.press("right")
        await seat.press("enter")
        await until(lambda: "paused" in seat.paired.queue_views()[0].pump_text)
        await sender.send_messages(ServiceBusMessage(b"x", application_properties={"x-ms-path": "orders"}))
        await seat.until_shown(lambda: seat.app.view.snapshot.syphon.status == "paused")
        assert (world.depth("orders"), world.parked(1)) == (0, 1)
        await seat.press("S")
        await until(lambda: world.told(Moved))
        await until(lambda: world.parked(1) == 0)
        assert world.depth("orders") == 1


@pytest.mark.slow
async def test_releasing_at_the_dashboard_brings_sends_and_parked_messages_back(world: World) -> None:
    async with seated(world) as seat, seat.paired.get_queue_sender("orders") as sender:
        seat.paired.force("orders", by="kim")
        await sender.send_messages(ServiceBusMessage(b"parked"))
        await until(lambda: seat.paired.entity_views()[0].last_ping_good)
        await seat.until_shown(lambda: seat.app.view.snapshot.entities[0].last_ping_good)
        await seat.fire("U", "orders")
        await until(lambda: seat.state("orders") is State.HEALTHY)
        await sender.send_messages(ServiceBusMessage(b"direct"))
        await until(lambda: world.parked(1) == 0)
        assert world.depth("orders") == 2

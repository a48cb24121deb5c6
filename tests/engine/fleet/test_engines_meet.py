"""Engines with `fleet=Fleet()` see each other on the boards of their pairing; sends never wait for the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus import ConfigurationError, Fleet, Namespace, pair_namespaces
from paired_servicebus.core.errors import CommandRefusedError, FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import Board, board_path
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.fleet_view import FleetEngine, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.fleet import fleet_part
from paired_servicebus.engine.fleet.fleet_part import TAKE_UP_SECONDS
from paired_servicebus.engine.instance.engine_paths import engine_paths
from servicebus_sandbox import Sandbox

WAIT = 60.0
BACKLOG = "primary/x-servicebus-transfer"


class Hosts:
    """Engines in this process, each with folders of its own as on another host: they share the namespaces alone."""

    def __init__(self, sandbox: Sandbox, stack: AsyncExitStack, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.sandbox = sandbox
        self._stack = stack
        self._folder = folder
        self._patch = patch

    async def engine(self, name: str, *, key: str = "", **options: Any) -> Any:
        """key: a connection string of the secondary with less than Manage."""
        self._patch.setenv("XDG_STATE_HOME", str(self._folder / name))

        def namespace(connection_string: str) -> Namespace:
            trust = {"connection_verify": str(self.sandbox.ca_file)}
            return Namespace.from_connection_string(connection_string, options=trust)

        chosen: dict[str, Any] = {"backlog_queue_count": 1, "fleet": Fleet(name=name), **options}
        primary, secondary = (self.sandbox[side].connection_string for side in ("primary", "secondary"))
        return await self._stack.enter_async_context(
            pair_namespaces(
                namespace(primary), namespace(key or secondary), control=name, primary_name="primary", **chosen
            )
        )

    async def watch(self, name: str) -> ControlClient:
        """Open a console on the engine that was made last, called `name`."""
        client = await ControlClient.connect(engine_paths(name).socket, fleet=True)
        self._stack.push_async_callback(client.close)
        return client


@pytest.fixture
async def hosts(short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hosts]:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield Hosts(sandbox, stack, short, monkeypatch)


async def shown(console: ControlClient, condition: Callable[[FleetView], Any]) -> Snapshot:
    """Return the console's first snapshot whose fleet meets a condition."""
    async with asyncio.timeout(WAIT):
        async for update in console.updates():
            if isinstance(update, Snapshot) and update.fleet is not None and condition(update.fleet):
                return update
    raise AssertionError("the engine left")


def reporting(view: FleetView | None) -> set[str]:
    engines = view.engines if view is not None else ()
    return {one.engine for one in engines if one.status is FleetStatus.REPORTING}


def by_name(view: FleetView | None, name: str) -> FleetEngine:
    assert view is not None
    return next(one for one in view.engines if one.engine == name)


async def test_each_sees_the_others_on_every_host(hosts: Hosts) -> None:
    """What an engine knows [...] with the fleet on (FLEET.md) every engine of the pairing on every host."""
    shop = await hosts.engine("web-2")
    console = await hosts.watch("web-2")
    await shown(console, lambda fleet: fleet.watched)
    await hosts.engine("web-1", enable_syphon=True)
    async with shop.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
    snapshot = await shown(console, lambda fleet: all(one.figures for one in fleet.engines) and len(fleet.engines) == 2)
    assert reporting(snapshot.fleet) == {"web-1", "web-2"}
    assert by_name(snapshot.fleet, "web-1").syphon == "idle"
    assert by_name(snapshot.fleet, "web-1").queues == (0,)
    assert snapshot.fleet is not None
    assert snapshot.fleet.watched


async def test_one_that_ends_says_goodbye(hosts: Hosts) -> None:
    """goodbye: presence's head, reason."""
    leaving = await hosts.engine("web-1")
    await hosts.engine("web-2")
    console = await hosts.watch("web-2")
    await shown(console, lambda fleet: reporting(fleet) == {"web-1", "web-2"})
    await leaving.close()
    snapshot = await shown(console, lambda fleet: reporting(fleet) == {"web-2"})
    left = by_name(snapshot.fleet, "web-1")
    assert left.status is FleetStatus.ENDED
    assert left.reason == "the application closed the pairing"


async def test_clean_up_leaves_a_queue_that_another_host_uses(hosts: Hosts) -> None:
    """Clean-up [...] take what the fleet knows."""
    await hosts.engine("web-1", backlog_queue_count=3)
    await hosts.engine("web-2")
    console = await hosts.watch("web-2")
    await shown(
        console, lambda fleet: {"web-1", "web-2"} <= reporting(fleet) and by_name(fleet, "web-1").queues == (0, 1, 2)
    )
    async with asyncio.timeout(WAIT):
        async for update in console.updates():
            if isinstance(update, Snapshot) and update.unused.queues:
                break
    path = f"{BACKLOG}/2"
    with pytest.raises(CommandRefusedError, match=f"{path} stays: another engine"):
        await console.order(
            Command(action_id="clean-up", targets=(path,), by="ada"), typed=f"{path} no other host uses it"
        )


async def test_boards_that_cannot_be_created_are_told_and_the_pairing_goes_on(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Manage for the setup: one sentence, and the pairing goes on without."""

    async def refuse(admin: object, primary: str) -> None:
        raise FleetBoardError("the key lacks Manage: run paired fleet setup")

    monkeypatch.setattr(fleet_part, "set_up_boards", refuse)
    told: list[Any] = []
    paired = await hosts.engine("web-1", on_event=told.append)
    console = await hosts.watch("web-1")
    snapshot = await shown(console, lambda fleet: fleet.trouble)
    assert snapshot.fleet is not None
    assert "create it with paired fleet setup" in snapshot.fleet.trouble
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))


async def test_boards_that_are_not_reached_are_told_with_the_time(hosts: Hosts) -> None:
    """Secondary throttled or down: consoles say "board not reached since"; engines go on by the rules."""
    paired = await hosts.engine("web-1")
    console = await hosts.watch("web-1")
    await shown(console, lambda fleet: reporting(fleet) == {"web-1"})
    for board in Board:
        hosts.sandbox["secondary"].node.faults.add("disabled", entity=board_path("primary", board))
    snapshot = await shown(console, lambda fleet: fleet.trouble)
    assert snapshot.fleet is not None
    assert snapshot.fleet.trouble_since is not None
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))


async def test_an_idle_engine_waits_for_no_board(hosts: Hosts) -> None:
    """Start-up: pairing takes [...] at most 5 s when it does not answer."""
    await hosts.engine("web-1")
    console = await hosts.watch("web-1")
    await shown(console, lambda fleet: reporting(fleet) == {"web-1"})
    for board in Board:
        hosts.sandbox["secondary"].node.faults.add("black-holed", entity=board_path("primary", board))
    async with asyncio.timeout(TAKE_UP_SECONDS):
        await hosts.engine("web-2")


async def test_a_fleet_needs_an_engine() -> None:
    """fleet: with `control`."""
    here = Namespace.from_connection_string("Endpoint=sb://a.x/;SharedAccessKeyName=k;SharedAccessKey=a2V5")
    there = Namespace.from_connection_string("Endpoint=sb://b.x/;SharedAccessKeyName=k;SharedAccessKey=a2V5")
    with pytest.raises(ConfigurationError, match="fleet needs an engine: pass control=True"):
        await pair_namespaces(here, there, fleet=Fleet())

"""An application that pairs with `control=True` is an engine: listed, looked at, commanded; gone with the pairing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

import console
from console.core.entity import State
from console.core.errors import CommandRefusedError, ConfigurationError
from console.engine.client import ControlClient
from console.engine.here import engines_here, look_at, socket_of
from console.engine.places import places_of
from console.engine.spool import read_records
from console.sandbox import Sandbox


@pytest.fixture
async def sandbox(short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    async with Sandbox.start() as running:
        yield running


async def pair(sandbox: Sandbox, *, more: dict[str, Any] | None = None, **options: Any) -> Any:
    trust = console.tls_context()
    primary, secondary = (
        ServiceBusClient.from_connection_string(sandbox[name].connection_string, retry_total=0, ssl_context=trust)
        for name in ("primary", "secondary")
    )
    admin = ServiceBusAdministrationClient.from_connection_string(
        sandbox["secondary"].connection_string, connection_verify=str(sandbox.ca_file)
    )
    chosen = console.SendAvailabilityPairedNamespaceOptions(
        secondary_admin=admin, secondary_client=secondary, primary_name="primary", backlog_queue_count=1, **options
    )
    return await console.pair_namespaces(primary, chosen, **{"control": True} | (more or {}))


async def test_it_is_listed_commanded_and_journalled(sandbox: Sandbox) -> None:
    told: list[Any] = []
    paired = await pair(sandbox, more={"environment": "test", "on_event": told.append})
    async with paired, paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
        (places,) = engines_here()
        assert places.name == "primary"
        (standing,) = await look_at([places])
        assert standing.snapshot is not None
        assert (standing.snapshot.own_process, standing.snapshot.environment) == (False, "test")
        assert [one.path for one in standing.snapshot.entities] == ["orders"]
        client = await ControlClient.connect(places.socket)
        await client.order("force", targets=("orders",), by="ada", typed="orders")
        assert paired.entity_views()[0].state is State.FORCED
        with pytest.raises(CommandRefusedError, match="lives in an application, and ends with it"):
            await client.order("stop", by="ada", typed="primary")
        await client.close()
    assert engines_here() == ()
    kinds = [record.event.kind for record in read_records(places.spool)]
    assert {"engine-started", "commanded", "forced", "command-ended"} <= set(kinds)
    assert kinds[-1] == "engine-stopped"
    assert [event.kind for event in told if event.kind == "forced"] == ["forced"]


async def test_several_of_one_name_stand_beside_each_other_and_find_their_place_again(sandbox: Sandbox) -> None:
    first, second = await pair(sandbox), await pair(sandbox)
    try:
        assert [places.name for places in engines_here()] == ["primary", "primary-2"]
    finally:
        await first.close()
        again = await pair(sandbox)
        assert [places.name for places in engines_here()] == ["primary", "primary-2"]
        await again.close()
        await second.close()


async def test_it_can_be_named(sandbox: Sandbox) -> None:
    async with await pair(sandbox, more={"control": "web / 1", "read_only": True}):
        (places,) = engines_here()
        assert places.name == "web-1"
        (standing,) = await look_at([places])
        assert standing.snapshot is not None
        assert standing.snapshot.read_only


async def test_a_pairing_that_fails_leaves_no_engine(sandbox: Sandbox) -> None:
    with pytest.raises(ConfigurationError):
        await pair(sandbox, send_timeout=0.0)
    assert engines_here() == ()


async def test_without_control_there_is_none(sandbox: Sandbox) -> None:
    async with await pair(sandbox, more={"control": False}):
        assert engines_here() == ()
        assert socket_of(places_of("primary")) is None

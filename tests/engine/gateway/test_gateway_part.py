"""The gateway of an engine: its start, which may fail with a remedy, and its end."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.gateway import gateway_listener
from paired_servicebus.engine.gateway.gateway_keys import (
    LocalKey,
    add_key,
    connection_string,
    keys_of,
    remove_key,
    rotate_keys,
)
from paired_servicebus.engine.gateway.gateway_listener import (
    GatewayPairingOptions,
    GatewayPart,
    NoGateway,
    open_gateway,
)
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.sections.gateway_options import GatewayOptions
from servicebus_sandbox import Sandbox
from servicebus_sandbox.faults import FaultTerms
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.core.test_fleet_sentences import snapshot
from tests.pairing.conftest import TRUST, World, until
from tests.ports import free_port


@pytest.fixture
def places(tmp_path: Path) -> EnginePaths:
    return EnginePaths(state=tmp_path, socket=tmp_path / "sock")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            yield World(sandbox, stack)


def part_of(places: EnginePaths, warn: Callable[[str], object] = str, **options: object) -> GatewayPart:
    part = open_gateway(GatewayOptions(**{"port": free_port()} | options), places, primary="contoso", warn=warn)  # type: ignore[arg-type]
    assert isinstance(part, GatewayPart)
    return part


def client_of(key: LocalKey, port: int) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(connection_string(key, port), retry_total=0, ssl_context=TRUST)


async def test_a_taken_port_is_an_alarm_until_it_is_free(places: EnginePaths, world: World) -> None:
    """What is away is an alarm, not an exit status."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        part = part_of(places, port=port)
        await world.stack.enter_async_context(part)
        await part.serve(await world.pair(backlog_queue_count=1))
        (alarm,) = [one.reason for one in part.troubles]
        assert f"127.0.0.1:{port} " in alarm
        assert alarm.endswith("choose another port in [gateway]")
        assert part.gateway is None
    await until(lambda: not part.troubles and part.gateway is not None)
    async with (
        client_of(keys_of(places.gateway_keys).keys[0], port) as client,
        client.get_queue_sender("orders") as one,
    ):
        await one.send_messages(ServiceBusMessage("x", message_id="later"))
    assert world.ids_in("orders") == ["later"]


async def test_keys_that_cannot_be_made_in_the_engines_own_folder_are_an_alarm(tmp_path: Path, world: World) -> None:
    places = EnginePaths(state=tmp_path / "later", socket=tmp_path / "s")
    async with part_of(places) as part:
        await part.serve(await world.pair(backlog_queue_count=1))
        (alarm,) = [one.reason for one in part.troubles]
        assert "gateway.keys cannot be read or made: No such file or directory; or name another" in alarm
        places.prepare()
        await until(lambda: not part.troubles and part.gateway is not None)


async def test_a_client_of_the_first_moment_waits_in_the_port_and_is_served(places: EnginePaths, world: World) -> None:
    async with part_of(places) as part:
        view = part.add_to(snapshot()).gateway
        assert view is not None
        assert view.listens, "no operator reads that it does not listen"

        async def send() -> None:
            key = keys_of(places.gateway_keys).keys[0]
            async with client_of(key, part._options.port) as client, client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("early", message_id="early"))

        sent = asyncio.create_task(send())
        paired = await world.pair(backlog_queue_count=1)
        assert not sent.done()
        await part.serve(paired)
        await sent
    assert world.ids_in("orders") == ["early"]


async def test_an_address_of_another_machine_is_an_alarm_with_a_remedy(places: EnginePaths) -> None:
    async with part_of(places, address="192.0.2.1") as part:
        (alarm,) = [one.reason for one in part.troubles]
        assert re.search(r"192\.0\.2\.1:\d+ .*choose the address in .gateway.", alarm)


async def test_unusable_keys_fail_the_start_with_a_remedy(places: EnginePaths, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"keys .*missing.k cannot be read or made: .*name another file"):
        await part_of(places, keys=tmp_path / "missing" / "k").__aenter__()


async def test_unusable_keys_of_its_own_are_an_alarm_with_a_remedy(places: EnginePaths) -> None:
    """What is away is an alarm, not an exit status."""
    places.gateway_keys.write_text("not a file of keys")
    async with part_of(places) as part:
        assert "chmod 600" in part.troubles[0].reason
    places.gateway_keys.chmod(0o600)
    async with part_of(places) as part:
        assert "is not a file of gateway keys (JSONDecodeError): remove it" in part.troubles[0].reason


async def test_the_start_makes_the_keys_and_keeps_those_that_there_are(places: EnginePaths) -> None:
    async with part_of(places):
        made = places.gateway_keys.read_bytes()
    async with part_of(places):
        assert places.gateway_keys.read_bytes() == made


async def test_an_engine_without_the_section_has_no_gateway(places: EnginePaths) -> None:
    assert type(open_gateway(None, places, primary="contoso", warn=str)) is NoGateway
    assert list(places.state.iterdir()) == []


async def test_senders_drain_before_their_connection_closes(places: EnginePaths, world: World) -> None:
    # "Stopping: senders drain for close_grace, then the connection closes"
    async with part_of(places) as part:
        paired = await world.pair(backlog_queue_count=1)
        await part.serve(paired)
        assert part.gateway is not None
        string = connection_string(keys_of(places.gateway_keys).keys[0], part.gateway.port)
        client = ServiceBusClient.from_connection_string(string, retry_total=0, ssl_context=TRUST)
        async with client, client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="first"))
            world.sandbox["primary"].node.faults.add("latency", terms=FaultTerms(delay_s=0.2))
            sending = asyncio.ensure_future(sender.send_messages(ServiceBusMessage(b"x", message_id="last")))
            await until(lambda: part.gateway is not None and part.gateway.in_hand.size > 0)
            await part.close(5.0)
            await sending
            await until(lambda: part.gateway is not None and not part.gateway.connections)
    assert world.ids_in("orders") == ["first", "last"]


async def test_a_rotated_key_ends_its_links_and_the_fresh_one_serves_immediately(
    places: EnginePaths, world: World
) -> None:
    warnings: list[str] = []
    async with part_of(places, warnings.append) as part:
        await part.serve(await world.pair(backlog_queue_count=1))
        assert part.gateway is not None
        port = part.gateway.port
        old = keys_of(places.gateway_keys).keys[0]
        other = add_key(places.gateway_keys, "other", old.rights).keys[1]
        stale, kept = client_of(old, port), client_of(other, port)
        async with stale, kept, stale.get_queue_sender("orders") as sender, kept.get_queue_sender("orders") as stays:
            await sender.send_messages(ServiceBusMessage(b"x", message_id="before"))
            remove_key(places.gateway_keys, "gateway")
            add_key(places.gateway_keys, "gateway", old.rights)
            fresh = client_of(keys_of(places.gateway_keys).keys[1], port)
            async with fresh, fresh.get_queue_sender("orders") as new:  # no wait for the next look at the file
                await new.send_messages(ServiceBusMessage(b"x", message_id="after"))
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage(b"x", message_id="stale"))
            await stays.send_messages(ServiceBusMessage(b"x", message_id="other"))
        assert [warning for warning in warnings if old.key in warning] == []
        assert "their links end: gateway" in warnings[0]
    assert world.ids_in("orders") == ["before", "after", "other"]


async def test_a_running_engine_looks_at_its_keys_without_a_new_client(
    places: EnginePaths, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_listener, "LOOK_SECONDS", 0.01)
    warnings: list[str] = []
    async with part_of(places, warnings.append) as part:
        await part.serve(await world.pair(backlog_queue_count=1))
        rotate_keys(places.gateway_keys)
        await until(lambda: warnings)
        places.gateway_keys.chmod(0o640)
        await until(lambda: len(warnings) > 1)
        await asyncio.sleep(0.05)
    assert "their links end: gateway" in warnings[0]
    assert "the earlier ones stay in force" in warnings[1]
    assert len(warnings) == 2


def test_the_gateways_own_times_are_no_reason_for_a_warning() -> None:
    options = {"secondary_admin": None, "secondary_client": None, "hold_until_failover": True, "send_timeout": 10.0}
    assert SendAvailabilityPairedNamespaceOptions(**options).policy().remarks  # type: ignore[arg-type]
    policy = GatewayPairingOptions(**options).policy()  # type: ignore[arg-type]
    assert (policy.remarks, policy.send_timeout, policy.hold_until_failover) == ((), 10.0, True)

"""A credential that the namespace refuses is replaced without a restart; an expired certificate (SPEC.md section 5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from paired_servicebus import Namespace, pair_namespaces
from paired_servicebus.core.accounting.refused_calls import RefusedCredentials
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import PingFailed, Warned
from paired_servicebus.pairing import tls_context
from servicebus_amqp.server import certificates
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox

from .conftest import World, until

OTHER = "a key that was made anew"


def namespace(world: World, name: str) -> Namespace:
    return Namespace.from_connection_string(
        world.sandbox[name].connection_string, options={"connection_verify": str(world.sandbox.ca_file)}
    )


def rotate(world: World, name: str) -> str:
    """Replace every key of a namespace; return its new connection string."""
    authorization = world.sandbox[name].node.authorization
    authorization.rules = tuple(replace(rule, primary_key=OTHER, secondary_key=OTHER) for rule in authorization.rules)
    before = world.sandbox[name].connection_string
    start, end = before.split("SharedAccessKey=", 1)
    return ";".join([f"{start}SharedAccessKey={OTHER}", *end.split(";")[1:]])


async def pair(world: World, primary: Namespace, secondary: Namespace, **options: Any) -> Any:
    chosen: dict[str, Any] = {
        "backlog_queue_count": 1,
        "primary_name": "primary",
        "send_timeout": 2.0,
        "failover_interval": 0,
        "ping_primary_interval": 1.0,
        "ping_timeout": 1.0,
    }
    events = world.events.append
    return await world.stack.enter_async_context(
        pair_namespaces(primary, secondary, on_event=events, **chosen | options)
    )


async def test_a_refused_key_is_said_and_replaced_without_a_restart(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A credential that the namespace refuses is said as such, by log, alarm and `status`, once a minute at most."""
    primary, secondary = namespace(world, "primary"), namespace(world, "secondary")
    paired = await pair(world, primary, secondary)
    new = rotate(world, "primary")
    sender = paired.get_queue_sender("orders")
    with caplog.at_level(logging.WARNING, "paired_servicebus.pairing"):
        for _ in range(3):
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("x"))
        assert any("refuses the credential since" in alarm for alarm in paired.alarms())
        said = [event.text for event in world.told(Warned) if "refuses this process's credential" in event.text]
        assert len(said) == 1
        assert "Namespace.renew" in said[0]
        await until(lambda: "refuses this process's credential" in caplog.text)
    primary.renew(new)
    await sender.send_messages(ServiceBusMessage("again"))
    assert not any("refuses the credential" in alarm for alarm in paired.alarms())


async def test_an_application_fails_back_once_its_key_is_replaced(world: World) -> None:
    """Primary's key regenerated during a failover: pings are refused and said, then accepted with the new key."""
    primary, secondary = namespace(world, "primary"), namespace(world, "secondary")
    paired = await pair(world, primary, secondary)
    async with paired.get_queue_sender("orders") as sender:
        heal = world.fault("disabled", entity="orders")
        await sender.send_messages(ServiceBusMessage("diverted"))
        heal()
        new = rotate(world, "primary")
        await until(lambda: len(world.told(PingFailed)) > 1)
        assert any("the primary namespace refuses the credential" in alarm for alarm in paired.alarms())
        primary.renew(new)
        await until(lambda: paired.entity_views()[0].state is State.HEALTHY)
        await sender.send_messages(ServiceBusMessage("home"))
    assert world.depth("orders") == 1


async def test_both_clients_of_the_secondary_get_the_new_key(world: World) -> None:
    """The way to replace it without a restart is for messaging and for management."""
    primary, secondary = namespace(world, "primary"), namespace(world, "secondary")
    paired = await pair(world, primary, secondary, enable_syphon=True)
    new = rotate(world, "secondary")
    before = await paired.check()
    await asyncio.to_thread(secondary.renew, new)  # of any thread
    after = await paired.check()
    assert (before.ready, after.ready) == (False, True)


def test_what_cannot_replace_it_changes_nothing() -> None:
    key = "SharedAccessKeyName=n;SharedAccessKey=s3cret"
    one = Namespace.from_connection_string(f"Endpoint=sb://one.servicebus.windows.net/;{key}")
    for text, words in (
        ("nonsense", "has no Endpoint"),
        (f"Endpoint=sb://two.servicebus.windows.net/;{key}", "is of two"),
        (f"Endpoint=sb://one.servicebus.windows.net/;{key};EntityPath=orders", "EntityPath"),
    ):
        with pytest.raises(ConfigurationError, match=words) as raised:
            one.renew(text)
        assert "s3cret" not in str(raised.value)


def test_one_line_a_minute_for_each_side_and_an_alarm_while_it_lasts() -> None:
    """Once a minute at most."""
    refused = RefusedCredentials(lasts=100.0)
    assert refused.refuse("primary", "orders", "not authenticated", at=1000.0)
    assert not refused.refuse("primary", "payments", "not authenticated", at=1059.0)
    assert refused.refuse("secondary", "orders", "not authorized", at=1059.0)
    assert refused.refuse("primary", "orders", "not authenticated", at=1060.0)
    assert [one.what for one in refused.troubles(1061.0)] == ["primary", "secondary"]
    refused.accept("primary", "orders")
    assert len(refused.troubles(1062.0)) == 2, "payments is still refused"
    assert len(refused.troubles(1159.5)) == 0


# -- The primary's certificate has expired: it is an outage of the primary whose cause is named (SPEC.md section 5)

HOST = "contoso.servicebus.windows.net"
CAUSE = "connection lost: certificate has expired"


@pytest.fixture
async def expired(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """A primary namespace whose certificate ended an hour ago."""
    async with AsyncExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(certificates, "LIFETIME", timedelta(hours=-1))
            start = Sandbox.start([NamespaceSpec("primary", [QueueSpec("orders")])])
            sandbox = await stack.enter_async_context(start)
        yield sandbox


def client(sandbox: Sandbox) -> ServiceBusClient:
    """A client that trusts the namespace's authority, over TLS."""
    one = sandbox["primary"]
    return ServiceBusClient(
        HOST,
        AzureNamedKeyCredential(one.key_name, one.key),
        custom_endpoint_address=f"sb://127.0.0.1:{one.amqp_port}",
        transport_type=TransportType.Amqp,
        ssl_context=tls_context(sandbox.ca_file),
        retry_total=0,
    )


async def test_sends_go_to_the_backlog_and_the_cause_is_named(world: World, expired: Sandbox) -> None:
    """Connection lost counts; with interval 0 the same call goes on to the backlog and the caller sees no error."""
    paired = await world.pair(primary_client=client(expired), failover_interval=0)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert world.parked() == 1
    (view,) = paired.entity_views()
    assert view.state is State.FAILED_OVER
    assert CAUSE in view.why


async def test_the_caller_hears_the_cause(world: World, expired: Sandbox) -> None:
    """While suspect, sends still go to the primary and a failure is raised to the caller."""
    paired = await world.pair(primary_client=client(expired), failover_interval=3600)
    async with paired.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusConnectionError) as raised:
            await sender.send_messages(ServiceBusMessage("x"))
    assert any(CAUSE in note for note in raised.value.__notes__)
    await until(lambda: paired.entity_views()[0].state is State.SUSPECT)

"""The primary's certificate has expired: it is an outage of the primary whose cause is named (SPEC.md section 5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.pairing import tls_context
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.serving import certificates

from .conftest import World, until

HOST = "contoso.servicebus.windows.net"
CAUSE = "connection lost: certificate has expired"


@pytest.fixture
async def expired(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """A primary namespace whose certificate ended an hour ago."""
    async with AsyncExitStack() as stack:
        with monkeypatch.context() as patched:
            patched.setattr(certificates, "_LIFETIME", timedelta(hours=-1))
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

"""The emulator with Microsoft's own clients: its ports, its key and its administration, as in their samples."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient as SyncServiceBusClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.emulator.config_file import default_namespace
from servicebus_sandbox.emulator.emulator_host import Emulator
from servicebus_sandbox.serving.addresses import PUBLIC_KEY
from servicebus_sandbox.spec_file import load_specs
from servicebus_sandbox.specs import SandboxConfigError

WAIT = 60
KEY = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={PUBLIC_KEY};UseDevelopmentEmulator=true;"


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator.start(default_namespace(), amqp_port=0, http_port=0) as running:
        yield running


def admin_of(emulator: Emulator, connection_string: str = "") -> ServiceBusAdministrationClient:
    """An administration client with the workaround of Microsoft's sample for plain HTTP on another port."""
    client = ServiceBusAdministrationClient.from_connection_string(
        connection_string or emulator.admin_connection_string
    )
    client._impl._client._base_url = emulator.admin_url
    return client


async def receive(client: ServiceBusClient, queue: str, subscription: str = "") -> list[str]:
    async with (
        client.get_subscription_receiver(queue, subscription) if subscription else client.get_queue_receiver(queue)
    ) as receiver:
        messages = await receiver.receive_messages(max_message_count=10, max_wait_time=1 if subscription else WAIT)
        for message in messages:
            await receiver.complete_message(message)
        return [str(message) for message in messages]


async def test_a_queue_is_made_used_and_deleted(emulator: Emulator) -> None:
    async with (
        admin_of(emulator) as admin,
        ServiceBusClient.from_connection_string(emulator.connection_string) as client,
    ):
        await admin.create_queue("orders", max_delivery_count=7)
        assert (await admin.get_queue("orders")).max_delivery_count == 7
        assert {queue.name async for queue in admin.list_queues()} == {"queue.1", "orders"}
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        assert await receive(client, "orders") == ["one", "two"]
        assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 0
        await admin.delete_queue("orders")
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue("orders")


async def test_rules_of_the_official_file_filter(emulator: Emulator) -> None:
    matching = [
        ServiceBusMessage("json", content_type="application/json"),
        ServiceBusMessage("property", application_properties={"prop1": "value1"}),
        ServiceBusMessage("plain"),
        ServiceBusMessage("sql", message_id="123456", application_properties={"userProp1": "value1"}),
    ]
    async with ServiceBusClient.from_connection_string(emulator.connection_string) as client:
        async with client.get_topic_sender("topic.1") as sender:
            await sender.send_messages(matching)
        received = [await receive(client, "topic.1", f"subscription.{number}") for number in range(1, 5)]
    assert received == [["json"], ["property"], ["json", "property", "plain", "sql"], ["sql"]]


async def test_the_synchronous_client_and_sessions(emulator: Emulator) -> None:
    async with admin_of(emulator) as admin:
        await admin.create_queue("payments", requires_session=True)
    assert await asyncio.to_thread(send_and_receive_in_session, emulator.connection_string) == ["paid"]


def send_and_receive_in_session(connection_string: str) -> list[str]:
    with SyncServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender("payments") as sender:
            sender.send_messages(ServiceBusMessage("paid", session_id="s"))
        with client.get_queue_receiver("payments", session_id="s", max_wait_time=WAIT) as receiver:
            received = receiver.receive_messages()
            for message in received:
                receiver.complete_message(message)
            return [str(message) for message in received]


async def test_topics_and_rules_are_made_over_http(emulator: Emulator) -> None:
    async with admin_of(emulator) as admin:
        await admin.create_topic("audit")
        await admin.create_subscription("audit", "all")
        names = [rule.name async for rule in admin.list_rules("audit", "all")]
        assert names == ["$Default"]
        assert (await admin.get_namespace_properties()).name == "sbemulatorns"


async def test_health_is_answered_as_documented(emulator: Emulator) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{emulator.admin_url}/health") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "healthy", "message": "Service is healthy."}


async def test_administration_needs_the_key(emulator: Emulator) -> None:
    wrong = emulator.admin_connection_string.replace(PUBLIC_KEY, "another")
    async with admin_of(emulator, wrong) as admin:
        with pytest.raises(ClientAuthenticationError):
            await admin.create_queue("orders")
    async with ServiceBusClient.from_connection_string(
        emulator.connection_string.replace(PUBLIC_KEY, "another"), retry_total=0
    ) as client:
        with pytest.raises(ServiceBusError):
            await client.get_queue_sender("queue.1").send_messages(ServiceBusMessage("no"))


async def test_the_public_key_opens_no_other_namespace() -> None:
    spec = NamespaceSpec("contoso", queues=[QueueSpec("orders")])
    async with Sandbox.start([spec]) as sandbox:
        address = f"Endpoint=sb://127.0.0.1:{sandbox['contoso'].amqp_port}"
        async with ServiceBusClient.from_connection_string(f"{address};{KEY}", retry_total=0) as client:
            with pytest.raises(ServiceBusAuthenticationError):
                await client.get_queue_sender("orders").send_messages(ServiceBusMessage("no"))


@pytest.mark.parametrize("key", ["primary_key", "secondary_key"])
def test_no_file_gives_another_namespace_the_public_key(tmp_path: Path, key: str) -> None:
    keys = {"primary_key": "mine", key: PUBLIC_KEY}
    written = ", ".join(f'{name} = "{value}"' for name, value in keys.items())
    file = tmp_path / "namespaces.toml"
    file.write_text(f'[[namespace]]\nname = "contoso"\nkeys = [{{ name = "app", rights = ["Send"], {written} }}]')
    with pytest.raises(SandboxConfigError, match=r"key 'app': SAS_KEY_VALUE is the emulator's public key; choose"):
        load_specs(file)


async def test_faults_and_the_clock_are_there_too(emulator: Emulator) -> None:
    wanted = {"namespace": emulator.name, "fault": "full", "entity": "queue.1"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{emulator.control_url}/faults", json=wanted) as answer:
            assert answer.status == 201
        async with session.post(f"{emulator.control_url}/clock", json={"advance_s": 60}) as answer:
            assert answer.status == 200
    async with ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client:
        with pytest.raises(ServiceBusError, match=r"quota|full"):
            await client.get_queue_sender("queue.1").send_messages(ServiceBusMessage("no"))


async def test_connection_strings_name_unofficial_ports_only(emulator: Emulator) -> None:
    assert emulator.connection_string == f"Endpoint=sb://localhost:{emulator.amqp_port};{KEY}"
    assert emulator.admin_connection_string == f"Endpoint=sb://localhost:{emulator.http_port};{KEY}"
    official = Emulator(name="n", host="localhost", amqp_port=5672, http_port=5300, control_url="", node=emulator.node)
    assert official.connection_string == f"Endpoint=sb://localhost;{KEY}"
    assert official.admin_connection_string == f"Endpoint=sb://localhost:5300;{KEY}"


async def test_beyond_loopback_it_warns_that_the_key_is_public(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with Emulator.start(default_namespace(), listen="0.0.0.0", amqp_port=0, http_port=0):
            pass
    assert [record.getMessage() for record in caplog.records] == [
        "the emulator listens on 0.0.0.0 with a key that is public: any host that reaches this machine can read, send "
        "and delete everything in it; without --listen it is on loopback"
    ]

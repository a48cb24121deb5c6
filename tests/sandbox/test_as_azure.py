"""What a namespace may be told to do as Azure does: lazy expiry and credits, by the SDK and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.broker.entity_settings import Expiry, QueueSettings

BURIES = QueueSettings(dead_letter_on_expiration=True)
THROTTLED = "is being throttled"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    lazy = NamespaceSpec("lazy", [QueueSpec("orders", BURIES)], expiry=Expiry.LAZY)
    limited = NamespaceSpec("limited", [QueueSpec("orders")], credits_per_second=100)
    async with Sandbox.start([lazy, limited]) as running:
        yield running


async def advance(sandbox: Sandbox, seconds: float) -> None:
    async with (
        aiohttp.ClientSession(sandbox.control_url + "/") as session,
        session.post("clock", json={"advance_s": seconds}) as answer,
    ):
        assert answer.status == 200


def admin_of(sandbox: Sandbox, name: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        sandbox[name].connection_string, connection_verify=str(sandbox.ca_file), retry_total=0
    )


async def test_what_is_over_is_peeked_and_counted_but_not_received(sandbox: Sandbox) -> None:
    async with ServiceBusClient.from_connection_string(sandbox["lazy"].connection_string) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("old", time_to_live=timedelta(seconds=30)))
            await sender.send_messages(ServiceBusMessage("new"))
        await advance(sandbox, 60)
        async with admin_of(sandbox, "lazy") as admin:
            assert (await admin.get_queue_runtime_properties("orders")).active_message_count == 2
        async with client.get_queue_receiver("orders") as receiver:
            assert [str(message) for message in await receiver.peek_messages(10)] == ["old", "new"]
            assert [str(message) for message in await receiver.receive_messages(10, max_wait_time=5)] == ["new"]
            assert [str(message) for message in await receiver.peek_messages(10, sequence_number=1)] == ["new"]
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (message,) = await dead.receive_messages(10, max_wait_time=5)
            assert message.dead_letter_reason == "TTLExpiredException"


async def test_administration_is_throttled(sandbox: Sandbox) -> None:
    bucket = sandbox["limited"].node.namespace._agenda.credits
    assert bucket is not None
    async with admin_of(sandbox, "limited") as admin:
        assert (await admin.get_queue("orders")).name == "orders"
        with pytest.raises(HttpResponseError, match=THROTTLED) as caught:
            await asyncio.gather(*(admin.get_queue("orders") for _ in range(60)))
    assert caught.value.status_code == 503


async def test_the_resource_manager_is_throttled(sandbox: Sandbox) -> None:
    node = sandbox["limited"].node
    token = {"role": "Azure Service Bus Data Owner", "scope": "https://management.azure.com/.default"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{sandbox.control_url}/tokens", json=token) as answer:
            told = await answer.json()
            assert answer.status == 201, told
        head = {"Authorization": f"Bearer {told['token']}"}
        place = "subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/limited"
        plain = sandbox.arm_url.replace("https", "http")
        url = f"{plain}/{place}/queues/orders?api-version=2022-10-01-preview"
        node.namespace.charge(10**6)
        async with session.get(url, headers=head) as answer:
            refused = await answer.json()
            assert (answer.status, refused["error"]["code"]) == (429, "TooManyRequests")
            assert refused["error"]["message"].startswith("SubCode=50004. The request was terminated because")
        async with session.get(f"{plain}/{place}?api-version=2022-10-01-preview", headers=head) as answer:
            assert answer.status == 200, "a namespace is no entity"

"""What no page of the service promises: each switch of `behaves`, under both answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
)
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from servicebus_amqp.encoding.message_sections import Sections, write_data
from servicebus_sandbox import (
    AuthorizationRule,
    Behavior,
    NamespaceSpec,
    QueueSettings,
    QueueSpec,
    Right,
    Sandbox,
)
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import EntityStatus, Expiry
from servicebus_sandbox.broker.queues.message_queue import MessageQueue
from servicebus_sandbox.sandbox_host import SandboxNamespace

LISTENER = AuthorizationRule(name="listener", rights=frozenset({Right.LISTEN}), primary_key="one", secondary_key="two")
BOTH = pytest.mark.parametrize("answer", [False, True])


@asynccontextmanager
async def namespace(*queues: QueueSpec, **behaves: bool) -> AsyncIterator[SandboxNamespace]:
    spec = NamespaceSpec("contoso", queues, rules=[LISTENER], behaves=Behavior(**behaves))
    async with Sandbox.start([spec]) as sandbox:
        yield sandbox["contoso"]


def client_of(contoso: SandboxNamespace, key: str = "") -> ServiceBusClient:
    text = contoso.connection_string_for("listener", key) if key else contoso.connection_string
    return ServiceBusClient.from_connection_string(text, retry_total=0)


def queue_of(contoso: SandboxNamespace, path: str = "orders") -> MessageQueue:
    return contoso.node.namespace.message_queue(path)


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.02)


@BOTH
async def test_a_peek_of_a_queue_closed_to_senders(answer: bool) -> None:
    queue = QueueSpec("orders", QueueSettings(status=EntityStatus.SEND_DISABLED))
    async with (
        namespace(queue, peek_when_send_disabled=answer) as contoso,
        client_of(contoso) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        queue_of(contoso).put(read_message(Sections(body=write_data(b"one")).join()), contoso.node.clock())
        if answer:
            assert len(await receiver.peek_messages(1)) == 1
        else:
            with pytest.raises(MessagingEntityDisabledError):
                await receiver.peek_messages(1)
        assert len(await receiver.receive_messages(1, max_wait_time=60)) == 1, "a receive works in both"


@BOTH
async def test_a_peek_with_listen_alone(answer: bool) -> None:
    async with (
        namespace(QueueSpec("orders"), peek_needs_send=answer) as contoso,
        client_of(contoso, "one") as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        if answer:
            with pytest.raises(ServiceBusAuthorizationError):
                await receiver.peek_messages(1)
        else:
            assert await receiver.peek_messages(1) == []


@BOTH
async def test_a_send_to_a_queue_closed_to_receivers(answer: bool) -> None:
    queue = QueueSpec("orders", QueueSettings(status=EntityStatus.RECEIVE_DISABLED))
    async with namespace(queue, send_when_receive_disabled=answer) as contoso, client_of(contoso) as client:
        sender = client.get_queue_sender("orders")
        if answer:
            await sender.send_messages(ServiceBusMessage("one"))
        else:
            with pytest.raises(MessagingEntityDisabledError):
                await sender.send_messages(ServiceBusMessage("one"))
        await sender.close()
        assert len(queue_of(contoso)) == answer


@BOTH
async def test_a_batch_delete(answer: bool) -> None:
    async with namespace(QueueSpec("orders"), exact_batch_delete=answer) as contoso, client_of(contoso) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(4)])
        before = (datetime.now(UTC) + timedelta(minutes=1)).timestamp()
        assert queue_of(contoso).delete_waiting(before, 4) == 4
        assert len(queue_of(contoso)) == (0 if answer else 2)


@BOTH
async def test_a_connection_without_links(answer: bool) -> None:
    async with (
        namespace(QueueSpec("orders"), close_unlinked_connections=answer) as contoso,
        client_of(contoso) as client,
    ):
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("one"))
        (connection,) = contoso.node.connections
        for link in list(connection.links.values()):
            if link.path:
                link.gone()
                connection.forget(link)
        for seconds, is_closed in ((299, False), (2, answer)):
            contoso.node.clock.advance(seconds)  # type: ignore[attr-defined]
            contoso.node.clock_jumped()
            await asyncio.sleep(0)
            assert connection._is_over is is_closed
        await sender.close()


@BOTH
async def test_deliveries_of_dead_letters(answer: bool) -> None:
    async with namespace(QueueSpec("orders"), count_dead_letter_deliveries=answer) as contoso:
        async with client_of(contoso) as client:
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("one"))
            async with client.get_queue_receiver("orders") as receiver:
                (message,) = await receiver.receive_messages(1, max_wait_time=10)
                await receiver.dead_letter_message(message)
            async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
                counts = []
                for _ in range(2):
                    (message,) = await dead.receive_messages(1, max_wait_time=10)
                    counts.append(message.delivery_count)
                    await dead.abandon_message(message)
        assert counts == ([0, 1] if answer else [0, 0])


@BOTH
async def test_a_full_queue_beside_others(answer: bool) -> None:
    queues = (QueueSpec("full", QueueSettings(max_size_mb=1)), QueueSpec("orders"))
    async with namespace(*queues, full_entity_blocks_namespace=answer) as contoso, client_of(contoso) as client:
        full, orders = client.get_queue_sender("full"), client.get_queue_sender("orders")
        for _ in range(5):
            await full.send_messages(ServiceBusMessage(bytes(200_000)))
        with pytest.raises(ServiceBusQuotaExceededError):
            await full.send_messages(ServiceBusMessage(bytes(200_000)))
        if answer:
            with pytest.raises(ServiceBusQuotaExceededError, match="reached or exceeded for 'full'"):
                await orders.send_messages(ServiceBusMessage("one"))
        async with client.get_queue_receiver("full") as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=10)
            await receiver.complete_message(message)
        await orders.send_messages(ServiceBusMessage("two"))
        assert len(queue_of(contoso)) == 1
        await full.close()
        await orders.close()


# -- Rules at work between the real SDK's clients: what is managed over HTTPS decides what comes over AMQP.


TOPIC, NAME = "filtered", "taken"


class Bench:
    """A topic with one subscription whose rules a test sets."""

    def __init__(self, admin: ServiceBusAdministrationClient, client: ServiceBusClient) -> None:
        self.admin, self.client = admin, client

    async def rules(self, **rules: Any) -> None:
        """Put these in the place of `$Default`: a filter, or a filter and an action."""
        await self.admin.delete_rule(TOPIC, NAME, "$Default")
        for name, rule in rules.items():
            condition, action = rule if isinstance(rule, tuple) else (rule, None)
            await self.admin.create_rule(TOPIC, NAME, name, filter=condition, action=action)

    async def send(self, *messages: ServiceBusMessage) -> None:
        async with self.client.get_topic_sender(TOPIC) as sender:
            for message in messages:
                await sender.send_messages(message)

    async def held(self, **options: Any) -> list[ServiceBusReceivedMessage]:
        async with self.client.get_subscription_receiver(TOPIC, NAME, **options) as receiver:
            return await receiver.peek_messages(max_message_count=20)


@pytest.fixture
async def bench(sandbox: Sandbox) -> AsyncIterator[Bench]:
    primary = sandbox["primary"]
    admin = ServiceBusAdministrationClient.from_connection_string(
        primary.connection_string, connection_verify=str(sandbox.ca_file), retry_total=0
    )
    client = ServiceBusClient.from_connection_string(primary.connection_string, retry_total=0)
    async with admin, client, asyncio.timeout(60):
        await admin.create_topic(TOPIC)
        await admin.create_subscription(TOPIC, NAME)
        yield Bench(admin, client)


def message(body: str, user: dict[str, Any] | None = None, **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, application_properties=user, **fields)


async def test_actions_change_copies(bench: Bench) -> None:
    text = "SET quantity = quantity / 2; REMOVE secret; SET sys.Label = 'halved'; SET sys.To = @to"
    halve = SqlRuleAction(text, {"@to": "x"})
    await bench.rules(all=SqlRuleFilter("1=1"), halved=(SqlRuleFilter("quantity > 1"), halve))
    token = UUID(int=9)
    await bench.send(message("m", {"quantity": 9, "secret": "s", "id": token}, subject="whole", message_id="1"))
    whole, halved = await bench.held()
    assert (whole.subject, whole.application_properties) == ("whole", {b"quantity": 9, b"secret": b"s", b"id": token})
    assert (halved.subject, halved.to, halved.message_id, str(halved)) == ("halved", "x", "1", "m")
    assert halved.application_properties == {b"quantity": 4, b"id": token, b"RuleName": b"halved"}
    assert whole.sequence_number < halved.sequence_number
    assert whole.enqueued_sequence_number == halved.enqueued_sequence_number


# What a namespace may be told to do as Azure does: lazy expiry and credits, by the SDK and over HTTP.


BURIES = QueueSettings(dead_letter_on_expiration=True)
THROTTLED = "is being throttled"


@pytest.fixture
async def azure_like() -> AsyncIterator[Sandbox]:
    lazy = NamespaceSpec("lazy", [QueueSpec("orders", BURIES)], expiry=Expiry.LAZY)
    limited = NamespaceSpec("limited", [QueueSpec("orders")], credits_per_second=100)
    async with Sandbox.start([lazy, limited]) as running:
        yield running


async def advance(azure_like: Sandbox, seconds: float) -> None:
    async with (
        aiohttp.ClientSession(azure_like.control_url + "/") as session,
        session.post("clock", json={"advance_s": seconds}) as answer,
    ):
        assert answer.status == 200


def admin_of(azure_like: Sandbox, name: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        azure_like[name].connection_string, connection_verify=str(azure_like.ca_file), retry_total=0
    )


async def test_what_is_over_is_peeked_and_counted_but_not_received(azure_like: Sandbox) -> None:
    async with ServiceBusClient.from_connection_string(azure_like["lazy"].connection_string) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("old", time_to_live=timedelta(seconds=30)))
            await sender.send_messages(ServiceBusMessage("new"))
        await advance(azure_like, 60)
        async with admin_of(azure_like, "lazy") as admin:
            assert (await admin.get_queue_runtime_properties("orders")).active_message_count == 2
        async with client.get_queue_receiver("orders") as receiver:
            assert [str(message) for message in await receiver.peek_messages(10)] == ["old", "new"]
            assert [str(message) for message in await receiver.receive_messages(10, max_wait_time=5)] == ["new"]
            assert [str(message) for message in await receiver.peek_messages(10, sequence_number=1)] == ["new"]
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (message,) = await dead.receive_messages(10, max_wait_time=5)
            assert message.dead_letter_reason == "TTLExpiredException"


async def test_administration_is_throttled(azure_like: Sandbox) -> None:
    bucket = azure_like["limited"].node.namespace._agenda.credits
    assert bucket is not None
    async with admin_of(azure_like, "limited") as admin:
        assert (await admin.get_queue("orders")).name == "orders"
        with pytest.raises(HttpResponseError, match=THROTTLED) as caught:
            await asyncio.gather(*(admin.get_queue("orders") for _ in range(60)))
    assert caught.value.status_code == 503


async def test_the_resource_manager_is_throttled(azure_like: Sandbox) -> None:
    node = azure_like["limited"].node
    token = {"role": "Azure Service Bus Data Owner", "scope": "https://management.azure.com/.default"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{azure_like.control_url}/tokens", json=token) as answer:
            told = await answer.json()
            assert answer.status == 201, told
        head = {"Authorization": f"Bearer {told['token']}"}
        place = "subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/limited"
        plain = azure_like.arm_url.replace("https", "http")
        url = f"{plain}/{place}/queues/orders?api-version=2022-10-01-preview"
        node.namespace.charge(10**6)
        async with session.get(url, headers=head) as answer:
            refused = await answer.json()
            assert (answer.status, refused["error"]["code"]) == (429, "TooManyRequests")
            assert refused["error"]["message"].startswith("SubCode=50004. The request was terminated because")
        async with session.get(f"{plain}/{place}?api-version=2022-10-01-preview", headers=head) as answer:
            assert answer.status == 200, "a namespace is no entity"

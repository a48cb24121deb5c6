"""Management as the real SDK asks for it: every property there and back, lists in pages, errors by their class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import AccessRights, AuthorizationRule
from azure.servicebus.management import EntityStatus as SdkStatus
from azure.servicebus.management import ServiceBusAdministrationClient as SyncAdministrationClient

from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import Message

if TYPE_CHECKING:
    from tests.sandbox.conftest import Port

BACKLOG = "contoso/x-servicebus-transfer/0"
FOR_EVER = "P10675199DT2H48M5.4775807S"


@pytest.fixture
async def admin(port: Port) -> AsyncIterator[ServiceBusAdministrationClient]:
    client = ServiceBusAdministrationClient.from_connection_string(
        port.connection_string, connection_verify=str(port.ca_file), retry_total=0
    )
    async with client, asyncio.timeout(60):
        yield client


async def test_a_backlog_queue_as_pairing_creates_it(admin: ServiceBusAdministrationClient, port: Port) -> None:
    made = await admin.create_queue(
        BACKLOG,
        max_size_in_megabytes=5120,
        max_delivery_count=2147483647,
        default_message_time_to_live=FOR_EVER,
        auto_delete_on_idle=FOR_EVER,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )
    read = await admin.get_queue(BACKLOG)
    for queue in (made, read):
        assert queue.name == BACKLOG
        assert (queue.max_size_in_megabytes, queue.max_delivery_count) == (5120, 2147483647)
        assert queue.default_message_time_to_live.days == queue.auto_delete_on_idle.days == 10675199
        assert queue.lock_duration == timedelta(minutes=1)
        assert queue.dead_lettering_on_message_expiration
        assert queue.enable_batched_operations
    assert port.namespace.queue(BACKLOG).settings == QueueSettings(
        max_size_mb=5120, max_delivery_count=2147483647, dead_letter_on_expiration=True
    )
    assert len(port.changes) == 1


async def test_every_queue_property_survives(admin: ServiceBusAdministrationClient) -> None:
    wanted = {
        "auto_delete_on_idle": timedelta(minutes=7),
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": timedelta(days=2, hours=3, seconds=4.5),
        "duplicate_detection_history_time_window": timedelta(minutes=5),
        "enable_batched_operations": False,
        "enable_partitioning": True,
        "lock_duration": timedelta(seconds=13),
        "max_delivery_count": 17,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "user_metadata": "<owner> & “co”",
    }
    await admin.create_queue("everything", **wanted)
    read = await admin.get_queue("everything")
    assert {name: getattr(read, name) for name in wanted} == wanted
    assert read.status == SdkStatus.ACTIVE


async def test_defaults_are_the_services(admin: ServiceBusAdministrationClient, port: Port) -> None:
    read = await admin.create_queue("plain")
    assert port.namespace.queue("plain").settings == QueueSettings()
    assert (read.max_delivery_count, read.max_size_in_megabytes, read.lock_duration.seconds) == (10, 1024, 60)
    assert read.default_message_time_to_live.days == 10675199


async def test_authorization_rules_are_kept(admin: ServiceBusAdministrationClient, port: Port) -> None:
    given = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="mine",
        primary_key="one",
        secondary_key="two",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
    )
    queue = await admin.create_queue("orders", authorization_rules=[given])
    (read,) = (await admin.get_queue("orders")).authorization_rules
    names = ("type", "claim_type", "claim_value", "key_name", "primary_key", "secondary_key")
    assert [getattr(read, name) for name in names] == [getattr(given, name) for name in names]
    assert sorted(read.rights) == ["Listen", "Send"]
    assert read.created_at_utc <= read.modified_at_utc
    queue.authorization_rules = []
    await admin.update_queue(queue)
    assert port.namespace.queue("orders").settings.authorization_rules == ()


async def test_updating_a_queue(admin: ServiceBusAdministrationClient, port: Port) -> None:
    queue = await admin.create_queue("orders", requires_session=True)
    queue.status = SdkStatus.SEND_DISABLED
    queue.max_delivery_count = 3
    await admin.update_queue(queue)
    read = await admin.get_queue("orders")
    assert (read.status, read.max_delivery_count) == (SdkStatus.SEND_DISABLED, 3)
    assert port.namespace.queue("orders").settings.requires_session


async def test_what_is_fixed_cannot_be_updated(admin: ServiceBusAdministrationClient) -> None:
    queue = await admin.create_queue("orders")
    queue.requires_session = True
    with pytest.raises(HttpResponseError, match="requires_session is False and cannot be changed") as caught:
        await admin.update_queue(queue)
    assert caught.value.status_code == 400


async def test_forwarding_is_written_as_an_address(admin: ServiceBusAdministrationClient, port: Port) -> None:
    await admin.create_queue("target")
    await admin.create_queue("source", forward_to="target", forward_dead_lettered_messages_to="target")
    assert port.namespace.queue("source").settings.forward_to == "target"
    read = await admin.get_queue("source")
    assert read.forward_to == read.forward_dead_lettered_messages_to == f"sb://127.0.0.1:{port.number}/target"
    read.forward_to = None
    await admin.update_queue(read)
    assert port.namespace.queue("source").settings.forward_to is None


async def test_runtime_properties(admin: ServiceBusAdministrationClient, port: Port) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    await admin.create_queue("orders")
    port.namespace.queue("orders").intake.send([Message(payload=b"x" * 100, size=100)])
    counts = await admin.get_queue_runtime_properties("orders")
    assert (counts.total_message_count, counts.active_message_count) == (1, 1)
    assert (counts.dead_letter_message_count, counts.scheduled_message_count) == (0, 0)
    assert (counts.transfer_message_count, counts.transfer_dead_letter_message_count) == (0, 0)
    assert counts.size_in_bytes >= 100
    for moment in (counts.created_at_utc, counts.updated_at_utc, counts.accessed_at_utc):
        assert before < moment.replace(tzinfo=UTC) < datetime.now(UTC) + timedelta(seconds=1)
    listed = [item.name async for item in admin.list_queues_runtime_properties()]
    assert listed == ["orders"]


async def test_deleting(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue(BACKLOG)
    await admin.delete_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError):
        await admin.get_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError, match=f"The messaging entity '{BACKLOG}'"):
        await admin.delete_queue(BACKLOG)


async def test_names_compare_without_regard_to_case(admin: ServiceBusAdministrationClient) -> None:
    await admin.create_queue("Orders")
    with pytest.raises(ResourceExistsError, match="already exists"):
        await admin.create_queue("ORDERS")
    with pytest.raises(ResourceExistsError):
        await admin.create_topic("orders")
    assert (await admin.get_queue("oRDERS")).lock_duration == timedelta(minutes=1)


async def test_lists_come_in_pages(admin: ServiceBusAdministrationClient, port: Port) -> None:
    names = [f"contoso/x-servicebus-transfer/{index:03}" for index in range(250)]
    for name in names:
        port.namespace.create_queue(name)
    port.namespace.create_topic("a-topic")
    assert [queue.name async for queue in admin.list_queues()] == names
    assert [queue.name async for queue in admin.list_queues(max_page_size=7, start_index=200)] == names[200:]
    assert [topic.name async for topic in admin.list_topics()] == ["a-topic"]


async def test_an_empty_namespace_lists_nothing(admin: ServiceBusAdministrationClient) -> None:
    assert [queue async for queue in admin.list_queues()] == []


async def test_topics(admin: ServiceBusAdministrationClient) -> None:
    wanted = {
        "default_message_time_to_live": timedelta(hours=1),
        "max_size_in_megabytes": 2048,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=2),
        "enable_batched_operations": False,
        "support_ordering": False,
        "auto_delete_on_idle": timedelta(minutes=10),
        "enable_partitioning": True,
        "user_metadata": "audit trail",
    }
    await admin.create_topic("audit", **wanted)
    topic = await admin.get_topic("audit")
    assert {name: getattr(topic, name) for name in wanted} == wanted
    topic.user_metadata = "changed"
    await admin.update_topic(topic)
    assert (await admin.get_topic("audit")).user_metadata == "changed"
    await admin.create_subscription("audit", "all")
    runtime = await admin.get_topic_runtime_properties("audit")
    assert (runtime.subscription_count, runtime.scheduled_message_count, runtime.size_in_bytes) == (1, 0, 0)
    await admin.delete_topic("audit")
    with pytest.raises(ResourceNotFoundError):
        await admin.get_topic("audit")


async def test_subscriptions(admin: ServiceBusAdministrationClient, port: Port) -> None:
    await admin.create_topic("audit")
    wanted = {
        "lock_duration": timedelta(seconds=20),
        "requires_session": True,
        "default_message_time_to_live": timedelta(hours=2),
        "dead_lettering_on_message_expiration": True,
        "dead_lettering_on_filter_evaluation_exceptions": False,
        "max_delivery_count": 4,
        "enable_batched_operations": False,
        "user_metadata": "x",
        "auto_delete_on_idle": timedelta(minutes=6),
    }
    await admin.create_subscription("audit", "all", **wanted)
    subscription = await admin.get_subscription("audit", "all")
    assert {name: getattr(subscription, name) for name in wanted} == wanted
    subscription.max_delivery_count = 5
    await admin.update_subscription("audit", subscription)
    assert port.namespace.subscription("audit", "all").settings.max_delivery_count == 5
    assert [item.name async for item in admin.list_subscriptions("audit")] == ["all"]
    runtime = await admin.get_subscription_runtime_properties("audit", "all")
    assert runtime.total_message_count == runtime.active_message_count == 0
    await admin.delete_subscription("audit", "all")
    with pytest.raises(ResourceNotFoundError, match="audit/Subscriptions/all"):
        await admin.get_subscription("audit", "all")
    with pytest.raises(ResourceNotFoundError):
        await admin.create_subscription("nowhere", "all")


async def test_the_namespace_tells_its_name(admin: ServiceBusAdministrationClient) -> None:
    properties = await admin.get_namespace_properties()
    assert (properties.name, properties.messaging_sku, properties.namespace_type) == (
        "contoso",
        "Standard",
        "Messaging",
    )


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"lock_duration": timedelta(minutes=6)}, "lock_duration is 0:06:00"),
        ({"lock_duration": FOR_EVER}, "LockDuration: it cannot last for ever"),
        ({"max_delivery_count": 0}, "max_delivery_count is 0"),
        ({"user_metadata": "x" * 1025}, "user_metadata"),
        ({"default_message_time_to_live": timedelta(seconds=-1)}, "default_ttl is -1 day"),
        ({"default_message_time_to_live": timedelta(milliseconds=1)}, "default_ttl is 0:00:00.001"),
        ({"auto_delete_on_idle": timedelta(minutes=4)}, "auto_delete_on_idle is 0:04:00; allowed is 0:05:00 or more"),
        ({"duplicate_detection_history_time_window": timedelta(seconds=19)}, "duplicate_window is 0:00:19"),
        ({"max_size_in_megabytes": 1000}, "max_size_mb is 1000; on the tier Standard it is one of 1024, 2048"),
        ({"max_message_size_in_kilobytes": 1024}, "max_message_size_kb cannot be chosen on the tier Standard"),
        ({"forward_to": "nowhere"}, "SubCode=40400. messages are to be forwarded to 'nowhere'"),
        ({"requires_duplicate_detection": True, "enable_express": True}, "express entity cannot detect duplicates"),
    ],
)
async def test_what_is_out_of_range_is_named(
    admin: ServiceBusAdministrationClient, properties: dict[str, object], complaint: str
) -> None:
    with pytest.raises(HttpResponseError, match=complaint) as caught:
        await admin.create_queue("orders", **properties)
    assert caught.value.status_code == 400


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (("secret", "wrong"), "was not made with the key 'Root'"),
        (("KeyName=Root", "KeyName=Nobody"), "no key named 'Nobody'"),
    ],
)
async def test_a_wrong_key_is_told(port: Port, edit: tuple[str, str], complaint: str) -> None:
    client = ServiceBusAdministrationClient.from_connection_string(
        port.connection_string.replace(*edit), connection_verify=str(port.ca_file)
    )
    async with client, asyncio.timeout(60):
        with pytest.raises(ClientAuthenticationError, match=complaint):
            await client.get_namespace_properties()


async def test_the_synchronous_client(port: Port) -> None:
    def work() -> list[str]:
        with SyncAdministrationClient.from_connection_string(
            port.connection_string, connection_verify=str(port.ca_file)
        ) as client:
            client.create_queue(BACKLOG)
            client.create_topic("audit")
            client.create_subscription("audit", "all")
            queue = client.get_queue(BACKLOG)
            client.update_queue(queue, max_delivery_count=4)
            with pytest.raises(ResourceExistsError):
                client.create_queue(BACKLOG)
            names = [queue.name for queue in client.list_queues()]
            client.delete_queue(BACKLOG)
            return names

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(work) == [BACKLOG]
    assert port.namespace.queues() == []

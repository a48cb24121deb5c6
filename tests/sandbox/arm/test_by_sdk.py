"""ARM of a whole sandbox: what is made there is a namespace like the others, and what is broken is broken there too."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.mgmt.servicebus import ServiceBusManagementClient as SyncManagementClient
from azure.mgmt.servicebus.aio import ServiceBusManagementClient
from azure.mgmt.servicebus.models import (
    SBAuthorizationRule,
    SBAuthorizationRuleProperties,
    SBNamespace,
    SBQueue,
    SBQueueProperties,
    SBSku,
    SBTopic,
)
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from servicebus_sandbox import AsyncSandboxCredential, Sandbox, SandboxCredential
from servicebus_sandbox.faults import FaultTerms, Operation

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
IN = ("group", "primary")
AT = ("group", "tertiary")
MANAGE = FaultTerms(operations=frozenset({Operation.MANAGE}))
FOR_EVER = "P10675199DT2H48M5.4775807S"


def options(sandbox: Sandbox) -> dict[str, Any]:
    return {"base_url": sandbox.arm_url, "connection_verify": str(sandbox.ca_file), "retry_total": 0}


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[ServiceBusManagementClient]:
    credential = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
    async with (
        asyncio.timeout(60),
        ServiceBusManagementClient(credential, SUBSCRIPTION, **options(sandbox)) as opened,
    ):
        yield opened


@pytest.fixture
async def tertiary(client: ServiceBusManagementClient) -> str:
    """The connection string of a namespace that was made through ARM and has a queue `q`."""
    await client.namespaces.begin_create_or_update(*AT, SBNamespace(location="uksouth"))
    await client.queues.create_or_update(*AT, "q", SBQueue())
    return (await client.namespaces.list_keys(*AT, "RootManageSharedAccessKey")).primary_connection_string


async def send(connection_string: str, entity: str, **more: Any) -> None:
    client = ServiceBusClient.from_connection_string(connection_string, retry_total=0, **more)
    async with asyncio.timeout(60), client, client.get_queue_sender(entity) as sender:
        await sender.send_messages(ServiceBusMessage("hello"))


async def control(sandbox: Sandbox, method: str, path: str, **body: object) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{sandbox.control_url}{path}", json=body or None) as answer,
    ):
        return await answer.json()


# ---------------------------------------------------------------------- namespaces that were made here


async def test_the_namespaces_of_a_sandbox(client: ServiceBusManagementClient) -> None:
    regions = {found.name: found.location async for found in client.namespaces.list()}
    assert regions == {"primary": "westeurope", "secondary": "northeurope"}
    assert [queue.name async for queue in client.queues.list_by_namespace(*IN)] == ["orders", "payments"]


async def test_a_key_made_here_opens_its_queue(client: ServiceBusManagementClient, tertiary: str) -> None:
    rights = SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=["Send"]))
    await client.queues.create_or_update_authorization_rule(*AT, "q", "sender", rights)
    keys = await client.queues.list_keys(*AT, "q", "sender")
    await send(keys.secondary_connection_string, "q")
    assert (await client.queues.get(*AT, "q")).properties.message_count == 1
    await client.queues.delete_authorization_rule(*AT, "q", "sender")
    with pytest.raises(ServiceBusError):
        await send(keys.secondary_connection_string, "q")
    await send(tertiary, "q")


async def test_a_namespace_made_here_is_known_by_its_real_name_over_tls(
    sandbox: Sandbox, client: ServiceBusManagementClient, tertiary: str
) -> None:
    made = sandbox["tertiary"]
    tls = ssl.create_default_context(cafile=sandbox.ca_file)
    reader, writer = await asyncio.open_connection(
        made.host, made.amqp_port, ssl=tls, server_hostname=made.fully_qualified_name
    )
    writer.close()
    await send(
        f"Endpoint=sb://{made.fully_qualified_name}/;SharedAccessKeyName={made.key_name};SharedAccessKey={made.key}",
        "q",
        custom_endpoint_address=made.endpoint,
        connection_verify=str(sandbox.ca_file),
        transport_type=TransportType.AmqpOverWebsocket,
    )
    assert made.node.namespace.queue("q").counts().active == 1
    assert not reader.at_eof() or reader.exception() is None


async def test_the_control_url_knows_a_namespace_made_here(sandbox: Sandbox, tertiary: str) -> None:
    state = await control(sandbox, "GET", "/state")
    assert [each["name"] for each in state["namespaces"]] == ["primary", "secondary", "tertiary"]
    fault = await control(sandbox, "POST", "/faults", namespace="tertiary", fault="disabled", entity="q")
    with pytest.raises(ServiceBusError, match="Disabled"):
        await send(tertiary, "q")
    assert [each["namespace"] for each in (await control(sandbox, "GET", "/faults"))["faults"]] == ["tertiary"]
    await control(sandbox, "DELETE", f"/faults/{fault['id']}")
    await send(tertiary, "q")


async def test_its_clock_is_the_sandboxs(sandbox: Sandbox, client: ServiceBusManagementClient, tertiary: str) -> None:
    wanted = SBQueueProperties(auto_delete_on_idle=timedelta(minutes=5))
    await client.queues.create_or_update(*AT, "short", SBQueue(properties=wanted))
    await control(sandbox, "POST", "/clock", advance_s=301)
    with pytest.raises(ResourceNotFoundError):
        await client.queues.get(*AT, "short")


async def test_deleting_ends_what_lives_on_it(
    sandbox: Sandbox, client: ServiceBusManagementClient, tertiary: str
) -> None:
    made = sandbox["tertiary"]
    messaging = ServiceBusClient.from_connection_string(tertiary, retry_total=0)
    async with messaging, messaging.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("hello"))
        await (await client.namespaces.begin_delete(*AT)).result()
        assert not made.node.connections
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("hello"), timeout=5)
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection(made.host, made.amqp_port)
    with pytest.raises(KeyError, match="there are primary, secondary"):
        sandbox["tertiary"]
    answer = await control(sandbox, "POST", "/faults", namespace="tertiary", fault="busy")
    assert answer["error"] == "namespace is 'tertiary'; there are primary, secondary"


async def test_one_that_the_sandbox_began_with_can_be_deleted_and_made_again(
    sandbox: Sandbox, client: ServiceBusManagementClient
) -> None:
    await client.namespaces.begin_delete("group", "secondary")
    assert [each.name for each in sandbox.namespaces] == ["primary"]
    await client.namespaces.begin_create_or_update("group", "secondary", SBNamespace(location="northeurope"))
    assert (await client.namespaces.get("group", "secondary")).properties.status == "Active"


async def test_the_synchronous_client_makes_a_backlog_queue_and_ends_its_namespace(sandbox: Sandbox) -> None:
    """SPEC.md section 4: "MaxSizeInMegabytes 5120, MaxDeliveryCount 2147483647, DefaultMessageTimeToLive and
    AutoDeleteOnIdle TimeSpan.MaxValue, LockDuration 1 min, EnableDeadLetteringOnMessageExpiration true,
    EnableBatchedOperations true"."""
    path = "contoso/x-servicebus-transfer/0"

    def work() -> SBQueueProperties:
        credential = SandboxCredential(sandbox.control_url, "Data Owner")
        with SyncManagementClient(credential, SUBSCRIPTION, **options(sandbox)) as client:
            client.namespaces.begin_create_or_update(*AT, SBNamespace(location="uksouth")).result()
            wanted = {
                "maxSizeInMegabytes": 5120,
                "maxDeliveryCount": 2147483647,
                "defaultMessageTimeToLive": FOR_EVER,
                "autoDeleteOnIdle": FOR_EVER,
                "lockDuration": "PT1M",
                "deadLetteringOnMessageExpiration": True,
                "enableBatchedOperations": True,
            }
            client.queues.create_or_update(*AT, path, {"properties": wanted})
            found = client.queues.get(*AT, path).properties
            client.queues.create_or_update(*AT, path, SBQueue(properties=found))
            assert client.queues.get(*AT, path).properties.as_dict() | {"updatedAt": ""} == found.as_dict() | {
                "updatedAt": ""
            }
            client.namespaces.begin_delete(*AT).result()
            return found

    found = await asyncio.to_thread(work)
    assert (found.max_size_in_megabytes, found.max_delivery_count) == (5120, 2147483647)
    assert found["defaultMessageTimeToLive"] == found["autoDeleteOnIdle"] == FOR_EVER
    assert (found.lock_duration, found.status) == (timedelta(minutes=1), "Active")
    assert found.dead_lettering_on_message_expiration
    assert found.enable_batched_operations
    assert [each.name for each in sandbox.namespaces] == ["primary", "secondary"]


# ---------------------------------------------------------------------- tiers


async def test_what_the_basic_tier_has_not(sandbox: Sandbox, client: ServiceBusManagementClient) -> None:
    wanted = SBNamespace(location="uksouth", sku=SBSku(name="Basic", tier="Basic"))
    await client.namespaces.begin_create_or_update(*AT, wanted)
    with pytest.raises(HttpResponseError, match=r"SubCode=40000\. 'tertiary' is of the tier Basic, which has no"):
        await client.topics.create_or_update(*AT, "t", SBTopic())
    for name, value in (
        ("requires_session", True),
        ("requires_duplicate_detection", True),
        ("forward_to", "orders"),
        ("forward_dead_lettered_messages_to", "orders"),
        ("auto_delete_on_idle", timedelta(hours=1)),
    ):
        properties = SBQueueProperties(**{name: value})
        with pytest.raises(HttpResponseError, match=r"SubCode=40000\. .* cannot be set on the tier Basic") as caught:
            await client.queues.create_or_update(*AT, "q", SBQueue(properties=properties))
        assert (caught.value.status_code, caught.value.error.code) == (400, "BadRequest")
    await client.queues.create_or_update(*AT, "q", SBQueue())


# ---------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("kind", "error", "status", "code"),
    [
        ("busy", HttpResponseError, 429, "TooManyRequests"),
        ("not-found", ResourceNotFoundError, 404, "NotFound"),
        ("unauthorized", ClientAuthenticationError, 401, "AuthenticationFailed"),
    ],
)
async def test_management_fails_with_arms_own_code_while_messages_pass(
    sandbox: Sandbox,
    client: ServiceBusManagementClient,
    kind: str,
    error: type[HttpResponseError],
    status: int,
    code: str,
) -> None:
    sandbox["primary"].node.faults.add(kind, entity="orders", terms=MANAGE)
    with pytest.raises(error) as caught:
        await client.queues.get(*IN, "orders")
    assert (caught.value.status_code, caught.value.error.code) == (status, code)
    assert (await client.queues.get(*IN, "payments")).name == "payments"
    await send(sandbox["primary"].connection_string, "orders")


@pytest.mark.parametrize("terms", [MANAGE, FaultTerms()])
@pytest.mark.parametrize("kind", ["refused", "reset"])
async def test_a_namespace_that_cannot_be_managed_cuts_its_requests_alone(
    sandbox: Sandbox, client: ServiceBusManagementClient, kind: str, terms: FaultTerms
) -> None:
    fault = sandbox["primary"].node.faults.add(kind, terms=terms)
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        await client.queues.get(*IN, "orders")
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        await client.namespaces.get(*IN)
    assert (await client.namespaces.get("group", "secondary")).name == "secondary"
    sandbox["primary"].node.faults.remove(fault.id)
    assert (await client.queues.get(*IN, "orders")).name == "orders"

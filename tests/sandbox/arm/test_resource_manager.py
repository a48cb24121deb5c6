"""Azure Resource Manager as azure-mgmt-servicebus asks for it, over HTTPS and over plain HTTP."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

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
    Action,
    CorrelationFilter,
    RegenerateAccessKeyParameters,
    Rule,
    Ruleproperties,
    SBAuthorizationRule,
    SBAuthorizationRuleProperties,
    SBNamespace,
    SBNamespaceProperties,
    SBNamespaceUpdateParameters,
    SBQueue,
    SBQueueProperties,
    SBSku,
    SBSubscription,
    SBSubscriptionProperties,
    SBTopic,
    SBTopicProperties,
    SqlFilter,
)
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.conftest import IMPATIENT

from servicebus_amqp.server.certificates import Certificates
from servicebus_sandbox import AsyncSandboxCredential, Sandbox, SandboxCredential
from servicebus_sandbox.access.authorization import AccessToken, AzureRole, Issuer, root_rule
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.arm.arm_request import ArmAddress, ArmNamespace, ArmResponse, read_address, resource_id
from servicebus_sandbox.arm.resource_manager import ResourceManager
from servicebus_sandbox.atom.management_api import AtomRequest
from servicebus_sandbox.broker.entity_settings import QueueSettings, Tier
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.faults import FaultTerms, Operation
from servicebus_sandbox.specs import NamespaceSpec

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
BACKLOG = "contoso/x-servicebus-transfer/0"
IN = ("group", "primary")
SCOPE = "https://management.azure.com/.default"


class Credential:
    """In azure-identity's shape."""

    def __init__(self, issuer: Issuer, role: AzureRole = AzureRole.OWNER) -> None:
        self.issuer, self.role = issuer, role

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return self.issuer.issue(self.role, scopes[0])

    async def close(self) -> None:
        pass


@dataclass
class Arm:
    url: str
    ca_file: str
    issuer: Issuer
    node: NamespaceServer
    manager: ResourceManager

    def client(self, role: AzureRole = AzureRole.OWNER, **options: Any) -> ServiceBusManagementClient:
        return ServiceBusManagementClient(
            Credential(self.issuer, role),
            SUBSCRIPTION,
            **{"base_url": self.url, "connection_verify": self.ca_file, "retry_total": 0, "polling_interval": 0}
            | options,
        )

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        """An answer without any socket."""
        reply = await self.answer(method, target, body, **headers)
        return reply.status, reply.body

    async def answer(self, method: str, target: str, body: bytes = b"", **headers: str) -> ArmResponse:
        token = self.issuer.issue(AzureRole.OWNER, SCOPE).token
        named = {"host": "arm", "authorization": f"Bearer {token}"} | headers
        reply = await self.manager.answer(AtomRequest(method=method, target=target, headers=named, body=body))
        assert reply is not None
        return reply


@pytest.fixture
async def arm(certificates: Certificates, patience: float) -> AsyncIterator[Arm]:
    issuer = Issuer(time.time)
    node = NamespaceServer(
        NamespaceSpec("primary", rules=[root_rule("Root", "one", "two")], region="westeurope"), issuer=issuer
    )
    other = NamespaceServer(NamespaceSpec("premium", rules=[], tier=Tier.PREMIUM, region="northeurope"), issuer=issuer)
    opened: dict[str, NamespaceServer] = {}

    class Owner:
        async def open(self, spec: NamespaceSpec) -> ArmNamespace:
            opened[spec.name] = NamespaceServer(
                NamespaceSpec(spec.name, tier=spec.tier, region=spec.region), issuer=issuer
            )
            return ArmNamespace(node=opened[spec.name], authority="127.0.0.1:5673")

        async def end(self, name: str) -> None:
            opened.pop(name).close()

    places = [ArmNamespace(node=node, authority="127.0.0.1:5671"), ArmNamespace(node=other, authority="127.0.0.1:5672")]
    tls = certificates.server_context()
    manager = ResourceManager(places, issuer=issuer, clock=time.time, owner=Owner(), tls=tls, patience=patience)
    url = f"https://127.0.0.1:{await manager.listen('127.0.0.1')}"
    try:
        async with asyncio.timeout(60):
            yield Arm(url, str(certificates.ca_file), issuer, node, manager)
    finally:
        await manager.close()
        for each in (node, other, *opened.values()):
            each.close()


@pytest.fixture
async def client(arm: Arm) -> AsyncIterator[ServiceBusManagementClient]:
    async with arm.client() as opened:
        yield opened


# ---------------------------------------------------------------------- namespaces


async def test_a_namespace(client: ServiceBusManagementClient) -> None:
    found = await client.namespaces.get(*IN)
    assert (found.name, found.location, found.type) == ("primary", "westeurope", "Microsoft.ServiceBus/Namespaces")
    assert (found.sku.name, found.sku.tier) == ("Standard", "Standard")
    assert (found.properties.status, found.properties.provisioning_state) == ("Active", "Succeeded")
    assert found.properties.service_bus_endpoint == "https://127.0.0.1:5671/"
    assert found.id == (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/group/providers/Microsoft.ServiceBus/namespaces/primary"
    )
    assert abs(found.properties.created_at.timestamp() - time.time()) < 20
    with pytest.raises(ResourceNotFoundError, match="no namespace 'nowhere'") as caught:
        await client.namespaces.get("group", "nowhere")
    assert caught.value.error.code == "ResourceNotFound"


async def test_namespaces_are_listed(client: ServiceBusManagementClient) -> None:
    everywhere = [(found.name, found.location) async for found in client.namespaces.list()]
    assert everywhere == [("primary", "westeurope"), ("premium", "northeurope")]
    assert [found.sku.tier async for found in client.namespaces.list_by_resource_group("g")] == ["Standard", "Premium"]


async def test_making_a_namespace(client: ServiceBusManagementClient) -> None:
    wanted = SBNamespace(location="uksouth", sku=SBSku(name="Premium", tier="Premium", capacity=2), tags={"a": "b"})
    wanted.properties = SBNamespaceProperties(zone_redundant=True)
    poller = await client.namespaces.begin_create_or_update("group", "another1", wanted)
    assert (poller.done(), poller.status()) == (False, "InProgress")
    made = await poller.result()
    assert (made.sku.capacity, made.properties.zone_redundant) == (2, True)
    assert (made.properties.provisioning_state, made.properties.status) == ("Succeeded", "Active")
    assert (made.name, made.location, made.sku.name, made.tags) == ("another1", "uksouth", "Premium", {"a": "b"})
    await client.queues.create_or_update("group", "another1", "orders", SBQueue())
    again = await (await client.namespaces.begin_create_or_update("group", "another1", wanted)).result()
    assert again.properties.created_at == made.properties.created_at
    changed = await client.namespaces.update("group", "another1", SBNamespaceUpdateParameters(tags={"c": "d"}))
    assert changed.tags == {"c": "d"}
    other = SBNamespace(location="uksouth", sku=SBSku(name="Standard"))
    with pytest.raises(HttpResponseError, match="stays of the tier Premium"):
        await client.namespaces.begin_create_or_update("group", "another1", other)


async def test_deleting_a_namespace(client: ServiceBusManagementClient) -> None:
    wanted = SBNamespace(location="uksouth")
    await client.namespaces.begin_create_or_update("group", "another1", wanted)
    poller = await client.namespaces.begin_delete("group", "another1")
    assert (poller.done(), poller.status()) == (False, "InProgress")
    await poller.result()
    with pytest.raises(ResourceNotFoundError):
        await client.namespaces.get("group", "another1")
    await (await client.namespaces.begin_delete("group", "another1")).result()  # nothing to delete is no error
    assert (await client.namespaces.check_name_availability({"name": "another1"})).name_available


async def test_two_who_make_the_same_namespace_get_the_same_one(client: ServiceBusManagementClient) -> None:
    wanted = SBNamespace(location="uksouth")
    pollers = await asyncio.gather(
        *(client.namespaces.begin_create_or_update("group", "another1", wanted) for _ in range(3))
    )
    made = await asyncio.gather(*(poller.result() for poller in pollers))
    assert len({each.properties.created_at for each in made}) == 1


async def test_network_rules_let_everybody_in(client: ServiceBusManagementClient) -> None:
    found = await client.namespaces.get_network_rule_set(*IN)
    assert (found.name, found.properties.default_action, found.properties.ip_rules) == ("default", "Allow", [])
    assert (await client.namespaces.create_or_update_network_rule_set(*IN, found)).id == found.id
    assert [each.name async for each in client.namespaces.list_network_rule_sets(*IN)] == ["default"]


@pytest.mark.parametrize(
    ("name", "available", "reason"),
    [("brandnew", True, "None"), ("PRIMARY", False, "NameInUse"), ("a--b--c", False, "InvalidName")],
)
async def test_names_for_namespaces(
    client: ServiceBusManagementClient, name: str, available: bool, reason: str
) -> None:
    found = await client.namespaces.check_name_availability({"name": name})
    assert (found.name_available, found.reason) == (available, reason)


# ---------------------------------------------------------------------- entities


@pytest.mark.parametrize("written", [BACKLOG, BACKLOG.replace("/", "~")])
async def test_a_backlog_queue_under_both_spellings(client: ServiceBusManagementClient, arm: Arm, written: str) -> None:
    wanted = SBQueueProperties(
        max_size_in_megabytes=5120,
        max_delivery_count=2147483647,
        default_message_time_to_live=timedelta.max,
        auto_delete_on_idle=timedelta.max,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )
    wanted.default_message_time_to_live = wanted.auto_delete_on_idle = "P10675199DT2H48M5.4775807S"  # type: ignore[assignment]
    made = await client.queues.create_or_update(*IN, written, SBQueue(properties=wanted))
    assert made.name == BACKLOG
    assert made.id.endswith("/namespaces/primary/queues/contoso~x-servicebus-transfer~0")
    read = await client.queues.get(*IN, written)
    assert made.properties.accessed_at == datetime(1, 1, 1)  # without a zone
    assert {**read.properties, "accessedAt": ""} == {**made.properties, "accessedAt": ""}
    assert (read.properties.max_size_in_megabytes, read.properties.max_delivery_count) == (5120, 2147483647)
    assert read.properties.default_message_time_to_live.days == 10675199
    assert arm.node.namespace.queue(BACKLOG).settings == QueueSettings(
        max_size_mb=5120, max_delivery_count=2147483647, dead_letter_on_expiration=True
    )
    await client.queues.delete(*IN, written)
    with pytest.raises(ResourceNotFoundError, match=f"Queue does not exist: The messaging entity '{BACKLOG}'"):
        await client.queues.get(*IN, written)
    await client.queues.delete(*IN, written)  # nothing to delete is no error


async def test_every_queue_property_survives(client: ServiceBusManagementClient) -> None:
    await client.queues.create_or_update(*IN, "target", SBQueue())
    wanted = {
        "lock_duration": timedelta(seconds=13),
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "default_message_time_to_live": timedelta(days=2, seconds=4.5),
        "dead_lettering_on_message_expiration": True,
        "duplicate_detection_history_time_window": timedelta(minutes=5),
        "max_delivery_count": 17,
        "status": "SendDisabled",
        "enable_batched_operations": False,
        "enable_partitioning": True,
        "forward_to": "target",
        "forward_dead_lettered_messages_to": "target",
        "user_metadata": "<owner> & “co”",
    }
    await client.queues.create_or_update(*IN, "all", SBQueue(properties=SBQueueProperties(**wanted)))
    read = (await client.queues.get(*IN, "all")).properties
    assert {name: getattr(read, name) for name in wanted} == wanted | {"max_size_in_megabytes": 16 * 3072}
    assert read.auto_delete_on_idle.days == 10675199, "forwarding ends it"


async def test_counts_and_pages(client: ServiceBusManagementClient, arm: Arm) -> None:
    for index in range(120):
        arm.node.namespace.create_queue(f"q{index:03}")
    arm.node.namespace.queue("q007").intake.send([Message(payload=b"", size=100, message_id="1")])
    found = (await client.queues.get(*IN, "q007")).properties
    assert (found.message_count, found.count_details.active_message_count, found.size_in_bytes) == (1, 1, 100)
    assert found.count_details.dead_letter_message_count == 0
    assert found.created_at <= found.updated_at <= found.accessed_at
    assert [queue.name async for queue in client.queues.list_by_namespace(*IN)] == [f"q{i:03}" for i in range(120)]
    assert len([queue async for queue in client.queues.list_by_namespace(*IN, skip=100, top=7)]) == 20


async def test_updates_keep_what_is_fixed_and_the_keys(client: ServiceBusManagementClient, arm: Arm) -> None:
    made = await client.queues.create_or_update(*IN, "q", SBQueue(properties=SBQueueProperties(requires_session=True)))
    rights = SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=["Listen"]))
    await client.queues.create_or_update_authorization_rule(*IN, "q", "mine", rights)
    made.properties.max_delivery_count = 3
    await client.queues.create_or_update(*IN, "q", made)
    await client.queues.create_or_update(*IN, "q", SBQueue(properties=SBQueueProperties(max_delivery_count=4)))
    settings = arm.node.namespace.queue("q").settings
    assert (settings.max_delivery_count, settings.requires_session) == (4, True)
    assert [rule.name for rule in settings.authorization_rules] == ["mine"]


async def test_topics_subscriptions_and_rules(client: ServiceBusManagementClient) -> None:
    topic = SBTopicProperties(support_ordering=False, user_metadata="x")
    await client.topics.create_or_update(*IN, "a/b", SBTopic(properties=topic))
    taken = SBSubscriptionProperties(requires_session=True, dead_lettering_on_filter_evaluation_exceptions=False)
    made = await client.subscriptions.create_or_update(*IN, "a/b", "s", SBSubscription(properties=taken))
    assert (made.name, made.properties.requires_session) == ("s", True)
    assert made.properties.dead_lettering_on_filter_evaluation_exceptions is False
    assert made.id.endswith("/topics/a~b/subscriptions/s")
    sql = Ruleproperties(
        filter_type="SqlFilter",
        sql_filter=SqlFilter(sql_expression="color = 'red'"),
        action=Action(sql_expression="SET color = 'blue'"),
    )
    await client.rules.create_or_update(*IN, "a/b", "s", "sql", Rule(properties=sql))
    correlation = CorrelationFilter(correlation_id="c", label="l", properties={"k": "v"})
    wanted = Ruleproperties(filter_type="CorrelationFilter", correlation_filter=correlation)
    await client.rules.create_or_update(*IN, "a/b", "s", "corr", Rule(properties=wanted))
    found = {rule.name: rule.properties async for rule in client.rules.list_by_subscriptions(*IN, "a/b", "s")}
    assert sorted(found) == ["$Default", "corr", "sql"]
    assert found["$Default"].sql_filter.sql_expression == "1=1"
    assert found["sql"].sql_filter.sql_expression == "color = 'red'"
    assert found["sql"].action.sql_expression == "SET color = 'blue'"
    assert (found["corr"].correlation_filter.label, found["corr"].correlation_filter.properties) == ("l", {"k": "v"})
    await client.rules.delete(*IN, "a/b", "s", "$Default")
    sql.sql_filter.sql_expression = "color = 'green'"
    await client.rules.create_or_update(*IN, "a/b", "s", "sql", Rule(properties=sql))
    assert (await client.rules.get(*IN, "a/b", "s", "sql")).properties.sql_filter.sql_expression == "color = 'green'"
    with pytest.raises(ResourceNotFoundError):
        await client.rules.get(*IN, "a/b", "s", "$Default")
    assert [each.name async for each in client.topics.list_by_namespace(*IN)] == ["a/b"]
    assert [each.name async for each in client.subscriptions.list_by_topic(*IN, "a/b")] == ["s"]
    assert (await client.topics.get(*IN, "a~b")).properties.subscription_count == 1
    await client.subscriptions.delete(*IN, "a/b", "s")
    await client.topics.delete(*IN, "a/b")
    with pytest.raises(ResourceNotFoundError):
        await client.topics.get(*IN, "a/b")


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"lock_duration": timedelta(minutes=6)}, "SubCode=40000. LockDuration is 0:06:00"),
        ({"default_message_time_to_live": "-PT1S"}, "DefaultMessageTimeToLive is -1 day"),
        ({"max_size_in_megabytes": 7}, "MaxSizeInMegabytes is 7"),
        ({"forward_to": "nowhere"}, "SubCode=40400. messages are to be forwarded to 'nowhere'"),
        ({"status": "Tired"}, "status: 'Tired' is none of"),
        ({"user_metadata": "\x00"}, "characters that cannot be written"),
        ({"max_delivery_count": "many"}, "maxDeliveryCount: 'many' is no int"),
        ({"lock_duration": "soon"}, "not an ISO 8601 duration"),
    ],
)
async def test_what_is_refused_of_entities(
    client: ServiceBusManagementClient, properties: dict[str, Any], complaint: str
) -> None:
    wanted = SBQueue(properties=SBQueueProperties(**properties))
    with pytest.raises(HttpResponseError) as caught:
        await client.queues.create_or_update(*IN, "q", wanted)
    assert (caught.value.status_code, caught.value.error.code) == (400, "BadRequest")
    assert complaint in caught.value.error.message


# ---------------------------------------------------------------------- keys


async def test_keys_of_the_namespace(client: ServiceBusManagementClient, arm: Arm) -> None:
    assert [rule.name async for rule in client.namespaces.list_authorization_rules(*IN)] == ["Root"]
    keys = await client.namespaces.list_keys(*IN, "Root")
    assert (keys.key_name, keys.primary_key, keys.secondary_key) == ("Root", "one", "two")
    assert keys.primary_connection_string == (
        "Endpoint=sb://127.0.0.1:5671/;SharedAccessKeyName=Root;SharedAccessKey=one;UseDevelopmentEmulator=true"
    )
    send = SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=["Send"]))
    made = await client.namespaces.create_or_update_authorization_rule(*IN, "sender", send)
    assert (made.name, made.properties.rights) == ("sender", ["Send"])
    before = await client.namespaces.list_keys(*IN, "sender")
    which = RegenerateAccessKeyParameters(key_type="SecondaryKey")
    after = await client.namespaces.regenerate_keys(*IN, "sender", which)
    assert after.primary_key == before.primary_key
    assert after.secondary_key not in (before.secondary_key, before.primary_key)
    given = RegenerateAccessKeyParameters(key_type="PrimaryKey", key="mine")
    assert (await client.namespaces.regenerate_keys(*IN, "sender", given)).primary_key == "mine"
    assert [rule.primary_key for rule in arm.node.authorization.rules] == ["one", "mine"]
    assert (await client.namespaces.get_authorization_rule(*IN, "SENDER")).name == "sender"
    await client.namespaces.delete_authorization_rule(*IN, "sender")
    with pytest.raises(ResourceNotFoundError, match="no authorization rule 'sender'"):
        await client.namespaces.list_keys(*IN, "sender")


@pytest.mark.parametrize("kind", ["queues", "topics"])
async def test_keys_of_an_entity(client: ServiceBusManagementClient, arm: Arm, kind: str) -> None:
    operations = getattr(client, kind)
    await operations.create_or_update(*IN, BACKLOG, {"properties": {}})
    rights = SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=["Send", "Listen"]))
    made = await operations.create_or_update_authorization_rule(*IN, BACKLOG, "mine", rights)
    assert made.id.endswith(f"/{kind}/contoso~x-servicebus-transfer~0/AuthorizationRules/mine")
    keys = await operations.list_keys(*IN, BACKLOG, "mine")
    assert f"EntityPath={BACKLOG};" in keys.primary_connection_string
    (rule,) = arm.node.namespace.entity(BACKLOG).settings.authorization_rules  # type: ignore[union-attr]
    assert rule.keys == (keys.primary_key, keys.secondary_key)
    assert [each.name async for each in operations.list_authorization_rules(*IN, BACKLOG)] == ["mine"]
    await operations.delete_authorization_rule(*IN, BACKLOG, "mine")
    await operations.delete_authorization_rule(*IN, BACKLOG, "mine")
    assert [each.name async for each in operations.list_authorization_rules(*IN, BACKLOG)] == []
    rights.properties.rights = ["Manage"]
    with pytest.raises(HttpResponseError, match="then it has to give Send and Listen"):
        await operations.create_or_update_authorization_rule(*IN, BACKLOG, "mine", rights)


# ---------------------------------------------------------------------- who may, and how


async def test_who_may_not(arm: Arm) -> None:
    async with arm.client(AzureRole.SENDER) as client:
        with pytest.raises(HttpResponseError) as caught:
            await client.namespaces.get(*IN)
        assert (caught.value.status_code, caught.value.error.code) == (403, "AuthorizationFailed")
    async with arm.client(credential_scopes=["https://servicebus.azure.net/.default"]) as client:
        with pytest.raises(ClientAuthenticationError, match="audience"):
            await client.namespaces.get(*IN)
    stranger = Credential(Issuer(time.time))
    async with ServiceBusManagementClient(
        stranger, SUBSCRIPTION, base_url=arm.url, connection_verify=arm.ca_file, retry_total=0
    ) as client:
        with pytest.raises(ClientAuthenticationError, match="another issuer"):
            await client.namespaces.get(*IN)
    status, body = await arm.ask("GET", "/subscriptions/s", authorization="")
    assert (status, body["error"]["code"]) == (401, "AuthenticationFailed")


async def test_plain_http_for_clients_that_do_not_insist_on_tls(arm: Arm) -> None:
    async with arm.client(base_url=arm.url.replace("https:", "http:")) as client:
        assert (await client.namespaces.get(*IN, enforce_https=False)).name == "primary"


@pytest.mark.parametrize("version", ["2015-08-01", "2021-11-01", "2022-10-01-preview", "2024-01-01"])
async def test_earlier_versions(arm: Arm, version: str) -> None:
    async with arm.client(api_version=version) as client:
        assert (await client.namespaces.get(*IN)).name == "primary"


BASE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces"
V = "?api-version=2026-01-01"
DENY = b'{"properties": {"defaultAction": "Deny"}}'


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", BASE, b"", 400, "MissingApiVersionParameter"),
        ("GET", f"{BASE}?api-version=soon", b"", 400, "InvalidApiVersionParameter"),
        ("GET", f"{BASE}?api-version=2099-01-01", b"", 400, "InvalidApiVersionParameter"),
        ("GET", f"/subscriptions/s/providers/Microsoft.EventHub/namespaces{V}", b"", 404, "InvalidResourceType"),
        ("GET", f"/{V}", b"", 404, "InvalidResourceType"),
        ("POST", f"{BASE}/primary/failover{V}", b"", 405, "MethodNotAllowed"),
        ("GET", f"{BASE}/primary/disasterRecoveryConfigs/none{V}", b"", 404, "NotFound"),
        ("PUT", f"{BASE}/primary/disasterRecoveryConfigs/alias12{V}", b"{}", 400, "BadRequest"),
        ("POST", f"{BASE}/primary/disasterRecoveryConfigs/other{V}", b"{}", 405, "MethodNotAllowed"),
        ("GET", f"{BASE}/another1/queues/q{V}", b"", 404, "ParentResourceNotFound"),
        ("GET", f"{BASE}/primary/topics/t/subscriptions/s{V}", b"", 404, "EntityNotFound"),
        ("PATCH", f"{BASE}/primary{V}", b'{"properties": {"disableLocalAuth": "yes"}}', 400, "BadRequest"),
        ("PATCH", f"{BASE}/primary{V}", b'{"properties": {"minimumTlsVersion": 1.2}}', 400, "BadRequest"),
        ("GET", f"{BASE}/primary/networkRuleSets/other{V}", b"", 404, "ResourceNotFound"),
        ("PUT", f"{BASE}/primary/networkRuleSets/default{V}", DENY, 400, "BadRequest"),
        ("GET", f"{BASE}/primary/queues{V}&$top=x", b"", 400, "BadRequest"),
        ("PUT", f"{BASE}/primary/queues/q{V}", b"{", 400, "InvalidRequestContent"),
        ("PUT", f"{BASE}/primary/queues/q{V}", b"[" * 100_000, 400, "InvalidRequestContent"),
        ("PUT", f"{BASE}/primary/queues/q{V}", b"[]", 400, "InvalidRequestContent"),
        ("PUT", f"{BASE}/primary/queues/q{V}", b'{"properties": 5}', 400, "InvalidRequestContent"),
        ("PUT", f"{BASE}/primary/queues/q{V}", b'{"properties": {"requiresSession": 1}}', 400, "BadRequest"),
        ("PUT", f"{BASE}/primary/queues/a%20b{V}", b"{}", 400, "BadRequest"),
        ("PUT", f"{BASE}/shrt{V}", b'{"location": "x"}', 400, "BadRequest"),
        ("PUT", f"{BASE}/another1{V}", b"{}", 400, "LocationRequired"),
        ("PUT", f"{BASE}/another1{V}", b'{"location": "x", "sku": {"name": "Gold"}}', 400, "BadRequest"),
        (
            "PUT",
            f"{BASE}/another1{V}",
            b'{"location": "x", "sku": {"name": "Premium", "capacity": 3}}',
            400,
            "BadRequest",
        ),
        ("PUT", f"{BASE}/another1{V}", b'{"location": "x", "properties": {"zoneRedundant": 1}}', 400, "BadRequest"),
        ("PATCH", f"{BASE}/another1{V}", b"{}", 404, "ResourceNotFound"),
        ("GET", f"{BASE}/primary/topics/t/subscriptions{V}", b"", 404, "EntityNotFound"),
        ("POST", f"{BASE}/primary/AuthorizationRules/Root/regenerateKeys{V}", b"{}", 400, "BadRequest"),
        ("PUT", f"{BASE}/primary/AuthorizationRules/x{V}", b'{"properties": {"rights": "Send"}}', 400, "BadRequest"),
    ],
)
async def test_what_does_not_apply(arm: Arm, method: str, target: str, body: bytes, status: int, code: str) -> None:
    found, answer = await arm.ask(method, target, body)
    assert (found, answer["error"]["code"]) == (status, code)
    assert answer["error"]["message"]


async def test_a_queue_where_a_topic_is(arm: Arm) -> None:
    arm.node.namespace.create_topic("t")
    status, answer = await arm.ask("PUT", f"{BASE}/primary/queues/t{V}", b"{}")
    assert (status, answer["error"]["code"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (b'{"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": "a ="}}', "was expected at character 3"),
        (b'{"filterType": "SqlFilter", "sqlFilter": {"other": 1}}', "sqlExpression: None is no text"),
        (b'{"filterType": "Colander"}', "filterType: 'Colander' is neither"),
        (b'{"filterType": "CorrelationFilter"}', "names no property"),
        (b'{"correlationFilter": {"properties": {"a": 1}}}', "a: 1 is no text"),
        (b'{"correlationFilter": []}', "correlationFilter: it has to be an object"),
        (b'{"action": {"sqlExpression": "DANCE"}}', "SET or REMOVE was expected"),
        (b'{"action": "SET a = 1"}', "action: it has to be an object"),
    ],
)
async def test_what_is_refused_of_rules(arm: Arm, rule: bytes, complaint: str) -> None:
    arm.node.namespace.create_topic("t")
    arm.node.namespace.create_subscription("t", "s")
    target = f"{BASE}/primary/topics/t/subscriptions/s/rules/r{V}"
    status, answer = await arm.ask("PUT", target, b'{"properties": %s}' % rule)
    assert status == 400
    assert complaint in answer["error"]["message"]


# ---------------------------------------------------------------------- as it was recorded


async def test_a_creation_and_a_deletion_have_addresses_to_poll(arm: Arm) -> None:
    """SPEC.md section 12: "The sandbox's Resource Manager answers a creation and a deletion of a namespace with the
    addresses of the operation"."""
    made = await arm.answer("PUT", f"{BASE}/another1{V}", b'{"location": "UK South"}')
    assert (made.status, "Retry-After" in made.headers) == (201, False)
    assert list(made.body) == ["id", "name", "type", "location", "tags", "properties", "sku"]
    assert (made.body["location"], made.body["properties"]["status"]) == ("uksouth", "Creating")
    for goal, result in (("Active", 200), ("Deleted", 204)):
        if goal == "Deleted":
            made = await arm.answer("DELETE", f"{BASE}/another1{V}")
            assert made.status == 202
        status, location = (made.headers[name] for name in ("Azure-AsyncOperation", "Location"))
        path = (
            f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.ServiceBus/locations/uksouth/namespaceOperationResults/"
        )
        assert status.startswith(f"https://arm{path}")
        number = status.removeprefix(f"https://arm{path}").partition("?")[0]
        assert await arm.ask("GET", status.removeprefix("https://arm")) == (
            200,
            {"name": number, "status": "Succeeded"},
        )
        found, body = await arm.ask("GET", location.removeprefix("https://arm"))
        assert (found, (body or {}).get("name")) == (result, "another1" if goal == "Active" else None)


async def test_old_versions_answer_a_creation_without_addresses(arm: Arm) -> None:
    old = "?api-version=2021-11-01"
    made = await arm.answer("PUT", f"{BASE}/another1{old}", b'{"location": "UK South"}')
    assert (made.status, made.headers, next(iter(made.body))) == (200, {}, "sku")
    states = made.body["properties"]["provisioningState"], made.body["properties"]["status"]
    assert (states, made.body["location"]) == (("Created", "Activating"), "UK South")
    found = (await arm.ask("GET", f"{BASE}/another1{old}"))[1]
    assert (found["properties"]["status"], "geoDataReplication" in found["properties"]) == ("Active", False)


async def test_a_namespace_is_found_in_its_group_alone(arm: Arm) -> None:
    """SPEC.md section 12: "A namespace is found in the resource group that made it"."""
    await arm.ask("PUT", f"{BASE}/another1{V}", b'{"location": "x"}')
    for group, status in (("G", 200), ("other", 404)):
        assert (await arm.ask("GET", f"{BASE.replace('/g/', f'/{group}/')}/another1{V}"))[0] == status
    other = BASE.replace("/g/", "/other/")
    assert [each["name"] for each in (await arm.ask("GET", f"{other}{V}"))[1]["value"]] == ["primary", "premium"]
    assert (await arm.ask("GET", f"{other}/another1/queues{V}"))[1]["error"]["code"] == "ParentResourceNotFound"
    assert (await arm.ask("DELETE", f"{other}/another1{V}"))[0] == 204
    assert (await arm.ask("GET", f"{BASE}/another1{V}"))[0] == 200


async def test_an_answer_to_a_change_has_no_times_of_its_own(arm: Arm) -> None:
    target, never = f"{BASE}/primary/queues/q{V}", "0001-01-01T00:00:00"
    made, updated, found = [(await arm.ask(method, target, b"{}"))[1]["properties"] for method in ("PUT", "PUT", "GET")]
    assert [made["accessedAt"], found["accessedAt"]] == [never, f"{never}Z"]
    assert {updated[name] for name in ("createdAt", "updatedAt", "accessedAt")} == {never}
    assert made["createdAt"] == found["createdAt"] <= found["updatedAt"]
    assert list(found)[:3] == ["maxMessageSizeInKilobytes", "lockDuration", "maxSizeInMegabytes"]
    body = b'{"properties": {"defaultMessageTimeToLive": "P1Y2M3DT3H11M2S"}}'
    assert (await arm.ask("PUT", target, body))[1]["properties"]["defaultMessageTimeToLive"] == "P428DT3H11M2S"


async def test_headers_have_ids_and_limits(arm: Arm) -> None:
    headers = {"x-ms-client-request-id": "mine"}
    async with aiohttp.ClientSession() as session:
        for method, left in (("GET", "reads"), ("DELETE", "deletes"), ("PUT", "writes")):
            async with session.request(method, f"{arm.url}{BASE}{V}", headers=headers, ssl=False) as answer:
                found = answer.headers
            assert (answer.status, found["Content-Type"]) == (401, "application/json")
            assert found["x-ms-client-request-id"] == "mine_RP"
            assert (found["x-ms-request-id"] == found["x-ms-correlation-request-id"]) is (method != "DELETE")
            assert int(found[f"x-ms-ratelimit-remaining-subscription-{left}"]) > 0
            assert found["Cache-Control"] == "no-cache"


async def test_a_pairing_for_disaster_recovery_is_a_state(arm: Arm) -> None:
    """SPEC.md section 12: "Disaster-recovery pairings are states: no data moves"."""
    for name in ("first1", "second1"):
        await arm.ask("PUT", f"{BASE}/{name}{V}", b'{"location": "x", "sku": {"name": "Premium"}}')
    alias = "disasterRecoveryConfigs/alias1"
    partner = (await arm.ask("GET", f"{BASE}/second1{V}"))[1]["id"]
    body = json.dumps({"properties": {"partnerNamespace": partner}}).encode()

    async def roles() -> list[str]:
        found = [(await arm.ask("GET", f"{BASE}/{name}/{alias}{V}"))[1] for name in ("first1", "second1")]
        return [each.get("properties", {}).get("role", each.get("error", {}).get("code")) for each in found]

    status, made = await arm.ask("PUT", f"{BASE}/first1/{alias}{V}", body)
    assert (status, made["type"]) == (200, "Microsoft.ServiceBus/Namespaces/disasterrecoveryconfigs")
    assert made["properties"] == {"provisioningState": "Accepted", "partnerNamespace": partner, "role": "Primary"}
    assert await roles() == ["Primary", "Secondary"]
    assert (await arm.ask("DELETE", f"{BASE}/second1{V}"))[1]["error"]["code"] == "Conflict"
    assert (await arm.ask("DELETE", f"{BASE}/first1/{alias}{V}"))[0] == 400
    for namespace, operation, answer, after in (
        ("first1", "failover", 400, ["Primary", "Secondary"]),
        ("second1", "breakPairing", 400, ["Primary", "Secondary"]),
        ("first1", "breakPairing", 200, ["PrimaryNotReplicating", "NotFound"]),
        ("first1", "", 200, ["Primary", "Secondary"]),
        ("second1", "failover", 200, ["NotFound", "PrimaryNotReplicating"]),
    ):
        method, target = ("POST", f"{alias}/{operation}") if operation else ("PUT", alias)
        assert (await arm.ask(method, f"{BASE}/{namespace}/{target}{V}", body))[0] == answer
        assert await roles() == after
    found = (await arm.ask("GET", f"{BASE}/second1/{alias}{V}"))[1]["properties"]
    assert (found["partnerNamespace"], found["pendingReplicationOperationsCount"]) == ("", 0)
    check = f"{BASE}/first1/disasterRecoveryConfigs/CheckNameAvailability{V}"
    for name, reason in (("alias1", "NameInUse"), ("second1", "NameInUse"), ("brandnew", "None"), ("-", "InvalidName")):
        assert (await arm.ask("POST", check, json.dumps({"name": name}).encode()))[1]["reason"] == reason
    assert [(await arm.ask("DELETE", f"{BASE}/second1/{alias}{V}"))[0] for _ in range(2)] == [200, 204]


# ---------------------------------------------------------------------- addresses and sockets


@given(st.text(min_size=1, max_size=9).filter(lambda name: not set(name) & set("/~")), st.booleans())
def test_addresses_survive(name: str, encoded: bool) -> None:
    name = f"{name}/x"
    written = quote(name, safe="") if encoded else quote(name.replace("/", "~"), safe="~")
    found = read_address(
        f"/subscriptions/s/resourceGroups/g/providers/microsoft.servicebus/namespaces/n/queues/{written}"
    )
    assert found == ArmAddress("s", "g", ("namespaces", "queues"), ("n", name))
    assert read_address(resource_id("s", "g", "namespaces", "n", "queues", name)) == found


@given(st.text(max_size=60), st.binary(max_size=60))
def test_whatever_is_sent_gets_an_answer(path: str, body: bytes) -> None:
    request = AtomRequest(method="PUT", target=f"/{path}", headers={"authorization": "Bearer x"}, body=body)

    async def answer() -> ArmResponse | None:
        return await ResourceManager([], issuer=Issuer(time.time), clock=time.time).answer(request)

    assert asyncio.run(answer()).status == 401


@IMPATIENT
async def test_silence_garbage_and_half_a_request_concern_nobody_else(arm: Arm) -> None:
    port = int(arm.url.rpartition(":")[2])
    for data in (b"", b"\x16garbage", b"\x16\x03\x01\xff\xff", b"GET / HTT", b"\x00\x01\x02\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        async with asyncio.timeout(60):
            if data != b"GET / HTT":
                await reader.read()
        writer.close()
    async with aiohttp.ClientSession() as session, session.get(arm.url.replace("https", "http")) as answer:
        assert answer.status == 401


# ARM of a whole sandbox: what is made there is a namespace like the others, and what is broken is broken there too.


AT = ("group", "tertiary")
MANAGE = FaultTerms(operations=frozenset({Operation.MANAGE}))
FOR_EVER = "P10675199DT2H48M5.4775807S"


def options(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "base_url": sandbox.arm_url,
        "connection_verify": str(sandbox.ca_file),
        "retry_total": 0,
        "polling_interval": 0,  # Azure and the sandbox name no interval, and the SDK's is 30 s
    }


@pytest.fixture
async def remote(sandbox: Sandbox) -> AsyncIterator[ServiceBusManagementClient]:
    credential = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
    async with (
        asyncio.timeout(60),
        ServiceBusManagementClient(credential, SUBSCRIPTION, **options(sandbox)) as opened,
    ):
        yield opened


@pytest.fixture
async def tertiary(remote: ServiceBusManagementClient) -> str:
    """The connection string of a namespace that was made through ARM and has a queue `q`."""
    await remote.namespaces.begin_create_or_update(*AT, SBNamespace(location="uksouth"))
    await remote.queues.create_or_update(*AT, "q", SBQueue())
    return (await remote.namespaces.list_keys(*AT, "RootManageSharedAccessKey")).primary_connection_string


async def send(connection_string: str, entity: str, **more: Any) -> None:
    remote = ServiceBusClient.from_connection_string(connection_string, retry_total=0, **more)
    async with asyncio.timeout(60), remote, remote.get_queue_sender(entity) as sender:
        await sender.send_messages(ServiceBusMessage("hello"))


async def control(sandbox: Sandbox, method: str, path: str, **body: object) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{sandbox.control_url}{path}", json=body or None) as answer,
    ):
        return await answer.json()


# ---------------------------------------------------------------------- namespaces that were made here


async def test_a_key_made_here_opens_its_queue(remote: ServiceBusManagementClient, tertiary: str) -> None:
    rights = SBAuthorizationRule(properties=SBAuthorizationRuleProperties(rights=["Send"]))
    await remote.queues.create_or_update_authorization_rule(*AT, "q", "sender", rights)
    keys = await remote.queues.list_keys(*AT, "q", "sender")
    await send(keys.secondary_connection_string, "q")
    assert (await remote.queues.get(*AT, "q")).properties.message_count == 1
    await remote.queues.delete_authorization_rule(*AT, "q", "sender")
    with pytest.raises(ServiceBusError):
        await send(keys.secondary_connection_string, "q")
    await send(tertiary, "q")


async def test_a_namespace_made_here_is_known_by_its_real_name_over_tls(
    sandbox: Sandbox, remote: ServiceBusManagementClient, tertiary: str
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


async def test_its_clock_is_the_sandboxs(sandbox: Sandbox, remote: ServiceBusManagementClient, tertiary: str) -> None:
    wanted = SBQueueProperties(auto_delete_on_idle=timedelta(minutes=5))
    await remote.queues.create_or_update(*AT, "short", SBQueue(properties=wanted))
    await control(sandbox, "POST", "/clock", advance_s=301)
    with pytest.raises(ResourceNotFoundError):
        await remote.queues.get(*AT, "short")


async def test_deleting_ends_what_lives_on_it(
    sandbox: Sandbox, remote: ServiceBusManagementClient, tertiary: str
) -> None:
    made = sandbox["tertiary"]
    messaging = ServiceBusClient.from_connection_string(tertiary, retry_total=0)
    async with messaging, messaging.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("hello"))
        await (await remote.namespaces.begin_delete(*AT)).result()
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
    sandbox: Sandbox, remote: ServiceBusManagementClient
) -> None:
    await remote.namespaces.begin_delete("group", "secondary")
    assert [each.name for each in sandbox.namespaces] == ["primary"]
    await remote.namespaces.begin_create_or_update("group", "secondary", SBNamespace(location="northeurope"))
    assert (await remote.namespaces.get("group", "secondary")).properties.status == "Active"


async def test_the_synchronous_client_makes_a_backlog_queue_and_ends_its_namespace(sandbox: Sandbox) -> None:
    """SPEC.md section 4: "MaxSizeInMegabytes 5120, MaxDeliveryCount 2147483647, DefaultMessageTimeToLive and
    AutoDeleteOnIdle TimeSpan.MaxValue, LockDuration 1 min, EnableDeadLetteringOnMessageExpiration true,
    EnableBatchedOperations true"."""
    path = "contoso/x-servicebus-transfer/0"

    def work() -> SBQueueProperties:
        credential = SandboxCredential(sandbox.control_url, "Data Owner")
        with SyncManagementClient(credential, SUBSCRIPTION, **options(sandbox)) as remote:
            remote.namespaces.begin_create_or_update(*AT, SBNamespace(location="uksouth")).result()
            wanted = {
                "maxSizeInMegabytes": 5120,
                "maxDeliveryCount": 2147483647,
                "defaultMessageTimeToLive": FOR_EVER,
                "autoDeleteOnIdle": FOR_EVER,
                "lockDuration": "PT1M",
                "deadLetteringOnMessageExpiration": True,
                "enableBatchedOperations": True,
            }
            remote.queues.create_or_update(*AT, path, {"properties": wanted})
            found = remote.queues.get(*AT, path).properties
            remote.queues.create_or_update(*AT, path, SBQueue(properties=found))
            assert remote.queues.get(*AT, path).properties.as_dict() | {"updatedAt": ""} == found.as_dict() | {
                "updatedAt": ""
            }
            remote.namespaces.begin_delete(*AT).result()
            return found

    found = await asyncio.to_thread(work)
    assert (found.max_size_in_megabytes, found.max_delivery_count) == (5120, 2147483647)
    assert found["defaultMessageTimeToLive"] == found["autoDeleteOnIdle"] == FOR_EVER
    assert (found.lock_duration, found.status) == (timedelta(minutes=1), "Active")
    assert found.dead_lettering_on_message_expiration
    assert found.enable_batched_operations
    assert [each.name for each in sandbox.namespaces] == ["primary", "secondary"]


async def test_a_namespace_refuses_connections_until_its_activation_ends() -> None:
    """SPEC.md section 12: "which is ready after `activation_s` seconds; until then it refuses connections"."""
    async with asyncio.timeout(60), Sandbox.start([NamespaceSpec("primary")], activation_s=60) as sandbox:
        credential = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
        async with ServiceBusManagementClient(credential, SUBSCRIPTION, **options(sandbox)) as remote:
            poller = await remote.namespaces.begin_create_or_update(*AT, SBNamespace(location="uksouth"))
            assert (await remote.namespaces.get(*AT)).properties.status == "Creating"
            with pytest.raises(HttpResponseError, match="SubCode=40901") as caught:
                await remote.queues.get(*AT, "q")
            assert caught.value.status_code == 429
            made = sandbox["tertiary"]
            with pytest.raises(OSError, match="Connect call failed"):
                await asyncio.open_connection(made.host, made.amqp_port)
            sandbox.advance(61)
            assert (await poller.result()).properties.status == "Active"
            await remote.queues.create_or_update(*AT, "q", SBQueue())
            await send(made.connection_string, "q")


async def test_without_local_authentication_keys_open_nothing(
    sandbox: Sandbox, remote: ServiceBusManagementClient, tertiary: str
) -> None:
    """SPEC.md section 12: "With `disableLocalAuth` keys open nothing, and identities do"."""
    await send(tertiary, "q")
    properties = SBNamespaceUpdateParameters(properties=SBNamespaceProperties(disable_local_auth=True))
    assert (await remote.namespaces.update(*AT, properties)).properties.disable_local_auth
    with pytest.raises(ServiceBusError):
        await send(tertiary, "q")
    made = sandbox["tertiary"]
    async with ServiceBusAdministrationClient.from_connection_string(
        tertiary, connection_verify=str(sandbox.ca_file), retry_total=0
    ) as admin:
        with pytest.raises(ClientAuthenticationError, match="Local authentication is disabled"):
            await admin.get_queue("q")
    identity = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
    async with (
        identity,
        ServiceBusClient(
            made.fully_qualified_name,
            identity,
            custom_endpoint_address=made.endpoint,
            connection_verify=str(sandbox.ca_file),
        ) as client,
        client.get_queue_sender("q") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))
    assert made.node.namespace.queue("q").counts().active == 2


# ---------------------------------------------------------------------- tiers


async def test_what_the_basic_tier_has_not(sandbox: Sandbox, remote: ServiceBusManagementClient) -> None:
    wanted = SBNamespace(location="uksouth", sku=SBSku(name="Basic", tier="Basic"))
    await remote.namespaces.begin_create_or_update(*AT, wanted)
    with pytest.raises(HttpResponseError, match=r"SubCode=40000\. 'tertiary' is of the tier Basic, which has no"):
        await remote.topics.create_or_update(*AT, "t", SBTopic())
    for name, value in (
        ("requires_session", True),
        ("requires_duplicate_detection", True),
        ("forward_to", "orders"),
        ("forward_dead_lettered_messages_to", "orders"),
        ("auto_delete_on_idle", timedelta(hours=1)),
    ):
        properties = SBQueueProperties(**{name: value})
        with pytest.raises(HttpResponseError, match=r"SubCode=40000\. .* cannot be set on the tier Basic") as caught:
            await remote.queues.create_or_update(*AT, "q", SBQueue(properties=properties))
        assert (caught.value.status_code, caught.value.error.code) == (400, "BadRequest")
    await remote.queues.create_or_update(*AT, "q", SBQueue())


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
    remote: ServiceBusManagementClient,
    kind: str,
    error: type[HttpResponseError],
    status: int,
    code: str,
) -> None:
    sandbox["primary"].node.faults.add(kind, entity="orders", terms=MANAGE)
    with pytest.raises(error) as caught:
        await remote.queues.get(*IN, "orders")
    assert (caught.value.status_code, caught.value.error.code) == (status, code)
    assert (await remote.queues.get(*IN, "payments")).name == "payments"
    await send(sandbox["primary"].connection_string, "orders")


@pytest.mark.parametrize("terms", [MANAGE, FaultTerms()])
@pytest.mark.parametrize("kind", ["refused", "reset"])
async def test_a_namespace_that_cannot_be_managed_cuts_its_requests_alone(
    sandbox: Sandbox, remote: ServiceBusManagementClient, kind: str, terms: FaultTerms
) -> None:
    fault = sandbox["primary"].node.faults.add(kind, terms=terms)
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        await remote.queues.get(*IN, "orders")
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        await remote.namespaces.get(*IN)
    assert (await remote.namespaces.get("group", "secondary")).name == "secondary"
    sandbox["primary"].node.faults.remove(fault.id)
    assert (await remote.queues.get(*IN, "orders")).name == "orders"

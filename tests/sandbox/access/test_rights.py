"""What a key may do: Send, Listen and Manage, of the namespace and of an entity, as the SDK meets it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.access import MAX_GRANTS, Grants, ProvenAccess, TokenError, covers, sign
from servicebus_sandbox import NamespaceSpec, QueueSettings, QueueSpec, Sandbox, SandboxNamespace
from servicebus_sandbox.access.authorization import Authorization, root_rule
from servicebus_sandbox.amqp_server.management_node import rights_for
from servicebus_sandbox.broker.broker_errors import InvalidSettings
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AS_SEEN, AuthorizationRule, Right
from servicebus_sandbox.broker.topology.namespace import BrokerNamespace

NOW = 1_700_000_000.0


def rule(name: str, *rights: Right) -> AuthorizationRule:
    return AuthorizationRule(
        name=name, rights=frozenset(rights), primary_key=f"{name} first", secondary_key=f"{name} second"
    )


SENDER, LISTENER = rule("sender", Right.SEND), rule("listener", Right.LISTEN)
OWN, MANAGER = rule("own", Right.SEND, Right.LISTEN), rule("manager", *Right)


@pytest.fixture
async def place() -> AsyncIterator[tuple[Sandbox, SandboxNamespace]]:
    """A namespace with rules of its own, and the queue `orders` with others."""
    orders = QueueSpec("orders", QueueSettings(authorization_rules=(OWN, MANAGER)))
    spec = NamespaceSpec("contoso", queues=(orders, QueueSpec("other")), rules=(SENDER, LISTENER))
    async with Sandbox.start([spec]) as sandbox:
        yield sandbox, sandbox["contoso"]


@pytest.fixture
def namespace(place: tuple[Sandbox, SandboxNamespace]) -> SandboxNamespace:
    return place[1]


def client(namespace: SandboxNamespace, rule: AuthorizationRule, *, secondary: bool = False) -> ServiceBusClient:
    key = rule.secondary_key if secondary else rule.primary_key
    return ServiceBusClient.from_connection_string(namespace.connection_string_for(rule.name, key), retry_total=0)


async def send(using: ServiceBusClient, queue: str = "orders") -> None:
    async with using, using.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def receive(using: ServiceBusClient, queue: str = "orders") -> int:
    async with using, using.get_queue_receiver(queue) as receiver:
        return len(await receiver.receive_messages(1, max_wait_time=0.2))


async def test_both_keys_of_a_rule_are_good(namespace: SandboxNamespace) -> None:
    await send(client(namespace, SENDER, secondary=True))
    await send(client(namespace, OWN, secondary=True))
    assert namespace.node.namespace.queue("orders").counts().active == 2


async def test_the_key_of_an_entity_opens_nothing_else(namespace: SandboxNamespace) -> None:
    await send(client(namespace, OWN))
    assert await receive(client(namespace, OWN)) == 1
    with pytest.raises(ServiceBusAuthenticationError):
        await send(client(namespace, OWN), "other")


async def test_managing_takes_manage(place: tuple[Sandbox, SandboxNamespace]) -> None:
    sandbox, namespace = place
    for name, key in ((SENDER.name, SENDER.primary_key), (LISTENER.name, LISTENER.primary_key)):
        text = namespace.connection_string_for(name, key)
        admin = ServiceBusAdministrationClient.from_connection_string(text, connection_verify=str(sandbox.ca_file))
        async with admin:
            with pytest.raises(ClientAuthenticationError, match="'Manage'"):
                await admin.get_queue("orders")
    text = namespace.connection_string
    async with ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=str(sandbox.ca_file)
    ) as admin:
        assert (await admin.get_queue("orders")).name == "orders"


def named_client(namespace: SandboxNamespace, credential: object) -> ServiceBusClient:
    """A client that has a credential and no connection string."""
    return ServiceBusClient(f"{namespace.host}:{namespace.amqp_port}", credential, use_tls=False, retry_total=0)


def signature(namespace: SandboxNamespace, name: str, key: str, *, path: str = "orders", expires_in: int = 60) -> str:
    return sign(f"{namespace.endpoint}/{path}", name, key, time.time() + expires_in)


async def test_named_key_and_signature_credentials(namespace: SandboxNamespace) -> None:
    await send(named_client(namespace, AzureNamedKeyCredential(SENDER.name, SENDER.primary_key)))
    good = signature(namespace, SENDER.name, SENDER.primary_key)
    await send(named_client(namespace, AzureSasCredential(good)))
    text = f"Endpoint={namespace.endpoint};SharedAccessSignature={good};UseDevelopmentEmulator=true"
    await send(ServiceBusClient.from_connection_string(text, retry_total=0))
    assert namespace.node.namespace.queue("orders").counts().active == 3


# ---------------------------------------------------------------------- the judge itself


def judge(*rules: AuthorizationRule, of_orders: tuple[AuthorizationRule, ...] = ()) -> Authorization:
    namespace = BrokerNamespace("contoso", clock=lambda: NOW)
    namespace.create_queue("orders", QueueSettings(authorization_rules=of_orders))
    namespace.create_topic("audit")
    namespace.create_subscription("audit", "all")
    return Authorization(namespace, rules)


def token_for(path: str, rule: AuthorizationRule, key: str | None = None) -> str:
    return sign(f"sb://host/{path}", rule.name, key or rule.primary_key, NOW + 60)


def test_the_audience_is_what_is_opened() -> None:
    access = judge(SENDER).judge(token_for("", SENDER), "sb://host:1/Orders/$management", NOW)
    assert (access.path, access.rights, access.expires_at) == ("Orders/$management", {Right.SEND}, NOW + 60)


def test_a_subscription_is_opened_by_the_keys_of_the_namespace() -> None:
    access = judge(LISTENER).judge(token_for("audit", LISTENER), "sb://host/audit/Subscriptions/all", NOW)
    assert access.rights == {Right.LISTEN}


def test_one_name_in_two_places_is_two_rules() -> None:
    below = AuthorizationRule(name="sender", rights=ALL_RIGHTS, primary_key="below", secondary_key="b2")
    both = judge(SENDER, of_orders=(below,))
    assert both.judge(token_for("orders", below), "sb://host/orders", NOW).rights == ALL_RIGHTS
    assert both.judge(token_for("orders", SENDER), "sb://host/orders", NOW).rights == {Right.SEND}


@pytest.mark.parametrize("vendor", ["", "com.microsoft:"])
@pytest.mark.parametrize("operation", ["schedule-message", "cancel-scheduled-message"])
def test_scheduling_needs_send_with_and_without_its_vendor(vendor: str, operation: str) -> None:
    assert rights_for(vendor + operation, AS_SEEN) == (Right.SEND,)


@pytest.mark.parametrize("resource", ["", "orders2"])
def test_the_key_of_an_entity_signs_for_nothing_above_or_beside(resource: str) -> None:
    with pytest.raises(TokenError, match="no key named 'own'"):
        judge(of_orders=(OWN,)).judge(token_for(resource, OWN), "sb://host/orders", NOW)


def test_rules_can_be_replaced() -> None:
    judging = judge(SENDER)
    judging.rules = (LISTENER,)
    with pytest.raises(TokenError, match="no key named 'sender'"):
        judging.judge(token_for("orders", SENDER), "sb://host/orders", NOW)
    assert judging.judge(token_for("orders", LISTENER), "sb://host/orders", NOW).rights == {Right.LISTEN}


def test_a_namespace_without_an_issuer_takes_no_bearer_token() -> None:
    with pytest.raises(TokenError, match="takes no other"):
        judge(SENDER).judge("a.b.c", "sb://host/orders", NOW)


def test_an_endless_audience() -> None:
    with pytest.raises(TokenError, match="no entity's has more than"):
        judge(SENDER).judge(token_for("", SENDER), "sb://host" + "/a" * 100_000, NOW)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"rights": frozenset()}, "gives no right"),
        ({"rights": frozenset({Right.MANAGE})}, "then it has to give Send and Listen"),
        ({"name": ""}, "has no name"),
        ({"secondary_key": ""}, "needs a primary and a secondary key"),
    ],
)
def test_rules_that_cannot_be(fields: dict[str, object], complaint: str) -> None:
    whole = {"name": "r", "rights": ALL_RIGHTS, "primary_key": "a", "secondary_key": "b"} | fields
    with pytest.raises(InvalidSettings, match=complaint):
        AuthorizationRule(**whole)


def test_twelve_rules_are_the_most() -> None:
    rules = tuple(rule(f"r{number}", Right.SEND) for number in range(12))
    assert len(QueueSettings(authorization_rules=rules).authorization_rules) == 12
    with pytest.raises(InvalidSettings, match="up to 12"):
        QueueSettings(authorization_rules=(*rules, SENDER))
    with pytest.raises(InvalidSettings, match="two authorization rules named 'sender'"):
        judge(SENDER, SENDER)


def test_no_key_is_shown() -> None:
    assert "secret" not in repr(root_rule("Root", "secret"))


# -- What a connection may do by the tokens it has shown.


SEND, LISTEN = frozenset({Right.SEND}), frozenset({Right.LISTEN})


def test_grants_end_one_by_one() -> None:
    grants = Grants()
    grants.put(ProvenAccess("Orders", ALL_RIGHTS, 100.0))
    grants.put(ProvenAccess("audit", ALL_RIGHTS, 200.0))
    assert grants.next_end == 100.0
    assert grants.allow("orders/$DeadLetterQueue", Right.LISTEN, 99.9)
    assert not grants.allow("orders", Right.LISTEN, 100.0)
    assert not grants.drop_expired(99.9)
    assert grants.drop_expired(100.0)
    assert grants.next_end == 200.0


def test_a_new_token_takes_the_place_of_the_old_one() -> None:
    grants = Grants()
    grants.put(ProvenAccess("orders", SEND, 100.0))
    grants.put(ProvenAccess("ORDERS", LISTEN, 300.0))
    assert not grants.drop_expired(200.0)
    assert grants.allow("orders", Right.LISTEN, 200.0)
    assert not grants.allow("orders", Right.SEND, 50.0)


def test_rights_come_from_any_token_above() -> None:
    grants = Grants()
    grants.put(ProvenAccess("", SEND, 100.0))
    grants.put(ProvenAccess("audit", LISTEN, 100.0))
    assert grants.allow("audit/Subscriptions/all", Right.LISTEN, 0.0)
    assert grants.allow("audit/Subscriptions/all", Right.SEND, 0.0)
    assert not grants.allow("orders", Right.LISTEN, 0.0)
    assert grants.allow("orders", None, 0.0)


def test_there_is_an_end_to_what_is_kept() -> None:
    grants = Grants()
    assert all(grants.put(ProvenAccess(f"q{number}", SEND, 100.0)) for number in range(MAX_GRANTS))
    assert not grants.put(ProvenAccess("one-more", SEND, 100.0))
    assert grants.put(ProvenAccess("Q7", LISTEN, 100.0))
    assert grants.allow("q7", Right.LISTEN, 0.0)


PATHS = st.lists(st.sampled_from(["a", "B", "$management"]), max_size=4).map("/".join)


@given(PATHS, PATHS)
def test_a_path_opens_itself_and_what_lies_below(granted: str, wanted: str) -> None:
    grants = Grants()
    grants.put(ProvenAccess(granted, SEND, 100.0))
    assert grants.allow(wanted, Right.SEND, 0.0) == covers(granted, wanted)


@given(st.integers(1, 3))
def test_a_path_longer_than_any_opens_nothing(size: int) -> None:
    grants = Grants()
    grants.put(ProvenAccess("a", SEND, 100.0))
    assert not grants.allow("a" + "/" * size * 100_000, Right.SEND, 0.0)

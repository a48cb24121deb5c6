"""Bearer tokens end to end: credentials in azure-identity's shape, the SDK's clients, roles that suffice or do not."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import aiohttp
import jwt
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError
from azure.servicebus.management import ServiceBusAdministrationClient as SyncAdministrationClient
from hypothesis import given
from hypothesis import strategies as st

from servicebus_amqp.access import TokenError
from servicebus_sandbox import AsyncSandboxCredential, Sandbox, SandboxCredential
from servicebus_sandbox.access.authorization import SERVICE_BUS, AzureRole, Issuer, parse_role
from servicebus_sandbox.access.token_credentials import CredentialError
from servicebus_sandbox.broker.entity_settings import Right

SCOPE = "https://servicebus.azure.net//.default"
SOON = 60.0


def address(sandbox: Sandbox) -> str:
    return f"127.0.0.1:{sandbox['primary'].amqp_port}"


def client(sandbox: Sandbox, role: str, **options: Any) -> ServiceBusClient:
    credential = AsyncSandboxCredential(sandbox.control_url, role, **options)
    return ServiceBusClient(address(sandbox), credential, use_tls=False, retry_total=0)


async def send(using: ServiceBusClient) -> None:
    async with asyncio.timeout(SOON), using, using.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def receive(using: ServiceBusClient) -> int:
    async with asyncio.timeout(SOON), using, using.get_queue_receiver("orders") as receiver:
        return len(await receiver.receive_messages(1, max_wait_time=0.2))


async def test_a_role_does_what_it_says_and_no_more(sandbox: Sandbox) -> None:
    await send(client(sandbox, "Data Sender"))
    with pytest.raises(ServiceBusAuthorizationError, match="'Listen'"):
        await receive(client(sandbox, "Data Sender"))
    with pytest.raises(ServiceBusAuthorizationError, match="'Send'"):
        await send(client(sandbox, "Azure Service Bus Data Receiver"))
    assert await receive(client(sandbox, "Azure Service Bus Data Receiver")) == 1
    await send(client(sandbox, "Data Owner"))


async def test_managing_takes_the_owner(sandbox: Sandbox) -> None:
    for role in ("Data Sender", "Data Receiver", "Data Owner"):
        admin = ServiceBusAdministrationClient(
            address(sandbox),
            AsyncSandboxCredential(sandbox.control_url, role),
            connection_verify=str(sandbox.ca_file),
        )
        async with asyncio.timeout(SOON), admin:
            if role == "Data Owner":
                assert [queue.name async for queue in admin.list_queues()] == ["orders", "payments"]
            else:
                with pytest.raises(ClientAuthenticationError, match="'Manage'"):
                    await admin.get_queue("orders")


async def test_synchronous_clients(sandbox: Sandbox) -> None:
    credential = SandboxCredential(sandbox.control_url, "Data Owner")

    def use() -> str:
        with credential, SyncClient(address(sandbox), credential, use_tls=False, retry_total=0) as using:
            with using.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x"))
            with SyncAdministrationClient(
                address(sandbox), credential, connection_verify=str(sandbox.ca_file)
            ) as admin:
                return admin.get_queue_runtime_properties("orders").name

    assert await asyncio.to_thread(use) == "orders"
    assert sandbox["primary"].node.namespace.queue("orders").counts().active == 1


class Fixed:
    """Gives one token, whatever is asked for."""

    def __init__(self, token: Any) -> None:
        self._token = token

    async def get_token(self, *_: str, **__: object) -> Any:
        return self._token


async def test_the_token_of_another_sandbox(sandbox: Sandbox) -> None:
    async with Sandbox.start() as other:
        token = await AsyncSandboxCredential(other.control_url, "Data Owner").get_token(SCOPE)
    with pytest.raises(ServiceBusAuthenticationError):
        await send(ServiceBusClient(address(sandbox), Fixed(token), use_tls=False, retry_total=0))


async def test_a_token_for_something_else(sandbox: Sandbox) -> None:
    for_arm = AsyncSandboxCredential(sandbox.control_url, "Data Owner")
    token = await for_arm.get_token("https://management.azure.com/.default")
    with pytest.raises(ServiceBusAuthenticationError):
        await send(ServiceBusClient(address(sandbox), Fixed(token), use_tls=False, retry_total=0))


async def test_tokens_are_good_for_every_namespace(sandbox: Sandbox) -> None:
    name = f"127.0.0.1:{sandbox['secondary'].amqp_port}"
    sandbox["secondary"].node.namespace.create_queue("orders")
    async with AsyncSandboxCredential(sandbox.control_url, "Data Sender") as credential:
        await send(ServiceBusClient(name, credential, use_tls=False, retry_total=0))
    assert sandbox["secondary"].node.namespace.queue("orders").counts().active == 1


async def test_what_cannot_be_asked_for(sandbox: Sandbox) -> None:
    with pytest.raises(CredentialError, match="unknown role 'Emperor'"):
        await AsyncSandboxCredential(sandbox.control_url, "Emperor").get_token(SCOPE)
    with pytest.raises(CredentialError, match="lifetime has to be seconds"):
        await asyncio.to_thread(SandboxCredential(sandbox.control_url, "Data Owner", lifetime=0).get_token, SCOPE)
    for scopes in ((), (SCOPE, SCOPE)):
        with pytest.raises(ValueError, match="one scope"):
            await AsyncSandboxCredential(sandbox.control_url, "Data Owner").get_token(*scopes)


async def test_a_sandbox_that_is_gone() -> None:
    async with Sandbox.start() as sandbox:
        url = sandbox.control_url
    with pytest.raises(CredentialError, match="does the sandbox run"):
        await AsyncSandboxCredential(url, "Data Owner").get_token(SCOPE)
    with pytest.raises(CredentialError, match="does the sandbox run"):
        SandboxCredential(url, "Data Owner").get_token(SCOPE)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"role": 1, "scope": SCOPE}, "role and scope have to be strings"),
        ({"role": "Data Owner"}, "role and scope have to be strings"),
        ({"role": "Data Owner", "scope": SCOPE, "lifetime": "long"}, "lifetime has to be seconds"),
        ({"role": "Data Owner", "scope": SCOPE, "lifetime": 1e9}, "at most 86400"),
        ({"role": "Data Owner", "scope": SCOPE, "who": "me"}, "unknown field 'who'; known are role, scope, lifetime"),
        ([], "has to be an object with role, scope, lifetime"),
    ],
)
async def test_the_control_url_says_what_is_wrong(sandbox: Sandbox, body: object, sentence: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(f"{sandbox.control_url}/tokens", json=body) as answer:
        assert answer.status == 400
        assert sentence in (await answer.json())["error"]


# -- Bearer tokens: what the issuer signs it knows again, and nothing else.


NOW = 1_700_000_000.0
ISSUER_SCOPE = f"{SERVICE_BUS}//.default"  # as the SDK asks for it


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(lambda: NOW)


def reason(issuer: Issuer, token: str, *, now: float = NOW) -> str:
    with pytest.raises(TokenError) as caught:
        issuer.judge(token, audiences=(SERVICE_BUS,), now=now)
    return caught.value.reason


def edited(token: str, part: int, **changes: Any) -> str:
    """The token with something else in its header (0) or claims (1), under the old signature."""
    parts = token.split(".")
    values = json.loads(urlsafe_b64decode(parts[part] + "==")) | changes
    parts[part] = urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()
    return ".".join(parts)


@pytest.mark.parametrize(
    ("role", "rights"),
    [
        (AzureRole.SENDER, {Right.SEND}),
        (AzureRole.RECEIVER, {Right.LISTEN}),
        (AzureRole.OWNER, {Right.SEND, Right.LISTEN, Right.MANAGE}),
    ],
)
def test_a_token_carries_its_role(issuer: Issuer, role: AzureRole, rights: set[Right]) -> None:
    token = issuer.issue(role, ISSUER_SCOPE, lifetime=60)
    bearer = issuer.judge(token.token, audiences=(SERVICE_BUS,), now=NOW)
    assert (bearer.roles, bearer.rights, bearer.expires_at) == ({role}, rights, NOW + 60)
    assert token.expires_on == NOW + 60


def test_an_independent_library_reads_it(issuer: Issuer) -> None:
    token = issuer.issue(AzureRole.OWNER, "https://servicebus.azure.net/.default").token
    claims = jwt.decode(
        token,
        issuer._key.public_key(),
        algorithms=["RS256"],
        audience=SERVICE_BUS,
        options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )
    assert claims["roles"] == ["Azure Service Bus Data Owner"]
    assert claims["exp"] - claims["iat"] == 3600


def test_the_end_of_a_token(issuer: Issuer) -> None:
    token = issuer.issue(AzureRole.SENDER, ISSUER_SCOPE, lifetime=60).token
    assert issuer.judge(token, audiences=(SERVICE_BUS,), now=NOW + 59.9).roles == {AzureRole.SENDER}
    assert "The token is expired. Expiration time: '2023-11-14T22:14:20.000Z', 0 seconds ago" in reason(
        issuer, token, now=NOW + 60
    )
    assert "not good yet" in reason(issuer, token, now=NOW - 301)


def test_another_audience(issuer: Issuer) -> None:
    token = issuer.issue(AzureRole.OWNER, "https://management.azure.com/.default").token
    assert "'https://management.azure.com'; ask for https://servicebus.azure.net" in reason(issuer, token)


def test_another_issuer(issuer: Issuer) -> None:
    assert "another issuer" in reason(issuer, Issuer(lambda: NOW).issue(AzureRole.OWNER, ISSUER_SCOPE).token)


@pytest.mark.parametrize("claim", [{"roles": [AzureRole.OWNER]}, {"exp": NOW + 1e9}, {"aud": "x"}, {"nbf": "soon"}])
def test_changed_claims(issuer: Issuer, claim: dict[str, Any]) -> None:
    token = issuer.issue(AzureRole.SENDER, ISSUER_SCOPE).token
    assert "changed or forged" in reason(issuer, edited(token, 1, **claim))


@pytest.mark.parametrize("algorithm", ["none", "HS256", None, ["RS256"]])
def test_an_algorithm_that_is_not_ours(issuer: Issuer, algorithm: object) -> None:
    token = edited(issuer.issue(AzureRole.SENDER, ISSUER_SCOPE).token, 0, alg=algorithm)
    assert "another issuer" in reason(issuer, token)
    assert "another issuer" in reason(issuer, token.rpartition(".")[0] + ".")


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "e30.W10.", "1.2.3", "{}.{}.{}", "ä.ö.ü", "e30.e30.e30.e30"])
def test_what_is_no_token(issuer: Issuer, token: str) -> None:
    assert "neither a shared access signature nor a JSON Web Token" in reason(issuer, token)


@given(st.lists(st.text(max_size=20) | st.binary(max_size=20), min_size=1, max_size=4))
def test_nothing_makes_it_raise_anything_but_its_own_error(issuer: Issuer, parts: list[str | bytes]) -> None:
    texts = (part if isinstance(part, str) else urlsafe_b64encode(part).decode() for part in parts)
    assert reason(issuer, ".".join(texts))


def test_deep_nesting_is_no_token(issuer: Issuer) -> None:
    deep = urlsafe_b64encode(b"[" * 100_000).decode()
    assert "neither" in reason(issuer, f"{deep}.{deep}.x")


@pytest.mark.parametrize("name", ["Azure Service Bus Data Sender", "Data Sender", "data sender"])
def test_roles_by_name(name: str) -> None:
    assert parse_role(name) is AzureRole.SENDER


def test_a_role_that_is_none() -> None:
    with pytest.raises(ValueError, match="unknown role 'Emperor'; there are Azure Service Bus Data Sender"):
        parse_role("Emperor")

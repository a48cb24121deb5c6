"""The token endpoint, asked by azure-identity's own credentials and by strangers; scopes of identities."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import jwt
import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusAuthorizationError

from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox, SubscriptionSpec, TopicSpec
from servicebus_sandbox.access.authorization import TENANT, AccessToken, AzureRole, Identity, Issuer

SERVICE_BUS: Final = "https://servicebus.azure.net/.default"
ARM: Final = "https://management.azure.com/.default"
APP = Identity("app", "app secret", (AzureRole.OWNER,), ("one/orders", "one/audit"))
ROOT, SENDER = Identity("root", "root's"), Identity("sender", "third", (AzureRole.SENDER,), ("ONE",))
NO_ALGORITHM: Final = urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
SOON = 60.0


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    queues = (QueueSpec("orders"), QueueSpec("other"))
    topics = (TopicSpec("audit", (SubscriptionSpec("all"),)),)
    specs = [NamespaceSpec(name, queues, topics) for name in ("one", "two")]
    async with Sandbox.start(specs, identities=(APP, ROOT, SENDER)) as running:
        yield running


class Fixed:
    """Returns one token for every scope."""

    def __init__(self, token: Any) -> None:
        self._token = token

    async def get_token(self, *_: str, **__: object) -> Any:
        return self._token


async def send(sandbox: Sandbox, token: Any, queue: str, namespace: str = "one") -> None:
    using = ServiceBusClient(f"127.0.0.1:{sandbox[namespace].amqp_port}", Fixed(token), use_tls=False, retry_total=0)
    async with asyncio.timeout(SOON), using, using.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))


# -- azure-identity


async def test_a_managed_identity_needs_two_variables(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sandbox.tokens.managed_identity(ROOT).items():
        monkeypatch.setenv(name, value)
    by_id = ManagedIdentityCredential(client_id="root")
    for credential in (ManagedIdentityCredential(), by_id, DefaultAzureCredential()):
        await send(sandbox, await asyncio.to_thread(credential.get_token, SERVICE_BUS), "orders")
    other = ManagedIdentityCredential(client_id="app")
    with pytest.raises(ClientAuthenticationError, match="No managed identity has the client_id 'app'"):
        await asyncio.to_thread(other.get_token, SERVICE_BUS)
    monkeypatch.setenv("IDENTITY_HEADER", "forged")
    with pytest.raises(ClientAuthenticationError, match="X-IDENTITY-HEADER is not the IDENTITY_HEADER"):
        await asyncio.to_thread(ManagedIdentityCredential().get_token, SERVICE_BUS)


async def test_a_client_secret_by_the_variables_or_without_discovery(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables, ca_file = sandbox.tokens.client_secret(ROOT), str(sandbox.ca_file)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    authority = variables["AZURE_AUTHORITY_HOST"]

    def credential(tenant: str, secret: str = ROOT.client_secret, **more: Any) -> ClientSecretCredential:
        return ClientSecretCredential(tenant, "root", secret, authority=authority, connection_verify=ca_file, **more)

    for good in (
        DefaultAzureCredential(connection_verify=ca_file),
        credential("adfs"),
        credential(TENANT, disable_instance_discovery=True),
    ):
        await send(sandbox, await asyncio.to_thread(good.get_token, SERVICE_BUS), "orders")
    bad = {
        "Invalid client secret": credential("adfs", "x"),
        "Unable to get authority": credential("contoso.com", disable_instance_discovery=True),
    }
    for sentence, one in bad.items():
        with pytest.raises(ClientAuthenticationError, match=sentence):
            await asyncio.to_thread(one.get_token, SERVICE_BUS)


# -- what each identity may do


async def test_roles_are_valid_within_their_scopes(sandbox: Sandbox) -> None:
    issuer = sandbox.tokens.issuer
    of_entities, of_namespace = (issuer.issue_for(each, SERVICE_BUS) for each in (APP, SENDER))
    await send(sandbox, of_entities, "orders")
    await send(sandbox, of_namespace, "other")
    for token, queue, namespace in (
        (of_entities, "other", "one"),
        (of_entities, "orders", "two"),
        (of_namespace, "orders", "two"),
    ):
        with pytest.raises(ServiceBusAuthorizationError, match="'Send'"):
            await send(sandbox, token, queue, namespace)
    admin = ServiceBusAdministrationClient(
        f"127.0.0.1:{sandbox['one'].amqp_port}", Fixed(of_entities), connection_verify=str(sandbox.ca_file)
    )
    async with asyncio.timeout(SOON), admin:
        assert (await admin.get_queue("orders")).name == "orders"
        assert [rule.name async for rule in admin.list_rules("audit", "all")] == ["$Default"]
        assert [one.name async for one in admin.list_subscriptions("audit")] == ["all"]
        for refused in (admin.get_queue("other"), admin.get_namespace_properties(), admin.create_queue("new")):
            with pytest.raises(HttpResponseError, match=r"the token does not give '(Manage|any right)' for"):
                await refused


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("unsigned", "another issuer"),
        ("foreign", "another issuer"),
        ("expired", "expired"),
        ("other resource", "audience"),
        ("changed", "changed or forged"),
    ],
)
async def test_bad_tokens_open_nothing(sandbox: Sandbox, token: str, words: str) -> None:
    arm = f"{sandbox.arm_url}/subscriptions/s/providers/Microsoft.ServiceBus/namespaces?api-version=2021-11-01"
    atom = f"{sandbox['one'].admin_url}/orders?api-version=2021-05"
    forged = ""
    for url, scope, another in ((arm, ARM, SERVICE_BUS), (atom, SERVICE_BUS, ARM)):
        issuer = sandbox.tokens.issuer
        good = issuer.issue(AzureRole.OWNER, scope).token
        _, claims, signature = good.split(".")
        forged = {
            "unsigned": f"{NO_ALGORITHM}.{claims}.",
            "foreign": Issuer(time.time).issue(AzureRole.OWNER, scope).token,
            "expired": issuer.issue(AzureRole.OWNER, scope, lifetime=-1).token,
            "other resource": issuer.issue(AzureRole.OWNER, another).token,
            "changed": good.removesuffix(signature) + signature[::-1],
        }[token]
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers={"Authorization": f"Bearer {forged}"}, ssl=False) as answer,
        ):
            text = await answer.text()
            assert (answer.status, words in text) == (401, True), text
    with pytest.raises(ServiceBusAuthenticationError):
        await send(sandbox, AccessToken(forged, int(time.time()) + 60), "orders")


# -- requests of strangers

FORM: Final = {"grant_type": "client_credentials", "client_id": "root", "client_secret": "root's", "scope": SERVICE_BUS}
BY_RESOURCE: Final = FORM | {"scope": "", "resource": "https://servicebus.azure.net"}
TOKEN: Final = "/adfs/oauth2/v2.0/token"
ANSWERS: Final[tuple[tuple[str, str, dict[str, str], int, str], ...]] = (
    ("POST", TOKEN, FORM, 200, "Bearer"),
    ("POST", f"/{TENANT.upper()}/oauth2/token", BY_RESOURCE, 200, "Bearer"),
    ("POST", TOKEN, FORM | {"scope": f"openid {ARM}"}, 200, "Bearer"),
    ("POST", TOKEN, FORM | {"scope": "https://graph.microsoft.com/.default"}, 400, "AADSTS500011: The resource"),
    ("POST", TOKEN, FORM | {"scope": ""}, 400, "AADSTS500011: The resource ''"),
    ("POST", TOKEN, FORM | {"client_secret": "app secret"}, 401, "AADSTS7000215"),
    ("POST", TOKEN, FORM | {"client_id": ""}, 401, "AADSTS7000215"),
    ("POST", TOKEN, FORM | {"client_secret": "\udcff"}, 401, "AADSTS7000215"),
    ("POST", TOKEN, FORM | {"grant_type": "password"}, 400, "client_credentials"),
    ("POST", TOKEN, {}, 400, "client_credentials"),
    ("POST", "/contoso.com/oauth2/v2.0/token", FORM, 400, "AADSTS90002: Tenant 'contoso.com' not found"),
    ("GET", "/common/v2.0/.well-known/openid-configuration", {}, 400, "AADSTS90002: Tenant 'common'"),
    ("GET", "/adfs/.well-known/openid-configuration", {}, 200, "/adfs/oauth2/token"),
    ("GET", "/adfs/discovery/keys", {}, 200, "RS256"),
    ("GET", TOKEN, {}, 404, "nothing answers GET"),
    ("GET", "/", {}, 404, "there are GET /msi/token"),
    ("GET", "/msi/token?resource=https://servicebus.azure.net", {}, 401, "X-IDENTITY-HEADER"),
)


async def test_answers_to_strangers(sandbox: Sandbox) -> None:
    base = sandbox.tokens.client_secret(ROOT)["AZURE_AUTHORITY_HOST"]
    async with aiohttp.ClientSession() as session:
        for method, path, form, status, words in ANSWERS:
            body = urlencode(form, errors="surrogateescape").encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            async with session.request(method, base + path, data=body, headers=headers, ssl=False) as answer:
                text = await answer.text()
                assert (answer.status, words in text) == (status, True), (method, path, form, text)
        async with session.get(f"{base}/adfs/discovery/keys", ssl=False) as answer:
            (key,) = (await answer.json())["keys"]
        async with session.get(f"{base}/msi/token", headers={"X-IDENTITY-HEADER": "\udcff"}, ssl=False) as answer:
            assert answer.status == 401
    token = sandbox.tokens.issuer.issue_for(APP, SERVICE_BUS).token
    claims = jwt.decode(token, jwt.PyJWK(key), algorithms=["RS256"], audience="https://servicebus.azure.net")
    assert (claims["appid"], claims["tid"], claims["scopes"]) == ("app", TENANT, ["one/orders", "one/audit"])

"""How an engine gets into a namespace: the right credential, made with the right words, renewed in place."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import aio as identity
from azure.servicebus import TransportType

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.operator.failover_readiness import TokenEvidence
from paired_servicebus.engine.clients import client_factory
from paired_servicebus.engine.clients.client_factory import NamespaceCredentials, without_credentials
from paired_servicebus.pairing.monitoring.inspection import validity
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential

HOST = "contoso.servicebus.windows.net"
KEY = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry="
OTHER_KEY = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=Second;SharedAccessKey=an0ther="
SIGNATURE = f"Endpoint=sb://{HOST}/;SharedAccessSignature=SharedAccessSignature sr=x&sig=c4n4ry%3D&se=1800000000&skn=R"


def by_string(text: str = KEY, **more: object) -> NamespaceConfig:
    return NamespaceConfig(host=HOST, connection_string=Secret(text), **more)  # type: ignore[arg-type]


def by_identity(**more: object) -> NamespaceConfig:
    return NamespaceConfig(host=HOST, **more)  # type: ignore[arg-type]


# -- the four kinds of azure-identity ------------------------------------------------------------------------------

SECRET: dict[str, Any] = {
    "credential": "client-secret",
    "tenant": "t",
    "client_id": "c",
    "client_secret": Secret("c4n4ry"),
}


@pytest.mark.parametrize(
    ("settings", "name", "made_with"),
    [
        ({}, "DefaultAzureCredential", {}),
        (
            {"client_id": "c", "authority": "login.microsoftonline.us"},
            "DefaultAzureCredential",
            {
                "authority": "login.microsoftonline.us",
                "managed_identity_client_id": "c",
                "workload_identity_client_id": "c",
            },
        ),
        ({"credential": "managed"}, "ManagedIdentityCredential", {}),
        ({"credential": "managed", "client_id": "c"}, "ManagedIdentityCredential", {"client_id": "c"}),
        ({"credential": "cli"}, "AzureCliCredential", {}),
        ({"credential": "cli", "tenant": "t"}, "AzureCliCredential", {"tenant_id": "t"}),
        (SECRET, "ClientSecretCredential", {"tenant_id": "t", "client_id": "c", "client_secret": "c4n4ry"}),
        (
            SECRET | {"authority": "login.chinacloudapi.cn", "proxy": Secret("http://p:1")},
            "ClientSecretCredential",
            {
                "tenant_id": "t",
                "client_id": "c",
                "client_secret": "c4n4ry",
                "authority": "login.chinacloudapi.cn",
                "transport": ANY,
            },
        ),
    ],
)
async def test_each_kind_of_identity_is_made_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], name: str, made_with: dict[str, Any]
) -> None:
    """What is not configured is left to azure-identity, and so to its environment (AZURE_AUTHORITY_HOST and others)."""
    real, calls = getattr(identity, name), []

    def recorded(**options: Any) -> Any:
        calls.append(options)
        return real(**options)

    monkeypatch.setattr(identity, name, recorded)
    found = NamespaceCredentials(by_identity(**settings))
    assert calls == [made_with]
    assert isinstance(found.credential, client_factory.RenewableIdentity)
    assert type(found.credential.current) is real
    await found.close()


def test_every_kind_that_can_be_configured_has_its_class() -> None:
    assert set(client_factory.CREDENTIAL_CLASSES) == {"default", "managed", "cli", "client-secret"}
    assert all(hasattr(identity, name) for name, _ in client_factory.CREDENTIAL_CLASSES.values())


# -- what clients are given ----------------------------------------------------------------------------------------


async def test_messaging_gets_the_key_and_the_proxy_by_its_name_and_password() -> None:
    namespace = by_string(transport="websocket", proxy=Secret("http://me:p%40w@proxy:3128"))
    async with open_client(namespace) as client:
        settings = client._config
        assert settings.retry_total == 0
        assert settings.transport_type is TransportType.AmqpOverWebsocket
        proxy = {"proxy_hostname": "http://proxy", "proxy_port": 3128, "username": "me", "password": "p@w"}
        assert settings.http_proxy == proxy
        assert client._credential.named_key == ("Root", "c4n4ry=")


async def test_clouds_of_their_own_have_a_resource_manager_of_their_own() -> None:
    namespace = by_identity(
        management="arm", subscription="s", resource_group="g", authority="login.microsoftonline.us"
    )
    async with client_factory.open_admin(namespace) as admin:
        client: Any = admin._client  # type: ignore[attr-defined]
        assert client._config.base_url.rstrip("/") == "https://management.usgovcloudapi.net"
        assert admin._where == ("g", "contoso")  # type: ignore[attr-defined]


@asynccontextmanager
async def open_client(namespace: NamespaceConfig) -> AsyncIterator[Any]:
    config = PairingConfig(
        path=Path("pairing.toml"), name="orders", environment="", read_only=False, policy=Policy(), entities=(),
        primary=namespace, secondary=by_string(),
    )  # fmt: skip
    async with client_factory.open_clients(config) as clients:
        yield clients.primary


# -- renewal in place ----------------------------------------------------------------------------------------------


def test_a_key_is_renewed_in_the_object_that_clients_hold() -> None:
    found = NamespaceCredentials(by_string())
    held = found.key
    assert found.renew(by_string()) == ""
    assert found.renew(by_string(OTHER_KEY)) == "the key"
    assert held is found.key
    assert held is not None
    assert held.named_key == ("Second", "an0ther=")
    sign = found.signing("https://contoso")
    assert sign is not None
    assert "skn=Second" in sign()


def test_a_signature_is_renewed_in_the_object_that_clients_hold() -> None:
    found = NamespaceCredentials(by_string(SIGNATURE))
    held = found.signature
    assert found.renew(by_string(SIGNATURE.replace("c4n4ry", "an0ther"))) == "the signature"
    assert held is found.signature
    sign = found.signing("https://contoso")
    assert sign is not None
    assert sign() == "SharedAccessSignature sr=x&sig=an0ther%3D&se=1800000000&skn=R"


def test_a_key_does_not_take_the_place_of_a_signature() -> None:
    found = NamespaceCredentials(by_string(SIGNATURE))
    assert found.renew(by_string(KEY)) == ""
    assert without_credentials(by_string(KEY)) != without_credentials(by_string(SIGNATURE))
    assert without_credentials(by_string(KEY)) == without_credentials(by_string(OTHER_KEY))


async def test_an_identity_is_renewed_behind_the_object_that_clients_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        def __init__(self, namespace: NamespaceConfig) -> None:
            assert namespace.client_secret is not None
            self.secret, self.closed = namespace.client_secret.reveal(), False

        async def get_token(self, *scopes: str, **_: object) -> AccessToken:
            return AccessToken(self.secret, 1_800_000_000)

        async def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(client_factory, "_make", Made)
    namespace = by_identity(**SECRET)
    found = NamespaceCredentials(namespace)
    assert found.identity is not None
    first: Any = found.identity.current
    assert found.renew(namespace) == ""
    assert found.renew(replace(namespace, client_secret=Secret("an0ther"))) == "the identity"
    assert (await found.identity.get_token("scope")).token == "an0ther"
    await found.close()
    second: Any = found.identity.current
    assert (first.closed, second.closed) == (True, True)


# -- for how long --------------------------------------------------------------------------------------------------


async def told(namespace: NamespaceConfig) -> TokenEvidence:
    async with open_client(namespace) as client:
        return await validity(client)


async def test_how_long_each_way_in_is_good_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await told(by_string()) == TokenEvidence(namespace=HOST)
    assert await told(by_string(SIGNATURE)) == TokenEvidence(namespace=HOST, expires_at=1.8e9, renewable=False)
    async with Sandbox.start() as sandbox:
        credential = AsyncSandboxCredential(sandbox.control_url, "Data Sender", lifetime=600)
        monkeypatch.setattr(client_factory, "_make", lambda _: credential)
        found = await told(by_identity())
    assert found.renewable
    assert found.expires_at is not None
    assert 0 < found.expires_at - time.time() <= 600


async def test_an_identity_that_gives_no_token_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        async def get_token(self, *scopes: str, **_: object) -> AccessToken:
            raise ClientAuthenticationError("please run az login")

        async def close(self) -> None:
            pass

    monkeypatch.setattr(client_factory, "_make", lambda _: Nobody())
    assert "az login" in (await told(by_identity())).trouble


@pytest.mark.parametrize("text", [KEY, SIGNATURE])
def test_no_secret_is_in_a_repr(text: str) -> None:
    found = NamespaceCredentials(by_string(text))
    assert "c4n4ry" not in f"{found!r} {found.key!r} {found.signature!r} {found.__dict__!r}"

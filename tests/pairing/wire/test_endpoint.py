"""What is read out of a caller's client, and what is said when that cannot be."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import WireAuthenticationError, WireUnavailableError
from paired_servicebus.pairing.amqp_client import Endpoint
from paired_servicebus.pairing.amqp_client.endpoint import JWT, SAS, SCOPE, CbsToken, Transport, sign, token_for
from servicebus_sandbox.access.authorization import read_token

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=top+secret/="
KEY = AzureNamedKeyCredential("Root", "top+secret/=")
AMQP = Transport.AMQP
NAME = "contoso.servicebus.windows.net"


def told(client: ServiceBusClient) -> tuple[Any, ...]:
    found = Endpoint.of(client)
    return found.host, found.port, found.hostname, found.transport, found.tls


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Endpoint=sb://contoso.servicebus.windows.net/;", {}, (NAME, 5671, NAME, Transport.AMQP, True)),
        ("Endpoint=sb://127.0.0.1:70;UseDevelopmentEmulator=true;", {}, ("127.0.0.1", 70, "127.0.0.1", AMQP, False)),
        ("Endpoint=sb://127.0.0.1;UseDevelopmentEmulator=true;", {}, ("127.0.0.1", 5672, "127.0.0.1", AMQP, False)),
        (
            "Endpoint=sb://contoso.servicebus.windows.net/;",
            {"transport_type": TransportType.AmqpOverWebsocket},
            (NAME, 443, NAME, Transport.WEBSOCKET, True),
        ),
        (
            "Endpoint=sb://contoso.servicebus.windows.net/;",
            {"http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128}},
            (NAME, 443, NAME, Transport.WEBSOCKET, True),
        ),
        (
            "Endpoint=sb://contoso.servicebus.windows.net/;",
            {"custom_endpoint_address": "sb://127.0.0.1:7000"},
            ("127.0.0.1", 7000, NAME, Transport.WEBSOCKET, True),
        ),
        (
            "Endpoint=sb://contoso.servicebus.windows.net/;",
            {"custom_endpoint_address": "sb://gateway", "transport_type": TransportType.Amqp},
            ("gateway", 5671, NAME, Transport.AMQP, True),
        ),
    ],
)  # fmt: skip
def test_an_endpoint_is_where_the_clients_own_connections_go(
    text: str, options: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    assert told(ServiceBusClient.from_connection_string(text + KEYS, **options)) == expected


def test_tls_left_out_by_hand_and_a_namespace_by_its_real_name() -> None:
    client = ServiceBusClient(
        NAME,
        KEY,
        use_tls=False,
        custom_endpoint_address="sb://127.0.0.1:7000",
        transport_type=TransportType.Amqp,
    )
    assert told(client) == ("127.0.0.1", 7000, NAME, Transport.AMQP, False)
    assert Endpoint.of(client).audience("orders") == f"sb://{NAME}/orders"
    assert Endpoint.of(client).tls_context() is None


def test_an_audience_keeps_the_port_where_no_tls_is_spoken() -> None:
    client = ServiceBusClient.from_connection_string(f"Endpoint=sb://127.0.0.1:7000;UseDevelopmentEmulator=true;{KEYS}")
    assert Endpoint.of(client).audience("orders") == "sb://127.0.0.1:7000/orders"


def test_a_proxy_and_its_password() -> None:
    proxy = {"proxy_hostname": "proxy", "proxy_port": 3128, "username": "ann", "password": "canary"}
    found = Endpoint.of(ServiceBusClient(NAME, KEY, http_proxy=proxy)).proxy
    assert found is not None
    assert (found.url, found.username, found.password) == ("http://proxy:3128", "ann", "canary")


def test_no_secret_is_in_what_an_endpoint_prints() -> None:
    proxy = {"proxy_hostname": "proxy", "proxy_port": 3128, "username": "ann", "password": "canary"}
    found = Endpoint.of(ServiceBusClient(NAME, KEY, http_proxy=proxy))
    assert not any(secret in f"{found!r} {found}" for secret in ("canary", "top+secret"))


def test_a_context_of_the_callers_own_is_used_and_a_file_is_trusted_instead_of_the_usual_ones() -> None:
    context = ssl.create_default_context()
    assert Endpoint.of(ServiceBusClient(NAME, KEY, ssl_context=context)).tls_context() is context
    assert Endpoint.of(ServiceBusClient(NAME, KEY)).tls_context() is not None
    missing = Endpoint.of(ServiceBusClient(NAME, KEY, connection_verify="/nowhere/ca.pem"))
    with pytest.raises(WireUnavailableError, match=r"/nowhere/ca\.pem, cannot be read"):
        missing.tls_context()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda client: delattr(client, "_config"),
        lambda client: delattr(client, "_credential"),
        lambda client: delattr(client._config, "transport_type"),
        lambda client: delattr(client._config, "use_tls"),
        lambda client: delattr(client._config, "http_proxy"),
        lambda client: delattr(client._config, "custom_endpoint_address"),
        lambda client: delattr(client._config, "connection_verify"),
        lambda client: delattr(client._config, "ssl_context"),
        lambda client: setattr(client._config, "use_tls", "yes"),
        lambda client: setattr(client._config, "ssl_context", object()),
        lambda client: setattr(client._config, "http_proxy", {"host": "proxy"}),
        lambda client: setattr(client._config, "transport_type", None),
        lambda client: setattr(client, "_credential", object()),
        lambda client: setattr(client, "fully_qualified_namespace", None),
    ],
)
def test_a_client_that_is_not_as_it_was_is_said_in_one_sentence(spoil: Any) -> None:
    client = ServiceBusClient(NAME, KEY)
    spoil(client)
    with pytest.raises(WireUnavailableError, match=r"^this ServiceBusClient cannot be read as one of"):
        Endpoint.of(client)


def test_what_is_no_client_at_all_is_said_too() -> None:
    with pytest.raises(WireUnavailableError, match="SimpleNamespace"):
        Endpoint.of(SimpleNamespace())  # type: ignore[arg-type]


# -- Tokens from each kind of credential, and when they are due again.


AUDIENCE = "sb://contoso.servicebus.windows.net/x-servicebus transfer/0"
NOW = 1_700_000_000.0


class Given(NamedTuple):
    token: str
    expires_on: int


@dataclass
class Credential:
    """As azure-identity's asynchronous ones."""

    failure: Exception | None = None
    scopes: tuple[str, ...] = ()

    async def get_token(self, *scopes: str, **_: Any) -> Given:
        self.scopes = scopes
        if self.failure is not None:
            raise self.failure
        return Given("header.claims.signature", int(NOW) + 600)


async def test_a_named_key_signs_for_the_audience() -> None:
    token = await token_for(AzureNamedKeyCredential("Root", "top+secret/="), AUDIENCE, now=NOW)
    read = read_token(token.text)
    assert (token.kind, token.expires_at) == (SAS, NOW + 3600)
    assert (read.key_name, read.resource, read.expires_at) == ("Root", AUDIENCE, NOW + 3600)
    assert read.is_signed_with("top+secret/=")
    assert not read.is_signed_with("another")


async def test_a_key_that_was_changed_in_place_signs_the_next_token() -> None:
    credential = AzureNamedKeyCredential("Root", "old")
    await token_for(credential, AUDIENCE, now=NOW)
    credential.update("Root", "new")
    assert read_token((await token_for(credential, AUDIENCE, now=NOW)).text).is_signed_with("new")


async def test_a_ready_signature_is_used_as_it_is() -> None:
    ready = sign(AUDIENCE, "Root", "key", NOW + 60).text
    assert await token_for(AzureSasCredential(ready), AUDIENCE, now=NOW) == CbsToken(ready, SAS, NOW + 60)
    without_expiry = await token_for(AzureSasCredential("SharedAccessSignature sr=x&sig=y&skn=z"), AUDIENCE, now=NOW)
    assert without_expiry.expires_at == NOW + 3600


async def test_an_identity_is_asked_for_the_scope_of_service_bus() -> None:
    credential = Credential()
    token = await token_for(credential, AUDIENCE, now=NOW)
    assert token == CbsToken("header.claims.signature", JWT, NOW + 600)
    assert credential.scopes == (SCOPE,)


async def test_a_connection_strings_key_is_asked_for_the_audience() -> None:
    text = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=Root;SharedAccessKey=key"
    client = ServiceBusClient.from_connection_string(text)
    token = await token_for(client._credential, AUDIENCE, now=NOW)
    assert token.kind == SAS
    assert read_token(token.text).resource == AUDIENCE
    assert read_token(token.text).is_signed_with("key")


async def test_a_credential_that_gives_none_is_an_error_with_its_own_reason() -> None:
    failure = RuntimeError("no managed identity endpoint found")
    with pytest.raises(WireAuthenticationError, match=r"Credential gave no token for sb:.*no managed") as told:
        await token_for(Credential(failure), AUDIENCE, now=NOW)
    assert told.value.__cause__ is failure


@pytest.mark.parametrize(("life", "early"), [(3600, 360), (86400, 8640), (1200, 300), (60, 30), (2, 1), (0, 0)])
def test_a_token_is_due_before_it_ends(life: float, early: float) -> None:
    assert CbsToken("t", JWT, NOW + life).renew_at(NOW) == NOW + life - early


def test_a_token_is_not_in_what_it_prints() -> None:
    assert "canary" not in repr(CbsToken("canary", JWT, NOW))

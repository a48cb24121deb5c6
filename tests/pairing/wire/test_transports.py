"""Every way to a namespace, who gets in with what, and what is read out of a caller's client."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.errors import (
    WireAuthenticationError,
    WireConnectionError,
    WireError,
    WireLinkError,
    WireTimeoutError,
    WireUnavailableError,
)
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireSender, client_connection
from paired_servicebus.pairing.amqp_client.endpoint import (
    JWT,
    SAS,
    SCOPE,
    CbsToken,
    Transport,
    token_for,
)
from servicebus_amqp.access import read_token, sign
from servicebus_amqp.encoding.performatives import ACCEPTED
from servicebus_sandbox import AsyncSandboxCredential
from tests.engine.connect_proxy import connect_proxy

from .conftest import Told, World, message, until
from .peer import listening, reply_to

LARGE = 200_000


def endpoint(world: World, transport: TransportType, **options: Any) -> Endpoint:
    """Of the namespace by its real name, over TLS."""
    found = world.sandbox["contoso"]
    chosen = {"connection_verify": str(world.sandbox.ca_file), "custom_endpoint_address": found.endpoint} | options
    credential = AzureNamedKeyCredential(found.key_name, found.key)
    return Endpoint.of(ServiceBusClient(found.fully_qualified_name, credential, transport_type=transport, **chosen))


async def there_and_back(world: World, where: Endpoint) -> list[int]:
    """The sizes of what came back, of messages as large as this."""
    told, wire = Told(), world.wire_to(where)
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    for number in range(20):
        sender.send(message(number, LARGE), number.to_bytes(8, "big"))
    receiver.grant(20)
    await until(lambda: len(told.outcomes) == 20 and len(told.deliveries) == 20)
    for event in told.deliveries:
        receiver.settle(event.delivery_id, ACCEPTED, settled=False)
    await until(lambda: len(told.settled) == 20)
    assert all(event.state == ACCEPTED for event in told.outcomes + told.settled)
    return [len(event.payload) for event in told.deliveries]


@pytest.mark.parametrize("transport", TransportType)
async def test_there_and_back_over_tls_by_the_real_name(world: World, transport: TransportType) -> None:
    assert min(await there_and_back(world, endpoint(world, transport))) > LARGE


@pytest.mark.parametrize("transport", TransportType)
async def test_a_certificate_that_is_not_trusted_is_no_connection(world: World, transport: TransportType) -> None:
    wire = world.wire_to(endpoint(world, transport, connection_verify=None))
    with pytest.raises(WireConnectionError, match=r"(?i)certificate"):
        await Told().sender(wire)


async def test_a_port_that_refuses_is_no_connection(world: World) -> None:
    async with listening() as script:
        where = script.endpoint
    wire = world.wire_to(where)
    with pytest.raises(WireConnectionError, match="cannot be connected") as raised:
        await Told().sender(wire)
    assert raised.value.condition == "amqp:socket-error"


async def test_a_web_server_without_websockets_is_unavailable_to_us(world: World) -> None:
    where = endpoint(world, TransportType.AmqpOverWebsocket, custom_endpoint_address=world.sandbox.arm_url)
    with pytest.raises(WireUnavailableError, match="takes no WebSocket: 4"):
        await Told().sender(world.wire_to(where))


def through(world: World, port: int) -> Endpoint:
    settings = {"proxy_hostname": "127.0.0.1", "proxy_port": port, "username": "ann", "password": "canary"}
    return endpoint(world, TransportType.AmqpOverWebsocket, http_proxy=settings)


async def test_a_proxy_is_gone_through_with_its_password(world: World) -> None:
    with connect_proxy({}, "ann:canary") as proxy:
        await there_and_back(world, through(world, proxy.port))
    assert (proxy.targets, proxy.turned_away) == ([world.sandbox["contoso"].endpoint.removeprefix("sb://")], 0)


async def test_a_proxy_that_says_no_is_named_and_its_password_is_not(world: World) -> None:
    denied = pytest.raises(WireConnectionError, match="the proxy answered 407")
    with connect_proxy({}, "ann:another") as proxy, denied as raised:
        await Told().sender(world.wire_to(through(world, proxy.port)))
    assert "canary" not in f"{raised.value}"
    assert base64.b64encode(b"ann:canary").decode() not in f"{raised.value}"


@pytest.mark.parametrize("transport", TransportType)
async def test_a_connection_that_is_reset_is_lost_on_every_transport(world: World, transport: TransportType) -> None:
    told, wire = Told(), world.wire_to(endpoint(world, transport))
    await told.sender(wire)
    world.fault("reset")
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireConnectionError)
    assert not wire.is_up


# -- What is read out of a caller's client, and what is said when that cannot be -------------------------------------

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=top+secret/="
KEY = AzureNamedKeyCredential("Root", "top+secret/=")
AMQP = Transport.AMQP
NAME = "contoso.servicebus.windows.net"


def refusal_of(client: ServiceBusClient) -> tuple[Any, ...]:
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
    assert refusal_of(ServiceBusClient.from_connection_string(text + KEYS, **options)) == expected


def test_tls_left_out_by_hand_and_a_namespace_by_its_real_name() -> None:
    client = ServiceBusClient(
        NAME,
        KEY,
        use_tls=False,
        custom_endpoint_address="sb://127.0.0.1:7000",
        transport_type=TransportType.Amqp,
    )
    assert refusal_of(client) == ("127.0.0.1", 7000, NAME, Transport.AMQP, False)
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
    ready = sign(AUDIENCE, "Root", "key", NOW + 60)
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
    with pytest.raises(WireAuthenticationError, match=r"Credential gave no token for sb:.*no managed") as refusal_of:
        await token_for(Credential(failure), AUDIENCE, now=NOW)
    assert refusal_of.value.__cause__ is failure


@pytest.mark.parametrize(("life", "early"), [(3600, 360), (86400, 8640), (1200, 300), (60, 30), (2, 1), (0, 0)])
def test_a_token_is_due_before_it_ends(life: float, early: float) -> None:
    assert CbsToken("t", JWT, NOW + life).renew_at(NOW) == NOW + life - early


def test_a_token_is_not_in_what_it_prints() -> None:
    assert "canary" not in repr(CbsToken("canary", JWT, NOW))


# -- Who gets in, with what, and for how long ------------------------------------------------------------------------


def endpoint_with(world: World, credential: Any) -> Endpoint:
    return replace(Endpoint.of(world.client()), credential=credential)


def keys(world: World) -> tuple[str, str]:
    found = world.sandbox["contoso"]
    return found.key_name, found.key


async def answer_to(world: World, credential: Any) -> Any:
    """How a message is settled that is sent with it."""
    told = Told()
    sender = await told.sender(world.wire_to(endpoint_with(world, credential)))
    sender.send(message(), b"1")
    await until(lambda: told.outcomes)
    return told.outcomes[0].state


def signed(world: World) -> AzureSasCredential:
    return AzureSasCredential(sign(Endpoint.of(world.client()).audience("orders"), *keys(world), time.time() + 60))


@pytest.mark.parametrize(
    "credential",
    [
        lambda world: AzureNamedKeyCredential(*keys(world)),
        signed,
        lambda world: AsyncSandboxCredential(world.sandbox.control_url, "Data Owner"),
    ],
    ids=["a key", "a ready signature", "an identity"],
)
async def test_each_kind_of_credential_gets_in(world: World, credential: Any) -> None:
    assert await answer_to(world, credential(world)) is ACCEPTED


async def test_an_identity_without_the_right_is_told_so(world: World) -> None:
    credential = AsyncSandboxCredential(world.sandbox.control_url, "Data Receiver")
    with pytest.raises(WireError) as raised:
        await Told().sender(world.wire_to(endpoint_with(world, credential)))
    assert kind_of(raised.value) is FailureKind.UNAUTHORIZED


async def test_a_wrong_key_is_an_authentication_error_of_one_line(world: World) -> None:
    with pytest.raises(WireAuthenticationError, match="401") as raised:
        await Told().sender(world.wire_to(endpoint_with(world, AzureNamedKeyCredential(keys(world)[0], "canary"))))
    assert "canary" not in str(raised.value)
    assert kind_of(raised.value) is FailureKind.UNAUTHENTICATED


async def test_an_entity_that_is_not_there_is_told_from_a_wrong_key(world: World) -> None:
    with pytest.raises(WireAuthenticationError) as raised:
        await Told().sender(world.wire(), "nowhere")
    assert kind_of(raised.value) is FailureKind.NOT_FOUND


async def test_a_signature_for_one_entity_opens_that_one_alone(world: World) -> None:
    audience = Endpoint.of(world.client()).audience("orders")
    credential = AzureSasCredential(sign(audience, *keys(world), time.time() + 60))
    wire = world.wire_to(endpoint_with(world, credential))
    assert (await Told().sender(wire, "orders")).is_up
    with pytest.raises(WireAuthenticationError):
        await Told().sender(wire, "audit")
    assert wire.is_up


@dataclass
class Short:
    """Tokens that live so many seconds, counted."""

    world: World
    life: float
    times: list[float] = field(default_factory=list)

    @property
    def named_key(self) -> None:
        return None

    async def get_token(self, *scopes: str, **_: Any) -> Any:
        self.times.append(time.time())
        real = AsyncSandboxCredential(self.world.sandbox.control_url, "Data Owner", lifetime=self.life)
        return await real.get_token(*scopes)


async def test_a_token_that_ends_is_renewed_before_and_the_links_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "_MIN_CHECK_SECONDS", 0.05)
    credential, told = Short(world, 3.0), Told()
    sender = await told.sender(world.wire_to(endpoint_with(world, credential)))
    began = time.time()
    while time.time() < began + 4.0:  # longer than the first token lives
        sender.send(message(), str(time.time()).encode())
        await asyncio.sleep(0.1)
    await until(lambda: len(told.outcomes) > 20)
    assert not told.lost
    assert len(credential.times) >= 3


async def test_a_token_that_was_not_renewed_costs_the_link_and_a_new_one_gets_in(world: World) -> None:
    told, wire = (
        Told(),
        world.wire_to(endpoint_with(world, AsyncSandboxCredential(world.sandbox.control_url, "Data Owner"))),
    )
    await told.sender(wire)
    world.jump(90_000)
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireLinkError)
    assert kind_of(told.lost[0]) is FailureKind.REVOKED
    assert (await told.sender(wire)).is_up
    assert wire.connections == 1


class Lasting(NamedTuple):
    """A credential, and the token it gives: for so many seconds."""

    seconds: float
    token: str = "a.b.c"

    @property
    def expires_on(self) -> float:
        return time.time() + self.seconds

    async def get_token(self, *_: str) -> Lasting:
        return self


async def test_a_renewal_that_fails_is_tried_again_while_the_link_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "_MIN_CHECK_SECONDS", 0.05)
    async with listening() as script:
        answers = iter([200, 401, 500])
        script.on_request = lambda _, request: reply_to(request, next(answers, 200))
        wire, told = ReconnectingConnection(replace(script.endpoint, credential=Lasting(2.0))), Told()
        await told.sender(wire)
        await until(lambda: len(script.peer.requests) >= 4)
        assert not told.lost
        await wire.close()


async def test_a_credential_that_never_answers_costs_the_caller_alone(world: World) -> None:
    class Hanging:
        async def get_token(self, *_: str) -> Any:
            if others:
                await asyncio.Event().wait()
            return await AsyncSandboxCredential(world.sandbox.control_url, "Data Owner").get_token(SCOPE)

    others: list[WireSender] = []
    told = Told()
    wire = world.wire_to(endpoint_with(world, Hanging()))
    others.append(await told.sender(wire))
    with pytest.raises(WireTimeoutError):
        await Told().sender(wire, "audit", timeout=0.2)
    assert others[0].is_up
    assert told.lost == []


async def test_one_token_serves_many_links_of_an_entity() -> None:
    async with listening() as script:
        wire = ReconnectingConnection(script.endpoint)
        await asyncio.gather(*(Told().sender(wire, "orders") for _ in range(5)), Told().receiver(wire, "orders"))
        await Told().sender(wire, "audit")
        assert len(script.peer.requests) == 2
        await wire.close()


async def test_the_next_link_after_a_loss_shows_a_new_token() -> None:
    async with listening() as script:
        wire, told = ReconnectingConnection(script.endpoint), Told()
        await told.sender(wire)
        for link in script.peer.links[-1:]:
            link.detach()
        script.peer.flush()
        await until(lambda: told.lost)
        await told.sender(wire)
        assert len(script.peer.requests) == 2
        await wire.close()


async def test_many_entities_share_the_namespaces_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service accepts 1,000 tokens on one connection: an audience of the namespace serves all entities."""
    monkeypatch.setattr(client_connection, "MAX_TOKENS", 2)
    async with listening() as script:
        wire = ReconnectingConnection(script.endpoint)

        def audience(path: str) -> bytes:
            return script.endpoint.audience(path).encode()

        for path in ("a", "b", "c", "d"):
            await Told().sender(wire, path)
        puts = [
            next(path for path in ("a", "b", "c", "d", "") if audience(path) in put) for put in script.peer.requests
        ]
        assert puts == ["a", "b", ""]
        await wire.close()

"""How an engine gets into a namespace: the right credential, renewed in place, by every transport."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from urllib.parse import urlsplit

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.identity import aio as identity
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from paired_servicebus.config import NamespaceConfig, PairingConfig, load_config
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import FailureKind, judge
from paired_servicebus.core.operator.failover_readiness import TokenEvidence
from paired_servicebus.engine.clients import client_factory, start_checks
from paired_servicebus.engine.clients.client_factory import (
    CredentialReloader,
    NamespaceClients,
    NamespaceCredentials,
    open_admin,
    open_clients,
    without_credentials,
)
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.pairing.monitoring.backlog_inspection import validity
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential
from servicebus_sandbox.broker.entity_settings import AuthorizationRule

from .connect_proxy import ConnectProxy, connect_proxy

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


# -- A changed key or secret is picked up without a restart ----------------------------------------------------------

NEW_KEY = "a-new-key="


@dataclass
class Site:
    """A pairing.toml whose keys come from files, clients made from it, and a renewal that reads when it is told to."""

    folder: Path
    sandbox: Sandbox
    clients: NamespaceClients
    renewal: CredentialReloader
    said: list[str] = field(default_factory=list)

    @property
    def toml(self) -> Path:
        return self.folder / "pairing.toml"

    def write(self, side: str, key: str) -> None:
        """The key's file, as an operator would change it."""
        one = self.sandbox[side]
        (self.folder / side).write_text(one.connection_string_for(one.key_name, key) + "\n")

    def regenerate(self, side: str, key: str = NEW_KEY) -> None:
        """The namespace knows this key and no other from now on, and everybody has to come again."""
        one = self.sandbox[side]
        rules = one.node.authorization.rules
        one.node.authorization.rules = tuple(_with_key(rule, key) for rule in rules)
        fault = one.node.faults.add("reset")
        one.node.faults.remove(fault.id)


def _with_key(rule: AuthorizationRule, key: str) -> AuthorizationRule:
    return replace(rule, primary_key=key, secondary_key=key)


def toml_of(sandbox: Sandbox, more: str = "") -> str:
    sides = "".join(
        f'[{side}]\nname = "{side}"\nca_file = "{sandbox.ca_file}"\nconnection_string = {{ file = "{side}" }}\n'
        for side in ("primary", "secondary")
    )
    return f'[pairing]\nname = "orders"\nbacklog_queue_count = 2\n{more}\n{sides}'


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox.start())
        (tmp_path / "pairing.toml").write_text(toml_of(sandbox))
        for side in ("primary", "secondary"):
            (tmp_path / side).write_text(sandbox[side].connection_string)
        config = load_config(tmp_path / "pairing.toml")
        clients = await stack.enter_async_context(open_clients(config))
        said: list[str] = []
        found = CredentialReloader(config, clients.primary_credentials, clients.secondary_credentials, said.append)
        yield Site(tmp_path, sandbox, clients, found, said)


async def send(site: Site) -> None:
    async with site.clients.primary.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))


@asynccontextmanager
async def paired(site: Site) -> AsyncIterator[PairedServiceBusClient]:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=site.clients.secondary_admin,
        secondary_client=site.clients.secondary,
        primary_name="primary",
        backlog_queue_count=2,
        enable_syphon=True,
        send_timeout=5.0,
    )
    async with await pair_namespaces(site.clients.primary, options, judge=site.renewal.judging()) as pairing:
        yield pairing


async def test_a_new_key_in_its_file_lets_clients_in_that_were_made_with_the_old_one(site: Site) -> None:
    """A changed key or secret is picked up without a restart: messaging and management alike."""
    await send(site)
    for side in ("primary", "secondary"):
        site.regenerate(side)
    with pytest.raises(ServiceBusAuthenticationError):
        await send(site)
    with pytest.raises((ClientAuthenticationError, HttpResponseError)):
        await site.clients.secondary_admin.namespace()
    for side in ("primary", "secondary"):
        site.write(side, NEW_KEY)
    await site.renewal.read()
    await send(site)
    assert (await site.clients.secondary_admin.namespace()).name == "secondary"
    assert site.said == [
        "the key of the primary namespace was renewed; links use it from when they next open",
        "the key of the secondary namespace was renewed; links use it from when they next open",
    ]


async def test_a_refusal_makes_the_files_be_read_at_once_and_sends_go_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], object]
) -> None:
    """The sandbox's key is regenerated while a pairing runs: sends go on, with no restart."""
    monkeypatch.setattr(client_factory, "RELOAD_INTERVAL", 3600.0)
    monkeypatch.setattr(client_factory, "MIN_RELOAD_INTERVAL", 0.05)
    running = asyncio.create_task(site.renewal.run())
    async with paired(site) as pairing, pairing.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("before"))
        site.write("primary", NEW_KEY)
        site.regenerate("primary")
        sent, met = 0, set[FailureKind]()
        async with asyncio.timeout(60):
            while not sent:
                try:
                    await sender.send_messages(ServiceBusMessage("after"))
                    sent += 1
                except Exception as error:
                    met.add(judge(error).kind)
                    await asyncio.sleep(0.05)
        assert met <= {FailureKind.UNAUTHENTICATED, FailureKind.CONNECTION}  # refused, or the link that was cut
        assert site.said == ["the key of the primary namespace was renewed; links use it from when they next open"]
    running.cancel()
    assert site.sandbox["primary"].node.namespace.queue("orders").counts().active == 2


async def test_files_are_looked_at_without_any_refusal(
    site: Site, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], object]
) -> None:
    monkeypatch.setattr(client_factory, "RELOAD_INTERVAL", 0.1)
    monkeypatch.setattr(client_factory, "MIN_RELOAD_INTERVAL", 0.05)
    running = asyncio.create_task(site.renewal.run())
    site.write("secondary", NEW_KEY)
    await until(lambda: bool(site.said))  # type: ignore[misc]
    running.cancel()
    key = site.clients.secondary_credentials.key
    assert key is not None
    assert key.named_key[1] == NEW_KEY


async def test_a_file_that_cannot_be_used_is_said_once_and_changes_nothing(site: Site) -> None:
    (site.folder / "primary").write_text("")
    for _ in range(3):
        await site.renewal.read()
    (said,) = site.said
    assert "the file primary, which is empty" in said
    assert said.endswith("the engine continues with its present settings")
    await send(site)


async def test_other_settings_wait_for_the_next_start_and_that_is_said_once(site: Site) -> None:
    await site.renewal.read()
    assert site.said == [], "nothing changed"
    site.toml.write_text(toml_of(site.sandbox, "failover_interval = 3"))
    assert tomllib.loads(site.toml.read_text())["pairing"]["failover_interval"] == 3
    for _ in range(3):
        await site.renewal.read()
    (said,) = site.said
    assert said.endswith("restart the engine to apply the rest")
    site.toml.write_text(toml_of(site.sandbox))
    await site.renewal.read()
    assert len(site.said) == 1


async def test_an_identity_that_azure_does_not_accept_leaves_the_one_there_is(tmp_path: Path) -> None:
    settings = '[pairing]\nname = "orders"\n' + "".join(
        f'[{side}]\nnamespace = "{side}.example"\ncredential = "client-secret"\ntenant = "{{tenant}}"\n'
        f'client_id = "c"\nclient_secret = {{{{ file = "secret" }}}}\n'
        for side in ("primary", "secondary")
    )
    (tmp_path / "secret").write_text("s")
    (tmp_path / "pairing.toml").write_text(settings.format(tenant="contoso.example"))
    config, said = load_config(tmp_path / "pairing.toml"), list[str]()
    async with open_clients(config) as clients:
        identity = clients.primary_credentials.of_identity()
        found, before = (
            CredentialReloader(config, clients.primary_credentials, clients.secondary_credentials, said.append),
            identity.current,
        )
        (tmp_path / "pairing.toml").write_text(settings.format(tenant="no/tenant"))
        for _ in range(2):
            await found.read()
        assert identity.current is before
        assert len(said) == 1
        assert said[0].endswith("the engine continues with its present settings")
        (tmp_path / "pairing.toml").write_text(settings.format(tenant="fabrikam.example"))
        await found.read()
        assert identity.current is not before


# -- Ways to a namespace that pairing.toml can name: WebSocket, a gateway, a proxy; for messaging, Atom and ARM ------

SOON = 60.0


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.start() as running:
        yield running


def emulated(sandbox: Sandbox, name: str = "primary", **more: object) -> NamespaceConfig:
    one = sandbox[name]
    return NamespaceConfig(
        host=f"127.0.0.1:{one.amqp_port}",
        connection_string=Secret(one.connection_string),
        ca_file=sandbox.ca_file,
        **more,  # type: ignore[arg-type]
    )


def by_name(sandbox: Sandbox, name: str = "primary", **more: object) -> NamespaceConfig:
    """As a namespace in Azure is written: its real name, TLS, no port."""
    one = sandbox[name]
    text = f"Endpoint=sb://{one.fully_qualified_name}/;SharedAccessKeyName={one.key_name};SharedAccessKey={one.key}"
    return NamespaceConfig(
        host=one.fully_qualified_name,
        connection_string=Secret(text),
        ca_file=sandbox.ca_file,
        **more,  # type: ignore[arg-type]
    )


def pairing_of(primary: NamespaceConfig, secondary: NamespaceConfig | None = None) -> PairingConfig:
    return PairingConfig(
        path=Path("pairing.toml"), name="orders", environment="", read_only=False, policy=Policy(), entities=(),
        primary=primary, secondary=secondary or primary,
    )  # fmt: skip


async def send_through(namespace: NamespaceConfig) -> None:
    async with (
        asyncio.timeout(SOON),
        open_clients(pairing_of(namespace)) as clients,
        clients.primary.get_queue_sender("orders") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("x"))


def arrived(sandbox: Sandbox) -> int:
    return sandbox["primary"].node.namespace.queue("orders").counts().active


@pytest.mark.parametrize("transport", ["amqp", "websocket"])
async def test_by_connection_string_over_amqp_and_over_websocket(sandbox: Sandbox, transport: str) -> None:
    await send_through(emulated(sandbox, transport=transport))
    assert arrived(sandbox) == 1


@pytest.mark.parametrize("transport", ["amqp", "websocket"])
async def test_two_sandboxes_on_one_machine_are_two_namespaces(sandbox: Sandbox, transport: str) -> None:
    pairing = pairing_of(emulated(sandbox, transport=transport), emulated(sandbox, "secondary", transport=transport))
    async with open_clients(pairing) as clients:
        assert clients.primary.fully_qualified_namespace != clients.secondary.fully_qualified_namespace


@pytest.mark.parametrize("transport", ["amqp", "websocket"])
async def test_by_its_real_name_through_a_gateway(sandbox: Sandbox, transport: str) -> None:
    gateway = by_name(sandbox, transport=transport, custom_endpoint=sandbox["primary"].endpoint)
    assert await start_checks._try_messaging(gateway) == ""
    await send_through(gateway)
    assert arrived(sandbox) == 1


# -- through a proxy -----------------------------------------------------------------------------------------------

LOGIN, WRITTEN = "me:p@ss w0rd", "me:p%40ss%20w0rd"


def through(proxy: ConnectProxy, login: str = WRITTEN) -> Secret:
    return Secret(f"http://{login}@127.0.0.1:{proxy.port}" if login else f"http://127.0.0.1:{proxy.port}")


@pytest.mark.parametrize(("login", "written"), [("", ""), (LOGIN, WRITTEN)])
async def test_messaging_goes_through_the_proxy(sandbox: Sandbox, login: str, written: str) -> None:
    one = sandbox["primary"]
    with connect_proxy({one.fully_qualified_name: one.amqp_port}, login) as proxy:
        await send_through(by_name(sandbox, proxy=through(proxy, written)))
    assert arrived(sandbox) == 1
    assert proxy.targets == [f"{one.fully_qualified_name}:443"]
    assert proxy.turned_away == 0


async def test_atom_goes_through_the_proxy_with_its_password(sandbox: Sandbox) -> None:
    one = sandbox["primary"]
    with connect_proxy({one.fully_qualified_name: one.amqp_port}, LOGIN) as proxy:
        async with open_admin(by_name(sandbox, proxy=through(proxy))) as admin:
            assert (await admin.namespace()).name == "primary"
    assert proxy.targets
    assert set(proxy.targets) == {f"{one.fully_qualified_name}:443"}


async def test_arm_goes_through_the_proxy_with_its_password(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = urlsplit(sandbox.arm_url)
    monkeypatch.setattr(client_factory, "_make", lambda _: AsyncSandboxCredential(sandbox.control_url, "Data Owner"))
    with connect_proxy({}, LOGIN) as proxy:
        async with open_admin(arm_of(sandbox, proxy=through(proxy))) as admin:
            assert (await admin.namespace()).region == "westeurope"
    assert set(proxy.targets) == {arm.netloc}


@pytest.mark.parametrize("login", ["", "me:wr0ng"])
async def test_a_proxy_that_wants_another_password_says_no_and_the_password_is_not_shown(
    sandbox: Sandbox, login: str
) -> None:
    one = sandbox["primary"]
    with connect_proxy({one.fully_qualified_name: one.amqp_port}, LOGIN) as proxy:
        namespace = by_name(sandbox, proxy=through(proxy, login))
        with pytest.raises(ServiceBusError) as messaging:
            await send_through(namespace)
        with pytest.raises(AzureError) as management:
            async with open_admin(namespace) as admin:
                await admin.namespace()
    assert proxy.turned_away >= 2
    assert proxy.targets == []
    for raised in (messaging, management):
        assert "wr0ng" not in f"{raised.value!r} {raised.value}"


async def test_a_proxy_that_does_not_answer_is_named_without_its_password() -> None:
    namespace = NamespaceConfig(host="contoso.example", proxy=Secret("http://me:c4n4ry@127.0.0.1:1"))
    for why in (await start_checks._try_messaging(namespace), await start_checks._try_management(namespace)):
        assert why.startswith("the proxy 127.0.0.1, port 1: ")
        assert "c4n4ry" not in why


# -- ARM -----------------------------------------------------------------------------------------------------------


def arm_of(sandbox: Sandbox, name: str = "primary", **more: object) -> NamespaceConfig:
    return by_name(
        sandbox, name, management="arm", subscription="s", resource_group="g", arm_url=sandbox.arm_url, **more
    )


async def test_management_through_arm_beside_a_key(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """management = "arm" works: messaging by key, management by identity."""
    monkeypatch.setattr(client_factory, "_make", lambda _: AsyncSandboxCredential(sandbox.control_url, "Data Owner"))
    secondary = arm_of(sandbox, "secondary", custom_endpoint=sandbox["secondary"].endpoint)
    async with open_clients(pairing_of(emulated(sandbox), secondary)) as clients:
        info = await clients.secondary_admin.namespace()
        assert (info.name, info.tier, info.region) == ("secondary", ServiceTier.STANDARD, "northeurope")
        assert isinstance(clients.secondary_credentials.key, object)
    assert await start_checks._try_management(secondary) == ""


async def test_identity_alone_is_enough_for_everything(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_factory, "_make", lambda _: AsyncSandboxCredential(sandbox.control_url, "Data Owner"))
    one = sandbox["primary"]
    namespace = replace(by_name(sandbox, custom_endpoint=one.endpoint), connection_string=None)
    await send_through(namespace)
    assert arrived(sandbox) == 1
    async with open_admin(replace(namespace, host=f"127.0.0.1:{one.amqp_port}")) as admin:
        assert (await admin.namespace()).name == "primary"

"""Ways to a namespace that pairing.toml can name: WebSocket, a gateway, a proxy; for messaging, Atom and ARM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.model.namespace_info import ServiceTier
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.engine.clients import client_factory, start_checks
from paired_servicebus.engine.clients.client_factory import open_admin, open_clients
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential

from .connect_proxy import ConnectProxy, connect_proxy

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


async def send(namespace: NamespaceConfig) -> None:
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
    await send(emulated(sandbox, transport=transport))
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
    await send(gateway)
    assert arrived(sandbox) == 1


# -- through a proxy -----------------------------------------------------------------------------------------------

LOGIN, WRITTEN = "me:p@ss w0rd", "me:p%40ss%20w0rd"


def through(proxy: ConnectProxy, login: str = WRITTEN) -> Secret:
    return Secret(f"http://{login}@127.0.0.1:{proxy.port}" if login else f"http://127.0.0.1:{proxy.port}")


@pytest.mark.parametrize(("login", "written"), [("", ""), (LOGIN, WRITTEN)])
async def test_messaging_goes_through_the_proxy(sandbox: Sandbox, login: str, written: str) -> None:
    one = sandbox["primary"]
    with connect_proxy({one.fully_qualified_name: one.amqp_port}, login) as proxy:
        await send(by_name(sandbox, proxy=through(proxy, written)))
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
            await send(namespace)
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
    await send(namespace)
    assert arrived(sandbox) == 1
    async with open_admin(replace(namespace, host=f"127.0.0.1:{one.amqp_port}")) as admin:
        assert (await admin.namespace()).name == "primary"

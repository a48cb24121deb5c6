"""A changed key or secret is picked up without a restart."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from paired_servicebus.config import load_config
from paired_servicebus.core.model.verdict import FailureKind, judge
from paired_servicebus.engine.clients import client_factory
from paired_servicebus.engine.clients.client_factory import CredentialReloader, NamespaceClients, open_clients
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.entity_settings import AuthorizationRule

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
    site.toml.write_text(toml_of(site.sandbox, "failover_interval = 3"))
    assert tomllib.loads(site.toml.read_text())["pairing"]["failover_interval"] == 3
    for _ in range(3):
        await site.renewal.read()
    (said,) = site.said
    assert said.endswith("restart the engine to apply the rest")
    site.toml.write_text(toml_of(site.sandbox))
    await site.renewal.read()
    assert len(site.said) == 1


async def test_nothing_is_said_where_nothing_changed(site: Site) -> None:
    await site.renewal.read()
    assert site.said == []


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

"""What an engine says when it starts about the namespaces that it pairs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.core.model.pairing_events import Event, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import Trouble, TroubleKind
from paired_servicebus.engine.clients import client_factory
from paired_servicebus.engine.clients.client_factory import CredentialReloader, open_clients
from paired_servicebus.engine.clients.start_checks import StartChecks, read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.service import main
from paired_servicebus.pairing import PairedServiceBusClient, opening
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox
from servicebus_sandbox.access.token_credentials import AsyncSandboxCredential
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec


@dataclass
class Listener:
    """Stands for the engine's host: keeps what is recorded."""

    events: list[Event] = field(default_factory=list)
    troubles: tuple[Trouble, ...] = ()

    async def take_up(self, _paired: object) -> None:
        """Nothing stood before."""

    def record(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events)

    def warn(self, about: str, text: str) -> None:
        self.record(Warned(at=0.0, about=about, text=text))

    def said(self, about: str) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Warned) and event.about == about]


@pytest.fixture
async def stack(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


async def start(
    stack: AsyncExitStack,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    primary: NamespaceSpec,
    secondary: NamespaceSpec,
    *,
    management: str = "arm",
    entities: tuple[str, ...] = ("orders",),
    away: str = "",
    **options: bool,
) -> tuple[PairedServiceBusClient, Listener]:
    """Pairs two namespaces as an engine does. away: a namespace that refuses connections."""
    sandbox = await stack.enter_async_context(Sandbox.start([primary, secondary]))
    monkeypatch.setattr(client_factory, "_make", lambda _: AsyncSandboxCredential(sandbox.control_url, "Data Owner"))

    def config_of(name: str) -> NamespaceConfig:
        one = sandbox[name]
        by_key = NamespaceConfig(
            host=f"127.0.0.1:{one.amqp_port}",
            connection_string=Secret(one.connection_string),
            ca_file=sandbox.ca_file,
            name=name,
        )
        by_role = replace(by_key, management="arm", subscription="s", resource_group="g", arm_url=sandbox.arm_url)
        return by_role if management == "arm" else by_key

    config = PairingConfig(
        path=Path("pairing.toml"), name="orders", environment="", read_only=False,
        policy=Policy(backlog_queue_count=1, **options), entities=entities,
        primary=config_of(primary.name), secondary=config_of(secondary.name),
    )  # fmt: skip
    if away:
        sandbox[away].node.faults.add("refused")
    clients = await stack.enter_async_context(open_clients(config))
    host, places = Listener(), EnginePaths(state=folder, socket=folder / "s")
    renewal = CredentialReloader(config, clients.primary_credentials, clients.secondary_credentials, print)
    primary_info = await read_primary_info(config.primary, places)
    checks = StartChecks(config, places, primary_info)
    paired = await main._pair(config, clients, primary_info, host, renewal, main._Starting(lambda _: None))  # type: ignore[arg-type]
    host.troubles = await checks.look(clients.primary)
    return await stack.enter_async_context(paired), host


def primary_spec(**more: object) -> NamespaceSpec:
    return NamespaceSpec("contoso", queues=[QueueSpec("orders")], **more)  # type: ignore[arg-type]


async def test_two_namespaces_in_one_region_are_a_warning(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preferably in different data centres (a warning when ARM shows the same region)."""
    paired, host = await start(stack, tmp_path, monkeypatch, primary_spec(), NamespaceSpec("backup"))
    (said,) = host.said("namespaces")
    assert said.startswith("both namespaces are in westeurope: one outage may affect both")
    assert (paired.primary_name, paired.secondary_name) == ("contoso", "backup")


async def test_nothing_is_said_of_two_that_fit(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secondary = NamespaceSpec("backup", region="northeurope")
    _, host = await start(stack, tmp_path, monkeypatch, primary_spec(), secondary)
    assert host.said("namespaces") == []


async def test_a_smaller_tier_behind_a_larger_one_is_a_warning_over_atom_too(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, secondary = primary_spec(tier=Tier.PREMIUM), NamespaceSpec("backup")
    _, host = await start(stack, tmp_path, monkeypatch, primary, secondary, management="atom")
    (said,) = host.said("namespaces")
    assert "would not survive a failover" in said


async def test_a_topic_that_the_basic_tier_cannot_have_is_explained(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, secondary = primary_spec(tier=Tier.BASIC), NamespaceSpec("backup")
    _, host = await start(stack, tmp_path, monkeypatch, primary, secondary, entities=("orders", "audit"))
    (found,) = host.troubles
    assert (found.kind, found.what) == (TroubleKind.ENTITY_MISSING, "'audit'")
    assert "has no queue or topic of that name (its tier Basic has queues and no topics)" in found.reason


@pytest.mark.parametrize("start_degraded", [True, False])
async def test_an_engine_starts_without_its_secondary_whatever_the_option(
    stack: AsyncExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_degraded: bool
) -> None:
    """An engine of `paired up` starts and serves, whatever is away."""
    monkeypatch.setattr(opening, "FIRST_LINK_SECONDS", 0.1)
    specs = primary_spec(), NamespaceSpec("backup")
    paired, host = await start(
        stack, tmp_path, monkeypatch, *specs, management="atom", away="backup", start_degraded=start_degraded
    )
    assert paired.alarms()[0].startswith("the pairing started degraded: ")
    assert paired.alarms()[0].startswith(host.said("secondary")[0])

"""What the primary is called, in good times and while it is away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.namespaces import NamespaceInfo, Tier
from paired_servicebus.engine.naming import primary_told
from paired_servicebus.engine.places import Places
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(state=tmp_path, socket=tmp_path / "s")


def namespace_of(sandbox: Sandbox, name: str = "primary") -> NamespaceConfig:
    one = sandbox[name]
    return NamespaceConfig(
        host=f"127.0.0.1:{one.amqp_port}",
        connection_string=Secret(one.connection_string),
        ca_file=sandbox.ca_file,
    )


async def test_the_name_is_as_configured_else_as_the_namespace_tells_it(places: Places) -> None:
    """{primary} is the namespace's name: as configured, else as the namespace tells it."""
    async with Sandbox.start() as sandbox:
        told = namespace_of(sandbox)
        assert (await primary_told(replace(told, name="contoso"), places, reachable=True)).name == "contoso"
        assert await primary_told(told, places, reachable=True) == NamespaceInfo(name="primary", tier=Tier.STANDARD)


async def test_a_name_that_was_told_once_is_remembered_through_an_outage(places: Places) -> None:
    async with Sandbox.start() as sandbox:
        namespace = namespace_of(sandbox)
        await primary_told(namespace, places, reachable=True)
    assert (await primary_told(namespace, places, reachable=False)).name == "primary"
    assert (await primary_told(replace(namespace, host="127.0.0.1:1"), places, reachable=False)).name == ""


async def test_without_any_knowledge_the_host_has_to_do(places: Places) -> None:
    """Else the first label of its host."""
    assert (await primary_told(NamespaceConfig(host="contoso.example"), places, reachable=False)).name == ""

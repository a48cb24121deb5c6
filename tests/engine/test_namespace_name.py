"""What the primary is called, in good times and while it is away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paired_servicebus.config import NamespaceConfig
from paired_servicebus.core.model.namespace_info import NamespaceInfo, ServiceTier
from paired_servicebus.engine.clients.start_checks import read_primary_info
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.secret import Secret
from servicebus_sandbox import Sandbox


@pytest.fixture
def places(tmp_path: Path) -> EnginePaths:
    return EnginePaths(state=tmp_path, socket=tmp_path / "s")


def namespace_of(sandbox: Sandbox, name: str = "primary") -> NamespaceConfig:
    one = sandbox[name]
    return NamespaceConfig(
        host=f"127.0.0.1:{one.amqp_port}",
        connection_string=Secret(one.connection_string),
        ca_file=sandbox.ca_file,
    )


async def test_the_name_is_as_configured_else_as_the_namespace_tells_it(places: EnginePaths) -> None:
    """{primary} is the namespace's name: as configured, else as the namespace tells it."""
    async with Sandbox.start() as sandbox:
        told = namespace_of(sandbox)
        assert (await read_primary_info(replace(told, name="contoso"), places)).name == "contoso"
        assert await read_primary_info(told, places) == NamespaceInfo(name="primary", tier=ServiceTier.STANDARD)


async def test_a_name_that_was_told_once_is_remembered_through_an_outage(places: EnginePaths) -> None:
    async with Sandbox.start() as sandbox:
        namespace = namespace_of(sandbox)
        await read_primary_info(namespace, places)
    assert (await read_primary_info(namespace, places)).name == "primary"
    assert (await read_primary_info(replace(namespace, host="localhost:1"), places)).name == "localhost"


async def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    places = EnginePaths(state=tmp_path / "absent", socket=tmp_path / "s")
    async with Sandbox.start() as sandbox:
        assert (await read_primary_info(namespace_of(sandbox), places)).name == "primary"


async def test_without_any_knowledge_the_host_has_to_do(places: EnginePaths) -> None:
    """Else the first label of its host."""
    assert (await read_primary_info(NamespaceConfig(host="contoso.example"), places)).name == "contoso"

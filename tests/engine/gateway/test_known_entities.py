"""The primary's entities, kept over restarts: for clients that connect while the primary is away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from paired_servicebus.engine.gateway import known_entities
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.gateway.known_entities import KnownEntities
from servicebus_sandbox import Sandbox
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.pairing.backlogs import queue_path
from tests.pairing.conftest import TRUST, World

KEY = new_key("web", [GatewayRight.SEND])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.entities"


def reopened(path: Path, primary: str = "contoso") -> tuple[KnownEntities, list[str]]:
    warnings: list[str] = []
    known = KnownEntities(path, primary=primary, warn=warnings.append)
    known.read()
    return known, warnings


def test_what_was_seen_is_known_after_a_restart_in_any_case(path: Path) -> None:
    known, _ = reopened(path)
    known.note("Orders", (1_048_576, 262_144))
    known.note("gone", (1, 1))
    known.forget("GONE")
    known.write()
    again, warnings = reopened(path)
    assert again.limits("orders") == again.limits("ORDERS") == (1_048_576, 262_144)
    assert again.limits("gone") is None
    assert warnings == []
    assert not again.is_changed


def test_the_file_is_written_only_if_it_lacks_something(path: Path) -> None:
    known, _ = reopened(path)
    known.write()
    assert not path.exists()
    known.note("orders", (1, 1))
    known.write()
    before = path.stat().st_ino
    known.note("orders", (1, 1))
    known.write()
    assert path.stat().st_ino == before


def test_the_entities_of_another_primary_do_not_count(path: Path) -> None:
    known, _ = reopened(path)
    known.note("orders", (1, 1))
    known.write()
    other, warnings = reopened(path, primary="elsewhere")
    assert other.limits("orders") is None
    assert warnings == []


def test_there_is_a_bound_and_the_oldest_leaves(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_entities, "MAX_ENTITIES", 2)
    known, _ = reopened(path)
    for name in ("a", "b", "c"):
        known.note(name, (1, 1))
    assert [known.limits(name) is not None for name in ("a", "b", "c")] == [False, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"primary": "contoso", "entities": {"orders": [1]}}',
        '{"primary": "contoso", "entities": {"orders": [0, 1]}}',
        '{"primary": "contoso", "entities": {"orders": [1, 99999999999]}}',
        '{"primary": "contoso", "entities": {"a//b\\u0000": [1, 1]}}',
        '{"primary": "contoso", "entities": {}, "more": 1}',
        json.dumps({"primary": "contoso", "entities": {f"e{index}": [1, 1] for index in range(10_001)}}),
        "[" * 100_000,
    ],
    ids=["empty", "list", "short", "none", "huge", "path", "more", "many", "deep"],
)
def test_a_strangers_file_is_not_used_and_named_once(path: Path, text: str) -> None:
    path.write_text(text)
    known, warnings = reopened(path)
    assert known.limits("orders") is None
    assert len(warnings) == 1
    assert str(path) in warnings[0]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            yield World(sandbox, stack)


async def test_while_the_primary_is_away_only_an_entity_that_was_seen_before_is_served(world: World) -> None:
    # "primary away: accepted if configured or seen before, else refused with com.microsoft:timeout"
    known = KnownEntities()
    known.note("orders", (262_144, 262_144))
    paired = await world.pair(backlog_queue_count=1, send_timeout=1.0, failover_interval=0.3, hold_until_failover=True)
    gateway = Gateway(paired, KeyRing([KEY]), known=known)
    await gateway.listen(0)
    world.stack.push_async_callback(gateway.close, 0.1)
    world.fault("refused")
    client = await world.stack.enter_async_context(
        ServiceBusClient.from_connection_string(gateway.connection_string(KEY), retry_total=0, ssl_context=TRUST)
    )
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x", message_id="parked"))
    assert world.ids_in(queue_path(0), namespace="secondary") == ["parked"]
    with pytest.raises(OperationTimeoutError):
        await client.get_queue_sender("payments").__aenter__()


async def test_an_entity_that_a_client_found_is_noted_and_a_deleted_one_forgotten(world: World) -> None:
    known = KnownEntities()
    known.note("nowhere", (1, 1))
    paired = await world.pair(backlog_queue_count=1)
    gateway = Gateway(paired, KeyRing([KEY]), known=known)
    await gateway.listen(0)
    world.stack.push_async_callback(gateway.close, 0.1)
    client = await world.stack.enter_async_context(
        ServiceBusClient.from_connection_string(gateway.connection_string(KEY), retry_total=0, ssl_context=TRUST)
    )
    await client.get_queue_sender("orders").__aenter__()
    assert known.limits("orders") == paired.get_encoded_sender("orders").limits
    with pytest.raises(Exception, match="nowhere"):
        await client.get_queue_sender("nowhere").__aenter__()
    assert known.limits("nowhere") is None

"""`paired check` sends a ping through the gateway, and no message to an entity of the user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.core.model.snapshot import FindingVerdict
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, keys_of, new_key, write_keys
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.sections.gateway_options import GatewayOptions
from paired_servicebus.verbs import gateway_check
from paired_servicebus.verbs.gateway_check import check_gateway
from servicebus_sandbox import Sandbox
from servicebus_sandbox.fixtures.sdk_sleeps import shorten_sleeps
from tests.pairing.conftest import World

NAMESPACE = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry=;UseDevelopmentEmulator=true"
FILE = f"""
[pairing]
name = "orders"
entities = ["Orders"]
[primary]
connection_string = "{NAMESPACE}"
[secondary]
connection_string = "{NAMESPACE}"
[gateway]
"""


class Setting:
    def __init__(self, world: World, paired: PairedServiceBusClient, gateway: Gateway, places: EnginePaths) -> None:
        self.world = world
        self.paired = paired
        self.places = places
        self.options = GatewayOptions(port=gateway.port)
        (places.state / "pairing.toml").write_text(FILE)
        self.config: PairingConfig = load_config(places.state / "pairing.toml")

    async def check(self) -> tuple[FindingVerdict, str]:
        found = await check_gateway(self.config, self.options, self.places)
        return found.verdict, found.evidence


@pytest.fixture
async def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    places = EnginePaths(state=tmp_path, socket=tmp_path / "sock")
    with shorten_sleeps():
        async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
            world = World(sandbox, stack)
            paired = await world.pair(backlog_queue_count=1)
            paired.watch("orders")
            gateway = Gateway(paired, keys_of(places.gateway_keys))
            await gateway.listen(0)
            stack.push_async_callback(gateway.close, 0.1)

            async def first_snapshot(_: Path) -> Any:
                return SimpleNamespace(entities=paired.entity_views())

            monkeypatch.setattr(gateway_check, "find_socket", lambda places: places.socket)
            monkeypatch.setattr(gateway_check, "first_snapshot", first_snapshot)
            yield Setting(world, paired, gateway, places)


async def test_a_ping_goes_through_and_no_entity_of_the_user_gets_a_message(setting: Setting) -> None:
    # "paired check sends one through it"
    verdict, evidence = await setting.check()
    assert verdict is FindingVerdict.OK
    assert "a ping was sent to Orders" in evidence
    assert setting.paired.billed().sends == 1
    assert setting.world.ids_in("orders") == []


async def test_with_ping_by_link_nothing_is_sent(setting: Setting) -> None:
    setting.config = replace(setting.config, policy=replace(setting.config.policy, ping="link"))
    verdict, evidence = await setting.check()
    assert (verdict, "a link was attached" in evidence) == (FindingVerdict.OK, True)
    assert setting.paired.billed().sends == 0


async def test_no_ping_is_parked_in_the_backlog(setting: Setting) -> None:
    setting.paired.force("orders", by="kim")
    assert (await setting.check())[0] is FindingVerdict.UNKNOWN
    assert setting.world.depth("primary/x-servicebus-transfer/0", namespace="secondary") == 0


async def test_a_gateway_that_does_not_let_a_client_send_is_a_no(setting: Setting) -> None:
    write_keys(setting.places.gateway_keys, [new_key("gateway", [GatewayRight.SEND])])  # the running one has others
    verdict, evidence = await setting.check()
    assert verdict is FindingVerdict.NO
    assert "a client cannot send to Orders" in evidence
    setting.options = GatewayOptions(port=1)
    assert (await setting.check())[0] is FindingVerdict.NO


async def test_without_a_key_that_sends_it_names_the_remedy(setting: Setting) -> None:
    write_keys(setting.places.gateway_keys, [new_key("reader", [GatewayRight.LISTEN])])
    found = await check_gateway(setting.config, setting.options, setting.places)
    assert (found.verdict, found.todo) == (FindingVerdict.WARN, "paired gateway --add NAME --rights Send")

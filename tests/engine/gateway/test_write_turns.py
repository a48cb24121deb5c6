"""When bytes leave: a lone send costs no turn of the loop, and many share one write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection, WireSender
from paired_servicebus.pairing.amqp_client.client_connection import ClientConnection
from servicebus_sandbox import Sandbox
from tests.pairing.conftest import World, until

SEND = new_key("web", [GatewayRight.SEND])


class Setting:
    """A gateway with clients of our own AMQP, and the writes of both sides of the gateway in order."""

    def __init__(self, gateway: Gateway, paired: Any) -> None:
        self.gateway = gateway
        self.writes: list[str] = []
        self.answers: list[object] = []
        self._paired = paired

    async def client(self, stack: AsyncExitStack) -> WireSender:
        sdk = ServiceBusClient.from_connection_string(self.gateway.connection_string(SEND))
        wire = ReconnectingConnection(Endpoint.of(sdk))
        stack.push_async_callback(wire.close)
        return await wire.sender("orders", on_outcome=self.answers.append, on_lost=lambda _: None)

    @property
    def line(self) -> ClientConnection:
        """The gateway's connection to the primary."""
        found = self._paired.get_encoded_sender("orders").wire._line
        assert isinstance(found, ClientConnection)
        return found

    def spy(self) -> None:
        """Note each write from now on, and each turn of the loop between."""
        for owner, name in ((self.line, "primary"), *((front, "client") for front in self.gateway.connections)):
            transport: Any = owner._transport
            owner._transport = _Spied(transport, lambda name=name: self.writes.append(name))  # type: ignore[assignment]


class _Spied:
    def __init__(self, transport: Any, note: Any) -> None:
        self._transport = transport
        self._note = note

    def write(self, data: bytes) -> None:
        self._note()
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def setting(stack: AsyncExitStack) -> Setting:
    world = World(await stack.enter_async_context(Sandbox.start()), stack)
    paired = await world.pair(send_timeout=10.0)
    gateway = Gateway(paired, KeyRing([SEND]))
    await gateway.listen(0)
    stack.push_async_callback(gateway.close, 0.1)
    return Setting(gateway, paired)


async def test_a_lone_send_leaves_in_the_read_that_brought_it_and_its_answer_likewise(
    setting: Setting, stack: AsyncExitStack
) -> None:
    letters, link = SampleMessages(100), await setting.client(stack)
    link.send(letters.next(), b"first")
    await until(lambda: setting.answers)
    setting.spy()
    (front,), loop = setting.gateway.connections, asyncio.get_running_loop()
    for reader in (front, setting.line):
        read = reader._pieces._handle

        def noted(data: bytes, read: Any = read) -> None:
            setting.writes.append("read")
            loop.call_soon(setting.writes.append, "turn")
            read(data)

        reader._pieces._handle = noted
    link.send(letters.next(), b"second")
    await until(lambda: len(setting.answers) == 2)
    assert setting.writes == ["read", "primary", "turn", "read", "client", "turn"]


async def test_sends_that_are_not_alone_share_a_write(setting: Setting, stack: AsyncExitStack) -> None:
    letters, links = SampleMessages(100), [await setting.client(stack) for _ in range(3)]
    links[0].send(letters.next(), b"first")
    await until(lambda: setting.answers)
    setting.spy()
    for number in range(50):
        for link in links:
            link.send(letters.next(), number.to_bytes(2, "big"))
    await until(lambda: len(setting.answers) == 151)
    assert setting.writes.count("primary") < 10
    assert setting.writes.count("client") < 30
    assert setting.gateway.in_hand.sends == 0


async def test_a_closed_gateway_follows_no_reads(setting: Setting, stack: AsyncExitStack) -> None:
    link = await setting.client(stack)
    link.send(SampleMessages(100).next(), b"first")
    await until(lambda: setting.answers)
    wire = setting._paired.get_encoded_sender("orders").wire
    assert len(wire.after_read) == 1
    await setting.gateway.close(0.1)
    assert wire.after_read == []

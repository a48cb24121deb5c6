"""Before its first good token a connection gets what it needs for one, and can hold no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.amqp.plain_client import WRONG, init, plain_client, response

from servicebus_amqp.encoding.codec import UInt, encode
from servicebus_amqp.encoding.frames import AMQP_HEADER, build_frame
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Accepted,
    Open,
    Source,
    Target,
    Transfer,
    write_performative,
)
from servicebus_amqp.protocol import links as e
from servicebus_amqp.protocol.connection import MAX_OPEN_FRAME_BYTES
from servicebus_amqp.protocol.links import Closed
from servicebus_sandbox import NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server import namespace_server
from servicebus_sandbox.broker.entity_settings import ALL_RIGHTS, AuthorizationRule, QueueSettings, Right
from servicebus_sandbox.sandbox_host import SandboxNamespace

ADVICE = "came without a good token; put one on $cbs first"


async def turned_out(peer) -> str:
    """What the namespace said when it closed the connection."""
    error = (await peer.next(Closed)).error
    await peer.lost()
    return f"{error.condition}: {error.description}"


def ask_for_tokens(peer, name: str):
    return peer.session.attach_sender(name, Source(address="here"), Target(address="$cbs"))


def begin_message(peer, link) -> None:
    """The first frame of a message whose other frames never come."""
    head = Transfer(handle=link.handle, delivery_id=UInt(link.handle), delivery_tag=b"t", more=True)
    peer.transport.write(build_frame(peer.session.channel, write_performative(head) + b"x" * 30_000))


async def test_unfinished_messages_are_bounded_together(connect):
    """The bug: one connection without any token held 133 MB of messages that never ended."""
    peer = await connect()
    links = [ask_for_tokens(peer, f"{number}") for number in range(20)]
    peer.flush()
    await peer.attached(links[0])
    for link in links:
        begin_message(peer, link)
    assert (
        await turned_out(peer) == f"amqp:resource-limit-exceeded: more than {namespace_server.MAX_BYTES} bytes {ADVICE}"
    )


async def test_links_are_few(connect):
    peer = await connect()
    for number in range(namespace_server.MAX_UNPROVEN_LINKS + 1):
        ask_for_tokens(peer, f"{number}")
    peer.flush()
    assert (
        await turned_out(peer)
        == f"amqp:resource-limit-exceeded: more than {namespace_server.MAX_UNPROVEN_LINKS} links {ADVICE}"
    )


async def test_sessions_are_few(connect):
    peer = await connect()
    for _ in range(namespace_server.MAX_SESSIONS):
        peer.amqp.begin()
    peer.flush()
    said = await turned_out(peer)
    assert said == f"amqp:resource-limit-exceeded: more than {namespace_server.MAX_SESSIONS} sessions {ADVICE}"


async def test_an_open_is_short(port):
    """AMQP promises that 512 bytes are taken before the open; 65,536 were, and took half a second to read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    long = Open(container_id="x" * MAX_OPEN_FRAME_BYTES, hostname="h")
    writer.write(AMQP_HEADER + build_frame(0, write_performative(long)))
    assert f"the most taken is {MAX_OPEN_FRAME_BYTES}".encode() in await reader.read()
    writer.close()


async def test_a_connection_without_a_token_ends(port, connect, monkeypatch):
    monkeypatch.setattr("servicebus_sandbox.amqp_server.namespace_server.TOKEN_SECONDS", 0.05)
    peer = await connect()
    ask_for_tokens(peer, "idle")
    peer.flush()
    assert (await turned_out(peer)).startswith("amqp:connection:forced: no good token came within ")
    assert not port.node.connections
    assert not len(port.node.admission)


async def test_an_open_that_trickles_ends(port, monkeypatch):
    monkeypatch.setattr("servicebus_sandbox.amqp_server.namespace_server.OPENING_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    writer.write(AMQP_HEADER + b"\x00\x00\x10\x00\x02\x00\x00\x00")
    ended = asyncio.ensure_future(reader.read())
    while not ended.done():
        writer.write(b"x")
        await asyncio.sleep(0.02)
    assert isinstance(ended.exception(), ConnectionResetError)
    assert not port.node.connections
    writer.close()


async def test_a_good_token_ends_all_of_it(port, connect, monkeypatch):
    """SDKs open links, put tokens, and then idle for hours."""
    monkeypatch.setattr("servicebus_sandbox.amqp_server.namespace_server.TOKEN_SECONDS", 0.3)
    peer = await connect()
    await peer.authorize("orders")
    assert not len(port.node.admission)
    await asyncio.sleep(0.4)
    sender = await peer.attached(peer.sender("orders"))
    for _ in range(10):
        assert isinstance(await peer.outcome(sender, BIG), Accepted)
    assert not peer.is_lost


BIG = b"\x00\x53\x75" + encode(b"x" * 60_000)


@pytest.mark.parametrize("count", [1, 7])
async def test_the_longest_unproven_connection_gives_way(port, connect, monkeypatch, count):
    monkeypatch.setattr("servicebus_amqp.server.admission.MAX_STRANGERS", 5)
    proven = await connect()
    await proven.authorize("orders")
    silent = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(5 + count)]
    for reader, _ in silent[:count]:
        with pytest.raises(ConnectionError):
            await reader.read()
    late = await connect()
    await late.authorize("orders")
    assert len(port.node.admission) == 4
    assert not proven.is_lost
    for _, writer in silent:
        writer.transport.abort()


# SASL PLAIN at the sandbox, by the bytes of clients that put no token.


WEB = AuthorizationRule(name="web", rights=frozenset({Right.SEND}), primary_key="right", secondary_key="second")
ENTITY = AuthorizationRule(name="one", rights=ALL_RIGHTS, primary_key="own", secondary_key="own")


@pytest.fixture
async def namespace() -> AsyncIterator[SandboxNamespace]:
    queues = [QueueSpec("orders", QueueSettings(authorization_rules=(ENTITY,))), QueueSpec("billing")]
    async with Sandbox.start([NamespaceSpec("shop", queues, rules=(WEB,))]) as running:
        yield running["shop"]


@pytest.mark.parametrize("key", ["right", "second"])
async def test_either_key_of_a_rule_opens_what_its_rights_allow(namespace: SandboxNamespace, key: str) -> None:
    async with plain_client(namespace.amqp_port, init(response("web", key))) as client:
        assert client.offered is not None
        assert "PLAIN" in client.offered.sasl_server_mechanisms
        assert client.outcome is not None
        assert (client.outcome.code, client.outcome.additional_data) == (0, b"Welcome!")
        client.open()
        assert await client.send("orders") == ACCEPTED
        refused = await client.attach_receiver("orders")
        assert isinstance(refused, e.Detached)
        assert refused.error is not None
        assert refused.error.condition == "amqp:unauthorized-access"


async def test_the_key_of_an_entity_opens_that_entity_alone(namespace: SandboxNamespace) -> None:
    async with plain_client(namespace.amqp_port, init(response("one", "own"))) as client:
        client.open()
        assert await client.send("orders") == ACCEPTED
        assert isinstance(await client.attach_receiver("orders"), e.Attached)
        refused = await client.attach_receiver("billing")
        assert isinstance(refused, e.Detached)


@pytest.mark.parametrize("sent", [each for _, each in WRONG], ids=[name for name, _ in WRONG])
async def test_what_is_no_key_is_refused(namespace: SandboxNamespace, sent: bytes | None) -> None:
    async with plain_client(namespace.amqp_port, init(sent)) as client:
        assert client.outcome is not None
        assert client.outcome.code == 1
        assert await client.is_closed()


async def test_a_password_of_64_kb_ends_its_connection_alone(namespace: SandboxNamespace) -> None:
    async with plain_client(namespace.amqp_port, init(response("web", "x" * 65536))) as client:
        assert client.outcome is None
        assert await client.is_closed()
    async with plain_client(namespace.amqp_port, init(response("web", "right"))) as client:
        client.open()
        assert await client.send("orders") == ACCEPTED

"""Microsoft's .NET client at the gateway, by its frames: GATEWAY.md section 1, "SASL offered: `MSSBCBS` only".

Its frames are those of tests.sandbox.amqp_server.dotnet, taken from its source. Its connection string names a port: the
audiences of its tokens have it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, KeyRing, LocalKey, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from servicebus_amqp.encoding.amqp_types import Array, Symbol, Timestamp, UInt, ULong
from servicebus_amqp.encoding.codec import described, encode
from servicebus_sandbox import Sandbox
from tests.pairing.backlogs import queue_path
from tests.pairing.conftest import World
from tests.sandbox.amqp_server.dotnet import BATCH_FORMAT, DotNet, Link, Refused
from tests.sandbox.amqp_server.dotnet_values import Raw, batch, composite, message, source_of

KEY = new_key("web", [GatewayRight.SEND])
BACKLOG = queue_path(0)
ACCEPTED, REJECTED = 0x24, 0x25
LATER = Timestamp(4_000_000_000_000)


class Place:
    """A gateway over two sandboxed namespaces, and clients of it."""

    def __init__(self, world: World, paired: Any, gateway: Gateway, key: LocalKey) -> None:
        self.key = key
        self.world = world
        self.paired = paired
        self.gateway = gateway

    async def connect(self, key: str = "") -> DotNet:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        self.world.stack.callback(writer.close)
        return await DotNet(
            reader, writer, f"127.0.0.1:{self.gateway.port}", (self.key.name, key or self.key.key)
        ).open()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        paired = await world.pair(
            backlog_queue_count=1, send_timeout=1.0, failover_interval=0.5, hold_until_failover=True
        )
        gateway = Gateway(paired, KeyRing([KEY]))
        await gateway.listen(0)
        stack.push_async_callback(gateway.close, 0.1)
        yield Place(world, paired, gateway, KEY)


def code(outcome: Any) -> int:
    return int(outcome.descriptor)


def condition(outcome: Any) -> tuple[str, str]:
    """The condition and the description of a rejected message."""
    assert code(outcome) == REJECTED
    error = outcome.value[0].value
    return str(error[0]), str(error[1])


def with_property(name: str) -> bytes:
    properties = composite(0x73, "reserved", *[None] * 12)
    return properties + described(0x74, encode({name: "x"})) + described(0x75, encode(b"x"))


def asked(operation: str, link: Link) -> dict[str, Any]:
    """sdk: Amqp/AmqpRequestMessage.cs, CreateRequest."""
    named = {"operation": f"com.microsoft:{operation}", "associated-link-name": link.name}
    return named | {"com.microsoft:server-timeout": UInt(60_000), "com.microsoft:tracking-id": "t"}


async def test_it_sends_messages_and_batches_and_closes(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    assert link.attach[10] == 262_144, "the client itself refuses what is larger"
    assert link.attach[13][Symbol("com.microsoft:max-message-batch-size")] == ULong(262_144)
    assert code(await client.send(link, message(b"one", message_id="one"))) == ACCEPTED
    two = batch([message(b"x", message_id=name) for name in ("two", "three")])
    assert code(await client.send(link, two, kind=BATCH_FORMAT)) == ACCEPTED
    assert place.world.ids_in("orders") == ["one", "two", "three"]
    link.session.close()
    await client.until(lambda: link.session.is_ended, "the end of the session")
    await client.close()


async def test_an_outage_is_slowness_on_the_same_connection_and_link(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    assert code(await client.send(link, message(b"x", message_id="before"))) == ACCEPTED
    heal = place.world.fault("reset")
    assert code(await client.send(link, message(b"x", message_id="held"))) == ACCEPTED
    parked = batch([message(b"x", message_id=name) for name in ("a", "b")])
    assert code(await client.send(link, parked, kind=BATCH_FORMAT)) == ACCEPTED
    late = await client.sender("orders")
    assert code(await client.send(late, message(b"x", message_id="of a new link"))) == ACCEPTED
    heal()
    assert not link.is_detached
    assert len(place.gateway.connections) == 1
    assert place.world.ids_in(BACKLOG, namespace="secondary") == ["held", "a", "b", "of a new link"]


async def test_it_schedules_and_cancels_also_while_failed_over(place: Place) -> None:
    client = await place.connect()
    link, manage = await client.sender("orders"), await client.management("orders")
    entry = {"message": message(b"x", {Symbol("x-opt-scheduled-enqueue-time"): LATER}), "message-id": None}
    answer, given = await manage.ask(asked("schedule-message", link), {"messages": [entry]})
    assert answer["statusCode"] == 200
    assert isinstance(given["sequence-numbers"], Array), "it is cast to long[]"
    assert place.world.depth("orders") == 0
    assert len(place.world.ids_in("orders")) == 1
    answer, _ = await manage.ask(asked("cancel-scheduled-message", link), given)
    assert (answer["statusCode"], place.world.ids_in("orders")) == (200, [])
    answer, _ = await manage.ask(asked("cancel-scheduled-message", link), given)
    assert answer["statusCode"] == 404, "the namespace's own answer; 408 would be tried again"
    place.paired.force("orders", by="kim")
    answer, given = await manage.ask(asked("schedule-message", link), {"messages": [entry]})
    assert (answer["statusCode"], given["sequence-numbers"].values[0] < 0) == (200, True)
    answer, _ = await manage.ask(asked("cancel-scheduled-message", link), given)
    assert answer["statusCode"] == 400


async def test_what_no_namespace_may_get_is_rejected_and_the_link_lives(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    said, text = condition(await client.send(link, with_property(PATH)))
    assert (said, PATH in text) == ("com.microsoft:argument-error", True)
    assert code(await client.send(link, message(b"x", message_id="good"))) == ACCEPTED
    assert place.world.ids_in("orders") == ["good"]


async def test_a_message_without_an_id_gets_one(place: Place) -> None:
    client = await place.connect()
    link = await client.sender("orders")
    await client.send(link, batch([message(b"1"), message(b"2")]), kind=BATCH_FORMAT)
    names = place.world.ids_in("orders")
    assert len(set(names) - {"None"}) == 2


async def test_transactions_are_refused_at_once_with_the_way_out(place: Place) -> None:
    """GATEWAY.md section 4: "coordinator link: null target, detach `amqp:not-implemented`, ... names ReceiveOnly"."""
    client = await place.connect()
    session = await client.begin()
    link = session.attach(
        "sb://x;1:2:3", False, modes=(None, None), source=source_of(None),
        target=Raw(composite(0x30, None)), properties=None, count=UInt(0),
    )  # fmt: skip
    with pytest.raises(Refused, match="ReceiveOnly") as refused:
        await client.opened(link)
    assert refused.value.condition == "amqp:not-implemented"
    assert code(await client.send(await client.sender("orders"), message(b"x"))) == ACCEPTED


async def test_an_unknown_entity_and_a_wrong_key_are_refused_in_its_terms(place: Place) -> None:
    client = await place.connect()
    words = "^The messaging entity 'nowhere' could not be found"  # by which JavaScript and Java know the error
    with pytest.raises(Refused, match=words) as refused:
        await client.sender("nowhere")
    assert refused.value.condition == "amqp:not-found"
    stranger = await place.connect("d3Jvbmc=")
    answer = await stranger.put_token(f"amqp://127.0.0.1:{place.gateway.port}/orders")
    assert (answer["status-code"], "signature" in answer["status-description"]) == (401, True)

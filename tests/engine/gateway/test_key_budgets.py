"""GATEWAY.md section 4: per key connections, links, bytes in hand (unfinished transfers counted from the first frame),
sends a second. What exceeds is slowed or refused with a sentence, alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from paired_servicebus.engine.gateway.gateway_keys import GatewayRight, new_key
from paired_servicebus.engine.gateway.gateway_listener import Gateway
from servicebus_amqp.encoding.performatives import ACCEPTED, Transfer, write_performative
from servicebus_amqp.nodes.request_ends import AmqpRefusal
from servicebus_amqp.server import server_connection
from servicebus_amqp.server.server_connection import KeyLimits, UnfinishedMessages
from tests.engine.gateway.rough_clients import SEND, Refused, RoughClient, client_of, gateway_of, message

OTHER = new_key("other", [GatewayRight.SEND])
LARGE = message(bytes(200_000))


def limited(**limits: Any) -> Any:
    return new_key("small", [GatewayRight.SEND], (), KeyLimits(**limits))


@asynccontextmanager
async def proven(gateway: Gateway, key: Any) -> AsyncIterator[RoughClient]:
    async with client_of(gateway) as client:
        await client.prove(gateway, key)
        yield client


def begin_message(link: Any, size: int, delivery_id: int) -> None:
    """Send frames of a message that does not end."""
    tag = delivery_id.to_bytes(4, "big")
    first = Transfer(handle=link.handle, delivery_id=delivery_id, delivery_tag=tag, message_format=0, more=True)
    following = Transfer(handle=link.handle, more=True)
    for at in range(0, size, 60_000):
        head = write_performative(following if at else first)
        link.session.connection.write_body(link.session.channel, head + bytes(min(60_000, size - at)))


async def test_a_key_has_no_more_connections_than_it_may() -> None:
    key = limited(connections=2)
    async with gateway_of(None, key, OTHER) as gateway:
        async with proven(gateway, key), proven(gateway, key):
            async with client_of(gateway) as third:
                with pytest.raises(ConnectionError):
                    await third.prove(gateway, key)
                error = await third.until_lost()
                assert error is not None
                assert error.condition == "amqp:resource-limit-exceeded"
                assert "the key 'small' has 2 connections" in str(error.description)
            async with proven(gateway, OTHER) as other:
                assert await other.send(await other.attach("orders")) == ACCEPTED
        async with proven(gateway, key) as again:
            assert await again.send(await again.attach("orders")) == ACCEPTED


async def test_a_key_has_no_more_links_than_it_may_over_all_its_connections() -> None:
    key = limited(links=5)
    async with gateway_of(None, key) as gateway, proven(gateway, key) as first, proven(gateway, key) as second:
        await second.attach("orders")  # two for tokens each, and this one
        with pytest.raises(Refused, match="the key 'small' has 5 links"):
            await first.attach("orders")


async def test_a_keys_sends_wait_for_its_pace_and_those_of_others_do_not() -> None:
    key = limited(sends_per_second=20)
    async with gateway_of(None, key, OTHER) as gateway, proven(gateway, key) as slow, proven(gateway, OTHER) as fast:
        link, other = await slow.attach("orders"), await fast.attach("orders")
        began = time.monotonic()
        sending = asyncio.create_task(send_many(slow, link, 50))
        await send_many(fast, other, 50)
        assert not sending.done()
        await sending
        assert time.monotonic() - began > 1.2, "20 at once, then 20 a second"


async def send_many(client: RoughClient, link: Any, count: int) -> None:
    for _ in range(count):
        assert await client.send(link) == ACCEPTED


async def test_a_connection_whose_messages_never_end_is_closed_with_a_sentence() -> None:
    key = limited(bytes_in_hand=1_000_000)
    async with gateway_of(None, key, OTHER) as gateway, proven(gateway, key) as rough, proven(gateway, OTHER) as good:
        links = [await rough.attach("orders") for _ in range(10)]
        for number, link in enumerate(links):
            begin_message(link, 200_000, number)
        rough.flush()
        error = await rough.until_lost()
        assert error is not None
        assert error.condition == "amqp:resource-limit-exceeded"
        assert "messages that are not complete hold" in str(error.description)
        assert await good.send(await good.attach("orders"), LARGE) == ACCEPTED
        budget = gateway.budgets.budget_of(key.name, key.limits)
        assert budget.unfinished.size == 0


async def test_empty_frames_count_too() -> None:
    """A message of a million frames without content is a million objects."""
    key = limited(bytes_in_hand=300_000)
    async with gateway_of(None, key) as gateway, proven(gateway, key) as rough:
        link = await rough.attach("orders")
        begin_message(link, 60_000, 0)
        one = write_performative(Transfer(handle=link.handle, more=True)) + b"x"
        for _ in range(10_000):
            rough.amqp.write_body(rough.session.channel, one)
        rough.flush()
        error = await rough.until_lost()
        assert error is not None
        assert error.condition in ("amqp:resource-limit-exceeded", "amqp:session:window-violation")


async def test_many_clients_that_send_large_messages_together_all_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit they are read one after the other, and none is refused."""
    key = limited(bytes_in_hand=500_000)
    async with gateway_of(None, key) as gateway:
        clients = [client_of(gateway) for _ in range(12)]
        found = [await one.__aenter__() for one in clients]
        try:
            for client in found:
                await client.prove(gateway, key)
            links = [await client.attach("orders") for client in found]
            outcomes = await asyncio.gather(
                *(client.send(link, LARGE) for client, link in zip(found, links, strict=True))
            )
            assert outcomes == [ACCEPTED] * 12
        finally:
            for one in clients:
                await one.__aexit__(None, None, None)


async def test_bytes_are_free_again_when_a_link_or_its_connection_ends() -> None:
    async with gateway_of() as gateway, proven(gateway, SEND) as client:
        (connection,) = gateway.connections
        links = [await client.attach("orders") for _ in range(3)]
        for number, link in enumerate(links):
            begin_message(link, 100_000, number)
        client.flush()
        budget = connection.budget
        await until(lambda: budget.unfinished.size > 300_000)
        links[0].detach()
        client.flush()
        await until(lambda: budget.unfinished.size < 210_000)
        client.transport.abort()
        await until(lambda: budget.unfinished.size == 0)


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


# -- whose turn it is --------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Reader:
    calls: list[str] = field(default_factory=list)

    def pause(self, reason: str) -> None:
        self.calls.append("pause")

    def resume(self, reason: str) -> None:
        self.calls.append("resume")

    def end_beyond(self, refusal: AmqpRefusal) -> None:
        self.calls.append("end")


async def test_beyond_the_limit_one_is_read_until_it_holds_nothing() -> None:
    unfinished = UnfinishedMessages(100)
    first, second, third = Reader(), Reader(), Reader()
    unfinished.count(first, 60, 100)
    unfinished.count(second, 60, 100)  # beyond: the one that is read now goes on
    unfinished.count(first, 70, 100)
    unfinished.count(third, 30, 100)
    assert (first.calls, second.calls, third.calls) == (["pause"], [], ["pause"])
    unfinished.count(second, 0, 100)
    assert first.calls == ["pause", "resume"]
    assert third.calls == ["pause", "resume"], "there is room again"


async def test_one_that_does_not_complete_in_its_time_is_ended_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "UNFINISHED_SECONDS", 0.01)
    unfinished = UnfinishedMessages(100)
    stuck, waiting = Reader(), Reader()
    unfinished.count(stuck, 90, 100)
    unfinished.count(stuck, 95, 100)
    unfinished.count(waiting, 90, 100)
    unfinished.count(stuck, 96, 100)
    await until(lambda: "end" in waiting.calls + stuck.calls)
    ended = stuck if "end" in stuck.calls else waiting
    unfinished.forget(ended)
    left = waiting if ended is stuck else stuck
    assert left.calls.count("pause") == left.calls.count("resume")
    assert unfinished.size in (90, 96)

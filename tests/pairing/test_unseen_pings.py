"""Pings are seen by no receiver of the pairing, where a namespace delivers them (SPEC.md section 8)."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage

from paired_servicebus.core.model.envelope import PING_CONTENT_TYPE, PING_SESSION_PREFIX
from paired_servicebus.pairing.sending import sdk_messages

from .conftest import World


@pytest.fixture
def world(world: World) -> World:
    """A namespace that delivers pings like any message."""
    for path in ("orders", "payments"):
        world.sandbox["primary"].node.namespace.send_target(path).intake._drops_pings = False
    return world


def ping(number: int) -> ServiceBusMessage:
    """A ping that lives for as long as a test."""
    session = f"{PING_SESSION_PREFIX}{number}"
    return ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE, session_id=session, message_id=session)


async def send(world: World, path: str, *messages: ServiceBusMessage) -> None:
    async with world.client("primary") as client, client.get_queue_sender(path) as sender:
        for message in messages:
            await sender.send_messages(message)


def test_a_pings_session_has_the_reserved_prefix() -> None:
    """Their session ids carry a reserved prefix, so that others can tell them too."""
    assert sdk_messages.is_pings_session(sdk_messages.ping().session_id)
    assert not sdk_messages.is_pings_session("amsterdam")


async def test_pings_are_neither_received_nor_peeked(world: World) -> None:
    """Pings are seen by no receiver of the pairing: neither received, peeked …"""
    paired = await world.pair()
    await send(world, "orders", *map(ping, range(3)), ServiceBusMessage("x"), ping(4))
    async with paired.get_queue_receiver("orders") as receiver, asyncio.timeout(60):
        assert [str(message) for message in await receiver.peek_messages(2)] == ["x"]
        (message,) = await receiver.receive_messages(1, max_wait_time=30)
        assert str(message) == "x"
        await receiver.complete_message(message)
        assert await receiver.receive_messages(5, max_wait_time=1) == []


async def test_an_iteration_ends_despite_pings(world: World) -> None:
    """… and an iteration with `max_wait_time` ends despite them."""
    paired = await world.pair()
    await send(world, "orders", ServiceBusMessage("x"))
    numbers = iter(range(10_000))

    async def keep_pinging() -> None:
        while True:
            await send(world, "orders", ping(next(numbers)))
            await asyncio.sleep(0.2)

    pinging = asyncio.create_task(keep_pinging())
    try:
        async with paired.get_queue_receiver("orders", max_wait_time=2) as receiver, asyncio.timeout(60):
            found = []
            async for message in receiver:
                found.append(str(message))
                await receiver.complete_message(message)
        assert found == ["x"]
    finally:
        pinging.cancel()


async def test_a_pings_session_is_neither_listed_nor_handed_out(world: World) -> None:
    """… listed as sessions, nor handed out as the next session."""
    paired = await world.pair()
    await send(world, "payments", *map(ping, range(3)), ServiceBusMessage("x", session_id="amsterdam"))
    assert [session async for session in paired.list_queue_sessions("payments")] == ["amsterdam"]
    async with (
        asyncio.timeout(60),
        paired.get_queue_receiver("payments", session_id=NEXT_AVAILABLE_SESSION) as receiver,
    ):
        assert receiver.session.session_id == "amsterdam"
        (message,) = await receiver.receive_messages(1, max_wait_time=30)
        assert str(message) == "x"

"""Requests to `$management`, against the sandbox and against a peer that answers nonsense."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID, uuid4

import pytest

from paired_servicebus.core.errors import WireError, WireRequestError
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver, reconnecting
from paired_servicebus.pairing.amqp_client.reconnecting import DeferredState
from servicebus_amqp import Modified
from servicebus_amqp.encoding.message_sections import read_map, split
from tests.pairing.wire.conftest import Told, World, id_of, message, until
from tests.pairing.wire.peer import listening, reply_to


def number_of(payload: bytes) -> int:
    return int(read_map(split(payload).message_annotations)["x-opt-sequence-number"])


async def locked(wire: ReconnectingConnection, count: int) -> tuple[WireReceiver, Told]:
    """So many messages, sent and received."""
    told = Told()
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    for number in range(count):
        sender.send(message(number), number.to_bytes(8, "big"))
    receiver.grant(count)
    await until(lambda: len(told.deliveries) == count)
    return receiver, told


async def deferred(wire: ReconnectingConnection, count: int) -> list[int]:
    """The sequence numbers of so many messages that were set aside."""
    receiver, told = await locked(wire, count)
    for event in told.deliveries:
        receiver.settle(event.delivery_id, Modified(undeliverable_here=True), settled=False)
    await until(lambda: len(told.settled) == count)
    return [number_of(event.payload) for event in told.deliveries]


def tokens(found: list[DeferredState]) -> list[UUID]:
    return [one.lock_token for one in found]


async def test_deferred_messages_are_received_by_number_and_settled_by_lock_token(world: World) -> None:
    wire = world.wire()
    numbers = await deferred(wire, 30)
    found = await reconnecting.receive_deferred(wire, "orders", numbers)
    assert [number_of(one.payload) for one in found] == numbers
    await reconnecting.update_disposition(wire, "orders", tokens(found), "completed")
    assert await reconnecting.peek(wire, "orders", from_number=1, count=100) == []


async def test_one_number_that_is_missing_fails_all(world: World) -> None:
    wire = world.wire()
    numbers = await deferred(wire, 2)
    with pytest.raises(WireRequestError) as raised:
        await reconnecting.receive_deferred(wire, "orders", [*numbers, 999])
    assert raised.value.condition == "com.microsoft:message-not-found"
    assert kind_of(raised.value) is FailureKind.UNLISTED


async def test_a_dead_letter_carries_its_reason(world: World) -> None:
    wire = world.wire()
    found = await reconnecting.receive_deferred(wire, "orders", await deferred(wire, 1))
    await reconnecting.update_disposition(
        wire, "orders", tokens(found), "suspended", reason="Undeliverable", description="no such queue"
    )
    (dead,) = await reconnecting.peek(wire, "orders/$DeadLetterQueue", from_number=1, count=10)
    said = read_map(split(dead).application_properties)
    assert (said["DeadLetterReason"], said["DeadLetterErrorDescription"]) == ("Undeliverable", "no such queue")


async def test_a_deferred_message_that_is_abandoned_can_be_received_again(world: World) -> None:
    wire = world.wire()
    numbers = await deferred(wire, 1)
    found = await reconnecting.receive_deferred(wire, "orders", numbers)
    await reconnecting.update_disposition(wire, "orders", tokens(found), "abandoned")
    assert len(await reconnecting.receive_deferred(wire, "orders", numbers)) == 1


async def test_a_lock_that_is_lost_says_so(world: World) -> None:
    with pytest.raises(WireRequestError) as raised:
        await reconnecting.update_disposition(world.wire(), "orders", [uuid4()], "completed")
    assert raised.value.condition == "com.microsoft:message-lock-lost"


async def test_locks_are_renewed_by_token(world: World) -> None:
    wire = world.wire()
    _, told = await locked(wire, 3)
    held = [UUID(bytes_le=event.tag) for event in told.deliveries]
    until_when = await reconnecting.renew_locks(wire, "orders", held)
    assert len(until_when) == 3
    assert all(1000 * time.time() < when < 1000 * (time.time() + 120) for when in until_when)


async def test_peek_goes_on_from_a_number(world: World) -> None:
    wire = world.wire()
    await locked(wire, 5)
    first = await reconnecting.peek(wire, "orders", from_number=1, count=3)
    rest = await reconnecting.peek(wire, "orders", from_number=number_of(first[-1]) + 1, count=100)
    assert [id_of(payload) for payload in first + rest] == ["0", "1", "2", "3", "4"]


async def test_many_requests_at_once_find_their_answers(world: World) -> None:
    wire = world.wire()
    numbers = await deferred(wire, 40)
    found = await asyncio.gather(*(reconnecting.receive_deferred(wire, "orders", [number]) for number in numbers))
    assert [number_of(one.payload) for (one,) in found] == numbers
    assert wire.connections == 1


@pytest.mark.parametrize(
    "body", [{"messages": 5}, {"other": []}, ["a"], {"messages": ["a"]}, {"messages": [{"message": 5}]}]
)
async def test_an_answer_that_is_no_answer_is_an_error(body: Any) -> None:
    async with listening() as script:
        script.on_request = lambda _, request: reply_to(request, 200, body)
        wire = ReconnectingConnection(script.endpoint)
        with pytest.raises(WireError, match="orders answered"):
            await reconnecting.peek(wire, "orders", from_number=1, count=1)
        await wire.close()


async def test_an_answer_that_cannot_be_read_fails_what_was_asked_and_the_next_request_is_answered() -> None:
    async with listening() as script:
        nonsense = iter([b"\x00\x53\x7f\x40"])
        script.on_request = lambda path, request: (
            reply_to(request) if path == "$cbs" else next(nonsense, reply_to(request))
        )
        wire = ReconnectingConnection(script.endpoint)
        with pytest.raises(WireError, match="unreadable reply"):
            await wire.request("orders", "contoso:ask", {})
        assert (await wire.request("orders", "contoso:ask", {})).status == 200
        await wire.close()


async def test_a_request_says_its_type_its_time_and_the_link_it_concerns() -> None:
    async with listening() as script:
        wire = ReconnectingConnection(script.endpoint)
        await wire.request("orders", "contoso:ask", {"a": 1}, timeout=5.0, link_name="the link")
        said = read_map(split(script.peer.requests[-1]).application_properties)
        assert said == {
            "operation": "contoso:ask",
            "type": "entity-mgmt",
            "com.microsoft:server-timeout": 5000,
            "associated-link-name": "the link",
        }
        await wire.close()

"""Sending and receiving on links of our own."""

from __future__ import annotations

from console.amqp import ACCEPTED
from tests.pairing.wire.conftest import Told, World, message, until


async def test_messages_that_are_sent_are_accepted_received_and_completed(world: World, told: Told) -> None:
    wire = world.wire()
    sender = await told.sender(wire)
    for number in range(50):
        sender.send(message(number), number.to_bytes(8, "big"))
    await until(lambda: len(told.outcomes) == 50)
    assert {int.from_bytes(event.tag, "big") for event in told.outcomes} == set(range(50))
    assert all(event.state is ACCEPTED and event.settled for event in told.outcomes)
    receiver = await told.receiver(wire)
    receiver.grant(100)
    await until(lambda: len(told.deliveries) == 50)
    first = told.deliveries[0].delivery_id
    receiver.settle(range(first, first + 50), ACCEPTED, settled=False)
    await until(lambda: len(told.settled) == 50)
    assert world.depth("orders") == 0
    assert wire.connections == 1
    assert not told.lost

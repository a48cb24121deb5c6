"""Sending and receiving on links of our own."""

from __future__ import annotations

from servicebus_amqp import ACCEPTED, RELEASED, Error, Modified, Rejected
from servicebus_amqp.protocol.protocol_events import DeliveryReceived
from servicebus_sandbox.amqp_server.message_codec import read_message
from tests.pairing.wire.conftest import Told, World, id_of, message, until


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


async def test_a_rejected_message_is_received_from_the_dead_letter_queue(world: World, told: Told) -> None:
    wire, dead = world.wire(), Told()
    (await told.sender(wire)).send(message(), b"1")
    receiver = await told.receiver(wire)
    receiver.grant(1)
    await until(lambda: told.deliveries)
    reason = {"DeadLetterReason": "Undeliverable", "DeadLetterErrorDescription": "no such queue"}
    error = Error(condition="com.microsoft:dead-letter", info=reason)
    receiver.settle(told.deliveries[0].delivery_id, Rejected(error=error), settled=False)
    (await dead.receiver(wire, "orders/$DeadLetterQueue")).grant(1)
    await until(lambda: dead.deliveries)
    assert b"no such queue" in dead.deliveries[0].payload


async def test_a_topic_is_sent_to_and_its_subscription_received_from(world: World, told: Told) -> None:
    wire = world.wire()
    (await told.sender(wire, "news")).send(message(7), b"1")
    (await told.receiver(wire, "news/Subscriptions/all")).grant(1)
    await until(lambda: told.deliveries and told.outcomes)
    assert told.outcomes[0].state is ACCEPTED
    assert id_of(told.deliveries[0].payload) == "7"


async def test_a_settlement_whose_lock_is_lost_is_told_apart(world: World, told: Told) -> None:
    wire = world.wire()
    (await told.sender(wire)).send(message(), b"1")
    receiver = await told.receiver(wire)
    receiver.grant(1)
    await until(lambda: told.deliveries)
    world.jump(120)
    receiver.settle(told.deliveries[0].delivery_id, ACCEPTED, settled=False)
    await until(lambda: told.settled)
    state = told.settled[0].state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:message-lock-lost"


async def test_messages_are_set_aside_and_given_back_as_ranges(world: World, told: Told) -> None:
    wire = world.wire()
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    for number in range(20):
        sender.send(message(number), number.to_bytes(8, "big"))
    receiver.grant(20)
    await until(lambda: len(told.deliveries) == 20)
    first = told.deliveries[0].delivery_id
    receiver.settle(range(first, first + 10), Modified(undeliverable_here=True), settled=False)
    receiver.settle(range(first + 10, first + 20), Modified(delivery_failed=True), settled=False)
    await until(lambda: len(told.settled) == 20)
    receiver.grant(20)
    await until(lambda: len(told.deliveries) == 30)
    assert {event.tag for event in told.deliveries[20:]}.isdisjoint(event.tag for event in told.deliveries[:20])
    assert [id_of(event.payload) for event in told.deliveries[20:]] == [str(number) for number in range(10, 20)]


async def test_no_credit_brings_no_message(world: World, told: Told) -> None:
    wire = world.wire()
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    receiver.grant(2)
    for number in range(5):
        sender.send(message(number), number.to_bytes(8, "big"))
    await until(lambda: len(told.outcomes) == 5 and len(told.deliveries) == 2)
    assert receiver.credit == 0
    receiver.grant(3)
    await until(lambda: len(told.deliveries) == 5)


async def test_a_link_that_its_owner_detached_tells_nothing(world: World, told: Told) -> None:
    wire = world.wire()
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    await sender.detach()
    await receiver.detach()
    assert not sender.is_up
    assert not receiver.is_up
    assert told.lost == []
    assert wire.is_up


async def test_a_message_under_way_to_a_link_that_detaches_is_released_and_not_locked(world: World, told: Told) -> None:
    """Section 8: a paused pump gives back what it has; without a drain the lock outlives the link by a minute."""
    wire, queue = world.wire(), world.node.namespace.message_queue("orders")

    def release(event: DeliveryReceived) -> None:
        leaving.settle(event.delivery_id, RELEASED)

    leaving = await wire.receiver("orders", on_delivery=release, on_lost=told.lost.append)
    leaving.grant(5)
    await until(lambda: queue._lane.consumers)
    world.node.namespace.send_target("orders").intake.send([read_message(message(number)) for number in range(5)])
    world.node.wake()
    await leaving.detach()
    receiver = await told.receiver(wire)
    receiver.grant(5)
    await until(lambda: sorted(id_of(event.payload) for event in told.deliveries) == list("01234"))


async def test_a_handler_that_fails_loses_its_own_link_and_no_other(world: World, told: Told) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    wire, other = world.wire(), Told()
    healthy = await other.receiver(wire, "audit")

    def fail(_: object) -> None:
        raise ValueError("unreadable")

    failing = await wire.receiver("orders", on_delivery=fail, on_lost=told.lost.append, on_settled=told.settled.append)
    failing.grant(1)
    (await told.sender(wire)).send(message(1), b"1")
    await until(lambda: told.lost)
    assert "handler of a message from orders failed: ValueError" in str(told.lost[0])
    healthy.grant(1)
    (await told.sender(wire, "audit")).send(message(2), b"2")
    await until(lambda: other.deliveries)
    assert healthy.is_up
    assert wire.connections == 1

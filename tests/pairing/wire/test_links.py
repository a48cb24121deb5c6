"""Sending and receiving on links of our own."""

from __future__ import annotations

import asyncio

import pytest

from paired_servicebus.core.errors import WireLinkError
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields
from servicebus_amqp import ACCEPTED, RELEASED, Error, Modified, Rejected, Source
from servicebus_amqp.encoding.amqp_types import Symbol
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived, FlowReceived
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import QueueSettings
from tests.pairing.wire.conftest import Told, World, id_of, message, until

OF_SESSION = AttachFields(source=Source(address="orders", filter={Symbol("com.microsoft:session-filter"): "s"}))
"""Of a queue without sessions."""


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


async def test_the_attach_of_another_client_is_passed_on_and_its_answer_kept(world: World, told: Told) -> None:
    world.node.namespace.create_queue("carts", QueueSettings(requires_session=True))
    session = Source(address="carts", filter={Symbol("com.microsoft:session-filter"): "cart-7"})
    fields = AttachFields(name="its-own-name", source=session, passed_on={"properties": {Symbol("k"): 1}})
    receiver = await told.receiver(world.wire(), "carts", fields=fields)
    remote = receiver.link.remote
    assert receiver.link_name == "its-own-name"
    assert remote is not None
    assert remote.source == session
    assert "com.microsoft:locked-until-utc" in (remote.properties or {})


async def test_a_drain_is_passed_on_and_its_answer_comes_back(world: World, told: Told) -> None:
    wire, flows = world.wire(), list[FlowReceived]()
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    receiver.passes_flow = flows.append
    sender.send(message(), b"1")
    await until(lambda: told.outcomes)
    receiver.grant(5, drain=True)
    await until(lambda: any(flow.drain for flow in flows))
    assert len(told.deliveries) == 1
    assert receiver.credit == 0


async def test_a_connection_that_is_held_reads_nothing_and_is_not_silent(world: World, told: Told) -> None:
    """A slow reader's flow is not forwarded rather than buffered."""
    wire = world.wire(idle_timeout=0.2)
    (await told.sender(wire)).send(message(), b"1")
    await until(lambda: told.outcomes)
    receiver = await told.receiver(wire)
    line = wire._line
    assert line is not None
    line.hold_reading(True)
    receiver.grant(1)
    await asyncio.sleep(0.5)
    assert (told.deliveries, wire.is_up) == ([], True)
    line.hold_reading(False)
    await until(lambda: told.deliveries)


async def test_a_link_of_a_relay_gets_the_peers_states_and_its_own_error(world: World, told: Told) -> None:
    wire = world.wire()
    with pytest.raises(WireLinkError) as refused:
        await wire.receiver("orders", on_delivery=told.deliveries.append, on_lost=told.lost.append, fields=OF_SESSION)
    assert isinstance(refused.value.peers_error, Error)
    assert refused.value.peers_error.condition == refused.value.condition
    line_link = await told.receiver(wire)
    settled: list[object] = []
    line_link.link.session.settle = lambda *given, **_: settled.append(given)  # type: ignore[method-assign]
    assert wire._line is not None
    event = DispositionReceived(line_link.link, 0, b"1", ACCEPTED, False)
    assert wire._line._echo(event)
    assert settled
    settled.clear()
    line_link.passes_flow = lambda _: None
    assert wire._line._echo(event)
    assert settled == []

"""Every fault of the sandbox that bears on a connection: what a link is told, and that it comes back afterwards."""

from __future__ import annotations

import pytest

from paired_servicebus.core.errors import (
    WireConnectionError,
    WireError,
    WireLinkError,
    WireRequestError,
    WireTimeoutError,
)
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, failure_of, reconnecting
from servicebus_amqp import ACCEPTED
from servicebus_sandbox.faults import FaultTerms
from tests.pairing.wire.conftest import Told, World, message, until

SOON = 0.3
K = FailureKind


async def comes_back(world: World, wire: ReconnectingConnection) -> None:
    """A message goes through once the fault is over, as soon as the wire tries again."""
    told = Told()

    async def attach() -> bool:
        try:
            sender = await told.sender(wire, timeout=2.0)
        except WireError:
            return False
        sender.send(message(), b"again")
        return True

    while not await attach():
        wire._not_before = 0.0  # the pause itself is recovery's test
    await until(lambda: told.outcomes)
    assert told.outcomes[0].state is ACCEPTED


@pytest.mark.parametrize("kind", ["refused", "reset", "disconnected"])
async def test_a_connection_that_is_cut_is_told_to_every_link(world: World, kind: str) -> None:
    wire, told, other = world.wire(), Told(), Told()
    await told.sender(wire)
    await other.receiver(wire, "audit")
    over = world.fault(kind)
    await until(lambda: told.lost and other.lost)
    assert kind_of(told.lost[0]) is K.CONNECTION
    assert isinstance(told.lost[0], WireConnectionError)
    assert not wire.is_up
    over()
    await comes_back(world, wire)


@pytest.mark.parametrize("kind", ["refused", "reset"])
async def test_a_namespace_that_takes_no_connection_says_so(world: World, kind: str) -> None:
    over = world.fault(kind)
    wire = world.wire()
    with pytest.raises(WireConnectionError):
        await Told().sender(wire)
    with pytest.raises(WireConnectionError, match="the next try is in"):
        await Told().sender(wire)
    assert wire.connections == 0
    over()
    await comes_back(world, wire)


@pytest.mark.parametrize("kind", ["black-holed", "half-open"])
async def test_a_connection_that_goes_silent_is_given_up_at_the_first_deadline(world: World, kind: str) -> None:
    wire, told = world.wire(), Told()
    sender = await told.sender(wire)
    over = world.fault(kind)
    sender.send(message(), b"1")
    with pytest.raises(WireTimeoutError):
        await Told().sender(wire, "audit", timeout=SOON)
    assert isinstance(told.lost[0], WireTimeoutError)
    assert not told.outcomes
    over()
    await comes_back(world, wire)


async def test_a_black_hole_from_the_start_ends_at_the_callers_deadline(world: World) -> None:
    over, wire = world.fault("black-holed"), world.wire()
    with pytest.raises(WireTimeoutError, match="was not connected within"):
        await Told().sender(wire, timeout=SOON)
    over()
    await comes_back(world, wire)


async def test_a_black_hole_that_nobody_asks_anything_of_ends_by_the_idle_time_out(world: World) -> None:
    wire, told = world.wire(idle_timeout=0.5), Told()
    await told.receiver(wire)
    world.fault("black-holed")
    await until(lambda: told.lost)
    assert kind_of(told.lost[0]) is K.CONNECTION


async def test_a_message_that_is_never_answered_leaves_its_link_to_its_owner(world: World) -> None:
    wire, told, why = world.wire(), Told(), WireTimeoutError("no outcome in time")
    sender = await told.sender(wire)
    over = world.fault("unanswered")
    sender.send(message(), b"1")
    await until(lambda: world.depth("orders") == 1)
    assert not told.outcomes
    sender.drop(why)
    assert told.lost == [why]
    assert wire.is_up
    over()
    await comes_back(world, wire)


async def test_an_acknowledgement_that_is_lost_leaves_the_message_in_doubt(world: World) -> None:
    wire, told = world.wire(), Told()
    sender = await told.sender(wire)
    over = world.fault("acknowledgement-lost")
    sender.send(message(), b"1")
    await until(lambda: told.lost)
    assert not told.outcomes
    assert world.depth("orders") == 1
    over()
    await comes_back(world, wire)


async def test_latency_keeps_the_order_and_loses_nothing(world: World) -> None:
    wire, told = world.wire(), Told()
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    world.node.faults.add("latency", terms=FaultTerms(delay_s=0.05))
    for number in range(50):
        sender.send(message(number), number.to_bytes(8, "big"))
    receiver.grant(50)
    await until(lambda: len(told.outcomes) == 50 and len(told.deliveries) == 50)
    assert [event.tag for event in told.outcomes] == sorted(event.tag for event in told.outcomes)


@pytest.mark.parametrize("end", ["sender", "receiver"])
async def test_a_detached_link_is_lost_alone_and_attaches_again(world: World, end: str) -> None:
    wire, told = world.wire(), Told()
    await (told.sender(wire) if end == "sender" else told.receiver(wire))
    world.fault("detached", entity="orders")
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireLinkError)
    assert kind_of(told.lost[0]) is K.DETACHED
    assert wire.is_up
    await comes_back(world, wire)
    assert wire.connections == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("disabled", K.DISABLED),
        ("not-found", K.NOT_FOUND),
        ("unauthorized", K.UNAUTHORIZED),
        ("refused", K.INTERNAL),
    ],
)
async def test_an_entity_that_takes_no_link_says_why(world: World, fault: str, kind: FailureKind) -> None:
    wire = world.wire()
    world.fault(fault, entity="orders")
    with pytest.raises(WireError) as raised:
        await Told().sender(wire)
    assert kind_of(raised.value) is kind
    assert (await Told().sender(wire, "audit")).is_up


@pytest.mark.parametrize(("fault", "kind"), [("busy", K.BUSY), ("full", K.FULL)])
async def test_a_message_that_is_refused_says_why_and_the_link_stays(
    world: World, fault: str, kind: FailureKind
) -> None:
    wire, told = world.wire(), Told()
    sender = await told.sender(wire)
    over = world.fault(fault, entity="orders")
    sender.send(message(), b"1")
    await until(lambda: told.outcomes)
    failure = failure_of(told.outcomes[0].state, "orders")
    assert failure is not None
    assert kind_of(failure) is kind
    over()
    sender.send(message(), b"2")
    await until(lambda: len(told.outcomes) == 2)
    assert failure_of(told.outcomes[1].state, "orders") is None


async def test_a_message_that_is_too_large_is_refused_by_name(world: World) -> None:
    wire, told = world.wire(), Told()
    sender = await told.sender(wire)
    sender.send(message(1, sender.max_message_size), b"1")
    await until(lambda: told.outcomes)
    failure = failure_of(told.outcomes[0].state, "orders")
    assert failure is not None
    assert kind_of(failure) is K.TOO_LARGE


async def test_requests_are_refused_ignored_and_answered_again(world: World) -> None:
    wire = world.wire()
    over = world.fault("busy", entity="orders")
    with pytest.raises(WireRequestError) as raised:
        await reconnecting.peek(wire, "orders", from_number=1, count=1)
    assert kind_of(raised.value) is K.BUSY
    over()
    over = world.fault("black-holed", entity="orders")
    with pytest.raises(WireTimeoutError):
        await reconnecting.peek(wire, "orders", from_number=1, count=1, timeout=SOON)
    over()
    assert await reconnecting.peek(wire, "orders", from_number=1, count=1) == []


async def test_an_entity_that_is_deleted_detaches_its_links(world: World) -> None:
    wire, told = world.wire(), Told()
    await told.receiver(wire)
    world.node.namespace.delete("orders")
    world.node.wake()
    await until(lambda: told.lost)
    assert kind_of(told.lost[0]) is K.NOT_FOUND

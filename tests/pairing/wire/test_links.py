"""Sending and receiving on links of our own; every fault, what is lost and had again, and long reads in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paired_servicebus.core.errors import (
    WireConnectionError,
    WireError,
    WireLinkError,
    WireRequestError,
    WireTimeoutError,
)
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import (
    Backoff,
    ReconnectingConnection,
    failure_of,
    is_idle_detach,
    reconnecting,
)
from paired_servicebus.pairing.amqp_client import reconnecting as wiring
from paired_servicebus.pairing.amqp_client.client_connection import AttachFields
from servicebus_amqp.encoding.codec import Int, Symbol
from servicebus_amqp.encoding.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected, Source
from servicebus_amqp.protocol.links import DeliveryReceived, DispositionReceived, FlowReceived
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import FaultTerms, Operation

from .conftest import Told, World, id_of, message, until

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
    assert receiver.link.name == "its-own-name"
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


# -- Every fault of the sandbox that bears on a connection: what a link is told, and that it comes back afterwards ---

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
    assert kind_of(told.lost[0]) is K.DETACHED
    with pytest.raises(WireError) as refused:  # the next attach says why
        await told.receiver(wire)
    assert kind_of(refused.value) is K.NOT_FOUND


# -- What is lost and had again, the pauses in between, and that nobody spins ----------------------------------------


def test_pauses_double_to_the_most_and_begin_anew() -> None:
    backoff = Backoff(lambda: 0.0, first=1.0, most=5.0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_chance_shortens_a_pause_by_a_half_at_most() -> None:
    assert Backoff(lambda: 0.999_999, first=10.0).next() == pytest.approx(5.0, abs=0.001)


async def test_a_connection_that_lived_long_is_made_anew_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "HEALTHY", 0.0)
    wire, told = world.wire(), Told()
    await told.sender(wire)
    world.fault("disconnected")
    await until(lambda: told.lost)
    assert (await Told().sender(wire)).is_up
    assert wire.connections == 2


async def test_a_connection_that_was_lost_soon_is_left_alone_for_a_while(world: World) -> None:
    wire, told = world.wire(), Told()
    await told.sender(wire)
    world.fault("disconnected")
    await until(lambda: told.lost)
    with pytest.raises(WireConnectionError, match="the next try is in"):
        await Told().sender(wire)


async def test_an_idle_link_ends_as_an_idle_one_and_can_be_had_again(world: World) -> None:
    wire, told = world.wire(), Told()
    await told.receiver(wire)
    await wire.request("orders", "com.microsoft:peek-message", {"from-sequence-number": 1, "message-count": Int(1)})
    world.jump(660)
    await until(lambda: told.lost)
    assert is_idle_detach(told.lost[0])
    assert (await told.receiver(wire)).is_up
    assert wire.connections == 1


async def test_nothing_is_lost_while_links_and_connections_are_cut_at_random(world: World) -> None:
    wire = world.wire()
    wire._backoff = Backoff(lambda: 0.0, first=0.01, most=0.05)
    outstanding = {number.to_bytes(8, "big"): message(number) for number in range(400)}
    for kind, probability in (("detached", 0.01), ("acknowledgement-lost", 0.002)):
        terms = FaultTerms(probability=probability, seed=5, operations=frozenset({Operation.SEND}))
        world.node.faults.add(kind, terms=terms)

    def on_outcome(event: DispositionReceived) -> None:
        if event.state is ACCEPTED:
            outstanding.pop(event.tag, None)

    losses: list[WireError] = []
    while outstanding:
        try:
            sender = await wire.sender("orders", on_outcome=on_outcome, on_lost=losses.append)
        except WireError:
            await asyncio.sleep(0.01)
            continue
        before = len(losses)
        for tag, payload in outstanding.items():
            sender.send(payload, tag)
        await until(lambda before=before: not outstanding or len(losses) > before)
    for fault in world.node.faults.active():
        world.node.faults.remove(fault.id)
    wire._not_before = 0.0
    told = Told()
    (await told.receiver(wire)).grant(10_000)
    await until(lambda: len(told.deliveries) == world.depth("orders"))
    assert losses
    assert {id_of(event.payload) for event in told.deliveries} == {str(number) for number in range(400)}


async def test_however_many_ask_one_connection_is_tried_and_then_none_for_a_while(world: World) -> None:
    world.fault("reset")
    wire = world.wire()
    tries = 0
    connect: Callable[[], object] = wire._connect

    def counted() -> object:
        nonlocal tries
        tries += 1
        return connect()

    wire._connect = counted  # type: ignore[method-assign,assignment]
    found = await asyncio.gather(*(Told().sender(wire) for _ in range(20)), return_exceptions=True)
    found += await asyncio.gather(*(Told().sender(wire) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(error, WireConnectionError) for error in found)
    assert tries == 1


async def test_an_asker_who_gives_up_does_not_end_the_connecting_for_others(world: World) -> None:
    wire = world.wire()
    first = asyncio.create_task(Told().sender(wire))
    second = asyncio.create_task(Told().sender(wire))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_up
    assert wire.connections == 1

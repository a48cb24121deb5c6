"""Peers that are not the sandbox: slow, small, odd, changing their mind; and requests to `$management`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from paired_servicebus.core.errors import (
    WireConnectionError,
    WireError,
    WireLinkError,
    WireOutcomeError,
    WireRequestError,
    WireTimeoutError,
    WireUnavailableError,
)
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing.amqp_client import (
    Backoff,
    ReconnectingConnection,
    WireReceiver,
    failure_of,
    reconnecting,
)
from paired_servicebus.pairing.amqp_client.endpoint import HIGH_WATER
from paired_servicebus.pairing.amqp_client.reconnecting import DeferredState
from servicebus_amqp.encoding.codec import Described, Symbol, ULong, described, encode
from servicebus_amqp.encoding.frames import SASL_FRAME, SASL_HEADER, build_frame
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT, batch, read_map, split
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    RELEASED,
    Error,
    Modified,
    Rejected,
    SaslMechanisms,
    write_performative,
)
from servicebus_amqp.protocol.connection_settings import ConnectionSettings
from servicebus_amqp.protocol.links import ReceiverLink, SenderLink

from .conftest import Told, World, id_of, message, until
from .peer import Script, listening, reply_to

PASSWORDS_ALONE = SaslMechanisms(sasl_server_mechanisms=("PLAIN",))
FIRST = (1 << 32) - 3
"""Close enough to the end of ids that a few messages pass it."""


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with listening() as script:
        yield script


@pytest.fixture
async def wire(script: Script) -> AsyncIterator[ReconnectingConnection]:
    async with AsyncExitStack() as stack:
        wire = ReconnectingConnection(script.endpoint, backoff=Backoff(lambda: 0.9))
        stack.push_async_callback(wire.close)
        yield wire


async def test_delivery_ids_that_wrap_around_are_received_and_settled_as_a_range(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.settings = ConnectionSettings(container_id="peer", first_delivery_id=FIRST, first_outgoing_id=FIRST)
    told = Told()
    receiver = await told.receiver(wire)
    receiver.grant(20)
    await until(lambda: script.peer.link("orders", SenderLink).credit == 20)
    for number in range(20):
        script.peer.link("orders", SenderLink).send(message(number), tag=number.to_bytes(16, "big"))
    script.peer.flush()
    await until(lambda: len(told.deliveries) == 20)
    first = told.deliveries[0].delivery_id
    receiver.settle(range(first, first + 20), ACCEPTED)
    await until(lambda: len(script.peer.said) == 20)
    assert [event.tag for event in script.peer.said] == [event.tag for event in told.deliveries]
    assert told.deliveries[-1].delivery_id < first


async def test_messages_larger_than_a_frame_go_both_ways_whole(script: Script, wire: ReconnectingConnection) -> None:
    script.settings = ConnectionSettings(container_id="peer", max_frame_size=512, incoming_window=7)
    told, large = Told(), message(1, 20_000)
    sender, receiver = await told.sender(wire), await told.receiver(wire)
    sender.send(large, b"1")
    await until(lambda: script.peer.received)
    assert script.peer.received[0].payload == large
    receiver.grant(1)
    await until(lambda: script.peer.link("orders", SenderLink).credit)
    script.peer.link("orders", SenderLink).send(message(2, 1_000_000), tag=b"2" * 16)
    script.peer.flush()
    await until(lambda: told.deliveries)
    assert told.deliveries[0].payload == message(2, 1_000_000)


async def test_one_read_is_answered_by_one_write(script: Script, wire: ReconnectingConnection) -> None:
    told = Told()
    receiver = await told.receiver(wire)
    receiver.grant(100)
    link = script.peer.link("orders", SenderLink)
    await until(lambda: link.credit == 100)

    def settle_all() -> None:
        for event in told.deliveries[len(settled) :]:
            settled.append(event.delivery_id)
            receiver.settle(event.delivery_id, ACCEPTED)

    settled: list[int] = []
    wire.after_read.append(settle_all)
    reads = len(script.peer.reads)
    for number in range(100):
        link.send(message(number), tag=number.to_bytes(16, "big"))
    script.peer.flush()
    await until(lambda: len(script.peer.said) == 100)
    assert len(script.peer.reads) == reads + 1
    assert len(script.peer.reads[-1]) < 100


async def test_a_batch_is_one_transfer_of_its_own_format(script: Script, wire: ReconnectingConnection) -> None:
    sender = await Told().sender(wire)
    whole = batch([message(1), message(2)])
    sender.send(whole, b"b", message_format=BATCH_FORMAT)
    sender.send([message(3)[:5], message(3)[5:]], b"p")
    await until(lambda: len(script.peer.received) == 2)
    assert [event.message_format for event in script.peer.received] == [BATCH_FORMAT, 0]
    assert [event.payload for event in script.peer.received] == [whole, message(3)]


@pytest.mark.parametrize(
    ("size", "properties", "expected"),
    [
        (None, None, (1024 * 1024, 1024 * 1024)),
        (262_144, None, (262_144, 262_144)),
        (100 * 1024 * 1024, None, (100 * 1024 * 1024, 1024 * 1024)),
        (100 * 1024 * 1024, {Symbol("com.microsoft:max-message-batch-size"): ULong(5000)}, (100 * 1024 * 1024, 5000)),
    ],
)
async def test_sizes_are_what_the_attach_said(
    script: Script, wire: ReconnectingConnection, size: int | None, properties: Any, expected: tuple[int, int]
) -> None:
    script.settings = ConnectionSettings(container_id="peer", max_message_size=size)
    script.properties = properties
    sender = await Told().sender(wire)
    assert (sender.max_message_size, sender.max_batch_size) == expected


async def test_a_size_that_changed_is_known_after_the_next_attach(script: Script, wire: ReconnectingConnection) -> None:
    script.max_message_size = 1000
    assert (await Told().sender(wire)).max_message_size == 1000
    script.max_message_size = 2000
    assert (await Told().sender(wire)).max_message_size == 2000


async def test_what_finds_no_credit_waits_in_its_order_and_room_says_so(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.credit = 2
    told = Told()
    sender = await told.sender(wire)
    await until(lambda: sender.room == 2)
    for number in range(5):
        sender.send(message(number), bytes([number]))
    assert sender.room == 0
    await until(lambda: len(script.peer.received) == 2)
    rooms = told.rooms
    script.peer.link("orders", ReceiverLink).flow(10)
    script.peer.flush()
    await until(lambda: len(script.peer.received) == 5)
    assert [event.tag for event in script.peer.received] == [bytes([number]) for number in range(5)]
    assert sender.room == 7
    assert told.rooms == rooms + 1


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        (Rejected(error=Error(condition="amqp:not-found", description="no such queue")), "amqp:not-found"),
        (Rejected(), None),
        (RELEASED, None),
        (Modified(delivery_failed=True), None),
        (Described(ULong(0x34), [b"", None]), None),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
async def test_an_outcome_that_is_no_acceptance_is_a_failure_with_its_condition(
    script: Script, wire: ReconnectingConnection, state: Any, condition: str | None, settled: bool
) -> None:
    told = Told()
    sender = await told.sender(wire)
    sender.send(message(), b"1")
    await until(lambda: script.peer.received)
    script.peer.received[0].link.settle(script.peer.received[0].delivery_id, state, settled=settled)
    script.peer.flush()
    await until(lambda: told.outcomes)
    failure = failure_of(told.outcomes[0].state, "orders")
    assert isinstance(failure, WireOutcomeError)
    assert failure.condition == condition
    if not settled:
        await until(lambda: script.peer.said)
        assert script.peer.said[0].settled


async def test_an_outcome_that_comes_unsettled_and_settled_in_one_read_counts_once(
    script: Script, wire: ReconnectingConnection
) -> None:
    told = Told()
    sender = await told.sender(wire)
    for tag in (b"1", b"2"):
        sender.send(message(), tag)
    await until(lambda: len(script.peer.received) == 2)
    first, second = script.peer.received
    assert isinstance(first.link, ReceiverLink)
    first.link.answer(first.delivery_id, Rejected())
    first.link.answer(second.delivery_id, ACCEPTED)
    script.peer.flush()
    await until(lambda: told.outcomes and told.outcomes[-1].tag == b"2")
    assert [(event.tag, event.state) for event in told.outcomes] == [(b"1", Rejected()), (b"2", ACCEPTED)]


async def test_unknown_sections_and_annotations_are_handed_over_as_they_came(
    script: Script, wire: ReconnectingConnection
) -> None:
    told = Told()
    receiver = await told.receiver(wire)
    receiver.grant(2)
    link = script.peer.link("orders", SenderLink)
    await until(lambda: link.credit == 2)
    odd = described(0x72, encode({Symbol("x-opt-new"): Described(Symbol("contoso:thing"), [1, None])})) + message()
    unknown = described(0x7F, encode({"a": 1})) + message()
    link.send(odd, tag=b"1" * 16)
    link.send(unknown, tag=b"2" * 16)
    script.peer.flush()
    await until(lambda: len(told.deliveries) == 2)
    assert [event.payload for event in told.deliveries] == [odd, unknown]
    assert split(odd).message_annotations is not None


async def test_a_peer_that_detaches_in_the_middle_of_a_message_loses_that_link_alone(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.settings = ConnectionSettings(container_id="peer", max_frame_size=512, incoming_window=3)
    told, other = Told(), Told()
    sender = await told.sender(wire)
    await other.sender(wire, "audit")
    sender.send(message(1, 100_000), b"1")
    script.peer.link("orders", ReceiverLink).detach(
        error=Error(condition="amqp:link:detach-forced", description="the entity has moved")
    )
    script.peer.flush()
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireLinkError)
    assert str(told.lost[0]) == "orders detached a link: amqp:link:detach-forced: the entity has moved"
    assert not told.outcomes
    assert not other.lost
    assert wire.is_up
    assert (await told.sender(wire)).is_up


async def test_an_attach_that_is_refused_raises_its_reason_and_tells_no_loss(
    script: Script, wire: ReconnectingConnection
) -> None:
    def refuse(_: Any, event: Any) -> bool:
        if event.link.remote.target.address == "orders":
            event.link.refuse(Error(condition="com.microsoft:entity-disabled", description="it is disabled"))
            return True
        return False

    script.on_attach = refuse
    told = Told()
    with pytest.raises(WireLinkError, match="orders refused a link: com") as raised:
        await told.sender(wire)
    assert raised.value.condition == "com.microsoft:entity-disabled"
    assert not told.lost


async def test_a_link_that_was_attached_and_detached_in_one_read_is_not_handed_out(
    script: Script, wire: ReconnectingConnection
) -> None:
    def detach(_: Any, event: Any) -> bool:
        if event.link.remote.target.address != "orders":
            return False
        event.link.accept_attach()
        event.link.detach(error=Error(condition="amqp:link:detach-forced"))
        return True

    script.on_attach = detach
    told = Told()
    with pytest.raises(WireLinkError):
        await told.sender(wire)
    assert not told.lost


async def test_an_attach_that_is_never_answered_ends_at_our_deadline(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.on_attach = lambda _, event: event.link.remote.target.address == "orders"
    await Told().sender(wire, "audit")
    with pytest.raises(WireTimeoutError, match=r"attaching to orders was not answered within 0\.2 s"):
        await Told().sender(wire, timeout=0.2)


async def test_a_token_that_is_never_answered_ends_at_our_deadline(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.on_request = lambda _, __: None
    with pytest.raises(WireTimeoutError, match="attaching to orders"):
        await Told().sender(wire, timeout=0.2)


async def test_a_wait_in_which_nothing_at_all_was_heard_takes_the_connection_with_it(
    script: Script, wire: ReconnectingConnection
) -> None:
    told = Told()
    await told.sender(wire, "audit")
    script.peer.data_received = lambda _: None  # type: ignore[method-assign]
    with pytest.raises(WireTimeoutError):
        await Told().sender(wire, timeout=0.2)
    assert not wire.is_up
    assert isinstance(told.lost[0], WireTimeoutError)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "framing-error"),
        (b"AMQP\x00\x00\x09\x01", "framing-error"),
        (b"\x00" * 16, "framing-error"),
        (SASL_HEADER + build_frame(0, write_performative(PASSWORDS_ALONE), SASL_FRAME), "offers no ANONYMOUS"),
    ],
)
async def test_what_speaks_no_amqp_is_unavailable_to_us(
    script: Script, wire: ReconnectingConnection, answer: bytes, reason: str
) -> None:
    script.first_answer = answer
    with pytest.raises(WireUnavailableError, match=reason):
        await Told().sender(wire)


async def test_garbage_in_the_middle_ends_the_connection_with_its_reason(
    script: Script, wire: ReconnectingConnection
) -> None:
    told = Told()
    await told.sender(wire)
    script.peer.transport.write(b"garbage that is no frame")
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireConnectionError)
    assert "broke the protocol: amqp:connection:framing-error" in str(told.lost[0])


async def test_a_peer_that_falls_silent_is_lost_within_the_idle_time_out(script: Script) -> None:
    wire, told = ReconnectingConnection(script.endpoint, idle_timeout=0.4), Told()
    await told.sender(wire)
    await until(lambda: told.lost)
    assert isinstance(told.lost[0], WireConnectionError)
    assert "nothing was received" in str(told.lost[0])
    await wire.close()


async def test_a_peers_idle_time_out_is_kept_from_ending(script: Script, wire: ReconnectingConnection) -> None:
    script.settings = ConnectionSettings(container_id="peer", idle_timeout_ms=200)
    told = Told()
    await told.sender(wire)
    reads = len(script.peer.reads)
    await until(lambda: len(script.peer.reads) >= reads + 5)
    assert script.peer.reads[-1] == b"\x00\x00\x00\x08\x02\x00\x00\x00"
    assert not told.lost


async def test_a_callback_that_fails_costs_the_connection_and_is_said(
    script: Script, wire: ReconnectingConnection
) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("a mistake of ours")

    told = Told()
    sender = await wire.sender("orders", on_outcome=fail, on_lost=told.lost.append)
    sender.send(message(), b"1")
    await until(lambda: script.peer.received)
    script.peer.received[0].link.settle(script.peer.received[0].delivery_id, ACCEPTED)
    script.peer.flush()
    await until(lambda: told.lost)
    assert "a mistake of ours" in str(told.lost[0])
    assert not wire.is_up


async def test_many_links_are_spread_over_sessions_as_the_peer_allows(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.settings = ConnectionSettings(container_id="peer", handle_max=9)
    told = Told()
    senders = [await told.sender(wire, f"queue-{number}") for number in range(25)]
    assert len({sender.link.session for sender in senders}) == 3
    assert all(sender.is_up for sender in senders)


async def test_links_asked_for_at_once_all_come(script: Script, wire: ReconnectingConnection) -> None:
    senders = await asyncio.gather(*(Told().sender(wire, f"queue-{number}") for number in range(30)))
    assert all(sender.is_up for sender in senders)
    assert wire.connections == 1


async def test_a_peer_that_does_not_read_leaves_no_room_until_it_does(
    script: Script, wire: ReconnectingConnection
) -> None:
    script.settings, told = ConnectionSettings(container_id="peer", incoming_window=100_000), Told()
    sender = await told.sender(wire)
    await until(lambda: sender.room == 1000)
    script.peer.transport.pause_reading()
    sent = 0
    while sender.room and sent < 900:
        sender.send(message(sent, 50_000), sent.to_bytes(8, "big"))
        sent += 1
        await asyncio.sleep(0)
    assert sent < 900
    wire.after_read.append(told.room)
    script.peer.transport.resume_reading()
    await until(lambda: sender.room == 1000 - sent)
    assert told.rooms
    await until(lambda: len(script.peer.received) == sent)


async def test_what_is_more_than_one_write_should_be_leaves_no_room_until_it_is_written(
    script: Script, wire: ReconnectingConnection
) -> None:
    """Far more than a socket takes would be copied from buffer to buffer."""
    script.settings, told = ConnectionSettings(container_id="peer", incoming_window=100_000), Told()
    sender = await told.sender(wire)
    await until(lambda: sender.room == 1000)
    wire.after_read.append(told.room)
    sender.send(message(1, HIGH_WATER), b"1")
    assert (sender.room, wire.is_writable) == (0, False)
    await until(lambda: sender.room == 999)
    assert wire.is_writable
    assert told.rooms


async def test_losing_one_link_of_a_node_ends_the_other_and_both_come_back(
    script: Script, wire: ReconnectingConnection
) -> None:
    await wire.request("orders", "contoso:ask", {})
    node = "orders/$management"
    script.peer.link(node, SenderLink).detach()
    script.peer.flush()
    await until(lambda: not script.peer.link(node, ReceiverLink).is_attached)
    assert (await wire.request("orders", "contoso:ask", {})).is_success
    assert wire.connections == 1


async def test_a_node_that_takes_one_link_alone_leaves_none(script: Script, wire: ReconnectingConnection) -> None:
    def refuse(_: Any, event: Any) -> bool:
        if event.link.remote.target.address == "orders/$management" and isinstance(event.link, ReceiverLink):
            event.link.refuse(Error(condition="amqp:not-allowed"))
            return True
        return False

    script.on_attach = refuse
    with pytest.raises(WireLinkError):
        await wire.request("orders", "contoso:ask", {})
    await until(lambda: not script.peer.link("orders/$management", SenderLink).is_attached)


async def test_dropping_a_link_tells_its_owner_at_once_and_the_peer_too(
    script: Script, wire: ReconnectingConnection
) -> None:
    told, why = Told(), WireError("no outcome for a minute")
    sender = await told.sender(wire)
    sender.drop(why)
    assert told.lost == [why]
    assert not sender.is_up
    await until(lambda: not script.peer.link("orders", ReceiverLink).is_attached)
    sender.drop(why)
    assert told.lost == [why]


async def test_a_closed_connection_is_closed_in_order_and_its_links_told(
    script: Script, wire: ReconnectingConnection
) -> None:
    told = Told()
    await told.sender(wire)
    await wire.close()
    assert "closed by us" in str(told.lost[0])
    await until(lambda: script.peer.is_over)
    assert script.peer.amqp.failure is None
    with pytest.raises(WireConnectionError, match="was closed"):
        await told.sender(wire)


# -- Requests to `$management`, against the sandbox and against a peer that answers nonsense -------------------------


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


async def test_a_request_says_its_type_and_its_time() -> None:
    async with listening() as script:
        wire = ReconnectingConnection(script.endpoint)
        await wire.request("orders", "contoso:ask", {"a": 1}, timeout=5.0)
        said = read_map(split(script.peer.requests[-1]).application_properties)
        assert said == {
            "operation": "contoso:ask",
            "type": "entity-mgmt",
            "com.microsoft:server-timeout": 5000,
        }
        await wire.close()

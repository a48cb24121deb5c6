"""Faults, switched while clients are connected: what the SDK sees, and what the broker is left with."""

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from servicebus_amqp.encoding.message_sections import Sections, write_data
from servicebus_amqp.encoding.performatives import ACCEPTED, Accepted
from servicebus_amqp.protocol.links import DeliveryReceived, Detached, DispositionReceived
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.faults import ConnectionVerdict, FaultBoard, FaultError, FaultVerdict, InjectionPoint

MESSAGE = Sections(body=write_data(b"hello")).join()


@pytest.fixture
def fault(port):
    """Begins a fault and returns what ends it."""

    def begin(kind, entity=None):
        begun = port.node.faults.add(kind, entity=entity)
        return lambda: port.node.faults.remove(begun.id)

    return begin


# ---------------------------------------------------------------- the board


@pytest.fixture
def board():
    return FaultBoard("contoso", lambda: ["orders", "audit", "audit/Subscriptions/all"])


def test_faults_are_listed_and_removed_by_id(board):
    first, second = board.add("busy"), board.add("refused", entity="ORDERS")
    assert [fault.id for fault in board.active()] == [first.id, second.id]
    board.remove(first.id)
    assert board.active() == [second]
    with pytest.raises(FaultError, match=second.id):
        board.remove("no such id")


def test_unknown_kinds_and_entities_name_those_there_are(board):
    with pytest.raises(FaultError, match="refused, black-holed, unanswered, busy"):
        board.add("haunted")
    with pytest.raises(FaultError, match="audit, audit/Subscriptions/all, orders"):
        board.add("busy", entity="nowhere")
    assert board.active() == []


def test_a_fault_of_an_entity_bears_on_what_lies_below_it(board):
    board.add("busy", entity="audit")
    paths = ("audit", "AUDIT/Subscriptions/all", "audit2", "orders")
    busy, serve = FaultVerdict.BUSY, FaultVerdict.SERVE
    assert [board.verdict(InjectionPoint.TRANSFER, path) for path in paths] == [busy, busy, serve, serve]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("refused", ConnectionVerdict.RESET),
        ("black-holed", ConnectionVerdict.SWALLOW),
        ("unanswered", ConnectionVerdict.SERVE),
        ("busy", ConnectionVerdict.SERVE),
    ],
)
def test_connections_follow_faults_of_the_whole_namespace_only(board, kind, verdict):
    changes = []
    board.watch(lambda: changes.append(board.connection_verdict()))
    begun = board.add(kind)
    board.remove(begun.id)
    board.add(kind, entity="orders")
    assert changes == [verdict, ConnectionVerdict.SERVE, ConnectionVerdict.SERVE]


def test_refused_comes_before_black_holed(board):
    board.add("black-holed")
    board.add("refused")
    assert board.connection_verdict() is ConnectionVerdict.RESET


# ---------------------------------------------------------------- the whole namespace


async def test_a_black_hole_answers_nothing_and_does_nothing(port, client, fault):
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("1"))
        end = fault("black-holed")
        with pytest.raises(OperationTimeoutError):
            await sender.send_messages(ServiceBusMessage("2"), timeout=0.5)
        assert port.node.connections
        assert port.counts("orders").active == 1
        end()
        await port.until(lambda: not port.node.connections)
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("3"))
        await sender.send_messages(ServiceBusMessage("4"))
    assert port.counts("orders").active == 2


async def test_a_connection_that_said_nothing_in_a_black_hole_goes_on(port, peer, fault):
    await peer.authorize("orders")
    sender = await peer.attached(peer.sender("orders"))
    fault("black-holed")()
    assert isinstance(await peer.outcome(sender, MESSAGE), Accepted)


async def test_nothing_is_handed_out_into_a_black_hole(port, peer, fault):
    await peer.authorize("orders")
    link = await peer.attached(peer.receiver("orders"))
    link.flow(10)
    peer.flush()
    await peer.authorize("copies")  # a round trip behind the flow
    end = fault("black-holed")
    queue = port.namespace.queue("orders")
    queue.intake.send(queue_messages(3))
    port.node.wake()
    assert all(stored.lock_token is None for stored in queue.messages.peek(0, 10))
    end()
    for _ in range(3):
        await peer.next(DeliveryReceived)


def queue_messages(count):
    return [read_message(MESSAGE) for _ in range(count)]


# ---------------------------------------------------------------- one entity


async def test_links_of_a_refused_entity_hear_a_condition(peer, fault, refused):
    await peer.authorize("orders")
    await peer.attached(peer.sender("orders"))
    fault("refused", "orders")
    assert (await peer.next(Detached)).error.condition == "amqp:link:detach-forced"
    with pytest.raises(refused, match="internal-error"):
        await peer.attached(peer.receiver("orders"))


def about(event, link):
    return isinstance(event, DispositionReceived) and event.link is link


async def test_a_black_holed_entity_neither_takes_nor_gives_nor_attaches(port, peer, fault):
    await peer.authorize("")
    sender = await peer.attached(peer.sender("orders"))
    link = await peer.attached(peer.receiver("orders"))
    await peer.outcome(sender, MESSAGE)
    link.flow(1)
    peer.flush()
    delivery = await peer.next(DeliveryReceived)
    end = fault("black-holed", "orders")
    silent = peer.sender("orders")
    peer.send(sender, MESSAGE)
    link.flow(5)
    link.settle(delivery.delivery_id, ACCEPTED, settled=False)
    await peer.authorize("copies")  # a round trip behind all that
    assert not silent.is_attached
    assert port.counts("orders").active == 1
    assert len([event for event in peer.history if about(event, sender)]) == 1
    assert not [event for event in peer.history if about(event, link)]
    end()
    assert isinstance(await peer.outcome(sender, MESSAGE), Accepted)
    assert (await peer.next(DeliveryReceived)).link is link


async def test_a_receiver_is_cut_off_and_served_again(port, client, fault):
    async with client.get_queue_receiver("orders") as receiver:
        waiting = asyncio.create_task(receiver.receive_messages(1, max_wait_time=5))
        await port.until(lambda: port.namespace.queue("orders").messages.consumers == 1)
        end = fault("refused", "orders")
        with pytest.raises(ServiceBusError):
            await waiting
        end()
        port.namespace.queue("orders").intake.send(queue_messages(1))
        assert len(await receiver.receive_messages(1, max_wait_time=5)) == 1

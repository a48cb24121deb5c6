"""Each kind of fault, in some of its forms: what clients see, and what the broker is left with."""

import time
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_amqp.encoding.message_sections import Sections, write_data
from servicebus_amqp.encoding.performatives import ACCEPTED, Accepted
from servicebus_amqp.protocol.links import Attached, Closed, DeliveryReceived, Detached, DispositionReceived
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.faults import (
    Direction,
    FaultBoard,
    FaultError,
    FaultTerms,
    FaultVerdict,
    InjectionPoint,
    Operation,
)

MESSAGE = Sections(body=write_data(b"hello")).join()
SEND, RECEIVE, MANAGE, CONTACT = (frozenset({Operation(name)}) for name in ("send", "receive", "manage", "contact"))


@pytest.fixture
def fault(port):
    """Begins a fault and returns what ends it."""

    def begin(kind, *entities, **terms):
        begun = port.node.faults.add(kind, entities=entities, terms=FaultTerms(**terms))
        return lambda: port.node.faults.remove(begun.id)

    return begin


class Now:
    time = 1000.0


@pytest.fixture
def now():
    return Now()


@pytest.fixture
def board(now):
    return FaultBoard("contoso", lambda: ["orders", "payments"], clock=lambda: now.time)


def asked(board, times=1, moment=InjectionPoint.TRANSFER, path="orders"):
    return [board.verdict(moment, path) for _ in range(times)]


# ---------------------------------------------------------------- the board


def test_a_seed_makes_chance_repeatable():
    def draw(seed):
        board = FaultBoard("contoso", list)
        board.add("busy", terms=FaultTerms(probability=0.5, seed=seed))
        return asked(board, 100)

    assert draw(1) == draw(1) != draw(2)
    assert 30 < draw(1).count(FaultVerdict.BUSY) < 70


def test_a_count_is_used_up_and_then_the_fault_is_over(board):
    board.add("busy", terms=FaultTerms(count=2))
    assert asked(board, 3) == [FaultVerdict.BUSY, FaultVerdict.BUSY, FaultVerdict.SERVE]
    board.run_due()
    assert board.active() == []


def test_a_duration_ends_by_the_clock(board, now):
    changes = []
    board.add("busy", terms=FaultTerms(duration_s=10))
    board.watch(lambda: changes.append(board.active()))
    assert board.next_change() == now.time + 10
    now.time += 10
    board.run_due()
    assert (changes, asked(board)) == ([[]], [FaultVerdict.SERVE])


@pytest.mark.parametrize(
    ("operation", "struck"),
    [
        (SEND, InjectionPoint.TRANSFER),
        (MANAGE, InjectionPoint.REQUEST),
        (MANAGE, InjectionPoint.HTTP),
        (CONTACT, InjectionPoint.TOKEN),
    ],
)
def test_an_operation_fails_alone(board, operation, struck):
    board.add("busy", terms=FaultTerms(operations=operation))
    assert board.verdict(struck, "orders") is FaultVerdict.BUSY
    others = {
        InjectionPoint.TRANSFER,
        InjectionPoint.REQUEST,
        InjectionPoint.HTTP,
        InjectionPoint.TOKEN,
        InjectionPoint.SETTLE,
    }
    others -= {moment for moment in (InjectionPoint.REQUEST, InjectionPoint.HTTP) if operation is MANAGE} | {struck}
    assert {board.verdict(moment, "orders") for moment in others} == {FaultVerdict.SERVE}


def test_entities_of_one_node_are_down_and_then_slow(board, now):
    terms = FaultTerms(duration_s=30, delay_s=0.5, slow_s=60)
    board.add("node-restart", entities=["orders", "payments"], terms=terms)
    assert asked(board) + asked(board, path="payments") == [FaultVerdict.REFUSE] * 2
    now.time += 30
    board.run_due()
    assert asked(board) == [FaultVerdict.SERVE]
    assert board.latency("payments", SEND, Direction.OUT) == 0.5
    now.time += 60
    board.run_due()
    assert (board.active(), board.latency("payments", SEND, Direction.OUT)) == ([], 0)


@pytest.mark.parametrize(
    ("kind", "terms", "complaint"),
    [
        ("late", {}, "delay_s is None; allowed is more than 0, at most 900 with 'late'"),
        ("late", {"delay_s": 901}, "at most 900"),
        ("busy", {"delay_s": 1}, "delay_s is 1; allowed is nothing with 'busy'"),
        ("busy", {"direction": Direction.IN}, "direction"),
        ("busy", {"slow_s": 1}, "slow_s"),
        ("half-open", {"operations": SEND}, "contact with 'half-open'"),
        ("node-restart", {"delay_s": 1, "duration_s": 1, "slow_s": 1}, "entities is none"),
    ],
)
def test_terms_that_do_not_fit(board, kind, terms, complaint):
    with pytest.raises(FaultError, match=complaint):
        board.add(kind, terms=FaultTerms(**terms))
    assert board.active() == []


@pytest.mark.parametrize("terms", [{"probability": 0}, {"probability": 1.1}, {"count": 0}, {"duration_s": 0}])
def test_terms_that_cannot_be(terms):
    with pytest.raises(FaultError, match="allowed is"):
        FaultTerms(**terms)


# ---------------------------------------------------------------- what the SDK sees


async def test_a_late_message_is_accepted_and_seen_later(port, client, fault):
    fault("late", "orders", delay_s=600)
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    assert port.counts("orders").total == 0
    port.jump(timedelta(seconds=601))
    (stored,) = port.namespace.queue("orders").messages.peek(0, 10)
    assert 600 <= port.clock() - stored.enqueued_at < 660


async def test_latency_adds_up_in_both_directions(client, fault):
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        fault("latency", delay_s=0.2, direction=Direction.IN)
        fault("latency", delay_s=0.2)
        began = time.monotonic()
        await sender.send_messages(ServiceBusMessage("x"))
        assert time.monotonic() - began >= 0.4


# ---------------------------------------------------------------- what is on the wire


@pytest.fixture
async def sender(peer):
    await peer.authorize("")
    return await peer.attached(peer.sender("orders"))


async def test_a_slow_entity_answers_late_in_order_and_alone(port, peer, sender, fault):
    other = await peer.attached(peer.sender("copies"))
    fault("latency", "orders", delay_s=0.3)
    for index in range(3):
        sender.send(MESSAGE, tag=b"%d" % index)
    assert isinstance(await peer.outcome(other, MESSAGE), Accepted)
    assert port.counts("orders").active == 3
    answers = [await peer.next(DispositionReceived) for _ in range(3)]
    assert [answer.link for answer in answers] == [sender] * 3
    assert [answer.tag for answer in answers] == [b"0", b"1", b"2"]


async def test_a_slow_entity_delivers_late(peer, sender, fault):
    await peer.outcome(sender, MESSAGE)
    fault("latency", "orders", delay_s=0.2)
    began = time.monotonic()
    link = peer.receiver("orders")
    link.flow(1)
    peer.flush()
    await peer.next(DeliveryReceived)
    assert time.monotonic() - began >= 0.2


async def test_links_are_detached_once(peer, sender, fault):
    fault("detached", "orders")
    assert (await peer.next(Detached)).error.condition == "amqp:link:detach-forced"
    again = await peer.attached(peer.sender("orders"))
    assert isinstance(await peer.outcome(again, MESSAGE), Accepted)


async def test_connections_are_closed_once_with_a_reason(connect, peer, sender, fault):
    fault("disconnected")
    assert (await peer.next(Closed)).error.condition == "amqp:connection:forced"
    other = await connect()
    await other.authorize("orders")
    assert isinstance(await other.outcome(await other.attached(other.sender("orders")), MESSAGE), Accepted)


async def test_an_entity_resets_the_connections_that_use_it(port, peer, sender, fault):
    fault("reset", "orders")
    await peer.lost()
    assert not port.node.connections


async def test_settling_may_go_unanswered(port, peer, sender, fault):
    await peer.outcome(sender, MESSAGE)
    link = await peer.attached(peer.receiver("orders"))
    link.flow(1)
    peer.flush()
    delivery = await peer.next(DeliveryReceived)
    fault("unanswered", operations=frozenset({Operation.SETTLE}))
    link.settle(delivery.delivery_id, ACCEPTED, settled=False)
    peer.flush()
    await port.until(lambda: port.counts("orders").total == 0)
    await peer.authorize("copies")  # a round trip behind it
    assert not [event for event in peer.history if isinstance(event, DispositionReceived) and event.link is link]


async def test_a_hole_in_one_direction(port, peer, sender, fault):
    end = fault("black-holed", "orders", direction=Direction.OUT)
    peer.send(sender, MESSAGE)
    await port.until(lambda: port.counts("orders").active == 1)
    end()
    fault("black-holed", "orders", direction=Direction.IN)
    link = peer.receiver("orders")
    peer.send(sender, MESSAGE)
    await peer.authorize("copies")
    assert (port.counts("orders").active, link.is_attached) == (1, False)


async def test_tokens_alone_are_refused(peer, fault):
    fault("unauthorized", operations=CONTACT)
    assert (await peer.put_token("sb://127.0.0.1/orders", "any"))[0] == 401


async def test_a_fault_ends_by_itself_while_nothing_happens(port, fault):
    fault("busy", duration_s=0.05)
    assert port.node.faults.active()
    await port.until(lambda: not port.node.faults.active())


def messages(count):
    return [read_message(MESSAGE) for _ in range(count)]


@pytest.mark.parametrize("operations", [(), ("attach",)])
async def test_an_attach_is_as_late_as_its_entity_is_slow(port, peer, sender, fault, operations):
    port.namespace.queue("orders").intake.send([read_message(MESSAGE)])
    fault("latency", "orders", operations=frozenset(map(Operation, operations)), delay_s=0.2)
    began = time.monotonic()
    late = peer.receiver("orders")
    late.flow(1)
    other = peer.sender("copies")
    answered = [(await peer.next(Attached)).link for _ in range(2)]
    assert time.monotonic() - began >= 0.2
    assert answered == [other, late]
    assert (await peer.next(DeliveryReceived)).link is late  # for the credit that was granted while it waited


async def test_who_leaves_while_an_attach_is_late_gets_nothing(port, peer, sender, fault):
    fault("latency", "orders", delay_s=0.05)
    link = peer.receiver("orders")
    link.detach()
    peer.flush()
    await peer.next(Detached)
    await peer.attached(peer.receiver("orders"))
    assert port.namespace.queue("orders").messages.consumers == 1

"""Transactions on the wire: the coordinator's answers, acts in their states, and what ends a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from tests.sandbox.amqp_server.conftest import Clock, open_port

from servicebus_amqp.encoding.codec import Array, Described, Symbol, Timestamp, ULong, encode
from servicebus_amqp.encoding.message_sections import (
    Properties,
    Sections,
    read_map,
    read_value,
    split,
    write_application_properties,
    write_properties,
    write_value,
)
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Source,
    TransactionalState,
    write_composite,
)
from servicebus_amqp.protocol.links import (
    DeliveryReceived,
    Detached,
    DispositionReceived,
    FlowReceived,
    SessionBegun,
    SessionEnded,
)
from servicebus_sandbox.amqp_server.namespace_server import NamespaceServer
from servicebus_sandbox.broker.entity_settings import Tier
from servicebus_sandbox.faults import FaultTerms, Operation
from servicebus_sandbox.specs import NamespaceSpec

VALUE = b"\x00\x53\x77"
DUE = b"\x00\x53\x72" + encode({Symbol("x-opt-scheduled-enqueue-time"): Timestamp(4_000_000_000_000)})
MANAGEMENT = "orders/$management"
_TAGS: Iterator[int] = count(1)


def body_of(name: str) -> bytes:
    return Sections(properties=write_properties(Properties(message_id=name)), body=write_value(name)).join()


class Tx:
    """A peer's coordinator and its transaction."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.id: bytes | None = None

    async def attach(self) -> Tx:
        self.link = self.peer.session.attach_sender(f"tx{next(_TAGS)}", Source(address="here"), Coordinator())
        self.peer.flush()
        await self.peer.attached(self.link)
        await self.peer.next(FlowReceived)
        return self

    async def ask(self, body: Any, **options: Any) -> Any:
        """The coordinator's answer. Like a refusal, a declared one is unsettled first."""
        data = body if isinstance(body, bytes) else VALUE + write_composite(body)
        self.link.send(data, tag=b"c%d" % next(_TAGS), **options)
        self.peer.flush()
        answer = await self.answer(self.link)
        assert answer.settled is isinstance(answer.state, Accepted)
        if not answer.settled:
            assert await self.answer(self.link) == answer._replace(settled=True)
        return answer.state

    async def declare(self) -> bytes:
        state = await self.ask(Declare())
        assert isinstance(state, Declared)
        self.id = state.txn_id
        return state.txn_id

    async def discharge(self, *, fail: bool = False) -> Any:
        return await self.ask(Discharge(txn_id=self.id, fail=fail))

    @property
    def state(self) -> TransactionalState:
        return TransactionalState(txn_id=self.id)

    async def send(self, link: Any, name: str, **options: Any) -> Any:
        """The answer to a message in the transaction."""
        link.send(body_of(name), tag=b"m%d" % next(_TAGS), **{"state": self.state, **options})
        self.peer.flush()
        return (await self.peer.next(DispositionReceived)).state

    async def settle(self, link: Any, delivery: DeliveryReceived, outcome: Any) -> Any:
        link.settle(delivery.delivery_id, TransactionalState(txn_id=self.id, outcome=outcome), settled=False)
        self.peer.flush()
        answer = await self.answer(link)
        assert answer.settled
        return answer.state

    async def answer(self, link: Any) -> DispositionReceived:
        while (found := await self.peer.next(DispositionReceived)).link is not link:
            pass
        return found

    async def request(self, operation: str, body: dict[str, Any], state: Any = None) -> tuple[int, Any]:
        """The status and body of a reply to a request in the transaction."""
        sender = await self.peer.attached(self.peer.sender(MANAGEMENT))
        await self.peer.next(FlowReceived)
        receiver = await self.peer.attached(self.peer.receiver(MANAGEMENT))
        receiver.flow(10)
        message = Sections(
            properties=write_properties(Properties(message_id="r", reply_to=None)),
            application_properties=write_application_properties({"operation": f"com.microsoft:{operation}"}),
            body=write_value(body),
        )
        sender.send(message.join(), tag=b"r%d" % next(_TAGS), state=state or self.state)
        self.peer.flush()
        reply = split((await self.peer.next(DeliveryReceived)).payload)
        sender.detach()
        receiver.detach()
        self.peer.flush()
        return read_map(reply.application_properties)["statusCode"], read_value(reply.body)


@pytest.fixture
async def begun(peer) -> Tx:
    """A peer with a key, a coordinator in a session with other links before it, and a transaction."""
    await peer.authorize("")
    tx = await Tx(peer).attach()
    await tx.declare()
    return tx


async def sender_to(tx: Tx, path: str = "orders") -> Any:
    link = await tx.peer.attached(tx.peer.sender(path))
    await tx.peer.next(FlowReceived)
    return link


def seen(port: Any, path: str = "orders") -> list[str]:
    return [stored.message.message_id for stored in port.namespace.message_queue(path).peek(0, 1000)]


def condition(state: Any) -> str:
    assert isinstance(state, Rejected), state
    return state.error.condition


async def received(tx: Tx, path: str = "orders", messages: int = 1) -> tuple[Any, list[DeliveryReceived]]:
    link = await tx.peer.attached(tx.peer.receiver(path))
    link.flow(messages)
    tx.peer.flush()
    return link, [await tx.peer.next(DeliveryReceived) for _ in range(messages)]


async def test_sends_and_settlements_are_done_at_the_commit(port, begun):
    sender = await sender_to(begun)
    for name in ("a", "b", "c", "d"):
        assert await begun.send(sender, name, state=None) == ACCEPTED
    link, taken = await received(begun, messages=4)
    outcomes = (ACCEPTED, Modified(delivery_failed=True), Modified(undeliverable_here=True), Rejected())
    for delivery, outcome in zip(taken, outcomes, strict=True):
        assert await begun.settle(link, delivery, outcome) == TransactionalState(txn_id=begun.id, outcome=outcome)
    assert await begun.send(sender, "e") == TransactionalState(txn_id=begun.id, outcome=ACCEPTED)
    assert seen(port) == ["a", "b", "c", "d"]
    assert begun.id.startswith(b"txn:")
    assert await begun.discharge() == ACCEPTED
    assert (seen(port), seen(port, "orders/$DeadLetterQueue")) == (["b", "c", "e"], ["d"])


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_rollback_leaves_locks_and_nothing_else(port, begun, size):
    sender = await sender_to(begun)
    await begun.send(sender, "a", state=None)
    link, (delivery,) = await received(begun)
    await begun.settle(link, delivery, ACCEPTED)
    sender.send(body_of("x" * size), tag=b"large", state=begun.state)
    begun.peer.flush()
    assert (await begun.peer.next(DispositionReceived)).state.outcome == ACCEPTED
    assert await begun.discharge(fail=True) == ACCEPTED
    (stored,) = port.namespace.queue("orders").messages.peek(0, 10)
    assert (stored.message.message_id, stored.delivery_count, stored.lock_token) == ("a", 0, delivery.tag)


UNKNOWN = "amqp:transaction:unknown-id"


WRONG_MESSAGES: list[tuple[Any, str]] = [
    (Discharge(), UNKNOWN),
    (Discharge(txn_id=b""), UNKNOWN),
    (Discharge(txn_id=b"txn:foreign", fail=True), UNKNOWN),
    (Declare(global_id="x"), "amqp:not-implemented"),
    (VALUE + b"\xa1\x01x", "com.microsoft:argument-error"),
    (b"\x00\x53\x75\xa0\x01x", "com.microsoft:argument-error"),
    (b"\x00", "com.microsoft:argument-error"),
    (VALUE + write_composite(ACCEPTED), "com.microsoft:argument-error"),
]
"""To a coordinator, and the condition of the answer, at every server."""
WRONG_STATES = [ACCEPTED, Declared(txn_id=b"x"), Described(ULong(0x3F), [])]
"""Of a message, which no link knows."""


@pytest.mark.parametrize(("body", "answer"), WRONG_MESSAGES)
async def test_a_wrong_message_to_the_coordinator_is_rejected_and_the_link_stays(begun, body, answer):
    assert condition(await begun.ask(body)) == answer
    assert await begun.discharge() == ACCEPTED


async def test_a_transaction_ends_once_and_only_on_its_own_connection(port, begun, connect):
    sender = await sender_to(begun)
    other = await Tx(await connect()).attach()
    other.id = begun.id
    assert condition(await other.discharge()) == UNKNOWN
    await begun.send(sender, "a")
    answers = [await begun.discharge(), await begun.discharge(), await begun.discharge(fail=True)]
    assert [answers[0], *map(condition, answers[1:])] == [ACCEPTED, UNKNOWN, UNKNOWN]
    assert condition(await begun.send(sender, "late")) == UNKNOWN
    assert seen(port) == ["a"]


async def test_an_outcome_that_is_none_is_refused(port, begun):
    sender = await sender_to(begun)
    await begun.send(sender, "a", state=None)
    link, (delivery,) = await received(begun)
    assert condition(await begun.settle(link, delivery, None)) == "amqp:not-implemented"
    assert port.namespace.queue("orders").messages.peek(0, 1)[0].lock_token == delivery.tag


@pytest.mark.parametrize("state", WRONG_STATES)
@pytest.mark.parametrize("address", ["orders", "$cbs", MANAGEMENT])
async def test_a_state_that_a_link_does_not_know_is_refused(begun, address, state):
    """A link without transactions refuses a message or an outcome that is in one."""
    link = await sender_to(begun, address)
    assert condition(await begun.send(link, "a", state=state)) == "amqp:not-implemented"


async def test_a_token_is_put_outside_of_transactions(begun):
    assert condition(await begun.send(await sender_to(begun, "$cbs"), "a")) == "amqp:not-implemented"


async def test_requests_belong_to_the_transaction_and_peeks_do_not(port, begun):
    orders = port.namespace.queue("orders")
    sender = await sender_to(begun)
    await begun.send(sender, "a", state=None)
    _, (delivery,) = await received(begun)
    later = Sections(
        message_annotations=DUE,
        properties=write_properties(Properties(message_id="later")),
        body=write_value("x"),
    ).join()
    status, body = await begun.request("schedule-message", {"messages": [{"message-id": "later", "message": later}]})
    (number,) = body["sequence-numbers"].values
    token = Array.of(UUID, [UUID(bytes_le=delivery.tag)])
    settled = await begun.request("update-disposition", {"disposition-status": "completed", "lock-tokens": token})
    peeked = await begun.request("peek-message", {"from-sequence-number": 0, "message-count": 10})
    assert (status, settled[0], peeked[0], len(peeked[1]["messages"])) == (200, 200, 200, 1)
    assert seen(port) == ["a"]
    assert await begun.discharge() == ACCEPTED
    assert seen(port) == ["later"]
    for fail, left in ((True, 1), (False, 0)):
        await begun.declare()
        status, _ = await begun.request("cancel-scheduled-message", {"sequence-numbers": Array.of(int, [number])})
        assert status == 200
        await begun.discharge(fail=fail)
        assert len(orders.intake.schedule) == left


async def test_a_request_in_an_unknown_transaction_is_refused(begun):
    unknown = TransactionalState(txn_id=b"old")
    status, _ = await begun.request("peek-message", {"message-count": 1}, unknown)
    assert status == 400


async def _detach(port, tx):
    tx.link.detach()
    tx.peer.flush()
    await tx.peer.next(Detached)


async def _end_session(port, tx):
    tx.peer.session.end()
    tx.peer.flush()
    await tx.peer.next(SessionEnded)


async def _lose_connection(port, tx):
    tx.peer.transport.abort()
    await port.until(lambda: not port.node.connections)


async def _two_minutes(port, tx):
    port.jump(timedelta(seconds=121))


@pytest.mark.parametrize("end", [_detach, _end_session, _lose_connection, _two_minutes])
async def test_what_ends_a_transaction_frees_what_it_held(port, begun, end):
    orders = port.namespace.queue("orders")
    sender = await sender_to(begun)
    await begun.send(sender, "b")
    await end(port, begun)
    assert seen(port) == []
    assert sum(len(connection.transactions) for connection in port.node.connections) == 0
    assert orders.intake._held == 0


async def test_a_client_that_hangs_holds_nothing_beyond_its_lock(port, begun, connect):
    """Its connection stays, as does that of a machine that sleeps."""
    sender = await sender_to(begun)
    await begun.send(sender, "a", state=None)
    link, (delivery,) = await received(begun)
    await begun.settle(link, delivery, ACCEPTED)
    port.jump(timedelta(seconds=61))
    (stored,) = port.namespace.queue("orders").messages.peek(0, 10)
    assert (stored.lock_token, stored.delivery_count) == (None, 1)
    assert condition(await begun.discharge()) == "amqp:transaction:rollback"


async def test_a_lock_that_has_ended_on_the_clock_counts_before_the_broker_runs(port, begun):
    sender = await sender_to(begun)
    await begun.send(sender, "a", state=None)
    link, (delivery,) = await received(begun)
    await begun.settle(link, delivery, ACCEPTED)
    port.clock.ahead += 61
    assert condition(await begun.discharge()) == "amqp:transaction:rollback"


async def test_a_coordinator_needs_no_token_and_open_transactions_are_bounded(connect):
    tx = await Tx(await connect()).attach()
    answers = []
    for _ in range(1001):
        tx.link.send(VALUE + write_composite(Declare()), tag=b"d%d" % next(_TAGS))
    tx.peer.flush()
    while len(answers) < 1001:
        answer = await tx.peer.next(DispositionReceived)
        answers += [answer.state] if answer.settled else []
    assert all(isinstance(answer, Declared) for answer in answers[:1000])
    assert condition(answers[1000]) == "amqp:resource-limit-exceeded"


async def test_the_tier_basic_has_no_transactions(connect, refused):
    """The sandbox has transactions in the tiers Standard and Premium."""
    clock = Clock()
    node = NamespaceServer(NamespaceSpec("small", tier=Tier.BASIC), clock=clock)
    async with open_port(node, clock) as port, asyncio.timeout(60):
        peer = await connect(port)
        with pytest.raises(refused, match="tier Basic, which has no transactions") as found:
            await Tx(peer).attach()
    assert found.value.condition == "amqp:not-implemented"


# -- several entities


async def spanning(peer: Any) -> Tx:
    """A transaction whose coordinator, the second of two, is in a session that began with one."""
    await peer.authorize("")
    await new_session(peer)
    await Tx(peer).attach()
    tx = await Tx(peer).attach()
    await tx.declare()
    return tx


async def new_session(peer: Any) -> None:
    peer.session = peer.amqp.begin()
    peer.flush()
    await peer.next(SessionBegun)


async def test_a_session_that_begins_with_a_coordinator_spans_entities(port, peer, refused):
    """A session that begins with a coordinator receives from its first entity alone and sends to all."""
    tx = await spanning(peer)
    for name, to in (("a", "orders"), ("b", "copies"), ("c", "audit")):
        assert (await tx.send(await sender_to(tx, to), name)).outcome == ACCEPTED
    assert (seen(port), seen(port, "copies")) == ([], [])
    await tx.discharge()
    assert (seen(port), seen(port, "copies"), seen(port, "audit/subscriptions/all")) == (["a"], ["b"], ["c"])
    for other in ("copies", "audit/subscriptions/all"):
        with pytest.raises(refused, match="cannot span multiple top-level entities") as found:
            await peer.attached(peer.receiver(other))
        assert found.value.condition == "amqp:not-allowed"
    await peer.attached(peer.receiver("orders/$DeadLetterQueue"))
    peer.session.end()
    peer.flush()
    await peer.next(SessionEnded)
    await new_session(peer)
    await Tx(peer).attach()
    await peer.attached(peer.receiver("copies"))


async def test_a_topic_and_its_subscriptions_are_one_entity(port, peer):
    """A topic and its subscriptions are one."""
    tx = await spanning(peer)
    sender = await sender_to(tx, "audit")
    await tx.send(sender, "a", state=None)
    link, (delivery,) = await received(tx, "audit/subscriptions/all")
    await tx.settle(link, delivery, ACCEPTED)
    await tx.send(sender, "b")
    assert await tx.discharge() == ACCEPTED
    assert seen(port, "audit/subscriptions/all") == ["b"]


async def test_another_session_stays_with_one_entity(port, begun):
    """Every other transaction has one entity."""
    first, second = await sender_to(begun), await sender_to(begun, "copies")
    await begun.send(first, "a")
    assert condition(await begun.send(second, "b")) == "amqp:not-allowed"
    await begun.discharge()
    assert (seen(port), seen(port, "copies")) == (["a"], [])


# -- faults


@pytest.mark.parametrize("operation", [Operation.DECLARE, Operation.DISCHARGE])
@pytest.mark.parametrize("kind", ["unanswered", "acknowledgement-lost", "black-holed", "busy", "detached"])
async def test_faults_of_the_coordinator(port, begun, kind, operation):
    """An unanswered commit is done, a lost acknowledgement's too; what is refused or swallowed is not."""
    sender = await sender_to(begun)
    await begun.send(sender, "a")
    port.node.faults.add(kind, terms=FaultTerms(operations=frozenset({operation})))
    is_commit = operation is Operation.DISCHARGE
    body = Discharge(txn_id=begun.id) if is_commit else Declare()
    if kind == "busy":
        assert condition(await begun.ask(body)) == "com.microsoft:server-busy"
    else:
        begun.link.send(VALUE + write_composite(body), tag=b"f")
        begun.peer.flush()
        if kind == "acknowledgement-lost":
            await begun.peer.lost()
        elif kind == "detached":
            await begun.peer.next(Detached)
        else:
            await begun.send(sender, "later", state=None)
    is_done = is_commit and kind in ("unanswered", "acknowledgement-lost")
    assert ("a" in seen(port)) is is_done

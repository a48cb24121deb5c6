"""Transactions through the gateway, by a client that speaks AMQP itself, over two sandboxed namespaces."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Delivered, Diverted, InDoubt, StateChanged
from paired_servicebus.engine.gateway import transactions as under_test
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender
from servicebus_amqp.access import sign
from servicebus_amqp.encoding.codec import Array, Symbol
from servicebus_amqp.encoding.message_sections import BATCH_FORMAT, Sections, split, write_data
from servicebus_amqp.encoding.performatives import (
    ACCEPTED,
    Declare,
    Declared,
    Discharge,
    Rejected,
    TransactionalState,
    write_composite,
)
from servicebus_amqp.nodes import coordination
from servicebus_amqp.protocol.links import Detached, DispositionReceived, SessionBegun, SessionEnded
from servicebus_sandbox.faults import FaultTerms, Operation
from tests.engine.gateway.relay_setting import BOTH, Setting, relay_setting
from tests.pairing.conftest import until
from tests.sandbox.amqp_server.conftest import Peer, Refused
from tests.sandbox.amqp_server.test_transactions import (
    DUE,
    MANAGEMENT,
    UNKNOWN,
    VALUE,
    WRONG_MESSAGES,
    WRONG_STATES,
    Tx,
    body_of,
    condition,
    new_session,
    received,
    sender_to,
)

BACKLOG = "primary/x-servicebus-transfer/0"
LATER = {
    "message-id": "later",
    "message": split(body_of("later"))._replace(message_annotations=DUE).join(),
}
ANY = {Symbol("product"): "a client"}
DOTNET = ANY | {Symbol("user-agent"): "azsdk-net-Azure.Messaging.ServiceBus/7.21.0"}


class Place:
    """A gateway, and clients of it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.world = setting.world
        self.peers: list[Peer] = []

    async def connect(self, *, is_stranger: bool = False, kind: type[Peer] = Peer, **settings: Any) -> Peer:
        loop = asyncio.get_running_loop()
        port = self.setting.gateway.port
        _, peer = await loop.create_connection(partial(kind, **settings), "127.0.0.1", port)
        self.peers.append(peer)
        await peer.next(SessionBegun)
        if is_stranger:
            return peer
        audience = f"sb://127.0.0.1:{port}/"
        assert (await peer.put_token(audience, sign(audience, BOTH.name, BOTH.key, time.time() + 3600)))[0] == 202
        return peer

    async def begun(self, *, spans: bool = False, **settings: Any) -> Tx:
        """A client with an open transaction; spans: its session begins with the coordinator."""
        peer = await self.connect(**settings)
        if spans:
            await new_session(peer)
        tx = await Tx(peer).attach()
        await tx.declare()
        return tx

    def fail_over(self, *entities: str) -> None:
        for entity in entities:
            self.setting.paired.watch(entity)
            self.setting.paired.force(entity, by="kim")

    def fault(self, kind: str, *operations: Operation, namespace: str = "primary") -> Callable[[], None]:
        board = self.world.sandbox[namespace].node.faults
        begun = board.add(kind, terms=FaultTerms(operations=frozenset(operations)))
        return lambda: board.remove(begun.id)

    @property
    def orders(self) -> list[str]:
        return self.world.ids_in("orders")

    @property
    def audit(self) -> list[str]:
        node = self.world.sandbox["primary"].node
        queue = node.namespace.message_queue("audit/subscriptions/all")
        return [str(stored.message.message_id) for stored in queue.peek(0, 1000)]

    @property
    def backlog(self) -> list[str]:
        return self.world.ids_in(BACKLOG, namespace="secondary")

    def journal(self, kind: type[Any]) -> list[str]:
        return [event.message_id for event in self.world.told(kind)]

    def open_transactions(self, namespace: str = "primary") -> int:
        return sum(len(each.transactions) for each in self.world.sandbox[namespace].node.connections)


@asynccontextmanager
async def place_of(**options: Any) -> AsyncIterator[Place]:
    async with relay_setting(**{"journal": "all", "send_timeout": 30.0} | options) as setting, asyncio.timeout(60):
        place = Place(setting)
        try:
            yield place
        finally:
            for peer in place.peers:
                peer.transport.abort()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with place_of() as found:
        yield found


def words(state: Any) -> str:
    """The whole refusal."""
    assert isinstance(state, Rejected), state
    assert state.error is not None
    return f"{state.error.condition}: {state.error.description}"


# -- in health


async def test_what_goes_to_the_primary_is_done_at_the_commit(place: Place) -> None:
    """Its acts go to the primary in a transaction of the primary's; nothing is seen before the commit."""
    tx = await place.begun()
    sender = await sender_to(tx)
    assert await tx.send(sender, "a", state=None) == ACCEPTED
    link, (delivery,) = await received(tx)
    assert await tx.settle(link, delivery, ACCEPTED) == TransactionalState(txn_id=tx.id, outcome=ACCEPTED)
    assert await tx.send(sender, "b") == TransactionalState(txn_id=tx.id, outcome=ACCEPTED)
    sender.send(body_of("c" * 100_000), tag=b"large", state=tx.state)
    tx.peer.flush()
    await tx.peer.next(DispositionReceived)
    assert (place.orders, place.journal(Delivered)) == (["a"], ["a"])
    assert await tx.discharge() == ACCEPTED
    assert place.orders == ["b", "c" * 100_000]
    assert place.journal(Delivered) == ["a", "b", "c" * 100_000]
    assert not place.world.told(InDoubt)
    assert place.world.told(StateChanged)[-1].now is State.HEALTHY


async def test_a_send_goes_straight_once_its_transaction_is_declared_at_the_primary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a task of its own; its answer leaves with the read that brought it."""
    whole = Mock(side_effect=EncodedSender.send, autospec=True)
    monkeypatch.setattr(EncodedSender, "send", lambda *given, **options: whole(*given, **options))
    async with place_of(journal="diverted") as quick:
        tx = await quick.begun()
        sender = await sender_to(tx)
        for number in range(3):
            assert (await tx.send(sender, str(number))).outcome == ACCEPTED
        assert whole.call_count == 1
        quick.fault("full", Operation.SEND)
        assert condition(await tx.send(sender, "refused")) == "com.microsoft:timeout"
        await tx.answer(sender)
        assert condition(await tx.discharge()) == "amqp:transaction:rollback"
        assert quick.orders == []


async def test_a_rollback_leaves_locks_and_nothing_else(place: Place) -> None:
    tx = await place.begun()
    sender = await sender_to(tx)
    await tx.send(sender, "a", state=None)
    link, (delivery,) = await received(tx)
    await tx.settle(link, delivery, ACCEPTED)
    await tx.send(sender, "b")
    assert await tx.discharge(fail=True) == ACCEPTED
    (stored,) = place.world.sandbox["primary"].node.namespace.queue("orders").messages.peek(0, 10)
    assert (stored.message.message_id, stored.delivery_count, stored.lock_token) == ("a", 0, delivery.tag)
    assert (place.journal(Delivered), place.open_transactions()) == (["a"], 0)


@pytest.mark.parametrize("state", WRONG_STATES)
@pytest.mark.parametrize("address", ["orders", "$cbs", MANAGEMENT])
async def test_a_state_that_a_link_does_not_know_is_refused(place: Place, address: str, state: Any) -> None:
    tx = await place.begun()
    assert condition(await tx.send(await sender_to(tx, address), "a", state=state)) == "amqp:not-implemented"


@pytest.mark.parametrize(("body", "answer"), WRONG_MESSAGES)
async def test_a_wrong_message_to_the_coordinator_is_rejected_and_the_link_stays(
    place: Place, body: Any, answer: str
) -> None:
    tx = await place.begun()
    assert condition(await tx.ask(body)) == answer
    assert await tx.discharge() == ACCEPTED


async def test_a_transaction_ends_once_and_only_on_its_own_connection(place: Place) -> None:
    tx, other = await place.begun(), await place.begun()
    own, other.id = other.id, tx.id
    assert condition(await other.discharge()) == UNKNOWN
    assert condition(await other.send(await sender_to(other), "foreign")) == UNKNOWN
    sender = await sender_to(tx)
    await tx.send(sender, "a")
    for fail in (False, True):  # two at once
        tx.link.send(VALUE + write_composite(Discharge(txn_id=tx.id, fail=fail)), tag=b"%d" % fail)
    tx.peer.flush()
    answers: list[Any] = []
    while len(answers) < 2:
        found = await tx.peer.next(DispositionReceived)
        answers += [found.state] if found.settled else []
    assert sorted(type(answer).__name__ for answer in answers) == ["Accepted", "Rejected"]
    assert condition(await tx.send(sender, "late")) == UNKNOWN
    assert place.orders == ["a"]
    other.id = own
    assert await other.discharge() == ACCEPTED


async def test_requests_belong_to_the_transaction(place: Place) -> None:
    """Schedule and cancel in a scope go to the primary in its transaction, as every other request."""
    tx = await place.begun()
    status, body = await tx.request("schedule-message", {"messages": [LATER]})
    (number,) = body["sequence-numbers"].values
    peeked = await tx.request("peek-message", {"from-sequence-number": 0, "message-count": 10})
    unknown = await tx.request("peek-message", {"message-count": 1}, TransactionalState(txn_id=b"old"))
    assert (status, peeked[0], unknown[0], place.orders) == (200, 204, 400, [])
    assert await tx.discharge() == ACCEPTED
    assert place.orders == ["later"]
    for fail, left in ((True, ["later"]), (False, [])):
        await tx.declare()
        status, _ = await tx.request("cancel-scheduled-message", {"sequence-numbers": Array.of(int, [number])})
        assert status == 200
        await tx.discharge(fail=fail)
        assert place.orders == left


# -- several entities


async def test_a_session_that_begins_with_a_coordinator_spans_entities(place: Place) -> None:
    """It receives from its first entity alone, and sends to all."""
    tx = await place.begun(spans=True)
    for name, to in (("a", "orders"), ("b", "audit")):
        assert (await tx.send(await sender_to(tx, to), name)).outcome == ACCEPTED
    assert (place.orders, place.audit) == ([], [])
    assert await tx.discharge() == ACCEPTED
    assert (place.orders, place.audit) == (["a"], ["b"])
    with pytest.raises(Refused, match="cannot span multiple top-level entities") as found:
        await tx.peer.attached(tx.peer.receiver("audit/subscriptions/all"))
    assert found.value.condition == "amqp:not-allowed"
    await received(tx)
    tx.peer.session.end()
    tx.peer.flush()
    await tx.peer.next(SessionEnded)
    await new_session(tx.peer)
    await Tx(tx.peer).attach()
    await tx.peer.attached(tx.peer.receiver("audit/subscriptions/all"))


async def test_its_first_sender_names_the_primarys_first_entity_too(place: Place) -> None:
    """The first link counts when it attaches, though its own first act comes later or never."""
    tx = await place.begun(spans=True)
    await sender_to(tx)
    await tx.send(await sender_to(tx, "audit"), "b")
    await tx.peer.attached(tx.peer.receiver("orders"))
    assert await tx.discharge() == ACCEPTED
    assert place.audit == ["b"]


async def test_another_session_stays_with_one_entity(place: Place) -> None:
    tx = await place.begun(properties=DOTNET)
    first, second = await sender_to(tx), await sender_to(tx, "audit")
    await tx.send(first, "a")
    assert condition(await tx.send(second, "b")) == "amqp:not-allowed"
    assert await tx.discharge() == ACCEPTED
    assert (place.orders, place.audit) == (["a"], [])


# -- a failed over entity


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
async def test_sends_to_a_failed_over_entity_are_held_until_the_commit(place: Place, fail: bool) -> None:
    """Sends to an entity that has failed over are held; the commit sends them to one backlog queue in one batch."""
    tx = await place.begun(spans=True)
    sender = await sender_to(tx)
    for name in "ab":
        await tx.send(sender, name, state=None)
    link, (first, _) = await received(tx, messages=2)
    place.fail_over("audit")
    other = await sender_to(tx, "audit")
    await tx.settle(link, first, ACCEPTED)
    assert (await tx.send(other, "x")).outcome == ACCEPTED
    batch = Sections(body=b"".join(write_data(body_of(name)) for name in "yz")).join()
    other.send(batch, tag=b"batch", state=tx.state, message_format=BATCH_FORMAT)
    tx.peer.flush()
    await tx.peer.next(DispositionReceived)
    held = place.setting.gateway.budgets.whole
    assert (place.backlog, place.orders, held.held) == ([], ["a", "b"], held.size)
    assert held.held > 0
    assert await tx.discharge(fail=fail) == ACCEPTED
    assert (place.backlog, place.orders) == (([], ["a", "b"]) if fail else (["x", "y", "z"], ["b"]))
    assert place.journal(Diverted) == place.backlog
    assert (held.size, held.held, place.open_transactions()) == (0, 0, 0)


async def test_a_commit_above_one_batch_is_refused_and_says_so(place: Place) -> None:
    """What one batch of the backlog cannot hold is refused whole, at the primary too."""
    tx = await place.begun(spans=True)
    sender = await sender_to(tx)
    place.fail_over("audit")
    other = await sender_to(tx, "audit")
    await tx.send(sender, "a")
    for number in range(3):
        assert (await tx.send(other, f"{number}" * 90_000)).outcome == ACCEPTED
    answer = words(await tx.discharge())
    assert "amqp:link:message-size-exceeded: the " in answer
    assert "too many for one batch of the backlog" in answer
    assert (place.backlog, place.orders, place.open_transactions()) == ([], [], 0)
    assert place.setting.gateway.budgets.whole.size == 0


async def test_what_a_key_may_not_hold_is_refused_and_reading_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held bytes count in the key's budget."""
    monkeypatch.setattr(place.setting.gateway.budgets.whole, "_most", 200_000)
    tx = await place.begun()
    place.fail_over("orders")
    sender = await sender_to(tx)
    assert (await tx.send(sender, "x" * 40_000)).outcome == ACCEPTED
    assert condition(await tx.send(sender, "y" * 60_000)) == "amqp:resource-limit-exceeded"
    await tx.answer(sender)
    assert (await tx.send(sender, "z")).outcome == ACCEPTED
    await tx.discharge(fail=True)
    assert place.setting.gateway.budgets.whole.size == 0


async def test_a_transaction_sends_100_messages(place: Place) -> None:
    tx = await place.begun(properties=DOTNET)
    place.fail_over("orders")
    sender = await sender_to(tx)
    for number in range(100):
        assert (await tx.send(sender, str(number))).outcome == ACCEPTED
    assert condition(await tx.send(sender, "one more")) == "amqp:resource-limit-exceeded"
    assert await tx.discharge() == ACCEPTED
    assert len(place.backlog) == 100


async def test_a_schedule_for_a_failed_over_entity_is_held(place: Place) -> None:
    tx = await place.begun()
    place.fail_over("orders")
    status, body = await tx.request("schedule-message", {"messages": [LATER]})
    assert (status, place.backlog) == (200, [])
    assert [number < 0 for number in body["sequence-numbers"].values] == [True]
    assert await tx.discharge() == ACCEPTED
    assert place.backlog == ["later"]


async def test_a_commit_that_the_backlog_does_not_accept_is_refused_whole(place: Place) -> None:
    """If the backlog fails, the primary is rolled back: no message is lost, none has come."""
    tx = await place.begun(spans=True)
    sender = await sender_to(tx)
    place.fail_over("audit")
    other = await sender_to(tx, "audit")
    await tx.send(sender, "a")
    await tx.send(other, "x")
    place.fault("full", Operation.SEND, namespace="secondary")
    assert words(await tx.discharge()).startswith("amqp:transaction:rollback: its sends for failed over entities")
    assert (place.backlog, place.orders, place.open_transactions()) == ([], [], 0)


# -- refusals and doubts


REFUSED_SENDS = {
    "no message": ("orders", b"\x00", "com.microsoft:argument-error"),
    "too large": ("orders", body_of("x" * 300_000), "amqp:link:message-size-exceeded"),
    "another entity": ("audit", body_of("x"), "amqp:not-allowed"),
}


@pytest.mark.parametrize(("properties", "is_done"), [(ANY, False), (DOTNET, True)], ids=["any client", ".NET"])
@pytest.mark.parametrize("refused", REFUSED_SENDS)
async def test_after_a_refused_send_only_dotnet_commits_the_rest(
    place: Place, refused: str, properties: dict[Any, Any], is_done: bool
) -> None:
    """A refused send fails the commit, but .NET's, whose SDK raises it. Java's hides it."""
    to, data, refusal = REFUSED_SENDS[refused]
    tx = await place.begun(properties=properties)
    await tx.send(await sender_to(tx), "a")
    sender = await sender_to(tx, to)
    sender.send(data, tag=b"wrong", state=tx.state)
    tx.peer.flush()
    assert condition((await tx.answer(sender)).state) == refusal
    await tx.answer(sender)
    answer = await tx.discharge()
    assert (answer == ACCEPTED) is is_done
    assert place.orders == (["a"] if is_done else [])
    if not is_done:
        assert words(answer).startswith("amqp:transaction:rollback: the transaction was rolled back, a send was ref")


async def test_a_commit_without_an_answer_is_in_doubt(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was forwarded and not answered is in doubt: its refusal and the journal say so."""
    monkeypatch.setattr(under_test, "COORDINATOR_SECONDS", 0.3)
    tx = await place.begun(spans=True)
    sender = await sender_to(tx)
    place.fail_over("audit")
    await tx.send(sender, "a")
    await tx.send(await sender_to(tx, "audit"), "x")
    place.fault("unanswered", Operation.DISCHARGE)
    answer = words(await tx.discharge())
    assert answer.startswith("com.microsoft:timeout: the primary has not answered the commit, which is in doubt")
    assert answer.endswith("1 of its sends are in the backlog already and may come twice")
    assert (place.orders, place.backlog) == (["a"], ["x"])
    assert (place.journal(InDoubt), place.journal(Diverted), place.journal(Delivered)) == (["a"], ["x"], [])


async def test_a_commit_that_the_primary_refuses_says_what_may_come_twice(place: Place) -> None:
    tx = await place.begun(spans=True)
    sender = await sender_to(tx)
    place.fail_over("audit")
    await tx.send(sender, "a")
    await tx.send(await sender_to(tx, "audit"), "x")
    place.fault("busy", Operation.DISCHARGE)
    assert "in the backlog already and may come twice" in words(await tx.discharge())
    assert (place.orders, place.backlog, place.journal(Delivered)) == ([], ["x"], [])


async def test_with_the_primary_its_acts_are_lost_and_the_coordinator_stays(place: Place) -> None:
    """The primary lost: acts get `com.microsoft:timeout`, the commit `amqp:transaction:rollback`."""
    tx = await place.begun()
    sender = await sender_to(tx)
    await tx.send(sender, "a")
    heal = place.world.fault("refused")
    await until(lambda: place.open_transactions() == 0)
    assert condition(await tx.send(sender, "b")) == "com.microsoft:timeout"
    assert condition(await tx.discharge()) == "amqp:transaction:rollback"
    heal()
    assert isinstance(await tx.ask(Declare()), Declared)


async def test_an_act_without_an_answer_dooms_the_commit() -> None:
    """The primary may have it or not, so the transaction cannot be committed; its message is not in doubt."""
    async with place_of(send_timeout=1.0, failover_interval=30) as brisk:
        tx = await brisk.begun()
        sender = await sender_to(tx)
        await tx.send(sender, "a", state=None)
        heal = brisk.fault("unanswered", Operation.SEND)
        assert condition(await tx.send(sender, "b")) == "com.microsoft:timeout"
        heal()
        assert condition(await tx.discharge()) == "amqp:transaction:rollback"
        assert (brisk.orders, brisk.journal(InDoubt)) == (["a"], [])
        assert brisk.world.told(StateChanged)[-1].now is State.SUSPECT


async def test_a_send_that_waits_for_a_failover_is_held_then() -> None:
    """Its client sees no refusal that would use up its retries."""
    async with place_of(send_timeout=5.0, failover_interval=0.5, hold_until_failover=True) as patient:
        tx = await patient.begun()
        sender = await sender_to(tx)
        await tx.send(sender, "before", state=None)
        patient.fault("disabled", Operation.SEND)
        assert (await tx.send(sender, "x")).outcome == ACCEPTED
        assert await tx.discharge() == ACCEPTED
        assert (patient.backlog, patient.orders) == (["x"], ["before"])


# -- ends that nobody asked for


async def _detach(tx: Tx) -> None:
    tx.link.detach()
    tx.peer.flush()
    await tx.peer.next(Detached)


async def _end_session(tx: Tx) -> None:
    tx.peer.session.end()
    tx.peer.flush()
    await tx.peer.next(SessionEnded)


async def _lose_connection(tx: Tx) -> None:
    tx.peer.transport.abort()


async def _wait(tx: Tx) -> None:
    """Two minutes, which the test has shortened."""


@pytest.mark.parametrize("end", [_detach, _end_session, _lose_connection, _wait])
async def test_what_ends_a_transaction_frees_what_it_held(
    place: Place, end: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes, a lost coordinator and a lost connection roll back: locks end in their time, sends are gone."""
    monkeypatch.setattr(coordination, "TIMEOUT_SECONDS", 1.0 if end is _wait else 120.0)
    tx = await place.begun(spans=True)
    sender = await sender_to(tx)
    await tx.send(sender, "locked", state=None)
    link, (delivery,) = await received(tx)
    await tx.settle(link, delivery, ACCEPTED)
    place.fail_over("audit")
    other = await sender_to(tx, "audit")
    await tx.send(sender, "a")
    await tx.send(other, "x")
    await end(tx)
    held = place.setting.gateway.budgets.whole
    await until(lambda: (place.open_transactions(), held.held, held.size) == (0, 0, 0))
    assert (place.orders, place.backlog) == (["locked"], [])
    (stored,) = place.world.sandbox["primary"].node.namespace.queue("orders").messages.peek(0, 10)
    if end in (_detach, _wait):  # its receiver is there: the lock goes on, and ends in its time
        assert (stored.lock_token, stored.delivery_count) == (delivery.tag, 0)
    if end is _wait:
        assert condition(await tx.discharge()) == UNKNOWN


async def test_the_end_of_the_gateway_waits_for_open_transactions(place: Place) -> None:
    """At the end of the engine open transactions have `close_grace`; new ones are refused."""
    tx = await place.begun()
    sender = await sender_to(tx)
    await tx.send(sender, "a")
    closing = asyncio.ensure_future(place.setting.gateway.close(30))
    await until(lambda: any(each.transactions._is_draining for each in place.setting.gateway.connections))
    assert condition(await tx.ask(Declare())) == "com.microsoft:timeout"
    await tx.send(sender, "b")
    assert await tx.discharge() == ACCEPTED
    await closing
    assert place.orders == ["a", "b"]


async def test_a_coordinator_needs_no_token_and_every_act_does(place: Place) -> None:
    """It is served before a token, which Java never puts for it; its acts need rights of their own."""
    tx = await place.begun(is_stranger=True)
    with pytest.raises(Refused, match="'Send' claim"):
        await tx.peer.attached(tx.peer.sender("orders"))
    assert await tx.discharge() == ACCEPTED


async def test_open_transactions_are_bounded(place: Place) -> None:
    tx = await place.begun()
    for number in range(1000):
        tx.link.send(VALUE + write_composite(Declare()), tag=b"d%d" % number)
    tx.peer.flush()
    answers: list[Any] = []
    while len(answers) < 1000:
        answer = await tx.peer.next(DispositionReceived)
        answers += [answer.state] if answer.settled else []
    assert all(isinstance(answer, Declared) for answer in answers[:999])
    assert condition(answers[999]) == "amqp:resource-limit-exceeded"
    assert place.open_transactions() == 0  # none has an act at the primary


# -- against a model


@dataclass
class Model:
    """What the namespaces should have."""

    orders: list[str] = field(default_factory=list)
    audit: list[str] = field(default_factory=list)
    backlog: list[str] = field(default_factory=list)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_random_transactions_do_what_a_model_does(place: Place, seed: int) -> None:
    """A commit does all acts in their order, a rollback none; whatever fails over, and when."""
    chance, model = random.Random(seed), Model()
    peer = (await place.begun(spans=True)).peer
    senders = {name: await sender_to(Tx(peer), name) for name in ("orders", "audit")}
    failed_over: set[str] = set()
    opened: list[tuple[Tx, list[tuple[str, str, bool]]]] = []
    for step in range(60):
        what = chance.choice(["declare", "send", "send", "send", "plain", "commit", "roll back", "turn"])
        to = chance.choice(["orders", "audit"])
        name = f"m{step}"
        if what == "declare" and len(opened) < 4:
            tx = await Tx(peer).attach()
            await tx.declare()
            opened.append((tx, []))
        elif what == "turn" and step > 5 and to not in failed_over:  # for good: the model has no syphon
            place.fail_over(to)
            failed_over.add(to)
        elif what == "plain":
            await Tx(peer).send(senders[to], name, state=None)
            (model.backlog if to in failed_over else getattr(model, to)).append(name)
        elif opened and what == "send":
            tx, acts = chance.choice(opened)
            assert (await tx.send(senders[to], name)).outcome == ACCEPTED
            acts.append((name, to, to in failed_over))
        elif opened and what in ("commit", "roll back"):
            tx, acts = opened.pop(chance.randrange(len(opened)))
            assert await tx.discharge(fail=what == "roll back") == ACCEPTED
            for name, to, is_held in acts if what == "commit" else ():
                (model.backlog if is_held else getattr(model, to)).append(name)
        assert (place.orders, place.audit) == (model.orders, model.audit)
        assert place.journal(Diverted) == model.backlog
    for tx, _ in opened:
        await tx.discharge(fail=True)
    assert (place.open_transactions(), place.setting.gateway.budgets.whole.size) == (0, 0)

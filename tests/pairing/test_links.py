"""Links that stand ready, those to the backlog queues over one connection, and the callers who share them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from paired_servicebus.core import errors
from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import (
    Diverted,
    InDoubt,
    PingAccepted,
    QueuePulled,
    StateChanged,
    Warned,
)
from paired_servicebus.core.model.verdict import KIND_BY_CONDITION, kind_of
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.envelope_codec import EncodedMessage
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.sending import pairing_links, sender_link
from paired_servicebus.pairing.sending.amqp_link import BacklogLink, ConnectionCutError, sdk_error
from paired_servicebus.pairing.sending.sdk_messages import EncodedBatch, Sendable, batch_key, encoded, id_of
from paired_servicebus.pairing.sending.sender_link import Coalescer, PendingSend, SdkSenderLink

from .backlogs import bodies_in, queue_path
from .conftest import World, until
from .test_outage import state

PATIENT = {"send_timeout": 30.0}


def grow_old(world: World, namespace: str = "primary") -> None:
    """Eleven minutes in which nothing passes: the namespace cuts idle links."""
    node = world.sandbox[namespace].node
    node.clock.advance(660)
    node.clock_jumped()


async def test_a_link_that_was_cut_while_idle_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 6: "While healthy, no behavior changes occur": a quiet entity does not fail over for its quiet. Section
    5: "connection refused, reset, lost" counts, of a link in use."""
    paired = await world.pair(failover_interval=0, **PATIENT)
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"one"))
        with monkeypatch.context() as idle:
            idle.setattr(sender_link, "IDLE_SECONDS", 0.0)
            grow_old(world)
            await sender.send_messages(ServiceBusMessage(b"two"))
        assert (world.depth("orders"), world.parked()) == (2, 0)
        assert state(paired, "orders") is State.HEALTHY
        grow_old(world)
        await sender.send_messages(ServiceBusMessage(b"three"))
    assert (world.depth("orders"), world.parked()) == (2, 1)


async def test_an_idle_backlog_link_is_opened_anew_before_it_is_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing_links, "RENEW_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(pairing_links, "CHECK_SECONDS", 0.05)
    paired = await world.pair(backlog_queue_count=1, **PATIENT)
    link = paired._standby.queues[0].link
    await until(lambda: link.is_open)
    assert isinstance(link, BacklogLink)
    first = link._attachment
    await until(lambda: link._attachment is not first)
    paired.watch("orders")
    paired.force("orders", by="kim")
    async with paired.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert world.parked(1) == 1


async def test_backlog_links_open_by_themselves_once_the_secondary_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secondary as well: recovery with no restart."""
    monkeypatch.setattr(pairing_links, "CHECK_SECONDS", 0.05)
    paired = await world.pair(backlog_queue_count=1, **PATIENT)
    link = paired._standby.queues[0].link
    await until(lambda: link.is_open)
    heal = world.fault("refused", namespace="secondary")
    assert isinstance(link, BacklogLink)
    link.retire()
    await until(lambda: [warned.about for warned in world.told(Warned)] == ["secondary"])
    heal()
    await until(lambda: link.is_open)
    assert len(world.told(Warned)) == 1  # said once, not with every try


async def test_at_the_failback_one_sender_has_the_pings_link_and_the_others_use_it_until_theirs_are_open(
    world: World,
) -> None:
    """Section 6: "all senders use the primary at once, pings stop": no send waits for a link to open."""
    paired = await world.pair(failover_interval=0, ping_primary_interval=1.0, ping_timeout=30.0, **PATIENT)
    senders = [paired.get_queue_sender("orders") for _ in range(3)]
    for sender in senders:
        await sender.send_messages(ServiceBusMessage(b"before"))
    heal = world.fault("refused", entity="orders")
    for sender in senders:
        await sender.send_messages(ServiceBusMessage(b"during"))
    seen: list[list[bool]] = []

    def look(event: object) -> None:
        """In the very turn of the failback, right after it."""
        if isinstance(event, StateChanged) and event.now == State.HEALTHY:
            paired._steering.tasks.start(note(), name="a look at the links")

    async def note() -> None:
        seen.append([paired._primaries.nearest(sender._primary).is_open for sender in senders])

    world.also = look
    heal()
    await until(lambda: seen)
    assert seen == [[True, True, True]]
    assert world.told(PingAccepted)
    await until(lambda: all(sender._primary.is_open for sender in senders))
    for sender in senders:
        await sender.send_messages(ServiceBusMessage(b"after"))
    assert world.depth("orders") == 6


async def test_a_released_entity_has_its_links_opened_again(world: World) -> None:
    """Section 6: "release clears forced or pinned"."""
    paired = await world.pair(**PATIENT)
    sender = paired.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage(b"before"))
    paired.force("orders", by="kim")
    sender._primary.discard()
    paired.pin("orders", by="kim")
    await until(lambda: sender._primary.is_open)
    await sender.send_messages(ServiceBusMessage(b"after"))
    assert world.depth("orders") == 2


async def test_a_link_that_is_being_closed_stands_in_for_no_other(world: World) -> None:
    """One sender's end is not another's failure."""
    paired = await world.pair(**PATIENT)
    closing = paired.get_queue_sender("orders")
    await closing.send_messages(ServiceBusMessage(b"x"))
    link = closing._primary
    assert link._lock.acquire_nowait()
    ending = asyncio.create_task(closing.close())
    await asyncio.sleep(0)
    assert not link.is_open
    link._lock.release()
    await ending


async def test_bytes_arrive_whole_over_a_link_of_the_sdk_that_opens_for_them(world: World) -> None:
    """An accepted message is never lost: what arrives is what was sent."""
    messages = [encoded(ServiceBusMessage(b"x", message_id=name)) for name in "ab"]
    await (tasks := TaskOwner()).open()
    async with world.client("primary") as client:
        link = SdkSenderLink(client, "orders", tasks)
        for sent in (messages[:1], messages):
            await link.send(sent, 30.0)
            link.discard()
            await link.send(link.batch().filled(sent), 30.0)
            link.discard()
        await link.close()
    await tasks.close()
    assert world.ids_in("orders") == [*"aaabab"]
    assert bodies_in(world, "orders") == [b"x"] * 6


# -- The links to the backlog queues over one connection of our own: their number, their loss, and their errors ------


def standby(world: World) -> list[Any]:
    """The secondary's connections for links to backlog queues."""
    return [
        connection
        for connection in world.sandbox["secondary"].node.connections
        if (connection.container_id or "").startswith("standby-")
    ]


def message(body: bytes = b"x", name: str = "1") -> EncodedMessage:
    return encoded(ServiceBusMessage(body, message_id=name))


async def forced(world: World, count: int, **options: Any) -> PairedServiceBusClient:
    """A pairing whose sends of orders go to open links of `count` backlog queues."""
    paired = await world.forced(backlog_queue_count=count, **options)
    await until(lambda: all(queue.link.is_open for queue in paired._standby.queues.values()))
    return paired


async def park(paired: PairedServiceBusClient, name: str, count: int) -> None:
    async with paired.get_queue_sender("orders") as sender:
        for number in range(count):
            await sender.send_messages(ServiceBusMessage(b"x", message_id=f"{name}-{number}"))


def parked_ids(world: World, count: int) -> Counter[str]:
    return Counter(name for index in range(count) for name in world.ids_in(queue_path(index), namespace="secondary"))


async def test_ten_backlog_queues_cost_one_connection(world: World) -> None:
    """Links that will be needed are open before they are needed: one per backlog queue and process, shared."""
    paired = await forced(world, 10, **PATIENT)
    assert paired.get_queue_sender("orders")._backlog is paired.get_topic_sender("audit")._backlog
    await asyncio.gather(*(park(paired, str(number), 3) for number in range(20)))
    assert sum(parked_ids(world, 10).values()) == 60
    assert len(world.sandbox["secondary"].node.connections) == len(standby(world)) == 1
    assert sum(len(connection.links) for connection in standby(world)) >= 10


async def test_a_connection_cut_while_all_queues_park_loses_nothing_and_pulls_no_queue(world: World) -> None:
    """Section 7.1: "A failed send takes that queue out": the connection's end is not the failure of ten queues."""
    paired = await forced(world, 10, **PATIENT)
    sends = asyncio.gather(*(park(paired, str(number), 10) for number in range(20)))
    for share in (40, 120):
        await until(lambda share=share: len(world.told(Diverted)) >= share)  # type: ignore[misc]
        for connection in standby(world):
            connection.abort()
    await sends
    found, doubtful = parked_ids(world, 10), Counter(event.message_id for event in world.told(InDoubt))
    assert set(found) == {f"{name}-{number}" for name in range(20) for number in range(10)}
    assert all(times - 1 <= doubtful[name] for name, times in found.items())
    assert doubtful
    assert not world.told(QueuePulled)
    assert len(standby(world)) == 1


async def test_a_connection_that_dies_unnoticed_is_replaced_by_the_first_late_send(world: World) -> None:
    paired = await forced(world, 3, send_timeout=1.0)
    before = standby(world)
    world.fault("half-open", namespace="secondary")
    await asyncio.gather(*(park(paired, str(number), 1) for number in range(6)))
    await until(lambda: all(queue.link.is_open for queue in paired._standby.queues.values()))
    assert set(parked_ids(world, 3)) == {f"{number}-0" for number in range(6)}
    await until(lambda: not set(before) & {one for one in standby(world) if one.links})


async def test_a_silent_queue_leaves_the_sends_of_the_others_alone(world: World) -> None:
    """What is in doubt on one queue leaves the sends to other queues alone: a silent connection is replaced, not cut,
    and each send on it keeps its own time."""
    paired = await forced(world, 2, send_timeout=1.0)
    world.fault("half-open", namespace="secondary")
    links = [paired._standby.queues[index].link for index in range(2)]
    first, other = (
        asyncio.create_task(link.send([message(name=str(seconds))], seconds))
        for link, seconds in zip(links, (1.0, 2.5), strict=True)
    )
    with pytest.raises(OperationTimeoutError):
        await first
    assert not other.done()
    assert not any(link.is_open for link in links), "both attach again, over a new connection"
    with pytest.raises(ConnectionCutError, match="did not answer a send within"):
        await other


async def test_a_time_out_of_less_than_an_attempts_time_replaces_no_connection(world: World) -> None:
    """A time-out shorter than the attempt's own limit is no silence, and drops no shared connection."""
    paired = await forced(world, 2, send_timeout=5.0)
    world.fault("unanswered", namespace="secondary", entity=queue_path(0))
    links = [paired._standby.queues[index].link for index in range(2)]
    with pytest.raises(OperationTimeoutError):
        await links[0].send([message()], 0.2)
    assert links[1].is_open
    await links[0].renew(5.0)
    assert len(standby(world)) == 1


async def test_a_link_cut_by_its_queue_leaves_the_other_links_open(world: World) -> None:
    """Failover and rotation go queue by queue."""
    paired = await forced(world, 3, **PATIENT)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first one is picked
    heal = world.fault("refused", namespace="secondary", entity=queue_path(0))
    await until(lambda: not paired._standby.queues[0].link.is_open)
    assert paired._standby.queues[1].link.is_open
    assert paired._standby.queues[2].link.is_open
    await park(paired, "a", 2)
    assert [event.queue for event in world.told(QueuePulled)] == [0]
    heal()
    await until(lambda: paired._steering.machine.rotation.holds(0))


def kinds(paired: PairedServiceBusClient) -> set[type]:
    return {type(queue.link) for queue in paired._standby.queues.values()}


def unreadable(_: object) -> Endpoint:
    raise errors.WireUnavailableError("this client cannot be read")


async def refuse(*_: object, **__: object) -> None:
    raise errors.WireUnavailableError("the namespace refuses our protocol", "amqp:not-implemented")


@pytest.mark.parametrize(
    ("owner", "name", "stand_in", "said"),
    [
        (Endpoint, "of", unreadable, []),
        (
            ReconnectingConnection,
            "sender",
            refuse,
            ["each link to a backlog queue opens its own connection: the namespace refuses our protocol"],
        ),
    ],
)
async def test_where_our_protocol_cannot_be_used_the_links_are_the_sdks(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, stand_in: Any, said: list[str]
) -> None:
    monkeypatch.setattr(owner, name, stand_in)
    paired = await forced(world, 2, **PATIENT)
    assert kinds(paired) == {SdkSenderLink}
    await park(paired, "a", 1)
    assert world.parked() == 1
    assert [warned.text for warned in world.told(Warned) if "own connection" in warned.text] == said


@pytest.mark.parametrize(("pump", "kind"), [("sdk", SdkSenderLink), ("auto", BacklogLink)])
async def test_whoever_asks_for_the_sdk_gets_its_links(world: World, pump: str, kind: type) -> None:
    paired = await world.pair(pump=pump, **PATIENT)
    assert kinds(paired) == {kind}


@pytest.mark.parametrize("condition", [None, "x:unknown", *KIND_BY_CONDITION])
@pytest.mark.parametrize(
    "error",
    [
        errors.WireError,
        errors.WireAuthenticationError,
        errors.WireConnectionError,
        errors.WireLinkError,
        errors.WireOutcomeError,
        errors.WireTimeoutError,
    ],
)
def test_an_error_of_the_sdk_is_judged_as_that_of_the_wire(
    error: type[errors.WireError], condition: str | None
) -> None:
    """Section 5: the kinds decide, and a caller's own judge sees the SDK's errors."""
    wire = error("orders failed", condition)
    raised = sdk_error(wire)
    assert isinstance(raised, ServiceBusError)
    assert kind_of(raised) is kind_of(wire)
    assert "orders failed" in str(raised)


async def test_a_message_that_the_sdk_cannot_encode_fails_alone_and_as_before(world: World) -> None:
    seen: dict[str, str] = {}
    for pump in ("sdk", "auto"):
        paired = await forced(world, 1, pump=pump, **PATIENT)
        async with paired.get_queue_sender("orders") as sender:
            with pytest.raises(ServiceBusError) as raised:
                await sender.send_messages(ServiceBusMessage(b"x", application_properties={"a": 2**70}))
            seen[pump] = f"{type(raised.value).__name__} {kind_of(raised.value)}"
        assert not world.told(QueuePulled)
        await paired.close()
    assert seen["auto"] == seen["sdk"]


def test_a_cut_connection_is_a_lost_connection() -> None:
    assert kind_of(ConnectionCutError()) is kind_of(errors.WireConnectionError(""))


async def test_a_message_larger_than_the_queue_accepts_is_refused_before_it_is_sent(world: World) -> None:
    paired = await forced(world, 1, **PATIENT)
    link = paired._standby.queues[0].link
    with pytest.raises(MessageSizeExceededError):
        await link.send([message(b"x" * (link.limit() + 1))], 5.0)
    assert link.is_open


# -- Callers who share a link to a backlog queue: batches, outcomes of their own, and nobody's end is another's ------

SOON = 60.0


class Link:
    """A link that takes what it is given once it is let; `judge` may refuse it."""

    def __init__(self) -> None:
        self.path = "backlog/0"
        self.limit = 256 * 1024
        self.sent: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.judge: Callable[[list[str]], BaseException | None] = lambda ids: None
        self.timeouts: list[float] = []

    def batch(self) -> EncodedBatch:
        return EncodedBatch(self.limit)

    async def send(self, messages: Any, timeout: float) -> None:
        singles = messages._messages if isinstance(messages, ServiceBusMessageBatch) else messages
        ids = [id_of(single) for single in singles]
        self.timeouts.append(timeout)
        self.sent.append(ids)
        await self.open.wait()
        refusal = self.judge(ids)
        if refusal is not None:
            raise refusal

    @property
    def batches(self) -> list[int]:
        return [len(ids) for ids in self.sent]


class Shared:
    """A coalescer over such a link."""

    def __init__(self) -> None:
        self.link = Link()
        self.tasks = TaskOwner()
        self.said: list[str] = []
        self.accepted: list[str] = []
        self.coalescer = Coalescer(self.link, self.tasks, self.said.append)  # type: ignore[arg-type]

    def caller(self, *ids: str, timeout: float = SOON, body: bytes = b"x") -> asyncio.Task[int]:
        messages = [ServiceBusMessage(body, message_id=name) for name in ids]
        return asyncio.create_task(self.send(messages, timeout))

    async def send(self, messages: list[Any], timeout: float = SOON) -> int:
        parcel = PendingSend(messages, self._on_accepted)
        try:
            await self.coalescer.send(parcel, timeout)
        except BaseException as error:
            error.add_note(f"accepted {parcel.accepted}")
            raise
        return parcel.accepted

    def _on_accepted(self, messages: Any) -> None:
        self.accepted += [id_of(message) for message in messages]

    async def in_the_way(self) -> asyncio.Task[int]:
        """A first send that is under way until the link is opened."""
        self.link.open.clear()
        first = self.caller("first")
        await until(lambda: self.link.sent)
        return first


@pytest.fixture
async def shared() -> AsyncIterator[Shared]:
    one = Shared()
    await one.tasks.open()
    yield one
    await one.tasks.close()


def of(name: str, body: bytes = b"x", **fields: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=name, **fields)


def refusing(error: Exception, *names: str) -> Callable[[list[str]], BaseException | None]:
    """A judge that refuses whatever holds one of these messages."""
    return lambda ids: error if set(ids) & set(names) else None


def too_large(ids: list[str]) -> BaseException | None:
    return MessageSizeExceededError() if len(ids) > 4 or "large" in ids else None


ODD = AmqpAnnotatedMessage(data_body=b"", application_properties={"n": object()})
"""Cannot be encoded."""
LOST, BUSY, LATE = ServiceBusConnectionError(), ServiceBusServerBusyError(), TimeoutError()


class Together(NamedTuple):
    """Calls that wait for one send, and their outcomes: how many messages were accepted, and the error.

    sent: None: in parts of any size.
    """

    calls: list[list[Sendable]]
    outcomes: list[tuple[int, type[Exception] | None]]
    sent: list[list[str]] | None
    judge: Callable[[list[str]], BaseException | None] = refusing(ValueError("bad"), "bad")
    limit: int = 256 * 1024
    batch_key: Callable[[Any], object] = lambda _: None


TOGETHER: dict[str, Together] = {
    "what waits goes together in the next send": Together(
        [[of(str(number))] for number in range(16)], [(1, None)] * 16, [[str(number) for number in range(16)]]
    ),
    "a message larger than a batch may be goes alone": Together(
        [[of("large", b"x" * 2000)], [of("small")]], [(1, None)] * 2, [["large"], ["small"]], limit=1000
    ),
    "of a refused batch only the culprit fails": Together(
        [[of("a")], [of("bad")], [of("b")]],
        [(1, None), (0, ValueError), (1, None)],
        [["a", "bad", "b"], ["a"], ["bad"], ["b"]],
    ),
    "what comes after the culprit in the same call is not sent": Together(
        [[of("a"), of("bad"), of("c")]], [(1, ValueError)], [["a", "bad", "c"], ["a"], ["bad"]]
    ),
    "a batch too large for the queue is halved": Together(
        [[of(str(number))] for number in range(9)] + [[of("large")]],
        [(1, None)] * 9 + [(0, MessageSizeExceededError)],
        None,
        judge=too_large,
    ),
    **{
        f"a failure of the queue is of all: {type(error).__name__}": Together(
            [[of("a")], [of("b")]], [(0, type(error))] * 2, [["a", "b"]], judge=refusing(error, "a")
        )
        for error in (LOST, BUSY, LATE)
    },
    "a message that cannot be encoded fails alone": Together(
        [[ODD], [of("right")]], [(0, Exception), (1, None)], [["right"]]
    ),
    "a caller hears how far its messages came before one that cannot be encoded": Together(
        [[of("good"), ODD], [of("right")], [of("also")]], [(1, Exception), (1, None), (1, None)], None
    ),
    "only messages of one session and partition key travel together": Together(
        [[of(f"{one}{number}", session_id=one)] for number in range(2) for one in "ab"]
        + [[of(f"{one}{number}", partition_key=one)] for number in range(2) for one in "cd"],
        [(1, None)] * 8,
        [["a0", "a1"], ["b0", "b1"], ["c0", "c1"], ["d0", "d1"]],
        batch_key=batch_key,
    ),
}


@pytest.mark.parametrize("case", TOGETHER.values(), ids=TOGETHER)
async def test_calls_that_wait_for_one_send_have_outcomes_of_their_own(shared: Shared, case: Together) -> None:
    """One send in flight per SDK sender; the caller still owns the message that was not accepted."""
    shared.coalescer = Coalescer(shared.link, shared.tasks, shared.said.append, batch_key=case.batch_key)  # type: ignore[arg-type]
    shared.link.limit = case.limit
    first = await shared.in_the_way()
    calls = [asyncio.create_task(shared.send(messages)) for messages in case.calls]
    await asyncio.sleep(0)
    shared.link.judge = case.judge
    shared.link.open.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert await first == 1
    for result, (accepted, error) in zip(found, case.outcomes, strict=True):
        assert isinstance(result, error or int), result
        assert result == accepted if error is None else f"accepted {accepted}" in result.__notes__  # type: ignore[union-attr]
    assert len(shared.accepted) == 1 + sum(accepted for accepted, _ in case.outcomes)
    assert case.sent in (None, shared.link.sent[1:])
    assert (shared.coalescer.one_by_one, shared.said) == (False, [])


async def test_a_lone_message_goes_as_it_is_and_not_as_a_batch(shared: Shared) -> None:
    await shared.caller("a")
    await shared.caller("b")
    assert shared.link.batches == [1, 1]


async def test_a_callers_messages_keep_their_order_over_as_many_batches_as_it_takes(shared: Shared) -> None:
    shared.link.limit = 1000
    names = [str(number) for number in range(50)]
    assert await shared.caller(*names, body=b"x" * 100) == 50
    assert [name for batch in shared.link.sent for name in batch] == names
    assert max(shared.link.batches) < 10
    assert shared.accepted == names


async def test_one_callers_cancellation_never_cancels_the_others(shared: Shared) -> None:
    first = await shared.in_the_way()
    leaves, stays = shared.caller("leaves"), shared.caller("stays")
    await asyncio.sleep(0)
    first.cancel()
    leaves.cancel()
    await asyncio.gather(first, leaves, return_exceptions=True)
    shared.link.open.set()
    assert await stays == 1
    assert shared.link.sent == [["first"], ["stays"]]
    assert shared.accepted == ["first", "stays"]  # the receipt of what was under way is written all the same


async def test_one_callers_timeout_never_ends_the_others_send(shared: Shared) -> None:
    first = await shared.in_the_way()
    shared.link.judge = lambda ids: None
    short, long = shared.caller("short", timeout=0.01), shared.caller("long", timeout=60)
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, short, long)
    assert shared.link.sent[1] == ["short", "long"]
    assert shared.link.timeouts[1] > 50


async def test_a_queue_that_refuses_mixed_batches_gets_singles_from_then_on_and_it_is_said_once(shared: Shared) -> None:
    """Partitioned entities refuse batches that mix session or partition keys, duplicate-detecting ones message ids."""
    refusal = ServiceBusError("Service Bus has encountered an error. Error condition: amqp:not-allowed.")
    shared.link.judge = lambda ids: refusal if len(ids) > 1 else None
    for _ in range(2):
        first = await shared.in_the_way()
        callers = [shared.caller(name) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
        shared.link.open.set()
        assert await asyncio.gather(first, *callers) == [1, 1, 1, 1]
    assert [size for size in shared.link.batches if size > 1] == [3]
    assert shared.said == ["backlog/0 refuses batches of unlike messages (bad argument): it gets them one by one"]


async def test_who_waits_when_the_pairing_ends_is_told_and_what_was_under_way_is_in_doubt(shared: Shared) -> None:
    """Sends in hand finish or raise."""
    first = await shared.in_the_way()
    waiting = shared.caller("waiting")
    await asyncio.sleep(0)
    await shared.tasks.close()
    found = await asyncio.gather(first, waiting, return_exceptions=True)
    assert [(type(error), error.in_doubt) for error in found if isinstance(error, PairingClosedError)] == [
        (PairingClosedError, True),
        (PairingClosedError, False),
    ]
    with pytest.raises(PairingClosedError):
        await shared.caller("late")


async def test_callers_who_are_answered_together_go_together_again(shared: Shared) -> None:
    async def caller(name: str) -> None:
        for number in range(3):
            await shared.send([ServiceBusMessage(b"x", message_id=f"{name}{number}")])

    first = await shared.in_the_way()
    callers = [asyncio.create_task(caller(name)) for name in "abcd"]
    await asyncio.sleep(0)
    shared.link.open.set()
    await asyncio.gather(first, *callers)
    assert shared.link.batches == [1, 4, 4, 4]
    assert not shared.coalescer.is_busy

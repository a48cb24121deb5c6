"""What only the pump on our own AMQP does: every type, faults on the wire, falling back to the SDK's pump."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paired_servicebus.core.errors import WireRequestError, WireUnavailableError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.core.model.pairing_events import DeadLettered, Moved, PumpStopped, Warned
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump import pump_machine
from paired_servicebus.core.pump.pump_events import DeadLetter, DeferredMessages, Deliver, Publish
from paired_servicebus.core.pump.pump_machine import PumpProgress
from paired_servicebus.pairing import envelope_codec
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import amqp_delivery, amqp_pump, sdk_pump
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery, BacklogMessage, Settlement, receive_again
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from servicebus_amqp.encoding.codec import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Symbol,
    Timestamp,
    UByte,
    described,
    encode,
)
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Properties,
    Sections,
    write_properties,
)
from servicebus_amqp.encoding.performatives import Error
from servicebus_amqp.protocol.links import Opened
from servicebus_sandbox.amqp_server.namespace_server import AmqpServerProtocol
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.message_queue import RELEASE, MessageQueue
from servicebus_sandbox.faults import FaultTerms, Operation
from tests.amqp.values import write_annotations
from tests.stage.poison_kinds import kinds

from .backlogs import bodies_in, lying_in, parked, put, queue_path, reason_of, sections
from .conftest import EACH_PUMP, World, until
from .test_syphon import deferred, order

TYPES: dict[str, Any] = {
    "char": Char("ø"),
    "decimal32": Decimal32(b"abcd"),
    "decimal64": Decimal64(b"abcdefgh"),
    "decimal128": Decimal128(b"abcdefghijklmnop"),
    "ubyte": UByte(7),
    "float": Float(1.5),
    "symbol": Symbol("name"),
    "binary": b"\x00\xff",
    "timestamp": Timestamp(1_700_000_000_000),
    "described": Described(Symbol("com.example:thing"), ["x", 1]),
    "array": Array.of(int, [1, 2**40]),
    "map": {"a": {"b": [1, None, True]}},
}
BODIES = (
    described(DATA, encode(b"x")) + described(DATA, encode(b"y")),
    described(SEQUENCE, encode([1, "two", None])),
    described(VALUE, encode({"at": Timestamp(5), "c": Char("x")})),
)


async def test_every_type_and_kind_of_body_arrives_bit_for_bit(world: World) -> None:
    """Nothing else may change [...]: of any AMQP type and bit for bit through our own AMQP pump."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    properties = write_properties(Properties(message_id="1", user_id=b"u", group_sequence=3))
    meant = [
        Sections(
            properties=properties,
            application_properties=described(APPLICATION_PROPERTIES, encode(TYPES)),
            body=body,
            footer=described(FOOTER, encode({Symbol("f"): Char("x")})),
        )
        for body in BODIES
    ]
    envelope = described(APPLICATION_PROPERTIES, encode({**TYPES, PATH: "orders"}))
    put(world, [one._replace(application_properties=envelope).join() for one in meant])
    await until(lambda: world.depth("orders") == len(BODIES))
    assert [sections(stored) for stored in lying_in(world, "orders")] == meant


# -- faults ----------------------------------------------------------------------------------------------------------


BREAKS = ("detached", "disconnected", "reset", "acknowledgement-lost")
ENDS = (("primary", Operation.SEND), ("secondary", Operation.SETTLE))


@pytest.mark.parametrize(
    ("kind", "namespace", "operation"),
    [
        pytest.param(kind, *end, marks=[pytest.mark.slow] * ((first + second) % 2))
        for first, kind in enumerate(BREAKS)
        for second, end in enumerate(ENDS)
    ],
)
async def test_links_that_break_at_random_lose_nothing(
    world: World, kind: str, namespace: str, operation: Operation
) -> None:
    """Nothing is ever dropped; what arrives twice is counted."""
    short = QueueSettings(lock_duration=timedelta(seconds=5))
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), short)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    path = "orders" if namespace == "primary" else queue_path()
    world.fault(kind, operation, namespace=namespace, entity=path, probability=0.02, seed=7, count=3)
    names = [str(number) for number in range(200)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: set(world.ids_in("orders")) == set(names))
    await until(lambda: world.parked(1) == 0)
    if operation is Operation.SETTLE:  # what a destination has is not sent again, only completed again
        assert Counter(world.ids_in("orders")) == Counter(names)


async def test_a_destination_that_never_answers_holds_up_nobody(world: World) -> None:
    """One failed destination must not delay the others': one send try per destination, not per message."""
    world.fault("black-holed", entity="orders")
    await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    put(world, [parked("orders", f"dead {n}") for n in range(300)] + [parked("audit", str(n)) for n in range(50)])
    await until(lambda: len(world.told(Moved)) == 50)
    assert {event.entity for event in world.told(Moved)} == {"audit"}


async def test_a_destination_far_away_is_not_taken_for_one_that_never_answers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first link takes many round trips: what waits for it is not set aside, which would cost several times more."""
    aside: list[BacklogMessage] = []
    monkeypatch.setattr(Settlement, "defer", lambda self, message: aside.append(message))
    world.fault("latency", delay_s=0.4)
    await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    put(world, [parked("orders", str(number)) for number in range(100)])
    await until(lambda: world.depth("orders") == 100)
    assert not aside


async def test_one_that_stops_answering_while_messages_are_under_way_holds_up_nobody(world: World) -> None:
    await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    put(world, [parked("orders", f"before {n}") for n in range(20)])
    await until(lambda: world.depth("orders") == 20)
    heal = world.fault("unanswered", entity="orders")
    put(world, [parked("orders", f"dead {n}") for n in range(300)] + [parked("audit", str(n)) for n in range(50)])
    await until(lambda: sum(event.entity == "audit" for event in world.told(Moved)) == 50)
    assert Counter(event.entity for event in world.told(Moved)) == {"orders": 20, "audit": 50}
    heal()


async def test_a_message_larger_than_its_destination_takes_from_now_on_is_dead_lettered(world: World) -> None:
    """Changes its maximum size mid-flight: what it rejects is dead-lettered with the reason, the rest arrives."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "first", body=bytes(2000))])
    await until(lambda: world.depth("orders") == 1)
    world.sandbox["primary"].node.namespace.queue("orders").intake.max_message_bytes = 1000
    put(world, [parked("orders", "large", body=bytes(2000)), parked("orders", "small")])
    await until(lambda: world.told(DeadLettered) and len(world.told(Moved)) == 2)
    assert [(dead.message_id, "too large" in dead.reason) for dead in world.told(DeadLettered)] == [("large", True)]
    assert world.ids_in("orders") == ["first", "small"]


async def test_a_queue_that_cannot_be_managed_is_pumped_all_the_same(world: World) -> None:
    """Unable to manage: sending, pinging, syphon on queues known still work."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    await paired.close()
    world.fault("unauthorized", Operation.MANAGE, namespace="secondary", entity=queue_path())
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "x")])
    await until(lambda: world.depth("orders") == 1)
    assert "cannot search for deferred messages" in paired.queue_views()[0].pump_text


async def test_locks_of_what_waits_long_are_renewed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message whose lock would end is not sent late."""
    monkeypatch.setattr(amqp_pump, "RENEWAL_SECONDS", 120.0)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    world.fault("unanswered", entity="orders")
    put(world, [parked("orders", "x")])
    await until(lambda: world.depth("orders") == 1)
    (held,) = lying_in(world, queue_path(), namespace="secondary")
    first = held.locked_until
    await until(lambda: held.locked_until > first)
    assert (world.depth("orders"), world.told(Moved)) == (1, [])


async def test_a_lock_that_ended_while_a_message_was_under_way_makes_no_second_copy(world: World) -> None:
    """Duplicates only in three windows [...]; a message that comes again while it is under way is not sent again."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    world.fault("latency", entity="orders", delay_s=2.0)
    put(world, [parked("orders", "x")])
    messages = world.sandbox["secondary"].node.namespace.message_queue(queue_path())
    await until(lambda: lying_in(world, queue_path(), namespace="secondary")[0].lock_token is not None)
    (held,) = lying_in(world, queue_path(), namespace="secondary")
    assert held.lock_token is not None
    messages.settle(held.lock_token, RELEASE)  # as if it had ended
    world.sandbox["secondary"].node.wake()
    await until(lambda: world.parked(1) == 0)
    assert world.ids_in("orders") == ["x"]


async def test_closing_leaves_nothing_half_done(world: World) -> None:
    """Closing the pairing closes both sides; locks in hand are released, sends in hand finish or raise."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [str(number) for number in range(2000)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: world.depth("orders") > 100)
    await paired.close()
    left = [str(stored.message.message_id) for stored in lying_in(world, queue_path(), namespace="secondary")]
    assert Counter(world.ids_in("orders")) + Counter(left) == Counter(names)


async def test_many_destinations_share_a_bounded_number_of_links(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paired_servicebus.pairing.syphon.amqp_delivery.MAX_LINKS", 5)
    paths = [f"queue-{number}" for number in range(40)]
    for path in paths:
        world.sandbox["primary"].node.namespace.create_queue(path)
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked(path, str(n)) for n in range(5) for path in paths])
    await until(lambda: len(world.told(Moved)) == 200)
    assert all(world.ids_in(path) == ["0", "1", "2", "3", "4"] for path in paths)


async def test_more_than_leaves_in_one_write_arrives_in_its_order(world: World) -> None:
    """Behind what a socket takes, messages wait for their turn; nothing else has to come for it."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number), body=bytes(200_000)) for number in range(60)])
    await until(lambda: len(world.told(Moved)) == 60)
    assert world.ids_in("orders") == [str(number) for number in range(60)]


# -- falling back ----------------------------------------------------------------------------------------------------


def unreadable(client: object) -> Endpoint:
    raise WireUnavailableError("the client keeps its credential to itself")


async def refused(self: ReconnectingConnection, path: str, **options: object) -> object:
    raise WireUnavailableError("the namespace speaks no AMQP 1.0")


@pytest.mark.parametrize(
    ("what", "stand_in", "reason"),
    [
        ("Endpoint.of", staticmethod(unreadable), "keeps its credential to itself"),
        ("Wire.receiver", refused, "speaks no AMQP 1.0"),
        ("Wire.sender", refused, "speaks no AMQP 1.0"),
    ],
)
async def test_auto_falls_back_to_the_sdk_once_with_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, stand_in: Any, reason: str
) -> None:
    """auto takes amqp and falls back with one stated reason."""
    kind, name = what.split(".")
    monkeypatch.setattr({"Endpoint": Endpoint, "Wire": ReconnectingConnection}[kind], name, stand_in)
    paired = await world.pair(enable_syphon=True, pump="auto")
    put(world, [parked("orders", str(number)) for number in range(5)])
    await until(lambda: world.depth("orders") == 5)
    warned = [event.text for event in world.told(Warned) if event.about == "syphon"]
    assert len(warned) == 1
    assert reason in warned[0]
    assert f"through the SDK: {warned[0].split(': ', 1)[1]}" in paired.queue_views()[0].pump_text


async def test_amqp_means_amqp(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReconnectingConnection, "receiver", refused)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, pump="amqp")
    put(world, [parked("orders", "x")])
    await until(lambda: "speaks no AMQP 1.0" in paired.queue_views()[0].pump_text)
    assert world.depth("orders") == 0
    assert paired.syphon_view().status is not SyphonStatus.RUNNING


# -- what is set aside -----------------------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(1, 2**62), max_size=40), most=st.integers(1, 10))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_set_aside_is_taken_oldest_first_and_a_partition_at_a_time(numbers: list[int], most: int) -> None:
    """Partitioned entities take one partition per call."""
    aside = DeferredMessages("orders")
    for number in numbers:
        aside.add(number)
    taken: list[int] = []
    while portion := aside.take(most):
        assert len(portion) <= most
        assert len({number >> 48 for number in portion}) == 1
        taken += portion
    assert taken == sorted(set(numbers))


async def test_a_search_while_messages_are_on_their_way_takes_none_of_them_for_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is gone fails a whole portion: searches must not put any among what is set aside."""
    monkeypatch.setattr(pump_machine, "RESCAN", 0.0)
    monkeypatch.setattr(pump_machine, "RATIO", 0)
    failures: list[object] = []
    ask = ReconnectingConnection.request

    async def request(self: ReconnectingConnection, *order: Any, **options: Any) -> Any:
        try:
            return await ask(self, *order, **options)
        except WireRequestError as error:
            failures.append(error)
            raise

    monkeypatch.setattr(ReconnectingConnection, "request", request)
    heal = world.fault("disabled", entity="orders")
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [f"{number:04}" for number in range(500)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: len(deferred(world)) == 500)
    heal()
    await until(lambda: world.depth("orders") == 500)
    assert world.ids_in("orders") == names
    assert not failures


# -- What pumps set aside, where it meets closing, crashes, recreated queues, and messages that come meanwhile -------


async def test_waiting_for_a_destination_that_nobody_has_a_link_to_lets_others_run() -> None:
    """One failed destination must not delay the others': a full hand waits, it does not spin."""
    steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), TaskOwner(), judge, None)
    courier = AmqpDelivery(steering, SimpleNamespace(after_read=[]))  # type: ignore[arg-type]
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    await courier.wait_for_change("nobody", 0.01)
    assert ran


async def test_what_comes_while_the_last_portion_is_asked_for_goes_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside [...] goes before newer ones of its session."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(
        wire: ReconnectingConnection, path: str, numbers: Sequence[int]
    ) -> AsyncIterator[tuple[bytes, UUID]]:
        asked.set()
        await go.wait()
        async for one in receive_again(wire, path, numbers):
            yield one

    monkeypatch.setattr(amqp_pump, "receive_again", slowly)
    heal = world.fault("disabled", entity="orders")
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "old", session="s")])
    await until(lambda: deferred(world) == ["old"])
    heal()
    await asked.wait()
    put(world, [parked("orders", "new", session="s")])
    await until(lambda: world.depth("orders") or deferred(world) == ["old", "new"])
    go.set()
    await until(lambda: world.depth("orders") == 2)
    assert world.ids_in("orders") == ["old", "new"]


def recreated(world: World) -> None:
    """The backlog queue is deleted and made anew; its numbers begin again."""
    namespace = world.sandbox["secondary"].node.namespace
    namespace.delete(queue_path())
    namespace.create_queue(queue_path())
    world.sandbox["secondary"].node.wake()


@pytest.mark.parametrize(("before", "after"), [("before", "after"), (None, None)])
async def test_a_recreated_queue_s_numbers_are_not_taken_for_those_of_messages_moved_before(
    world: World, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str | None
) -> None:
    """Nothing is ever dropped: a number is a message's only together with its id."""
    with monkeypatch.context() as unconfirmed:
        unconfirmed.setattr(Settlement, "complete", lambda self, parcels: None)
        await world.pair(enable_syphon=True, backlog_queue_count=1)
        put(world, [parked("orders", before, body=b"first")])
        await until(lambda: world.depth("orders") == 1)
    recreated(world)
    put(world, [parked("orders", after, body=b"second")])
    await until(lambda: world.parked(1) == 0 and not lying_in(world, queue_path(), namespace="secondary"))
    assert bodies_in(world, "orders") == [b"first", b"second"]


async def test_closing_completes_what_was_set_aside_and_has_arrived(world: World) -> None:
    """Duplicates only in three windows: that the pairing was closed while it brought messages back is none."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [f"{number:04}" for number in range(1000)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: len(deferred(world)) == 1000)
    heal()
    await until(lambda: world.depth("orders") > 100)
    await paired.close()
    left = [str(stored.message.message_id) for stored in lying_in(world, queue_path(), namespace="secondary")]
    assert len(left) < len(names)
    assert sorted(world.ids_in("orders") + left) == names


async def test_closing_settles_by_token_what_its_cancelled_task_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete only after the destination accepted it: then do, or it comes twice."""
    completed: list[UUID] = []

    async def update(wire: Any, path: str, tokens: Sequence[UUID], status: str, **_: Any) -> None:
        completed.extend(tokens)

    monkeypatch.setattr(amqp_delivery, "update_disposition", update)
    steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), tasks := TaskOwner(), judge, None)
    await tasks.open()
    applied: list[Any] = []
    owed = Settlement(steering, SimpleNamespace(pause=0.0), queue_path(), applied.append)  # type: ignore[arg-type]
    recalled = BacklogMessage(SimpleNamespace(), "orders", 1, "m", b"", UUID(int=1), 0, 0.0)  # type: ignore[arg-type]
    owed.complete([recalled])
    await tasks.close()
    await owed.finish(5.0)
    assert completed == [recalled.token]
    assert [event.is_done for event in applied] == [True]
    assert not owed.is_busy


async def test_closing_releases_the_locks_of_what_was_received_again(world: World) -> None:
    """Locks in hand are released."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    put(world, [parked("orders", str(number)) for number in range(20)])
    await until(lambda: len(deferred(world)) == 20)
    heal()
    world.fault("unanswered", entity="orders")
    lying = lying_in(world, queue_path(), namespace="secondary")
    await until(lambda: any(stored.lock_token is not None for stored in lying))
    await paired.close()
    assert not [stored for stored in lying if stored.lock_token is not None]


@EACH_PUMP
async def test_large_messages_that_were_set_aside_are_all_found_again(world: World) -> None:
    """What is set aside is found again after a crash with no list kept (peek finds deferred ones)."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number), body=bytes(100_000)) for number in range(30)])
    await until(lambda: len(deferred(world)) == 30)
    await paired.close()
    heal()
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: len(world.told(Moved)) == 30)
    assert sorted(world.ids_in("orders"), key=int) == [str(number) for number in range(30)]


async def test_what_is_set_aside_behind_messages_that_others_hold_is_found_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside is found again after a crash: also behind more messages than a search looks at in one go."""
    monkeypatch.setattr(amqp_pump, "ENOUGH", 100)
    await (await world.pair(backlog_queue_count=1)).close()  # makes the queue
    put(world, [parked("audit", f"held {number}") for number in range(400)] + [parked("orders", "old")])
    async with world.client("secondary") as client, client.get_queue_receiver(queue_path()) as holder:
        held: list[Any] = []
        while len(held) < 401:
            held += await holder.receive_messages(401 - len(held), max_wait_time=5)
        await holder.defer_message(held[-1])
        await world.pair(enable_syphon=True, backlog_queue_count=1)
        await until(lambda: world.told(Moved))
        assert world.ids_in("orders") == ["old"]


async def held_by_the_dead(world: World, paths: list[str], *, locked_for: float) -> None:
    """Messages lie in the backlog queue, set aside, and locked by somebody who will never settle them."""
    settings = QueueSettings(lock_duration=timedelta(seconds=locked_for))
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), settings)
    put(world, [parked(path, f"held {number}") for number, path in enumerate(paths)])
    async with world.client("secondary") as client, client.get_queue_receiver(queue_path()) as holder:
        numbers = []
        while len(numbers) < len(paths):
            for message in await holder.receive_messages(len(paths), max_wait_time=5):
                await holder.defer_message(message)
                numbers.append(message.sequence_number)
        await holder.receive_deferred_messages(numbers)


@EACH_PUMP
async def test_what_a_dead_syphon_has_locked_is_moved_soon_after_its_locks_have_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside is found again after a crash with no list kept."""
    monkeypatch.setattr(pump_machine, "SOON", 0.2)
    monkeypatch.setattr(pump_machine, "RATIO", 1)
    await held_by_the_dead(world, ["orders"] * 5, locked_for=3)
    put(world, [parked("orders", "new")])
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: world.ids_in("orders") == ["new"])
    await until(lambda: world.depth("orders") == 6)
    assert sorted(world.ids_in("orders")) == [*(f"held {number}" for number in range(5)), "new"]


@EACH_PUMP
async def test_what_others_hold_does_not_keep_back_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another engine holds, or has moved, is skipped without a retry.

    All of the deferred messages of a request are received, or none; the SDK repeats a refused one by default.
    """
    requests: list[list[int]] = []
    receive_deferred = MessageQueue.receive_deferred

    def receive(queue: MessageQueue, numbers: Sequence[int], **options: Any) -> Any:
        requests.append(list(numbers))
        return receive_deferred(queue, numbers, **options)

    await held_by_the_dead(world, ["orders"] * 3, locked_for=60)
    put(world, [parked("orders", f"free {number}") for number in range(20)])
    heal = world.fault("disabled", entity="orders")
    by_default = world.client("secondary", retry_total=3)
    await world.pair(enable_syphon=True, backlog_queue_count=1, secondary_client=by_default)
    await until(lambda: len(deferred(world)) == 23)
    monkeypatch.setattr(MessageQueue, "receive_deferred", receive)
    heal()
    await until(lambda: world.depth("orders") == 20)
    assert world.ids_in("orders") == [f"free {number}" for number in range(20)]
    assert [one for one, again in pairwise(requests) if one == again] == []


async def test_a_try_is_one_send_whatever_the_client_retries(world: World) -> None:
    """One failed destination must not delay the others' messages: one send try per destination."""
    board, most = world.sandbox["primary"].node.faults, 1000
    terms = FaultTerms(operations=frozenset({Operation.SEND}), count=most)
    refusals = board._cases[board.add("disabled", entity="orders", terms=terms).id]
    by_default = world.client("primary", retry_total=3)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, pump="sdk", primary_client=by_default)
    put(world, [parked("orders", "m")])
    meter = paired._steering.meter
    await until(lambda: meter.moves >= 3)
    assert refusals.left is not None
    assert 2 <= most - refusals.left <= meter.moves


@EACH_PUMP
async def test_a_request_that_is_swallowed_holds_a_queue_up_for_seconds_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unable to manage: still works: sending, pinging, syphon on queues known."""
    monkeypatch.setattr(sdk_pump, "MANAGED", 1.0)
    monkeypatch.setattr(amqp_delivery, "MANAGED", 1.0)
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number)) for number in range(5)])
    await until(lambda: len(deferred(world)) == 5)
    answer = world.fault("black-holed", Operation.MANAGE, namespace="secondary", entity=queue_path())
    asked = paired._steering.meter.receives
    heal()
    await until(lambda: paired._steering.meter.receives > asked)
    answer()
    await until(lambda: len(world.told(Moved)) == 5)
    assert world.ids_in("orders") == [str(number) for number in range(5)]


@pytest.mark.parametrize("kinds", [("amqp", "amqp"), ("amqp", "sdk"), ("sdk", "sdk")])
async def test_syphons_that_compete_move_each_message_once(
    world: World, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str]
) -> None:
    """A single instance may do it; where several do, whoever has a message locked is the one to move it."""
    monkeypatch.setattr(pump_machine, "SOON", 0.2)
    heal = world.fault("disabled", entity="orders")
    for kind in kinds:
        await world.pair(enable_syphon=True, backlog_queue_count=1, pump=kind)
    names = [f"{number:03}" for number in range(150)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: deferred(world) == names)
    heal()
    await until(lambda: len(world.told(Moved)) >= len(names))
    await until(lambda: not lying_in(world, queue_path(), namespace="secondary"))
    assert sorted(world.ids_in("orders")) == names


# -- Each kind of poison once, among good messages: the pump's own entry, and the pump over real AMQP ----------------

KINDS = kinds()
GOOD = 20


@pytest.mark.parametrize("kind", KINDS)
def test_poison_at_the_machines_entry_is_an_effect_with_a_reason_and_never_an_exception(kind: str) -> None:
    """Dead-letter in the backlog queue with a reason that says which, and go on."""
    steering = PairingRuntime(PairingMachine(Policy(enable_syphon=True), queues=(0,)), TaskOwner(), judge, None)
    wire: Any = SimpleNamespace(after_read=[])
    delivery = AmqpDelivery(steering, wire)
    pump = AmqpPump(steering, wire, delivery, index=0, path=queue_path(), progress=PumpProgress())
    effects = pump.machine.step(pump.arrival(KINDS[kind].join(), UUID(int=1)))
    reasons = [effect.reason for effect in effects if isinstance(effect, DeadLetter)]
    assert [type(effect) for effect in effects] in ([Deliver], [Publish, DeadLetter])
    assert all(reason and reason.isprintable() for reason in reasons)


async def test_poison_is_delivered_or_dead_lettered_and_the_good_go_on_over_the_same_connection(world: World) -> None:
    """Dead-letter in the backlog queue with a reason that says which, and go on."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    paired.pause_syphon(by="test")
    intake = world.sandbox["secondary"].node.namespace.send_target(queue_path()).intake
    for one in KINDS.values():
        intake.send([Message(one, one.size, message_id="poison")])
    put(world, [parked("orders", f"good-{number}") for number in range(GOOD)])
    paired.resume_syphon(by="test")
    await until(lambda: len(world.told(Moved)) + len(world.told(DeadLettered)) == GOOD + len(KINDS))
    arrived = {message_id for message_id in world.ids_in("orders") if message_id.startswith("good-")}
    assert len(arrived) == GOOD
    assert not world.told(PumpStopped)
    dead = lying_in(world, f"{queue_path()}/$DeadLetterQueue", namespace="secondary")
    assert len(dead) == len(world.told(DeadLettered))
    assert all(reason_of(stored).isprintable() for stored in dead)


async def test_a_re_drive_ends_also_where_dead_letters_cannot_be_read(world: World) -> None:
    """Nothing that a message holds may stop, slow or crash more than itself."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    intake = world.sandbox["secondary"].node.namespace.send_target(queue_path()).intake
    strange = [KINDS["sections twice"], KINDS["size beyond the end"], KINDS["path of 70000 characters"]]
    intake.send([Message(sections, sections.size, message_id="poison") for sections in strange])
    world.sandbox["secondary"].node.wake()
    await until(lambda: len(world.told(DeadLettered)) == len(strange))
    said = await order(paired).redrive(0)
    assert f"of {len(strange)} dead letters" in said
    dead = f"{queue_path()}/$DeadLetterQueue"
    await until(lambda: len(lying_in(world, dead, namespace="secondary")) == len(strange))


def test_a_message_of_which_only_the_namespaces_part_can_be_read_has_its_number() -> None:
    theirs = write_annotations(MESSAGE_ANNOTATIONS, {"x-opt-sequence-number": 7, "x-opt-message-state": 1})
    held = envelope_codec.broker_properties(theirs + b"\x00\x53\x75\xb0\x7f\xff\xff\xffx")
    assert (held.sequence_number, held.state) == (7, 1)


# -- Namespaces that behave as none should: nothing is lost, nothing spins, and the reason is on the why-line --------


@pytest.mark.parametrize("namespace", ["primary", "secondary"])
async def test_a_namespace_that_lets_only_the_sdk_in_is_worked_through_the_sdk(
    world: World, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> None:
    """A namespace that refuses raw clients: fall back [...]; the reason on the why-line."""
    let_in = AmqpServerProtocol._on_opened
    turned_away: list[str] = []

    def on_opened(self: Any, event: Opened) -> None:
        let_in(self, event)
        name = self._amqp.remote.container_id
        if self.node.name == world.sandbox[namespace].node.name and name.startswith("syphon"):
            turned_away.append(name)
            self._amqp.close(Error(condition="amqp:not-allowed", description="only known clients are served"))
            self.end()

    monkeypatch.setattr(AmqpServerProtocol, "_on_opened", on_opened)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, pump="auto")
    put(world, [parked("orders", str(number)) for number in range(5)])
    await until(lambda: world.depth("orders") == 5)
    assert len(turned_away) <= 2
    (warned,) = [event.text for event in world.told(Warned) if event.about == "syphon"]
    assert "only known clients are served" in warned
    assert "only known clients are served" in paired.queue_views()[0].pump_text


async def test_settlements_that_are_never_confirmed_are_said_again_another_way_and_nothing_is_sent_twice(
    world: World,
) -> None:
    """Answers late or never: every await on the wire has an end of ours, and the reason is on the why-line."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=2.0)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    heal = world.fault("unanswered", Operation.SETTLE, namespace="secondary", entity=queue_path())
    names = [str(number) for number in range(50)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: world.told(PumpStopped))
    heal()
    (stopped,) = world.told(PumpStopped)
    assert "confirmed no settlement within 2 s" in stopped.reason
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")  # on another link
    put(world, [parked("orders", "later")])
    await until(lambda: world.depth("orders") == 51 and world.parked(1) == 0)
    assert Counter(world.ids_in("orders")) == Counter([*names, "later"])

"""What only the pump on our own AMQP does: every type, faults on the wire, falling back to the SDK's pump."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paired_servicebus.core.errors import WireRequestError, WireUnavailableError
from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.core.model.pairing_events import DeadLettered, Moved, Warned
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.pump import pump_machine
from paired_servicebus.core.pump.deferred_messages import DeferredByDestination, DeferredMessages
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.syphon import amqp_pump
from paired_servicebus.pairing.syphon.settlement import BacklogMessage, Settlement
from servicebus_amqp.encoding.amqp_types import (
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
)
from servicebus_amqp.encoding.codec import described, encode
from servicebus_amqp.encoding.message_sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    SEQUENCE,
    VALUE,
    Properties,
    Sections,
    write_properties,
)
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import FaultTerms, Operation

from .backlogs import lying_in, parked, put, queue_path, sections
from .conftest import World, until
from .test_syphon import deferred

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
BODIES = {
    "data": described(DATA, encode(b"x")) + described(DATA, encode(b"y")),
    "sequence": described(SEQUENCE, encode([1, "two", None])),
    "value": described(VALUE, encode({"at": Timestamp(5), "c": Char("x")})),
}


@pytest.fixture
def world(world: World) -> World:
    world.pump = "amqp"
    return world


@pytest.mark.parametrize("kind", BODIES)
async def test_every_type_and_kind_of_body_arrives_bit_for_bit(world: World, kind: str) -> None:
    """Nothing else may change [...]: of any AMQP type and bit for bit through our own AMQP pump."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    properties = write_properties(Properties(message_id="1", user_id=b"u", group_sequence=3))
    meant = Sections(
        properties=properties,
        application_properties=described(APPLICATION_PROPERTIES, encode(TYPES)),
        body=BODIES[kind],
        footer=described(FOOTER, encode({Symbol("f"): Char("x")})),
    )
    envelope = described(APPLICATION_PROPERTIES, encode({**TYPES, PATH: "orders"}))
    put(world, [meant._replace(application_properties=envelope).join()])
    await until(lambda: world.depth("orders") == 1)
    assert sections(lying_in(world, "orders")[0]) == meant


LOST_IN_THE_SDK: Final = {
    **dict.fromkeys(("ubyte", "ushort", "uint", "ulong", "byte", "short", "long"), "becomes int"),
    "float": "becomes double",
    "symbol": "becomes string",
    "binary": "becomes string",
    "timespan": "loses its descriptor",
    "described": "loses its descriptor",
    "timestamp": "makes the send raise",
    "char": "cannot be read: the queue waits behind it",
    "decimal32": "cannot be read: the queue waits behind it",
    "decimal64": "cannot be read: the queue waits behind it",
    "decimal128": "cannot be read: the queue waits behind it",
}
"""Fate of application properties of these types in a message that the SDK receives and sends again. The
pump on our own AMQP (amqp_pump.py) preserves them all; a waiting queue reports it on its why-line."""


@pytest.mark.parametrize("name", sorted(LOST_IN_THE_SDK))
def test_what_the_sdk_cannot_carry_is_among_what_this_pump_carries(name: str) -> None:
    """Through an SDK pump what the SDK can carry."""
    assert name in TYPES or name in {"ushort", "uint", "ulong", "byte", "short", "long", "timespan"}


# -- faults ----------------------------------------------------------------------------------------------------------


def often(kind: str, operation: Operation, **terms: Any) -> dict[str, Any]:
    return {"kind": kind, "terms": FaultTerms(operations=frozenset({operation}), **terms)}


@pytest.mark.parametrize("kind", ["detached", "disconnected", "reset", "acknowledgement-lost"])
@pytest.mark.parametrize(("namespace", "operation"), [("primary", Operation.SEND), ("secondary", Operation.SETTLE)])
async def test_links_that_break_at_random_lose_nothing(
    world: World, kind: str, namespace: str, operation: Operation
) -> None:
    """Nothing is ever dropped; what arrives twice is counted."""
    short = QueueSettings(lock_duration=timedelta(seconds=5))
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), short)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    board = world.sandbox[namespace].node.faults
    path = "orders" if namespace == "primary" else queue_path()
    board.add(**often(kind, operation, probability=0.02, seed=7, count=3), entity=path)
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
    world.sandbox["primary"].node.faults.add("latency", terms=FaultTerms(delay_s=0.4))
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


async def test_a_message_larger_than_its_destination_takes_is_dead_lettered_with_both_sizes(world: World) -> None:
    """The destination says too large: dead-letter in the backlog queue with a reason."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    node = world.sandbox["primary"].node
    queue = node.namespace.queue("orders")
    queue.intake.max_message_bytes = 1000
    put(world, [parked("orders", "large", body=bytes(2000)), parked("orders", "small")])
    await until(lambda: world.told(DeadLettered) and world.told(Moved))
    (dead,) = world.told(DeadLettered)
    assert dead.message_id == "large"
    assert "too large" in dead.reason
    assert world.ids_in("orders") == ["small"]


async def test_a_destination_that_takes_less_from_now_on_is_believed(world: World) -> None:
    """Changes its maximum size mid-flight: what it rejects is dead-lettered, the rest arrives."""
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "first", body=bytes(2000))])
    await until(lambda: world.depth("orders") == 1)
    world.sandbox["primary"].node.namespace.queue("orders").intake.max_message_bytes = 1000
    put(world, [parked("orders", "large", body=bytes(2000)), parked("orders", "small")])
    await until(lambda: world.told(DeadLettered) and len(world.told(Moved)) == 2)
    assert world.ids_in("orders") == ["first", "small"]


async def test_a_queue_that_cannot_be_managed_is_pumped_all_the_same(world: World) -> None:
    """Unable to manage: sending, pinging, syphon on queues known still work."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    board = world.sandbox["secondary"].node.faults
    await until(lambda: paired.queue_views()[0].pump_text == "receiving")
    await paired.close()
    board.add("unauthorized", entity=queue_path(), terms=FaultTerms(operations=frozenset({Operation.MANAGE})))
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
    world.sandbox["primary"].node.faults.add("latency", entity="orders", terms=FaultTerms(delay_s=2.0))
    put(world, [parked("orders", "x")])
    messages = world.sandbox["secondary"].node.namespace.message_queue(queue_path())
    await until(lambda: lying_in(world, queue_path(), namespace="secondary")[0].lock_token is not None)
    (held,) = lying_in(world, queue_path(), namespace="secondary")
    assert held.lock_token is not None
    messages.release(held.lock_token)  # as if it had ended
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


def test_what_a_search_finds_is_taken_in_its_place() -> None:
    aside = DeferredByDestination()
    aside.of("orders", "orders").add(5)
    aside.found([("orders", "orders", 3), ("Audit", "audit", 9)])
    assert aside.numbers() == {3, 5, 9}
    assert aside.by_key["orders"].take(10) == [3, 5]
    assert aside.paths() == ["orders", "Audit"]


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
    names = [f"{number:04}" for number in range(1500)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: len(deferred(world)) == 1500)
    heal()
    await until(lambda: world.depth("orders") == 1500)
    assert world.ids_in("orders") == names
    assert not failures


async def test_set_aside_again_and_again_keeps_the_order_and_loses_nothing(world: World) -> None:
    """Older before newer in a session, however often the destination comes and goes."""
    heal = world.fault("disabled", entity="orders")
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [f"{number:03}" for number in range(120)]
    put(world, [parked("orders", name) for name in names[:60]])
    await until(lambda: len(deferred(world)) == 60)
    heal()
    await until(lambda: world.depth("orders") > 0)
    again = world.fault("disabled", entity="orders")
    put(world, [parked("orders", name) for name in names[60:]])
    await until(lambda: world.depth("orders") + len(deferred(world)) == 120)
    again()
    await until(lambda: world.depth("orders") == 120)
    assert world.ids_in("orders") == names

"""Paired sends of a client's bytes: the same rules as those of the SDK's messages, and the bytes as they came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    PairingClosedError,
    ReservedPropertyError,
    ScheduledInBacklogError,
    UnreadableError,
    WireError,
)
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.core.model.pairing_events import Delivered, Diverted, InDoubt, SendFailed, StateChanged
from paired_servicebus.core.model.verdict import FailureKind, kind_of
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.sending.encoded_sender import EncodedSender, Rest
from servicebus_amqp.encoding.amqp_types import Symbol, Timestamp
from servicebus_amqp.encoding.message_sections import (
    BATCH_FORMAT,
    MESSAGE_ANNOTATIONS,
    Properties,
    Sections,
    batch,
    read_properties,
    write_application_properties,
    write_data,
    write_properties,
)
from tests.amqp.annotations import write_annotations

from .backlogs import bodies_in, lying_in, queue_path, sections
from .conftest import World, until

PATIENT: dict[str, Any] = {"send_timeout": 30.0, "backlog_queue_count": 1}
BACKLOG = queue_path(0)


def message(name: str | None = "1", body: bytes = b"hello", **parts: Any) -> bytes:
    return Sections(properties=write_properties(Properties(message_id=name)), body=write_data(body), **parts).join()


def for_later(name: str) -> bytes:
    at = int((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    given = write_annotations(MESSAGE_ANNOTATIONS, {"x-opt-scheduled-enqueue-time": Timestamp(at)})
    return message(name, message_annotations=given)


def in_flight(paired: PairedServiceBusClient) -> int:
    return paired._steering.in_flight.count


def state(paired: PairedServiceBusClient) -> State:
    return paired._steering.machine.entity("orders", at=paired._steering.clock()).state


async def forced(world: World, **options: Any) -> PairedServiceBusClient:
    paired = await world.pair(**PATIENT | options)
    await until(lambda: paired._standby.queues[0].link.is_open)
    paired.watch("orders")
    paired.force("orders", by="kim")
    return paired


async def straight(sender: EncodedSender, data: bytes, form: int = 0, timeout: float = 60.0) -> Rest | None:
    """Send; return the rest of the call, None if it was accepted."""
    end: asyncio.Future[Rest | None] = asyncio.get_running_loop().create_future()
    assert sender.go_straight(data, form, end.set_result, timeout=timeout)
    return await asyncio.wait_for(end, 60)


async def ready(world: World, **options: Any) -> tuple[PairedServiceBusClient, EncodedSender]:
    """A pairing whose entity has accepted one send, so that the next may go straight."""
    paired = await world.pair(**PATIENT | options)
    sender = paired.get_encoded_sender("orders")
    await sender.send(message("before"))
    return paired, sender


async def plain(sender: EncodedSender, data: bytes) -> None:
    await sender.send(data, timeout=20)


async def straight_on(sender: EncodedSender, data: bytes) -> None:
    """A send that goes straight to the primary, and goes on as every other call where it fails."""
    rest = await straight(sender, data)
    if rest is not None:
        await rest


WAYS = pytest.mark.parametrize("send", [plain, straight_on])
"""Both ways keep the same rules when the primary fails."""
Send = Callable[[EncodedSender, bytes], Awaitable[None]]


def gateways(world: World) -> list[Any]:
    """The primary's connections for encoded links."""
    found = world.sandbox["primary"].node.connections
    return [one for one in found if (one.container_id or "").startswith("gateway-")]


async def test_a_healthy_primary_gets_the_bytes_as_they_came_over_one_connection(world: World) -> None:
    paired = await world.pair(**PATIENT)
    orders, audit = paired.get_encoded_sender("orders"), paired.get_encoded_sender("/Audit/")
    typed = Sections(
        properties=write_properties(Properties(message_id="typed", subject="s")),
        application_properties=write_application_properties({"kind": Symbol("a"), "at": Timestamp(7)}),
        body=write_data(b"1"),
    )
    await orders.send(typed.join())
    await audit.send(message())
    await orders.send(batch([message("2"), message("3")]), BATCH_FORMAT)
    assert world.ids_in("orders") == ["typed", "2", "3"]
    assert sections(lying_in(world, "orders")[0]).application_properties == typed.application_properties
    assert len(gateways(world)) == 1
    assert state(paired) is State.HEALTHY
    assert world.parked(1) == 0


async def test_many_sends_of_many_senders_are_in_flight_together(world: World) -> None:
    paired = await world.pair(**PATIENT, journal="all")
    senders = [paired.get_encoded_sender("orders") for _ in range(3)]
    names = [str(number) for number in range(150)]
    await asyncio.gather(*(senders[int(name) % 3].send(message(name)) for name in names))
    assert sorted(world.ids_in("orders"), key=int) == names
    assert sorted((event.message_id for event in world.told(Delivered)), key=int) == names


@pytest.mark.parametrize("pump", ["auto", "sdk"])
async def test_while_failed_over_bytes_and_sdk_messages_share_the_backlog(world: World, pump: str) -> None:
    """Every sender of the pairing, old or new, uses the backlog; a batch is repacked."""
    paired = await forced(world, pump=pump)
    encoded = paired.get_encoded_sender("orders")
    async with paired.get_queue_sender("orders") as sdk:
        await asyncio.gather(
            *(encoded.send(message(f"e{number}")) for number in range(20)),
            *(sdk.send_messages(ServiceBusMessage(b"x", message_id=f"s{number}")) for number in range(20)),
            encoded.send(batch([message("b1"), message("b2")]), BATCH_FORMAT),
        )
    meant = {f"{kind}{number}" for kind in "es" for number in range(20)} | {"b1", "b2"}
    assert set(world.ids_in(BACKLOG, namespace="secondary")) == meant
    assert {event.message_id for event in world.told(Diverted)} == meant
    assert world.depth("orders") == 0


async def test_what_was_parked_reaches_its_entity_as_it_was_sent(world: World) -> None:
    paired = await forced(world, enable_syphon=True)
    sender = paired.get_encoded_sender("orders")
    meant = Sections(
        properties=write_properties(Properties(message_id="1", group_id="cart")),
        application_properties=write_application_properties({"kind": Symbol("a"), "note": PATH}),
        body=write_data(b"a") + write_data(b"b"),
    )
    await sender.send(meant.join())
    paired.pin("orders", by="kim")
    await until(lambda: lying_in(world, "orders"))
    arrived = sections(lying_in(world, "orders")[0])
    assert (arrived.body, arrived.application_properties) == (meant.body, meant.application_properties)
    assert read_properties(arrived.properties).group_id == "cart"


@WAYS
async def test_with_interval_0_the_same_call_goes_on_to_the_backlog(world: World, send: Send) -> None:
    """With interval 0 the same call goes on to the backlog and the caller sees no error."""
    paired, sender = await ready(world, failover_interval=0)
    world.fault("refused")
    await send(sender, message("during"))
    assert world.ids_in(BACKLOG, namespace="secondary") == ["during"]
    assert (state(paired), in_flight(paired)) == (State.FAILED_OVER, 0)


@WAYS
async def test_a_connection_cut_during_a_send_is_made_again_and_starts_the_timer(world: World, send: Send) -> None:
    """An attempt that ends in a lost connection is made again on a fresh link before the failure is raised; the first
    such failure starts the failover timer all the same."""
    paired, sender = await ready(world, failover_interval=10)
    heal = world.fault("unanswered", entity="orders")
    sends = asyncio.gather(*(send(sender, message(name)) for name in "abc"))
    await until(lambda: world.depth("orders") == 4)
    heal()
    for connection in gateways(world):
        connection.abort()
    await sends
    assert sorted(world.ids_in("orders")) == sorted(["before", *"abcabc"])
    assert {event.message_id for event in world.told(InDoubt)} == set("abc")
    assert [event.now for event in world.told(StateChanged)] == [State.HEALTHY, State.SUSPECT, State.HEALTHY]
    assert (state(paired), world.parked(1)) == (State.HEALTHY, 0)


@WAYS
async def test_a_silent_entity_fails_over_and_a_held_send_sees_no_error(world: World, send: Send) -> None:
    _, sender = await ready(world, send_timeout=1.0, hold_until_failover=True)
    world.fault("unanswered", entity="orders")
    await send(sender, message("during"))
    assert world.ids_in(BACKLOG, namespace="secondary") == ["during"]


@WAYS
async def test_a_message_without_an_id_that_arrived_unheard_keeps_its_id_when_it_comes_again(
    world: World, send: Send
) -> None:
    """Section 7.3: "so that duplicate detection recognises a send that timed out but arrived"."""
    paired, sender = await ready(world, send_timeout=1.0, failover_interval=60)
    heal = world.fault("unanswered", entity="orders")
    with pytest.raises(TimeoutError):
        await send(sender, message(None))
    heal()
    paired.force("orders", by="kim")
    await sender.send(message(None))
    first = world.ids_in("orders")[1:]
    assert len(first) == 1
    assert world.ids_in(BACKLOG, namespace="secondary") == first


async def test_scheduling_and_cancelling_go_to_the_primary_by_its_numbers(world: World) -> None:
    paired = await world.pair(**PATIENT)
    sender = paired.get_encoded_sender("orders")
    entries = [{"message-id": name, "message": for_later(name)} for name in "ab"]
    numbers = await sender.schedule(entries)
    assert [stored.sequence_number for stored in lying_in(world, "orders")] == numbers
    assert world.depth("orders") == 0
    await sender.cancel(numbers[:1])
    assert world.ids_in("orders") == ["b"]


async def test_numbers_given_while_failed_over_are_negative_and_cannot_be_cancelled(world: World) -> None:
    """Section 7.5: "cancelling it raises an error that names the message_id"."""
    paired = await forced(world)
    sender = paired.get_encoded_sender("orders")
    numbers = await sender.schedule([{"message-id": name, "message": for_later(name)} for name in "ab"])
    assert [number < 0 for number in numbers] == [True, True]
    assert world.parked(1) == 2, "not set aside: its time is in the envelope"
    with pytest.raises(ScheduledInBacklogError, match="'b'"):
        await sender.cancel(numbers[1:])


@pytest.mark.parametrize("is_forced", [False, True], ids=["healthy", "failed over"])
async def test_what_no_namespace_may_get_is_refused_alone(world: World, is_forced: bool) -> None:
    paired = await (forced(world) if is_forced else world.pair(**PATIENT))
    sender = paired.get_encoded_sender("orders")
    reserved = message(application_properties=write_application_properties({PATH: "x"}))
    refused = [(b"\x00\x53", UnreadableError), (reserved, ReservedPropertyError)]
    good = [asyncio.ensure_future(sender.send(message(name))) for name in "ab"]
    for data, error in refused:
        with pytest.raises(error):
            await sender.send(data)
    await asyncio.gather(*good)
    where = {"path": BACKLOG, "namespace": "secondary"} if is_forced else {"path": "orders"}
    assert world.ids_in(**where) == ["a", "b"]
    assert not world.told(SendFailed)


async def test_a_message_that_is_too_large_is_refused_with_the_entitys_limit(world: World) -> None:
    paired = await world.pair(**PATIENT)
    sender = paired.get_encoded_sender("orders")
    with pytest.raises(WireError, match="accepts 262144") as refusal:
        await sender.send(message(body=bytes(300_000)))
    assert kind_of(refusal.value) is FailureKind.TOO_LARGE
    assert not [event for event in world.told(StateChanged) if event.now is State.SUSPECT]
    paired.force("orders", by="kim")
    with pytest.raises(BacklogMessageSizeError):
        await sender.send(message(body=bytes(262_110)))


async def test_asking_for_an_entity_says_what_it_accepts_and_moves_no_state(world: World) -> None:
    paired = await world.pair(**PATIENT)
    assert await paired.find_entity("orders", 5) == (262_144, 262_144)
    with pytest.raises(WireError) as refusal:
        await paired.find_entity("nowhere", 5)
    assert kind_of(refusal.value) is FailureKind.NOT_FOUND
    assert (paired.is_diverting("orders"), paired.is_diverting("nowhere")) == (None, None)
    assert not world.told(SendFailed)
    paired.get_encoded_sender("orders")
    assert paired.is_diverting("Orders") is False


async def test_a_closed_pairing_ends_the_sends_under_way(world: World) -> None:
    paired = await world.pair(**PATIENT, close_grace=0.1)
    sender = paired.get_encoded_sender("orders")
    await sender.send(message("before"))
    world.fault("unanswered", entity="orders")
    under_way = asyncio.ensure_future(sender.send(message("during")))
    await asyncio.sleep(0)
    await paired.close()
    with pytest.raises(PairingClosedError):
        await under_way
    with pytest.raises(PairingClosedError):
        await sender.send(message("after"))


async def test_bodies_in_the_backlog_are_those_of_the_client(world: World) -> None:
    paired = await forced(world)
    await paired.get_encoded_sender("orders").send(message(body=b"as it came"))
    found = [sections(stored).body[5:] for stored in lying_in(world, BACKLOG, namespace="secondary")]
    assert (found, bodies_in(world, "orders")) == ([b"as it came"], [])

"""What is lost and had again, the pauses in between, and that nobody spins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paired_servicebus.core.errors import WireConnectionError, WireError, WireLinkError
from paired_servicebus.pairing.amqp_client import Backoff, is_idle_detach
from paired_servicebus.pairing.amqp_client import reconnecting as wiring
from servicebus_amqp import ACCEPTED
from servicebus_amqp.encoding.amqp_types import Int
from servicebus_amqp.protocol.protocol_events import DispositionReceived
from servicebus_sandbox.faults import FaultTerms, Operation
from tests.pairing.wire.conftest import Told, World, id_of, message, until

FORCED = "amqp:link:detach-forced"
IDLE = (
    "The link 'G5:1:sender-link' is force detached. Code: publisher(link3006875). Details: "
    "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00."
)
WITHOUT_LINKS = (
    "The connection was closed by container '8a6f_G3' because it did not have any active links in the past 300000 "
    "milliseconds."
)
INACTIVE = "The connection was inactive for more than the allowed 240000 milliseconds and is closed by container 'x'."


def test_pauses_double_to_the_most_and_begin_anew() -> None:
    backoff = Backoff(lambda: 0.0, first=1.0, most=5.0)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_chance_shortens_a_pause_by_a_half_at_most() -> None:
    assert Backoff(lambda: 0.999_999, first=10.0).next() == pytest.approx(5.0, abs=0.001)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (WireLinkError(IDLE, FORCED), True),
        (WireConnectionError(INACTIVE, "amqp:connection:forced"), True),
        (WireConnectionError(WITHOUT_LINKS, "amqp:connection:forced"), True),
        (WireLinkError("the entity has moved", FORCED), False),
        (WireLinkError("idle talk", "amqp:internal-error"), False),
        (WireLinkError("idle"), False),
        (WireError(IDLE, FORCED), False),
    ],
)
def test_an_idle_end_is_known_by_condition_and_words(error: WireError, expected: bool) -> None:
    assert is_idle_detach(error) is expected


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

"""Receipts and pings on the wire, sentence by sentence (SPEC.md sections 8 and 11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.model.pairing_events import (
    DeadLettered,
    Delivered,
    Diverted,
    Event,
    InDoubt,
    Moved,
    PingAccepted,
    PingFailed,
    PingSent,
)

from .backlogs import lying_in, parked, put, queue_path
from .conftest import BOTH_PUMPS, EACH_PUMP, World, until


class Witness(list[Event]):
    """Looks into the backlog queue whenever a receipt is written."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.lying: list[int] = []

    def append(self, event: Event) -> None:
        if isinstance(event, Moved | DeadLettered):
            self.lying.append(len(lying_in(self._world, queue_path(), namespace="secondary")))
        super().append(event)


@BOTH_PUMPS
async def test_a_receipt_is_written_before_the_settlement_that_depends_on_it(world: World) -> None:
    """A receipt is written before the settlement that depends on it."""
    witness = Witness(world)
    world.events = witness
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "moved")])
    await until(lambda: world.told(Moved))
    await until(lambda: world.parked(1) == 0)
    put(world, [parked("", "without a destination")])
    await until(lambda: world.told(DeadLettered))
    assert witness.lying == [1, 1]


@EACH_PUMP
async def test_receipts_that_are_written_as_one_are_so_before_their_settlements(world: World) -> None:
    """A receipt is written before the settlement that depends on it."""
    lying: list[int] = []

    @contextmanager
    def together() -> Iterator[None]:
        yield
        lying.append(len(lying_in(world, queue_path(), namespace="secondary")))

    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    paired.write_together(together)
    put(world, [parked("orders", "moved")])
    await until(lambda: world.told(Moved))
    await until(lambda: world.parked(1) == 0)
    assert lying == [1]


@pytest.mark.parametrize(("journal", "delivered"), [("diverted", []), ("all", ["direct"])])
async def test_which_messages_have_receipts(world: World, journal: str, delivered: list[str]) -> None:
    """With journal = "diverted" every message that left the direct path and every send in doubt; with "all", every
    message."""
    paired = await world.pair(failover_interval=60.0, journal=journal)
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"x", message_id="direct"))
        heal = world.fault("unanswered", entity="orders")
        with pytest.raises((ServiceBusError, TimeoutError)):
            await orders.send_messages(ServiceBusMessage(b"x", message_id="doubtful"), timeout=1)
        heal()
        paired.force("orders", by="kim")
        await orders.send_messages(ServiceBusMessage(b"x", message_id="diverted"))
    assert [event.message_id for event in world.told(Delivered)] == delivered
    assert {event.message_id for event in world.told(InDoubt)} == {"doubtful"}
    assert [event.message_id for event in world.told(Diverted)] == ["diverted"]


async def test_the_server_never_delivers_a_ping(world: World) -> None:
    """ "The server never delivers a ping": not to a plain client either; each is billed."""
    paired = await world.forced()
    await until(lambda: world.told(PingAccepted))
    async with world.client("primary") as client, client.get_queue_receiver("orders") as receiver:
        assert await receiver.receive_messages(1, max_wait_time=1) == []
    assert paired.billed().pings >= 1


async def test_pings_are_per_entity_and_only_for_those_that_failed_over(world: World) -> None:
    """Per entity, per pairing, per process."""
    paired = await world.pair()
    for path in ("orders", "audit"):
        paired.watch(path)
    paired.force("orders", by="kim")
    await until(lambda: len(world.told(PingAccepted)) >= 2)
    assert {event.entity for event in world.told(PingAccepted)} == {"orders"}


async def test_every_ping_is_an_operation(world: World) -> None:
    """Cost: "every ping is an operation", whether it is accepted or not."""
    paired = await world.pair(failback_pings=2)
    heal = world.fault("disabled", entity="orders")
    paired.watch("orders")
    paired.force("orders", by="kim")
    await until(lambda: world.told(PingFailed))
    heal()
    await until(lambda: world.told(PingAccepted))
    ended = len(world.told(PingFailed)) + len(world.told(PingAccepted))
    assert ended <= paired.billed().pings == len(world.told(PingSent)) <= ended + 1

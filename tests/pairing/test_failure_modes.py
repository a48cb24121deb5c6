"""Every failure mode of SPEC.md section 10 over real namespaces: mode -> what still works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from paired_servicebus.core.errors import BacklogUnavailableError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Diverted, Moved, QueuePulled
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.pairing import PairedSender, PairedServiceBusClient
from paired_servicebus.pairing.management.atom_admin import AtomAdmin
from paired_servicebus.pairing.management.management_port import Depth
from servicebus_sandbox.faults import FaultTerms, Operation

from .backlogs import parked, put, queue_path
from .conftest import IMPATIENT, World, until
from .test_outage import send_until_accepted, state

UNANSWERED = ("black-holed", "unanswered")
"""Faults that answer nothing: a call ends by its time."""


@dataclass
class Trouble:
    """A pairing in the middle of a failure mode, after one message went to orders while all was well."""

    world: World
    paired: PairedServiceBusClient
    orders: PairedSender
    heal: Callable[[], None]


Works = Callable[[Trouble], Awaitable[None]]


@asynccontextmanager
async def trouble(
    world: World, kind: str, *, namespace: str = "primary", entity: str | None = None, **terms: Any
) -> AsyncIterator[Trouble]:
    paired = await world.pair(failover_interval=0, **(IMPATIENT if kind in UNANSWERED else {}))
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"), timeout=60)
        yield Trouble(world, paired, orders, fault(world, kind, namespace=namespace, entity=entity, **terms))


def fault(
    world: World, kind: str, *, namespace: str = "primary", entity: str | None = None, **terms: Any
) -> Callable[[], None]:
    """Switch a fault on that goes as far as its terms say; what switches it off."""
    board = world.sandbox[namespace].node.faults
    begun = board.add(kind, entity=entity, terms=FaultTerms(**terms))
    return lambda: board.remove(begun.id)


# -- what still works ----------------------------------------------------------------------------------------------


async def sending_through_the_backlog(it: Trouble) -> None:
    await send_until_accepted(it.orders, ServiceBusMessage(b"during", message_id="during"))
    assert [event.message_id for event in it.world.told(Diverted)] == ["during"]
    assert state(it.paired, "orders") is State.FAILED_OVER


async def receiving(it: Trouble) -> None:
    async with it.paired.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        await receiver.complete_message(message)


async def management(it: Trouble) -> None:
    async with it.world.admin("primary") as admin:
        assert (await admin.get_queue("orders")).name == "orders"


async def the_console(it: Trouble) -> None:
    """What screens and commands ask of a pairing answers at once, whatever the namespaces do."""
    it.paired.pin("orders", by="kim", why="drill")
    assert state(it.paired, "orders") is State.PINNED
    it.paired.release("orders", by="kim")
    assert it.paired.queue_views()
    assert it.paired.syphon_view()


async def everything_on_the_secondary(it: Trouble) -> None:
    await sending_through_the_backlog(it)
    assert it.world.parked() == 1
    async with it.world.admin("secondary") as admin:
        assert (await admin.get_queue_runtime_properties(queue_path(0))).name == queue_path(0)
    assert (await it.paired.inspect()).queues[0].refusal == ""


# -- unable to send ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("works", [sending_through_the_backlog, receiving, management, the_console])
@pytest.mark.parametrize("kind", ["unanswered", "disabled", "full"])
async def test_unable_to_send_to_an_entity(world: World, kind: str, works: Works) -> None:
    """unable to send (an entity: timeouts, disabled, full): sending through the backlog; receiving; management; the
    console."""
    async with trouble(world, kind, entity="orders", operations=frozenset({Operation.SEND})) as it:
        await works(it)
        assert not world.told(QueuePulled)


@pytest.mark.parametrize("kind", ["refused", "reset", "black-holed"])
async def test_unable_to_send_to_a_namespace(world: World, kind: str) -> None:
    """a namespace: refused, reset, black-holed: sending through the backlog; the console. unable to contact the primary
    at all: everything on the secondary."""
    async with trouble(world, kind) as it:
        await everything_on_the_secondary(it)
        await the_console(it)
        assert not world.told(QueuePulled)


async def test_a_node_takes_several_entities_at_once(world: World) -> None:
    """a node: several entities at once, then slow."""
    paired = await world.pair(failover_interval=0)
    async with paired.get_queue_sender("orders") as orders, paired.get_topic_sender("audit") as audit:
        for sender in (orders, audit):
            await sender.send_messages(ServiceBusMessage(b"before"))
        board = world.sandbox["primary"].node.faults
        board.add(
            "node-restart", entities=["orders", "audit"], terms=FaultTerms(duration_s=2.0, slow_s=1.0, delay_s=0.1)
        )
        for sender in (orders, audit):
            await send_until_accepted(sender, ServiceBusMessage(b"during"))
        assert {event.entity for event in world.told(Diverted)} == {"orders", "audit"}
        await until(lambda: {view.state for view in paired.entity_views()} == {State.HEALTHY})


class Unmanageable(AtomAdmin):
    """Management over HTTPS that refuses to tell any more, while messaging goes on."""

    down: frozenset[str] = frozenset()

    async def depth(self, path: str) -> Depth:
        if path in self.down:
            raise HttpResponseError("the management of this namespace is not available")
        return await super().depth(path)

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        found = await super().depths(prefix, pages=pages)
        return {path: depth for path, depth in found.items() if path not in self.down}


# -- the others ----------------------------------------------------------------------------------------------------


async def test_unable_to_receive(world: World) -> None:
    """unable to receive: sending ("can still receive orders but cannot process them"); parked messages stay."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"))
        for namespace in ("primary", "secondary"):
            fault(world, "detached", namespace=namespace, operations=frozenset({Operation.RECEIVE}))
        put(world, [parked("orders", "stays")])
        await orders.send_messages(ServiceBusMessage(b"during"))
        assert world.depth("orders") == 2
        assert state(paired, "orders") is State.HEALTHY
    assert not world.told(Moved)
    assert world.parked(1) == 1


async def test_unable_to_manage(world: World) -> None:
    """unable to manage: sending, pinging, syphon on queues known; depth shown stale."""
    admin = Unmanageable(world.admin("secondary"))
    paired = await world.pair(enable_syphon=True, backlog_queue_count=2, failover_interval=0, secondary_admin=admin)
    await until(lambda: all(queue.depth is not None for queue in paired.queue_views()))
    read_at = paired.queue_views()[0].read_at
    admin.down = frozenset({queue_path(0)})
    async with paired.get_queue_sender("orders") as orders:
        await orders.send_messages(ServiceBusMessage(b"before"))
        heal = world.fault("disabled", entity="orders")
        await send_until_accepted(orders, ServiceBusMessage(b"during"))
        heal()
        await until(lambda: state(paired, "orders") is State.HEALTHY)
        await until(lambda: world.told(Moved))
    await paired._poller.read()
    assert paired.queue_views()[0].read_at == read_at
    assert paired.queue_views()[1].read_at > read_at  # that one queue can be read is no news of the other
    assert any(text.startswith("the depth of the backlog cannot be read") for text in paired.alarms())


async def test_the_secondary_as_well(world: World) -> None:
    """the secondary as well: an honest error to the caller at once; the console; recovery with no restart."""
    async with trouble(world, "refused") as it:
        heal = world.fault("refused", namespace="secondary")
        with pytest.raises(BacklogUnavailableError, match="You still own it"):
            await it.orders.send_messages(ServiceBusMessage(b"during"))
        await the_console(it)
        heal()
        await until(lambda: all(queue.in_rotation for queue in it.paired.queue_views()))
        await it.orders.send_messages(ServiceBusMessage(b"after"))
        assert world.parked() == 1
        it.heal()
        await until(lambda: state(it.paired, "orders") is State.HEALTHY)


async def test_throttling(world: World) -> None:
    """throttling: sends after waiting; no failover."""
    async with trouble(world, "busy", entity="orders") as it:
        with pytest.raises(ServiceBusServerBusyError):
            await it.orders.send_messages(ServiceBusMessage(b"during"), timeout=1)
        assert state(it.paired, "orders") is State.HEALTHY
        assert not world.told(Diverted)
        it.heal()
        await it.orders.send_messages(ServiceBusMessage(b"after"), timeout=15)  # waits out the rest of the ten seconds
        assert world.depth("orders") == 2


async def test_accepted_but_late(world: World) -> None:
    """accepted but late by up to 15 min: nobody takes "empty" for "drained"."""
    paired = await world.pair(enable_syphon=True, failover_interval=0)
    fault(world, "late", namespace="secondary", delay_s=60.0)
    async with paired.get_queue_sender("orders") as orders:
        heal = world.fault("refused", entity="orders")
        await send_until_accepted(orders, ServiceBusMessage(b"during"))
        heal()
        await until(lambda: state(paired, "orders") is State.HEALTHY)
    view = paired.syphon_view()
    assert view.moved == 0
    assert view.status is SyphonStatus.WAITING, "the engine knows what it parked"
    assert not any(word in view.text for word in ("drained", "empty", "done"))
    assert paired.entity_views()[0].diverted == 1


async def test_one_backlog_queue(world: World) -> None:
    """one backlog queue: the others."""
    async with trouble(world, "refused", entity="orders") as it:
        world.fault("full", namespace="secondary", entity=queue_path(0))
        for number in range(6):
            await send_until_accepted(it.orders, ServiceBusMessage(b"during", message_id=str(number)))
        assert {event.queue for event in world.told(Diverted)} == {1}
        assert {event.queue for event in world.told(QueuePulled)} <= {0}

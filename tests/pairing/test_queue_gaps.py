"""Backlog queues whose indices have a gap, since one could not be created: every part means the index in the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessagingEntityDisabledError

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.pairing_events import DeadLettered, Diverted, Moved, QueuePulled, QueueRead
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.engine.commands.guard import CommandContext, StandingOrder, StandingOrders
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.management_port import Management, QueueWanted
from paired_servicebus.pairing.monitoring import unused_queues as module
from paired_servicebus.pairing.syphon import redrive
from paired_servicebus.pairing.syphon.redrive import DEAD_LETTERS

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until

GAPPED = (0, 2, 3)
"""Of four queues that were asked for: the creation of /1 failed."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.01)
    monkeypatch.setattr(backlog_queues, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(redrive, "QUIET", 0.5)


def refusing(admin: ServiceBusAdministrationClient, path: str) -> Management:
    """The client's port, which cannot create the queue at `path`."""
    port = management_of(admin)
    create = port.create_queue

    async def failing(name: str, wanted: QueueWanted) -> None:
        if name == path:
            raise ServiceRequestError("no route")
        await create(name, wanted)

    port.create_queue = failing  # type: ignore[method-assign] # for this test
    return port


async def gapped(world: World, **options: Any) -> PairedServiceBusClient:
    admin = refusing(world.admin("secondary"), queue_path(1))
    chosen = {"backlog_queue_count": 4, "secondary_admin": admin, "quiet_period": 1.0} | options
    return await world.pair(**chosen)


def quiet(world: World, path: str) -> None:
    """As if the queue had not been used for an hour."""
    queue = world.sandbox["secondary"].node.namespace.queue(path)
    for part in (queue.messages, queue.dead_letters):
        part.accessed_at -= 3600.0
    queue.intake.last_send_at -= 3600.0


def exists(world: World, path: str) -> bool:
    return path in [one.path for one in world.sandbox["secondary"].node.namespace.queues()]


async def test_a_queue_in_use_behind_a_gap_is_neither_listed_as_unused_nor_deleted(world: World) -> None:
    """Section 4.3: "an integer index that no known engine uses (its real indices, not their number: creation may leave
    gaps)"."""
    paired = await gapped(world)
    put(world, [parked("orders", str(number)) for number in range(5)], path=queue_path(3))
    await paired._unused.look()
    assert paired.unused_view().trouble == ""
    assert paired.unused_view().queues == ()
    for namespace_is_empty in (False, True):
        if namespace_is_empty:
            await world.received(queue_path(3), 5, namespace="secondary")
        quiet(world, queue_path(3))
        with pytest.raises(IllegalEventError, match="/3 is in use"):
            await paired.clean_up(queue_path(3))
    assert exists(world, queue_path(3))


async def test_the_queue_of_the_gap_is_unused_once_it_exists(world: World) -> None:
    paired = await gapped(world)
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(1))
    await paired._unused.look()
    assert [(one.index, one.path) for one in paired.unused_view().queues] == [(1, queue_path(1))]


async def test_views_readings_and_receipts_name_the_index_in_the_path(world: World) -> None:
    paired = await gapped(world, enable_syphon=True)
    assert (paired.backlog_queue_count, paired.backlog_queue_indices) == (3, GAPPED)
    assert [(one.index, one.path) for one in paired.queue_views()] == [(index, queue_path(index)) for index in GAPPED]
    await until(lambda: {event.queue for event in world.told(QueueRead)} == set(GAPPED))
    evidence = await paired.inspect()
    assert [queue.path for queue in evidence.queues] == [queue_path(index) for index in GAPPED]

    for index in GAPPED:
        put(world, [parked("orders", f"from-{index}")], path=queue_path(index))
    await until(lambda: len(world.told(Moved)) == len(GAPPED))
    assert {(event.message_id, event.queue) for event in world.told(Moved)} == {
        (f"from-{index}", index) for index in GAPPED
    }


async def disabled(messages: object, timeout: float) -> None:
    raise MessagingEntityDisabledError


async def test_a_send_is_recorded_with_the_queue_that_has_it_and_a_failure_pulls_that_queue(world: World) -> None:
    paired = await gapped(world)
    paired._steering.draw = lambda: 0.0  # type: ignore[method-assign] # the first queue in the rotation is picked
    for index in (0, 2):
        paired._standby.queues[index].link.send = disabled  # type: ignore[method-assign] # the SDK takes a second
    async with paired.get_queue_sender("orders") as sender:
        paired.force("orders", by="ada")
        await sender.send_messages(ServiceBusMessage(b"x"))
    assert world.depth(queue_path(3), namespace="secondary") == 1
    assert [event.queue for event in world.told(Diverted)] == [3]
    assert [event.queue for event in world.told(QueuePulled)] == [0, 2]
    pulled = [one.path for one in paired.queue_views() if not one.in_rotation]
    assert pulled == [queue_path(0), queue_path(2)]


async def test_a_pause_of_one_queue_is_of_the_one_with_that_index(world: World) -> None:
    paired = await gapped(world, enable_syphon=True)
    assert "backlog queue 2 is paused" in paired.pause_syphon(by="ada", queue=2)
    for index in (2, 3):
        put(world, [parked("orders", f"from-{index}")], path=queue_path(index))
    await until(lambda: world.ids_in("orders") == ["from-3"])
    assert world.depth(queue_path(2), namespace="secondary") == 1
    with pytest.raises(IllegalEventError, match="uses no backlog queue 1; it uses 0, 2, 3"):
        paired.pause_syphon(by="ada", queue=1)


async def test_a_re_drive_is_of_the_queue_with_that_index(world: World) -> None:
    paired = await gapped(world, enable_syphon=True, undeliverable_after=0, syphon_retry_interval=1)
    put(world, [parked("later", "m1")], path=queue_path(3))
    await until(lambda: [event.queue for event in world.told(DeadLettered)] == [3])
    await until(lambda: len(lying_in(world, queue_path(3) + DEAD_LETTERS, namespace="secondary")) == 1)
    world.sandbox["primary"].node.namespace.create_queue("later")
    assert queue_path(3) in await paired.redrive(3)
    await until(lambda: world.ids_in("later") == ["m1"])
    with pytest.raises(IllegalEventError, match="uses no backlog queue 1; it uses 0, 2, 3"):
        await paired.redrive(1)


async def test_what_is_stranded_in_the_gap_is_moved_as_index_1(world: World) -> None:
    paired = await gapped(world, enable_syphon=True)
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(1))
    put(world, [parked("orders", "m1")], path=queue_path(1))
    assert f"1 messages of {queue_path(1)} were moved" in await paired.move_stranded(queue_path(1))
    assert [event.queue for event in world.told(Moved)] == [1]
    with pytest.raises(IllegalEventError, match="/3 is in use"):
        await paired.move_stranded(queue_path(3))


async def test_a_standing_order_is_for_the_index_in_the_path_in_the_next_engine_too(
    world: World, tmp_path: Path
) -> None:
    """The engine before had all four queues; this one has a gap."""
    paired = await gapped(world, enable_syphon=True)
    standing, reach = StandingOrders(tmp_path), CommandContext(paired, end=lambda _: None)
    gone, kept = (
        StandingOrder(action_id="pause-syphon", scope=Scope.QUEUE, target=index, by="ada", at=1.0)
        for index in ("1", "3")
    )
    assert "cannot be taken up: pause-syphon backlog/1" in await standing.take_up(gone, reach)
    assert "still stands: pause-syphon backlog/3" in await standing.take_up(kept, reach)
    assert paired.syphon_view().paused_queues == (3,)
    put(world, [parked("orders", "from-3")], path=queue_path(3))
    put(world, [parked("orders", "from-2")], path=queue_path(2))
    await until(lambda: world.ids_in("orders") == ["from-2"])
    assert world.depth(queue_path(3), namespace="secondary") == 1

"""One figure for what is parked, and a syphon that waits where it was called idle or stuck (findings C4 and C7)."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import ParkedView, SyphonStatus
from paired_servicebus.pairing import PairedServiceBusClient

from .backlogs import parked, put
from .conftest import World, until
from .test_outage import send_until_accepted, state


def figure(paired: PairedServiceBusClient) -> ParkedView:
    view = paired.parked_view()
    assert view is not None
    return view


async def read(paired: PairedServiceBusClient) -> None:
    """Read all depths now."""
    await paired._poller.read()


async def never_read(paired: PairedServiceBusClient) -> None:
    """Read all depths, and from then on none."""
    await read(paired)
    await until(lambda: paired.parked_view() is not None)

    async def unread() -> None:
        await asyncio.Event().wait()

    paired._poller.read = unread  # type: ignore[method-assign] # for this test


async def test_what_is_parked_now_needs_no_new_reading(world: World) -> None:
    """Last reading + diverted by this engine - moved by this engine since that reading."""
    paired = await world.pair(enable_syphon=True, failover_interval=0)
    await never_read(paired)
    read_at = figure(paired).read_at
    async with paired.get_queue_sender("orders") as orders:
        heal = world.fault("refused", entity="orders")
        for _ in range(5):
            await send_until_accepted(orders, ServiceBusMessage(b"x"))
        await until(lambda: figure(paired).messages == 5)
        assert sum(queue.parked or 0 for queue in paired.queue_views()) == 5
        assert sum(queue.depth or 0 for queue in paired.queue_views()) == 0, "the readings are older"
        await until(lambda: paired.syphon_view().status is SyphonStatus.WAITING)
        said = "holds 5 messages for an outage of orders; moves them when it is healthy again"
        assert paired.syphon_view().text == said
        assert figure(paired).empty_at is None
        heal()
        await until(lambda: state(paired, "orders") is State.HEALTHY)
        await until(lambda: figure(paired).messages == 0)
    await until(lambda: paired.syphon_view().status is SyphonStatus.IDLE)
    view = figure(paired)
    assert (view.known, view.queues, view.draining_since, view.empty_at) == (2, 2, None, None)
    assert view.read_at == read_at


async def test_a_syphon_that_moves_what_nobody_knew_of_is_never_below_zero(world: World) -> None:
    paired = await world.pair(enable_syphon=True)
    await never_read(paired)
    put(world, [parked("orders", str(number)) for number in range(20)])
    await until(lambda: paired.syphon_view().moved == 20)
    await until(lambda: paired.parked_view() is not None)
    assert figure(paired).messages == 0


@pytest.mark.parametrize("forced", [False, True])
async def test_two_syphons_on_one_backlog_wait_through_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch, forced: bool
) -> None:
    """Seen: "the syphon is stuck: 348 messages lie in the backlog queues and none is moved", with two engines."""
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.syphon_report.STUCK_SECONDS", 0.3)
    up = await world.pair(enable_syphon=True, failover_interval=0)
    application = await world.pair(enable_syphon=True, failover_interval=0)
    heal = world.fault("refused", entity="orders")
    async with application.get_queue_sender("orders") as orders:
        if forced:
            application.force("orders", by="test")
        for _ in range(30):
            await send_until_accepted(orders, ServiceBusMessage(b"x"))
    waited: set[PairedServiceBusClient] = set()
    for _ in range(15):
        for paired in (up, application):
            await read(paired)
            view = paired.syphon_view()
            assert view.status is not SyphonStatus.STUCK, view.text
            assert not any("stuck" in alarm for alarm in paired.alarms())
            waited |= {paired} if view.status is SyphonStatus.WAITING else set()
        await asyncio.sleep(0.1)
    assert waited == {up, application}
    heal()


async def test_whoever_waited_for_a_reading_sees_its_figure(world: World) -> None:
    """Section 12: a figure says its age. `paired status` waits for a reading, and printed the figure before it."""
    paired = await world.pair(enable_syphon=False)
    await read(paired)
    shown: list[int] = []
    paired.looks.when_read = lambda: shown.append(figure(paired).messages)
    put(world, [parked("orders", "m1")])
    await read(paired)
    assert shown[-1] == 1

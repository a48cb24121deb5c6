"""A stop of a syphon that holds messages: closing, a pause, an order that ends (SPEC.md section 9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.syphon import amqp_pump, sdk_pump
from paired_servicebus.pairing.syphon import syphon as redrive
from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import Direction, Operation

from .backlogs import lying_in, parked, put, queue_path
from .conftest import BOTH_PUMPS, World, until
from .test_syphon import deferred, order

SLOW_SECONDS = 1.0
"""Seconds of an answer, with which a stop meets a request."""
LOCK = QueueSettings(lock_duration=timedelta(minutes=5), max_delivery_count=2_147_483_647)
"""A lock that no test outlives."""
STRANDED = queue_path(7)


@pytest.fixture(params=["amqp", pytest.param("sdk", marks=pytest.mark.slow)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        for path in (queue_path(), STRANDED):
            sandbox["secondary"].node.namespace.create_queue(path, LOCK)
        yield World(sandbox, stack, pump=request.param)


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits for its answers however slow this machine is, except where the deadline is what is proven."""
    if request.function is not test_an_outage_of_the_backlog_does_not_hold_up_closing_for_long:
        for module in (amqp_pump, sdk_pump):
            monkeypatch.setattr(module, "STOPPING_SECONDS", 60.0)


def locked(world: World, path: str = queue_path()) -> int:
    """The number of messages that somebody holds."""
    return sum(stored.lock_token is not None for stored in lying_in(world, path, namespace="secondary"))


def answer_slowly(world: World, *operations: Operation) -> None:
    """What the backlog's namespace does, it tells late."""
    world.fault("latency", *operations, namespace="secondary", direction=Direction.OUT, delay_s=SLOW_SECONDS)


async def ask_for_deferred(world: World, count: int = 20) -> PairedServiceBusClient:
    """A pairing whose syphon has asked for deferred messages, and has no answer yet."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number)) for number in range(count)])
    await until(lambda: len(deferred(world)) == count)
    answer_slowly(world, Operation.MANAGE)
    heal()
    await until(lambda: locked(world))
    return paired


@BOTH_PUMPS
async def test_closing_waits_for_deferred_messages_that_were_requested(world: World) -> None:
    """A stop of a pump waits up to 5 s for the answer to a request that locks messages, and releases these too."""
    paired = await ask_for_deferred(world)
    await paired.close()
    assert locked(world) == 0
    assert len(deferred(world)) + world.depth("orders") == 20


async def test_a_pause_waits_for_deferred_messages_that_were_requested(world: World) -> None:
    """A paused syphon holds no locks: another engine may move the messages."""
    paired = await ask_for_deferred(world)
    paired.pause_syphon(by="kim")
    await until(lambda: not locked(world))
    assert len(deferred(world)) + world.depth("orders") == 20


async def test_messages_of_a_lost_link_are_released(world: World) -> None:
    """A stop of a pump releases the messages of a lost link too."""
    world.fault("unanswered", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, close_grace=0, send_timeout=300.0)
    put(world, [parked("orders", "m")])
    await until(lambda: paired._steering.meter.moves)
    world.fault("detached", namespace="secondary", entity=queue_path())()
    await paired.close()
    assert locked(world) == 0


@pytest.mark.parametrize("world", ["amqp"], indirect=True)
async def test_messages_of_a_cut_connection_are_released(world: World) -> None:
    """Locks in hand are released, over a new connection if the old one has just gone.

    The SDK confirms no settlement: one that it wrote to a connection that is just ending is lost, until the lock ends.
    """
    world.fault("unanswered", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, close_grace=0)
    put(world, [parked("orders", "m")])
    await until(lambda: paired._steering.meter.moves)
    world.fault("disconnected", namespace="secondary")()
    await paired.close()
    assert locked(world) == 0


async def test_an_outage_of_the_backlog_does_not_hold_up_closing_for_long(world: World) -> None:
    """The wait for an answer ends by a deadline of ours."""
    paired = await ask_for_deferred(world)
    world.fault("black-holed", namespace="secondary")
    async with asyncio.timeout(90):
        await paired.close()


@BOTH_PUMPS
async def test_a_completion_under_way_is_finished(world: World) -> None:
    """Complete only after the destination accepted it: then do, or it comes twice."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    answer_slowly(world, Operation.SETTLE)
    put(world, [parked("orders", str(number)) for number in range(5)])
    await until(lambda: world.depth("orders") == 5)
    await paired.close()
    assert lying_in(world, queue_path(), namespace="secondary") == []


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order ends soon after the last message."""
    monkeypatch.setattr(redrive, "QUIET", 0.5)


@BOTH_PUMPS
@pytest.mark.usefixtures("hasty")
async def test_an_order_that_ends_releases_what_it_holds(world: World) -> None:
    """The result of an order that moves stranded messages names those that stay."""
    world.fault("unanswered", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=3.0)
    put(world, [parked("orders", str(number)) for number in range(5)], path=STRANDED)
    said = await order(paired).move_stranded(STRANDED)
    assert locked(world, STRANDED) == 0
    assert said.startswith("0 messages")
    assert "5 stay, locked by another receiver, or released at the end" in said or "holds 5 messages" in said


@pytest.mark.usefixtures("hasty")
async def test_an_order_names_the_messages_that_another_receiver_has_locked(world: World) -> None:
    """Every question, page and verb says what it cannot know, or reach."""
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", str(number)) for number in range(5)], path=STRANDED)
    async with world.client("secondary") as client, client.get_queue_receiver(STRANDED) as holder:
        held = await holder.receive_messages(2, max_wait_time=5)
        assert len(held) == 2
        said = await order(paired).move_stranded(STRANDED)
    assert said.startswith(f"3 messages of {STRANDED} were moved, and 2 stay, locked by another receiver; then")


@pytest.mark.usefixtures("hasty")
async def test_an_order_on_a_queue_that_cannot_be_peeked_calls_the_rest_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody here can know is "unknown", never "none"."""
    monkeypatch.setattr(redrive, "PATIENCE", 1.0)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "moved")], path=STRANDED)
    moving = asyncio.create_task(order(paired).move_stranded(STRANDED))
    await until(lambda: world.depth("orders"))
    world.fault("black-holed", Operation.MANAGE, namespace="secondary", entity=STRANDED)
    assert "and an unknown number stays, locked by another receiver" in await moving

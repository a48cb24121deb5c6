"""What an idle syphon costs, by its meter and a clock that the test sets forward (SPEC.md section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump.pump_machine import MISSED, RESCAN, SOON, SearchSchedule
from paired_servicebus.pairing.management.backlog_queues import DepthSample
from paired_servicebus.pairing.management.management_port import Depth
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from paired_servicebus.pairing.syphon.sdk_pump import SdkPump
from paired_servicebus.pairing.syphon.syphon import Syphon
from servicebus_sandbox.broker.entity_settings import QueueSettings

from .backlogs import parked, put, queue_path
from .conftest import World, until

STEP = 15.0
TURNS = 12
"""Of the event loop, in which every pump that was woken looks at what is due, and waits again."""


class Idle:
    """A syphon on some empty queues, and its clock."""

    def __init__(self, steering: PairingRuntime, syphon: Syphon) -> None:
        self.steering = steering
        self.syphon = syphon
        self.now = 1_700_000_000.0

    @property
    def pumps(self) -> list[AmqpPump]:
        return [pump for pump in self.syphon.pumps.values() if isinstance(pump, AmqpPump)]

    @property
    def counts(self) -> tuple[int, int, int]:
        meter = self.steering.meter
        return meter.waits, meter.searches, meter.attaches

    async def passes(self, seconds: float) -> None:
        """Time passes, step by step; a search takes none of it."""
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            self.steering.look()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await until(lambda: not any(self.now >= pump.machine.search.due_at for pump in self.pumps))


@asynccontextmanager
async def idle_syphon(world: World, queues: int) -> AsyncIterator[Idle]:
    paths = {index: queue_path(index) for index in range(queues)}
    namespace = world.sandbox["secondary"].node.namespace
    for path in paths.values():
        if path not in {queue.path for queue in namespace.queues()}:
            namespace.create_queue(path, QueueSettings())
    tasks = TaskOwner()
    await tasks.open()
    steering = PairingRuntime(
        PairingMachine(Policy(enable_syphon=True), queues=paths), tasks, judge, None, clock=lambda: found.now
    )
    async with world.client("primary") as primary, world.client("secondary") as secondary:
        syphon = Syphon(steering, primary, secondary, paths)
        found = Idle(steering, syphon)
        syphon.start()
        await until(lambda: all(pump.is_open for pump in found.pumps))
        yield found
        await tasks.close()
        await syphon.close()


async def test_ten_idle_queues_cost_at_most_40_windows_and_40_searches_an_hour(world: World) -> None:
    """Section 8: "at most 40 receive windows and 40 searches for deferred messages an hour for 10 queues"."""
    async with idle_syphon(world, 10) as idle:
        await idle.passes(3600 - STEP)
        waits, searches, attaches = idle.counts
        assert 30 <= waits <= 40
        assert searches == 40
        assert attaches == 10
        assert idle.steering.meter.receives == waits + searches + attaches
        await idle.passes(3600)
        later = idle.counts
        assert later[0] - waits <= 40
        assert later[1] - searches <= 40


async def test_a_link_that_is_attached_again_after_an_idle_cut_does_not_search(world: World) -> None:
    """Section 8: "a re-attach after an idle cut does not search"."""
    async with idle_syphon(world, 2) as idle:
        assert idle.counts == (0, 2, 2)
        await idle.passes(660)
        await _cut(world, idle, attaches=4)
        assert idle.counts == (0, 2, 4)
        await idle.passes(SEARCH_INTERVAL_SECONDS - 660)
        assert idle.counts[1] == 4, "and the search that is due is not put off by the cut"


async def test_a_link_that_is_attached_again_after_a_failure_searches(world: World) -> None:
    async with idle_syphon(world, 1) as idle:
        world.sandbox["secondary"].node.faults.add("disconnected")
        await until(lambda: idle.steering.meter.attaches == 2)
        await until(lambda: idle.steering.meter.searches == 2)


async def _cut(world: World, idle: Idle, *, attaches: int) -> None:
    """The namespace ends the links over which nothing has passed for ten minutes."""
    node = world.sandbox["secondary"].node
    node.clock.advance(660)
    node.clock_jumped()
    await until(lambda: idle.steering.meter.attaches == attaches)
    await until(lambda: all(pump.is_open for pump in idle.pumps))
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def set_aside_by_another(world: World) -> AsyncIterator[Idle]:
    """A syphon that has searched its queue, in which another one has set a message aside since then, and died."""
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), QueueSettings())
    put(world, [parked("orders", "left behind")])
    async with world.client("secondary") as client, client.get_queue_receiver(queue_path()) as other:
        (message,) = await other.receive_messages(1, max_wait_time=5)
        async with idle_syphon(world, 1) as idle:
            await other.defer_message(message)
            yield idle


async def test_what_another_engine_set_aside_is_found_within_15_minutes(world: World) -> None:
    """Section 8: "What is set aside is found again after a crash with no list kept (peek finds deferred ones)"."""
    async with set_aside_by_another(world) as idle:
        await idle.passes(SEARCH_INTERVAL_SECONDS - 2 * STEP)
        assert world.depth("orders") == 0
        await idle.passes(2 * STEP)
        await until(lambda: world.depth("orders") == 1)


async def test_it_is_found_at_once_where_the_depth_shows_it(world: World) -> None:
    """Nothing waits for 15 minutes that could be found before: the queue holds more than its pump knows of."""
    async with set_aside_by_another(world) as idle:
        await idle.passes(MISSED)
        idle.syphon.know({0: DepthSample(Depth(messages=1, dead_lettered=0, size_bytes=1), idle.now)})
        idle.steering.look()
        await until(lambda: world.depth("orders") == 1)


async def test_a_reading_is_followed_once_and_known_messages_are_none(world: World) -> None:
    """A reading that is not made again must not have an idle queue searched for ever."""
    async with idle_syphon(world, 1) as idle:
        await idle.passes(MISSED)
        reading = DepthSample(Depth(messages=1, dead_lettered=0, size_bytes=1, scheduled=0), idle.now)
        later = DepthSample(Depth(messages=1, dead_lettered=0, size_bytes=1, scheduled=1), idle.now + MISSED)
        for _ in range(5):
            idle.syphon.know({0: reading})
            await idle.passes(MISSED)
        assert idle.counts[1] == 2
        idle.syphon.know({0: later})
        await idle.passes(STEP)
        assert idle.counts[1] == 2


class EmptyQueue:
    """What the SDK's receiver of an empty queue answers."""

    async def receive_messages(self, *_: Any, **__: Any) -> list[Any]:
        return []

    async def peek_messages(self, *_: Any, **__: Any) -> list[Any]:
        return []


async def test_the_pump_on_the_sdk_costs_no_more() -> None:
    now = 1_700_000_000.0
    tasks = TaskOwner()
    steering = PairingRuntime(
        PairingMachine(Policy(enable_syphon=True), queues=(0,)), tasks, judge, None, clock=lambda: now
    )
    nothing: Any = None
    pump = SdkPump(steering, nothing, nothing, index=0, path=queue_path())
    receiver: Any = EmptyQueue()
    for _ in range(3600):
        await pump._cycle(receiver)
        now += 1.0
    assert (steering.meter.waits, steering.meter.searches) == (4, 4)


def test_a_miss_has_the_queue_searched_soon_and_then_ever_less_up_to_once_a_minute() -> None:
    """A message that was set aside and cannot be received is somebody's, who may be dead."""
    rescan, now, pauses = SearchSchedule(), 1000.0, []
    for _ in range(7):
        rescan.began()
        rescan.ended(now, took=0.0)
        rescan.missed(now)
        pauses.append(rescan.due_at - now)
        now = rescan.due_at
    assert pauses == [SOON, 10.0, 20.0, 40.0, MISSED, MISSED, MISSED]
    rescan.began()
    rescan.ended(now, took=0.0)
    assert rescan.due_at - now == SEARCH_INTERVAL_SECONDS == RESCAN == 900

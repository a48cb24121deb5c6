"""What bounds a syphon: what it costs while idle, its ration, one figure of what is parked, and re-drives."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.accounting.billing import SEARCH_INTERVAL_SECONDS
from paired_servicebus.core.backlog.backlog_totals import DepthRead
from paired_servicebus.core.backlog.queue_settings import Depth
from paired_servicebus.core.errors import RedriveError
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Event, Moved
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.snapshot import ParkedView, SyphonStatus
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump.intake_limit import IntakeLimit, SyphonRateLimit
from paired_servicebus.core.pump.pump_machine import MISSED, RESCAN, SOON, PumpProgress, SearchSchedule
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import syphon as redrive
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from paired_servicebus.pairing.syphon.sdk_pump import SdkPump
from paired_servicebus.pairing.syphon.syphon import DEAD_LETTERS, AmqpRedriver, ConnectionPair, Syphon
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import Operation

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until
from .test_outage import send_until_accepted, state

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
        world.fault("disconnected", namespace="secondary")
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
        idle.syphon.know({0: DepthRead(idle.now, Depth(messages=1, dead_lettered=0, size_bytes=1))})
        idle.steering.look()
        await until(lambda: world.depth("orders") == 1)


async def test_a_reading_is_followed_once_and_known_messages_are_none(world: World) -> None:
    """A reading that is not made again must not have an idle queue searched for ever."""
    async with idle_syphon(world, 1) as idle:
        await idle.passes(MISSED)
        reading = DepthRead(idle.now, Depth(messages=1, dead_lettered=0, size_bytes=1, scheduled=0))
        later = DepthRead(idle.now + MISSED, Depth(messages=1, dead_lettered=0, size_bytes=1, scheduled=1))
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


# -- One figure for what is parked, and a syphon that waits where it was called idle or stuck --------------------------


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


@pytest.mark.parametrize("forced", [False, True])
async def test_two_syphons_on_one_backlog_wait_through_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch, forced: bool
) -> None:
    """Seen: "the syphon is stuck: 348 messages lie in the backlog queues and none is moved", with two engines."""
    monkeypatch.setattr("paired_servicebus.pairing.monitoring.snapshot_views.STUCK_SECONDS", 0.3)
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


# -- What bounds a pump: in all, in hand, by a rate; and a pump that keeps to it -------------------------------------


def test_bounds_in_all_and_in_hand_hold_beside_each_other() -> None:
    ration = IntakeLimit(SyphonRateLimit(), messages=10, in_hand=4)
    assert ration.left(0, 0.0) == 4
    assert ration.left(4, 0.0) == 0
    for _ in range(10):
        ration.took()
    assert ration.is_spent
    assert ration.left(0, 0.0) == 0
    assert IntakeLimit(SyphonRateLimit()).left(5000, 0.0) == inf


async def test_a_pump_takes_what_its_ration_allows_and_leaves_the_rest_as_it_lies(world: World) -> None:
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), QueueSettings())
    put(world, [parked("orders", f"m{number}") for number in range(100)])
    tasks = TaskOwner()
    await tasks.open()
    told: list[Event] = []
    steering = PairingRuntime(PairingMachine(Policy(enable_syphon=True), queues=(0,)), tasks, judge, told.append)
    async with world.client("primary") as primary, world.client("secondary") as secondary:
        wires = ConnectionPair(steering, primary, secondary)
        ration = IntakeLimit(steering.machine.pace, messages=30, in_hand=7)
        pump = AmqpPump(
            steering, wires.secondary, wires.courier, index=0, path=queue_path(), progress=PumpProgress(), intake=ration
        )
        tasks.start(pump.run(), name="the pump")
        await until(lambda: ration.is_spent and pump.is_idle)
        await tasks.close()
        await pump.close()
        await wires.close()
    assert sum(isinstance(event, Moved) for event in told) == 30
    assert world.depth("orders") == 30
    assert [stored.delivery_count for stored in lying_in(world, queue_path(), namespace="secondary")] == [0] * 70


# -- Re-driving dead letters of a backlog queue where something is in the way ----------------------------------------

DEAD = queue_path() + DEAD_LETTERS


def dead(world: World, count: int) -> None:
    """Put dead letters into the first backlog queue."""
    node = world.sandbox["secondary"].node
    if not any(queue.path == queue_path() for queue in node.namespace.queues()):
        node.namespace.create_queue(queue_path())
    for number in range(count):
        message = read_message(parked("orders", str(number)))
        node.namespace.message_queue(DEAD).put(message, node.clock())
    node.wake()


def ids(world: World, path: str) -> list[str]:
    return [str(stored.message.message_id) for stored in lying_in(world, path, namespace="secondary")]


@pytest.fixture
async def redriver(world: World) -> AsyncIterator[AmqpRedriver]:
    async with world.client("secondary") as client:
        wire = ReconnectingConnection(Endpoint.of(client))
        yield AmqpRedriver(wire, rest=0.05)
        await wire.close()


@pytest.mark.parametrize("fault", ["disconnected", "acknowledgement-lost", "detached"])
async def test_one_that_breaks_ends_with_the_number_of_those_moved(
    world: World, redriver: AmqpRedriver, fault: str
) -> None:
    """One that breaks ends with an error that has the number of those moved and names those in doubt."""
    dead(world, 600)
    world.fault("latency", namespace="secondary", delay_s=0.1)  # so that it is on its way for some rounds
    running = asyncio.create_task(redriver.redrive(queue_path()))
    await until(lambda: len(ids(world, queue_path())) > 50)
    heal = world.fault(fault, namespace="secondary", entity=None if fault == "disconnected" else queue_path())
    with pytest.raises(RedriveError, match="ended early") as caught:
        await running
    heal()
    error = caught.value
    assert 0 < error.moved < 600
    assert f"after {error.moved} dead letters" in str(error)
    assert len(ids(world, DEAD)) == 600 - error.moved
    copied = Counter(ids(world, queue_path()))
    assert max(copied.values()) == 1, "never the same letter twice by itself"
    twice = copied.keys() & set(ids(world, DEAD))
    assert len(twice) <= len(error.in_doubt)
    assert pickle.loads(pickle.dumps(error)).in_doubt == error.in_doubt


async def test_a_throttled_queue_gets_one_try_for_each_rest(world: World, redriver: AmqpRedriver) -> None:
    """A re-drive rests `throttle_wait` when the queue is busy."""
    dead(world, 300)
    world.fault("busy", Operation.SEND, namespace="secondary", entity=queue_path(), count=3)
    assert await redriver.redrive(queue_path()) == f"300 of 300 dead letters of {queue_path()} were put back to work"
    assert sorted(ids(world, queue_path())) == sorted(map(str, range(300)))
    assert not ids(world, DEAD)


async def test_a_queue_that_stays_busy_ends_it_in_words(world: World, redriver: AmqpRedriver) -> None:
    dead(world, 300)
    world.fault("busy", Operation.SEND, namespace="secondary", entity=queue_path())
    said = await redriver.redrive(queue_path())
    assert said.endswith(f"300 stay: {queue_path()} is busy, after {redrive.MAX_BUSY_TRIES} tries")
    assert len(ids(world, DEAD)) == 300


async def test_what_another_receiver_holds_is_called_locked(
    world: World, redriver: AmqpRedriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "QUIET", 0.5)
    dead(world, 5)
    async with world.client("secondary") as client, client.get_queue_receiver(DEAD) as receiver:
        held = await receiver.receive_messages(2, max_wait_time=5)
        said = await redriver.redrive(queue_path())
        assert f"; {len(held)} stay: {len(held)} are locked by another receiver" in said

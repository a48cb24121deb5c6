"""The syphon's pace with either kind of pump: a rate the owner set, and what "server busy" does to it."""

from __future__ import annotations

import pytest

from paired_servicebus.core.model.pairing_events import Moved, Warned

from .backlogs import parked, put, queue_path
from .conftest import World, until


@pytest.fixture(params=["amqp", "sdk"])
def world(world: World, request: pytest.FixtureRequest) -> World:
    world.pump = request.param
    return world


async def test_no_more_than_the_rate_is_moved_whatever_queues_it_comes_from(world: World) -> None:
    """One limit for the engine, and all that is parked arrives nevertheless."""
    rate, count = 40, 120
    await world.pair(enable_syphon=True, backlog_queue_count=2, syphon_rate=rate)
    for index in range(2):
        put(world, [parked("orders", f"{index}-{number}") for number in range(count // 2)], path=queue_path(index))
    await until(lambda: len(world.told(Moved)) == count)
    times = [event.at for event in world.told(Moved)]
    granted_twice = 2 * rate  # each of two queues may have been given the same burst
    for number, at in enumerate(times):
        assert number <= rate * (at - times[0] + 1) + granted_twice
    assert world.depth("orders") == count


async def test_a_throttled_destination_slows_the_whole_syphon_down_and_it_says_so(world: World) -> None:
    world.sandbox["primary"].node.namespace.create_queue("well")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("well", str(number)) for number in range(300)])
    await until(lambda: world.depth("well") == 300)
    world.fault("busy", entity="orders")
    put(world, [parked("orders", "no"), *(parked("well", str(number)) for number in range(300, 400))])
    await until(lambda: world.told(Warned))
    warned = world.told(Warned)[0]
    assert warned.about == "syphon"
    assert warned.text.startswith("orders is throttled: the limit is ")
    await until(lambda: world.depth("well") == 400)
    assert "since the primary throttles" in paired.syphon_view().text
    assert len(world.told(Warned)) == 1

"""The operations that a fleet costs, counted beside boards in memory, and the time until a console has all reports."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.core.fleet.fleet_world import FleetWorld, snapshot

from paired_servicebus.core.fleet.fleet_documents import Board
from paired_servicebus.core.fleet.fleet_events import OwnState, Watched
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetStatus


@pytest.mark.parametrize(("engines", "syphons"), [(20, 0), (20, 20)])
def test_idle_engines_cost_at_most_1_2_operations_a_minute(engines: int, syphons: int) -> None:
    world = FleetWorld(engines, syphons=syphons)
    world.run(600)
    first = sum(world.operations.values()) / engines / 10
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(100)
    world.tell(0, Watched(at=world.now, is_watched=False))
    world.run(200)
    ten = world.run(600) / engines / 10
    hour = world.run(3600) / engines / 60
    print(f"{engines} engines, {syphons} syphons: {first:.3f} and {ten:.3f} in 10 min, then {hour:.3f}")
    assert max(first, ten, hour) <= 1.2


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_watched_hour_with_its_cleaning_and_a_console_opened_after_it(killed: int) -> None:
    world = FleetWorld(20)
    world.run(600)
    for place in range(20 - killed, 20):
        world.alive[place] = False
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(90)
    before = Counter(world.operations)
    spent = world.run(3600)
    lying = [len(board.posts) for board in world.boards.values()]
    print(f"{killed} of 20 killed, a watched hour: {spent}, {dict(world.operations - before)}, lying {lying}")
    assert spent <= 35_000 + 5_000 * killed, "a presence that stays makes others be received, which costs two each"
    statuses = Counter(one.status for one in world.members[0].view().engines)
    assert statuses == Counter({FleetStatus.REPORTING: 20 - killed, FleetStatus.SILENT: killed})
    read = world.read_by[1]
    world.tell(1, Watched(at=world.now, is_watched=True))
    world.run(1)
    print(f"a second console reads {world.read_by[1] - read}")
    assert len(world.members[1].view().engines) == 20
    assert world.read_by[1] - read <= 1_500


@pytest.mark.parametrize(("engines", "within"), [(20, 65.0), (100, 65.0), (500, 75.0)])
def test_all_reports_are_on_the_console_in_time(engines: int, within: float) -> None:
    world = FleetWorld(engines)
    world.run(300)
    start = world.now
    world.tell(0, Watched(at=start, is_watched=True))
    complete = None
    while complete is None and world.now < start + 2 * within:
        world.run(1)
        view = world.members[0].view() if len(world.first_report) == engines else None
        if view is not None and sum(one.figures is not None for one in view.engines) == engines:
            complete = world.now - start
    print(f"{engines} engines: all reports after {complete} s, look {world.members[0].look_seconds} s")
    assert complete is not None
    assert complete <= within


def test_a_change_of_state_reaches_a_watching_console_within_a_look() -> None:
    world = FleetWorld(20)
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(120)
    for place in range(20):
        changed = snapshot(f"app-{place}", world.now, entities={"orders": State.FAILED_OVER})
        world.tell(place, OwnState(at=world.now, snapshot=changed))
    world.run(12)
    (orders,) = world.members[0].view().entities
    assert orders.states == ((State.FAILED_OVER, 19),)  # those of the others
    assert len(orders.engines) == 19


def test_a_watched_engine_posts_its_presence_each_ten_minutes_and_hourly_again_after_it() -> None:
    world = FleetWorld(2)
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(1300)
    oldest = min(post.enqueued_at for post in world.boards[Board.REPORTS].posts)
    assert world.now - oldest < 800
    world.tell(0, Watched(at=world.now, is_watched=False))
    world.run(200)
    before = world.operations["write"]
    world.run(2 * 3600)
    assert world.operations["write"] - before == 4


def test_an_idle_syphon_cleans_boards_that_it_never_read() -> None:
    world = FleetWorld(2, syphons=1)
    world.run(4 * 3600)
    assert world.operations["clean"] >= 3


def test_a_killed_engine_is_silent_after_three_reports() -> None:
    world = FleetWorld(4)
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(200)
    world.alive[3] = False
    world.run(70)
    statuses = {one.engine: one.status for one in world.members[0].view().engines}
    assert statuses.pop("app-3") is FleetStatus.SILENT
    assert set(statuses.values()) == {FleetStatus.REPORTING}


@pytest.mark.parametrize("skew", [3600.0, -3600.0])
def test_an_engine_whose_clock_is_off_reports_too_and_is_remarked(skew: float) -> None:
    world = FleetWorld(4, skew=skew)
    world.run(120)
    world.tell(0, Watched(at=world.now, is_watched=True))
    world.run(400)
    view = world.members[0].view()
    (off,) = (one for one in view.engines if one.engine == "app-1")
    assert off.figures is not None
    assert off.status is FleetStatus.REPORTING
    assert off.clock_offset == pytest.approx(skew, abs=120)
    assert any("clocks differ" in remark and "app-1" in remark for remark in view.remarks)

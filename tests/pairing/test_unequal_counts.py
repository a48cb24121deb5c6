"""An application with more backlog queues than the syphon beside it: what nothing moves is said (SPEC.md section 4)."""

from __future__ import annotations

from paired_servicebus.core.backlog.queue_usage import QueueUsage
from paired_servicebus.core.model.pairing_events import Warned

from .backlogs import parked, put, queue_path
from .conftest import World, until


async def test_an_unused_queue_in_which_an_application_parks_is_an_alarm_and_an_event(world: World) -> None:
    """Section 12: "Nothing about a failover is silent"."""
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(3))
    narrow = await world.pair(backlog_queue_count=2, enable_syphon=True)
    await until(lambda: narrow.unused_view().read_at is not None)
    assert narrow.alarms() == ()
    put(world, [parked("orders", "m1")], path=queue_path(3))
    for _ in range(2):
        await narrow._unused.look()
    (alarm,) = narrow.alarms()
    assert alarm.startswith("backlog queue 3 is unused by this engine and grows: ")
    assert "set backlog_queue_count to 4 or more here" in alarm
    assert [event.text for event in world.told(Warned) if event.about == "backlog queues"] == [alarm]
    narrow.know_usage(QueueUsage(used=frozenset({0, 1, 2, 3}), moved=frozenset({0, 1, 2, 3})))
    assert narrow.alarms() == ()  # another syphon has it


async def test_parked_messages_in_queues_that_the_known_syphon_lacks_are_a_warning(world: World) -> None:
    """Section 4.6: "Parked messages and no syphon known to run"; one with fewer queues does not have them all."""
    paired = await world.pair(backlog_queue_count=4)
    put(world, [parked("orders", "m1")], path=queue_path(3))
    await until(lambda: paired.queue_views()[3].depth == 1)
    assert paired.warnings()[0].startswith("syphon unknown: 1 message is parked")
    paired.know_syphons(("engine",))
    assert paired.warnings() == ()
    paired.know_usage(QueueUsage(used=frozenset({0, 1}), moved=frozenset({0, 1})))
    (warning,) = paired.warnings()
    assert warning.startswith("syphon unknown for backlog queues 2, 3: 1 message is parked there; ")
    paired.know_usage(QueueUsage(used=frozenset(range(4)), moved=frozenset(range(4))))
    assert paired.warnings() == ()
    assert paired.alarms() == ()

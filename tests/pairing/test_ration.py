"""What bounds a pump: in all, in hand, by a rate; and a pump that keeps to it."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import Event, Moved
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump.intake_limit import BoundedIntake, SyphonRateLimit, UnlimitedIntake
from paired_servicebus.core.pump.pump_progress import PumpProgress
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.amqp_pump import AmqpPump
from paired_servicebus.pairing.syphon.syphon import ConnectionPair
from servicebus_sandbox.broker.entity_settings import QueueSettings

from .backlogs import lying_in, parked, put, queue_path
from .conftest import World, until


class Hands:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), max_size=40), st.floats(0.5, 100))
def test_no_more_comes_than_a_rate_allows_over_the_whole_time(steps: list[tuple[float, int]], rate: float) -> None:
    clock = Hands()
    ration = BoundedIntake(SyphonRateLimit(rate=rate), messages=10**9)
    came = 0
    for passed, wanted in steps:
        clock.now += passed
        for _ in range(min(wanted, int(ration.left(0, clock.now)))):
            ration.took()
            came += 1
    assert came <= 1 + max(1.0, rate) + rate * (clock.now - 100.0) + 1e-6


def test_a_rate_is_reached_when_there_is_always_something_to_take() -> None:
    clock = Hands()
    ration = BoundedIntake(SyphonRateLimit(rate=40.0), messages=10**9)
    came = 0
    for _ in range(1000):
        clock.now += 0.1
        while ration.left(0, clock.now) >= 1:
            ration.took()
            came += 1
    assert 3990 <= came <= 4041


def test_bounds_in_all_and_in_hand_hold_beside_each_other() -> None:
    ration = BoundedIntake(SyphonRateLimit(), messages=10, in_hand=4)
    assert ration.left(0, 0.0) == 4
    assert ration.left(4, 0.0) == 0
    for _ in range(10):
        ration.took()
    assert ration.is_spent
    assert ration.left(0, 0.0) == 0
    assert UnlimitedIntake().left(5000, 0.0) == inf


async def test_a_pump_takes_what_its_ration_allows_and_leaves_the_rest_as_it_lies(world: World) -> None:
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), QueueSettings())
    put(world, [parked("orders", f"m{number}") for number in range(100)])
    tasks = TaskOwner()
    await tasks.open()
    told: list[Event] = []
    steering = PairingRuntime(PairingMachine(Policy(enable_syphon=True), queues=(0,)), tasks, judge, told.append)
    async with world.client("primary") as primary, world.client("secondary") as secondary:
        wires = ConnectionPair(steering, primary, secondary)
        ration = BoundedIntake(steering.machine.pace, messages=30, in_hand=7)
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

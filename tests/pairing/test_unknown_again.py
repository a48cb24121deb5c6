"""SPEC.md section 6: "An entity with neither traffic nor probe is shown as **unknown**, not as healthy"."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.failover.inactivity import QUIET_AFTER
from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_events import Event, SendAccepted, StateChanged
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

from .conftest import World, until


class Hour:
    """A clock that a test sets forward."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def view(paired: PairedServiceBusClient) -> tuple[State, str]:
    (found,) = paired.entity_views()
    return found.state, found.why


async def test_a_paired_sender_that_rests_is_unknown_and_healthy_with_its_next_send(world: World) -> None:
    """Sends of a healthy entity are only counted: the count is what keeps it healthy."""
    paired = await world.pair()
    steering = paired._steering
    clock = steering.clock = Hour(steering.clock())
    async with paired.get_queue_sender("orders") as sender:
        for _ in range(3):
            await sender.send_messages(ServiceBusMessage(b"x"))
        clock.at += QUIET_AFTER - 1
        await sender.send_messages(ServiceBusMessage(b"counted, and not told"))
        clock.at += 1
        steering.look()
        assert view(paired)[0] is State.HEALTHY
        await steering.count_once(0.0)

        clock.at += QUIET_AFTER
        steering.look()
        state, why = view(paired)
        assert (state, why.startswith("no sends by this engine since ")) == (State.UNKNOWN, True)
        await sender.send_messages(ServiceBusMessage(b"y"))
        assert view(paired)[0] is State.HEALTHY
    assert [(one.was, one.now) for one in world.told(StateChanged)] == [
        ("unknown", "healthy"),
        ("healthy", "unknown"),
        ("unknown", "healthy"),
    ]
    assert paired.alarms() == ()


async def test_a_deleted_queue_that_nobody_sends_to_is_unknown_in_the_end(world: World) -> None:
    """Section 6: "each ping for 15 min found no such entity in the primary"."""
    paired = await world.pair(failover_interval=0)
    steering = paired._steering
    clock = steering.clock = Hour(steering.clock())
    async with world.admin("primary") as admin:
        await admin.delete_queue("orders")
        async with paired.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage(b"parked"))
            assert view(paired)[0] is State.FAILED_OVER
            await _ping(steering, clock, 1)
            state, why = view(paired)
            assert (state, why.startswith("deleted in the primary namespace since ")) == (State.FAILED_OVER, True)
            clock.at += QUIET_AFTER
            await _ping(steering, clock, 2)
            state, why = view(paired)
            assert (state, why.startswith("deleted in the primary namespace since ")) == (State.UNKNOWN, True)
            assert paired.alarms() == ()
            await admin.create_queue("orders")
            await sender.send_messages(ServiceBusMessage(b"x"))
    assert view(paired)[0] is State.HEALTHY


async def _ping(steering: PairingRuntime, clock: Hour, number: int) -> None:
    """Let the next ping leave, and wait for its answer."""
    clock.at += 1.0
    steering.look()

    def is_answered() -> bool:
        (entity,) = steering.machine.entities()
        return entity.pings == number and not entity.ping_in_flight

    await until(is_answered)


async def test_the_machine_is_told_once_a_second_and_not_once_a_send() -> None:
    steering, clock, told = await _steering()
    step = steering.machine.step
    steps: list[Event] = []

    def counting(event: Event) -> list[Any]:
        steps.append(event)
        return step(event)

    steering.machine.step = counting  # type: ignore[method-assign]
    for _ in range(1000):
        clock.at += 0.001
        _count(steering)
    await steering.count_once(0.0)
    assert len(steps) == 1
    assert steering.machine.quiet.next() == 1_700_000_000 + QUIET_AFTER, "and no timer has moved"
    clock.at += QUIET_AFTER - 1
    steering.look()
    assert not [event for event in told if isinstance(event, StateChanged) and event.now == State.UNKNOWN]
    await steering.tasks.close()


async def test_what_was_sent_since_the_last_count_is_told_before_anything_is_called_quiet() -> None:
    steering, clock, told = await _steering()
    clock.at += QUIET_AFTER - 0.1
    _count(steering)
    clock.at += 0.1
    steering.look()
    assert [(event.was, event.now) for event in told if isinstance(event, StateChanged)] == [("unknown", "healthy")]
    await steering.tasks.close()


async def _steering() -> tuple[PairingRuntime, Hour, list[Event]]:
    """One entity, healthy by one send."""
    clock, told, tasks = Hour(), [], TaskOwner()
    await tasks.open()
    steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), tasks, judge, told.append, clock=clock)
    steering.tell(SendAccepted(at=clock(), entity="orders"))
    return steering, clock, told


def _count(steering: PairingRuntime) -> None:
    """As a sender's healthy path does."""
    sent = steering.tally("orders").sent
    assert sent is not None
    sent.accepted += 1
    sent.new_accepted += 1

"""What pumps set aside, where it meets closing, crashes, recreated queues, and messages that come meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from paired_servicebus.core.failover.pairing_machine import PairingMachine
from paired_servicebus.core.model.pairing_events import Moved
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.model.verdict import judge
from paired_servicebus.core.pump import pump_machine
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.runtime.deadlines import TaskOwner
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import amqp_pump, sdk_pump, settlement
from paired_servicebus.pairing.syphon.amqp_delivery import AmqpDelivery
from paired_servicebus.pairing.syphon.settlement import BacklogMessage, Settlement, receive_again
from servicebus_sandbox import Sandbox
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.broker.queues.message_queue import MessageQueue
from servicebus_sandbox.faults import FaultTerms, Operation

from .backlogs import bodies_in, lying_in, parked, put, queue_path
from .conftest import World, until
from .test_syphon import deferred


@pytest.fixture
def world(world: World) -> World:
    world.pump = "amqp"
    return world


@pytest.fixture(params=["amqp", "sdk"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield World(sandbox, stack, pump=request.param)


async def test_waiting_for_a_destination_that_nobody_has_a_link_to_lets_others_run() -> None:
    """One failed destination must not delay the others': a full hand waits, it does not spin."""
    steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), TaskOwner(), judge, None)
    courier = AmqpDelivery(steering, SimpleNamespace(after_read=[]))  # type: ignore[arg-type]
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    await courier.wait_for_change("nobody", 0.01)
    assert ran


async def test_what_comes_while_the_last_portion_is_asked_for_goes_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside [...] goes before newer ones of its session."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(
        wire: ReconnectingConnection, path: str, numbers: Sequence[int]
    ) -> AsyncIterator[tuple[bytes, UUID]]:
        asked.set()
        await go.wait()
        async for one in receive_again(wire, path, numbers):
            yield one

    monkeypatch.setattr(amqp_pump, "receive_again", slowly)
    heal = world.fault("disabled", entity="orders")
    await world.pair(enable_syphon=True, backlog_queue_count=1)
    put(world, [parked("orders", "old", session="s")])
    await until(lambda: deferred(world) == ["old"])
    heal()
    await asked.wait()
    put(world, [parked("orders", "new", session="s")])
    await until(lambda: world.depth("orders") or deferred(world) == ["old", "new"])
    go.set()
    await until(lambda: world.depth("orders") == 2)
    assert world.ids_in("orders") == ["old", "new"]


def recreated(world: World) -> None:
    """The backlog queue is deleted and made anew; its numbers begin again."""
    namespace = world.sandbox["secondary"].node.namespace
    namespace.delete(queue_path())
    namespace.create_queue(queue_path())
    world.sandbox["secondary"].node.wake()


@pytest.mark.parametrize(("before", "after"), [("before", "after"), (None, None), ("before", None), (None, "after")])
async def test_a_recreated_queue_s_numbers_are_not_taken_for_those_of_messages_moved_before(
    world: World, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str | None
) -> None:
    """Nothing is ever dropped: a number is a message's only together with its id."""
    with monkeypatch.context() as unconfirmed:
        unconfirmed.setattr(Settlement, "complete", lambda self, parcels: None)
        await world.pair(enable_syphon=True, backlog_queue_count=1)
        put(world, [parked("orders", before, body=b"first")])
        await until(lambda: world.depth("orders") == 1)
    recreated(world)
    put(world, [parked("orders", after, body=b"second")])
    await until(lambda: world.parked(1) == 0 and not lying_in(world, queue_path(), namespace="secondary"))
    assert bodies_in(world, "orders") == [b"first", b"second"]


@pytest.mark.parametrize(("before", "after"), [("before", "after"), (None, None), ("before", None), (None, "after")])
async def test_a_recreated_queue_s_message_is_not_taken_for_one_in_hand(
    world: World, before: str | None, after: str | None
) -> None:
    """Complete only after the destination accepted it, and not another in its place."""
    await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    heal = world.fault("unanswered", entity="orders")
    put(world, [parked("orders", before, body=b"first")])
    await until(lambda: world.depth("orders") == 1)
    recreated(world)
    put(world, [parked("audit", after)])
    await until(lambda: [event.entity for event in world.told(Moved)] == ["audit"])
    assert bodies_in(world, "orders") == [b"first"]
    heal()


async def test_closing_completes_what_was_set_aside_and_has_arrived(world: World) -> None:
    """Duplicates only in three windows: that the pairing was closed while it brought messages back is none."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1)
    names = [f"{number:04}" for number in range(1000)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: len(deferred(world)) == 1000)
    heal()
    await until(lambda: world.depth("orders") > 100)
    await paired.close()
    left = [str(stored.message.message_id) for stored in lying_in(world, queue_path(), namespace="secondary")]
    assert len(left) < len(names)
    assert sorted(world.ids_in("orders") + left) == names


async def test_closing_settles_by_token_what_its_cancelled_task_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Complete only after the destination accepted it: then do, or it comes twice."""
    completed: list[UUID] = []

    async def update(wire: Any, path: str, tokens: Sequence[UUID], status: str, **_: Any) -> None:
        completed.extend(tokens)

    monkeypatch.setattr(settlement, "update_disposition", update)
    steering = PairingRuntime(PairingMachine(Policy(), queues=(0,)), tasks := TaskOwner(), judge, None)
    await tasks.open()
    applied: list[Any] = []
    owed = Settlement(steering, SimpleNamespace(pause=0.0), queue_path(), applied.append)  # type: ignore[arg-type]
    recalled = BacklogMessage(SimpleNamespace(), "orders", 1, "m", b"", UUID(int=1), 0, 0.0)  # type: ignore[arg-type]
    owed.complete([recalled])
    await tasks.close()
    await owed.finish(5.0)
    assert completed == [recalled.token]
    assert [event.is_done for event in applied] == [True]
    assert not owed.is_busy


async def test_closing_releases_the_locks_of_what_was_received_again(world: World) -> None:
    """Locks in hand are released."""
    heal = world.fault("disabled", entity="orders")
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, send_timeout=60.0)
    put(world, [parked("orders", str(number)) for number in range(20)])
    await until(lambda: len(deferred(world)) == 20)
    heal()
    world.fault("unanswered", entity="orders")
    lying = lying_in(world, queue_path(), namespace="secondary")
    await until(lambda: any(stored.lock_token is not None for stored in lying))
    await paired.close()
    assert not [stored for stored in lying if stored.lock_token is not None]


async def test_large_messages_that_were_set_aside_are_all_found_again(either: World) -> None:
    """What is set aside is found again after a crash with no list kept (peek finds deferred ones)."""
    heal = either.fault("disabled", entity="orders")
    paired = await either.pair(enable_syphon=True, backlog_queue_count=1)
    put(either, [parked("orders", str(number), body=bytes(100_000)) for number in range(30)])
    await until(lambda: len(deferred(either)) == 30)
    await paired.close()
    heal()
    await either.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: len(either.told(Moved)) == 30)
    assert sorted(either.ids_in("orders"), key=int) == [str(number) for number in range(30)]


async def test_what_is_set_aside_behind_messages_that_others_hold_is_found_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside is found again after a crash: also behind more messages than a search looks at in one go."""
    monkeypatch.setattr(amqp_pump, "ENOUGH", 100)
    await (await world.pair(backlog_queue_count=1)).close()  # makes the queue
    put(world, [parked("audit", f"held {number}") for number in range(400)] + [parked("orders", "old")])
    async with world.client("secondary") as client, client.get_queue_receiver(queue_path()) as holder:
        held: list[Any] = []
        while len(held) < 401:
            held += await holder.receive_messages(401 - len(held), max_wait_time=5)
        await holder.defer_message(held[-1])
        await world.pair(enable_syphon=True, backlog_queue_count=1)
        await until(lambda: world.told(Moved))
        assert world.ids_in("orders") == ["old"]


async def held_by_the_dead(world: World, paths: list[str], *, locked_for: float) -> None:
    """Messages lie in the backlog queue, set aside, and locked by somebody who will never settle them."""
    settings = QueueSettings(lock_duration=timedelta(seconds=locked_for))
    world.sandbox["secondary"].node.namespace.create_queue(queue_path(), settings)
    put(world, [parked(path, f"held {number}") for number, path in enumerate(paths)])
    async with world.client("secondary") as client, client.get_queue_receiver(queue_path()) as holder:
        numbers = []
        while len(numbers) < len(paths):
            for message in await holder.receive_messages(len(paths), max_wait_time=5):
                await holder.defer_message(message)
                numbers.append(message.sequence_number)
        await holder.receive_deferred_messages(numbers)


async def test_what_a_dead_syphon_has_locked_is_moved_soon_after_its_locks_have_ended(
    either: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside is found again after a crash with no list kept."""
    monkeypatch.setattr(pump_machine, "SOON", 0.2)
    monkeypatch.setattr(pump_machine, "RATIO", 1)
    await held_by_the_dead(either, ["orders"] * 5, locked_for=3)
    put(either, [parked("orders", "new")])
    await either.pair(enable_syphon=True, backlog_queue_count=1)
    await until(lambda: either.ids_in("orders") == ["new"])
    await until(lambda: either.depth("orders") == 6)
    assert sorted(either.ids_in("orders")) == [*(f"held {number}" for number in range(5)), "new"]


async def test_what_others_hold_does_not_keep_back_the_rest(either: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another engine holds, or has moved, is skipped without a retry.

    All of the deferred messages of a request are received, or none; the SDK repeats a refused one by default.
    """
    requests: list[list[int]] = []
    receive_deferred = MessageQueue.receive_deferred

    def receive(queue: MessageQueue, numbers: Sequence[int], **options: Any) -> Any:
        requests.append(list(numbers))
        return receive_deferred(queue, numbers, **options)

    await held_by_the_dead(either, ["orders"] * 3, locked_for=60)
    put(either, [parked("orders", f"free {number}") for number in range(20)])
    heal = either.fault("disabled", entity="orders")
    by_default = either.client("secondary", retry_total=3)
    await either.pair(enable_syphon=True, backlog_queue_count=1, secondary_client=by_default)
    await until(lambda: len(deferred(either)) == 23)
    monkeypatch.setattr(MessageQueue, "receive_deferred", receive)
    heal()
    await until(lambda: either.depth("orders") == 20)
    assert either.ids_in("orders") == [f"free {number}" for number in range(20)]
    assert [one for one, again in pairwise(requests) if one == again] == []


async def test_a_try_is_one_send_whatever_the_client_retries(world: World) -> None:
    """One failed destination must not delay the others' messages: one send try per destination."""
    board, most = world.sandbox["primary"].node.faults, 1000
    terms = FaultTerms(operations=frozenset({Operation.SEND}), count=most)
    refusals = board._cases[board.add("disabled", entity="orders", terms=terms).id]
    by_default = world.client("primary", retry_total=3)
    paired = await world.pair(enable_syphon=True, backlog_queue_count=1, pump="sdk", primary_client=by_default)
    put(world, [parked("orders", "m")])
    meter = paired._steering.meter
    await until(lambda: meter.moves >= 3)
    assert refusals.left is not None
    assert 2 <= most - refusals.left <= meter.moves


async def test_a_request_that_is_swallowed_holds_a_queue_up_for_seconds_at_most(
    either: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unable to manage: still works: sending, pinging, syphon on queues known."""
    monkeypatch.setattr(sdk_pump, "MANAGED", 1.0)
    monkeypatch.setattr(settlement, "MANAGED", 1.0)
    heal = either.fault("disabled", entity="orders")
    paired = await either.pair(enable_syphon=True, backlog_queue_count=1)
    put(either, [parked("orders", str(number)) for number in range(5)])
    await until(lambda: len(deferred(either)) == 5)
    faults, requests = either.sandbox["secondary"].node.faults, FaultTerms(operations=frozenset({Operation.MANAGE}))
    begun = faults.add("black-holed", entity=queue_path(), terms=requests)
    asked = paired._steering.meter.receives
    heal()
    await until(lambda: paired._steering.meter.receives > asked)
    faults.remove(begun.id)
    await until(lambda: len(either.told(Moved)) == 5)
    assert either.ids_in("orders") == [str(number) for number in range(5)]


@pytest.mark.parametrize("kinds", [("amqp", "amqp"), ("amqp", "sdk"), ("sdk", "sdk")])
async def test_syphons_that_compete_move_each_message_once(
    world: World, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str]
) -> None:
    """A single instance may do it; where several do, whoever has a message locked is the one to move it."""
    monkeypatch.setattr(pump_machine, "SOON", 0.2)
    heal = world.fault("disabled", entity="orders")
    for kind in kinds:
        await world.pair(enable_syphon=True, backlog_queue_count=1, pump=kind)
    names = [f"{number:03}" for number in range(150)]
    put(world, [parked("orders", name) for name in names])
    await until(lambda: deferred(world) == names)
    heal()
    await until(lambda: len(world.told(Moved)) >= len(names))
    await until(lambda: not lying_in(world, queue_path(), namespace="secondary"))
    assert sorted(world.ids_in("orders")) == names

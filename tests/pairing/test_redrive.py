"""Re-driving dead letters of a backlog queue where something is in the way."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from paired_servicebus.core.errors import RedriveError
from paired_servicebus.pairing.amqp_client import Endpoint, ReconnectingConnection
from paired_servicebus.pairing.syphon import redrive
from paired_servicebus.pairing.syphon.redrive import DEAD_LETTERS, AmqpRedriver
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.faults import Operation
from servicebus_sandbox.faults.fault_terms import FaultTerms
from tests.pairing.backlogs import lying_in, parked, queue_path
from tests.pairing.conftest import World, until

DEAD = queue_path() + DEAD_LETTERS
SENDS = frozenset({Operation.SEND})


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
    board = world.sandbox["secondary"].node.faults
    board.add("latency", terms=FaultTerms(delay_s=0.1))  # so that it is on its way for some rounds
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
    board = world.sandbox["secondary"].node.faults
    board.add("busy", entity=queue_path(), terms=FaultTerms(operations=SENDS, count=3))
    assert await redriver.redrive(queue_path()) == f"300 of 300 dead letters of {queue_path()} were put back to work"
    assert sorted(ids(world, queue_path())) == sorted(map(str, range(300)))
    assert not ids(world, DEAD)


async def test_a_queue_that_stays_busy_ends_it_in_words(world: World, redriver: AmqpRedriver) -> None:
    dead(world, 300)
    world.sandbox["secondary"].node.faults.add("busy", entity=queue_path(), terms=FaultTerms(operations=SENDS))
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

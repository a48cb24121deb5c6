"""Clean-up in random worlds: what is empty is deleted, what is not stays, whatever a closed queue permits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from paired_servicebus.core.errors import CleanUpError
from paired_servicebus.pairing.management.management_port import Depth
from paired_servicebus.pairing.monitoring import unused_queues
from servicebus_sandbox import Behavior, NamespaceSpec, QueueSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import read_message
from servicebus_sandbox.broker.queues.lane import Consumer
from servicebus_sandbox.broker.queues.message_queue import MessageQueue

from .backlogs import parked, queue_path
from .conftest import World

DEAD = "/$DeadLetterQueue"
PLACES = ("active", "locked", "deferred", "dead-lettered", "late", "late and dead-lettered")
"""Where a message is; a late one arrives when the queue was looked into and is about to be closed."""


@dataclass(frozen=True)
class Content:
    """One queue of a world. lies: its counts are zeros, as those of a throttled namespace."""

    places: tuple[str, ...]
    lies: bool

    @classmethod
    def draw(cls, random: Random) -> Content:
        places = tuple(random.choice(PLACES) for _ in range(random.choice((0, 0, 1, 2))))
        return cls(places, random.random() < 0.7)


def fill(world: World, path: str, places: tuple[str, ...], deliveries: int) -> None:
    node = world.sandbox["secondary"].node
    for place in places:
        dead = place.endswith("dead-lettered")
        queue = node.namespace.message_queue(path + DEAD * dead)
        number = queue.put(read_message(parked("orders", place)), node.clock())
        (stored,) = queue.peek(number, 1)
        stored.delivery_count = deliveries
        if place in ("locked", "deferred"):
            token = receive(queue, node.clock())
            if place == "deferred":
                queue.defer(token)
    node.wake()


def receive(queue: MessageQueue, now: float) -> bytes:
    """Lock the next message."""
    got: list[Any] = []
    consumer = Consumer(got.append, lambda error: None)
    queue.attach(consumer)
    queue.grant(consumer, 1)
    queue.dispatch(now)
    queue.detach(consumer)
    return got[0].lock_token  # type: ignore[no-any-return]


@asynccontextmanager
async def worlds(*, peeks: bool) -> AsyncIterator[tuple[World, Any]]:
    secondary = NamespaceSpec("secondary", behaves=Behavior(peek_when_send_disabled=peeks))
    specs = [NamespaceSpec("primary", [QueueSpec("orders")]), secondary]
    async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
        world = World(sandbox, stack)
        yield world, await world.pair(quiet_period=1.0, backlog_queue_count=1)


async def clean_up(world: World, paired: Any, index: int, content: Content, patch: pytest.MonkeyPatch) -> None:
    """Clean one queue up, and check what is left of it."""
    path, namespace = queue_path(index), world.sandbox["secondary"].node.namespace
    namespace.create_queue(path)
    early = tuple(place for place in content.places if not place.startswith("late"))
    fill(world, path, early, deliveries=index % 3)
    queue = namespace.queue(path)
    for part in (queue.messages, queue.dead_letters):
        part.accessed_at -= 3600
    queue.intake.last_send_at -= 3600
    queue.created_at = queue.updated_at = queue.created_at - 3600
    unused = paired._unused
    close, depth = unused._set, unused._admin.depth

    late = tuple(place for place in content.places if place.startswith("late"))
    filled = len(early)

    async def closing(path: str, status: Any) -> None:
        nonlocal filled
        if str(status) == "SendDisabled":
            fill(world, path, late, index % 3)
            filled += len(late)
        await close(path, status)

    async def zeros(path: str) -> Depth:
        return Depth(messages=0, dead_lettered=0, size_bytes=0, last_active=1.0)

    with patch.context() as during:
        during.setattr(unused, "_set", closing)
        during.setattr(unused._admin, "depth", zeros if content.lies else depth)
        if content.places:
            with pytest.raises(CleanUpError, match="stays"):
                await paired.clean_up(path)
        else:
            assert "was deleted" in await paired.clean_up(path)
    exists = path in [one.path for one in namespace.queues()]
    assert exists is bool(content.places), content
    if exists:
        found = [*queue.messages.peek(0, 10), *queue.dead_letters.peek(0, 10)]
        assert len(found) == filled
        assert {stored.delivery_count for stored in found} == {index % 3}, content
        namespace.delete(path)


async def in_worlds(count: int, *, part: int = 0, peeks: bool, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unused_queues, "SETTLE_SECONDS", 0.0)
    patch.setattr(unused_queues, "RECEIVE_SECONDS", 0.01)
    random = Random(f"{peeks} {count} {part}")
    async with worlds(peeks=peeks) as (world, paired):
        for index in range(1, count + 1):
            await clean_up(world, paired, index, Content.draw(random), patch)
            await asyncio.sleep(0)


@pytest.mark.parametrize("peeks", [False, True])
async def test_what_is_empty_is_deleted_and_what_is_not_stays(peeks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean-up proves emptiness by what works: counts twice, and peek, else receive and release."""
    await in_worlds(5, peeks=peeks, patch=monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("peeks", [False, True])
@pytest.mark.parametrize("part", range(10))
async def test_the_same_in_two_hundred_worlds(part: int, peeks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivery count unchanged."""
    await in_worlds(10, part=part, peeks=peeks, patch=monkeypatch)

"""What peeks find in backlog queues; that they go only where something lies, and that a failing one is only said."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from paired_servicebus.pairing.monitoring import message_looks
from paired_servicebus.pairing.monitoring import message_looks as module
from paired_servicebus.pairing.monitoring.message_looks import Peeks, most_frequent
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

from .backlogs import parked, put, queue_path
from .conftest import World, until

RUN = Peeks.run


@pytest.fixture(autouse=True)
def on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own looks come when they come; here each is asked for."""
    monkeypatch.setattr(Peeks, "run", lambda self: asyncio.Event().wait())


async def bury(world: World, *letters: tuple[str | None, str | None]) -> None:
    """Dead letters in backlog queue 0, each with a reason and a description, by a client that is none of ours."""
    put(world, [parked("orders", str(number)) for number, _ in enumerate(letters)])
    async with world.client("secondary") as client, client.get_queue_receiver(queue_path()) as receiver:
        left = list(letters)
        while left:
            for message in await receiver.receive_messages(len(left), max_wait_time=5):
                reason, description = left.pop(0)
                await receiver.dead_letter_message(message, reason=reason, error_description=description)


async def looked(paired: PairedServiceBusClient) -> Any:
    """The view of backlog queue 0 after its counts were read, and a look into it where that is due."""
    await paired._poller.read()
    await paired._peeks.look(0)
    return paired.queue_views()[0]


async def test_reasons_are_those_in_the_queue_whoever_gave_them(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    await bury(
        world,
        ("Undeliverable", "no x-ms-path"),
        ("Undeliverable", "no x-ms-path"),
        ("TTLExpiredException", "The message expired"),
        (None, None),
    )
    dead = (await looked(paired)).dead_letters
    assert dead.looked_at == 4
    assert dict(dead.reasons) == {"no x-ms-path": 2, "TTLExpiredException": 1, "no reason given": 1}
    assert dead.read_at == pytest.approx(time.time(), abs=60)


async def test_a_look_reads_a_bounded_number_of_dead_letters(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PEEKED", 3)
    paired = await world.pair(backlog_queue_count=1)
    await bury(world, *[("Undeliverable", "no x-ms-path")] * 5)
    view = await looked(paired)
    assert (view.dead_lettered, view.dead_letters.looked_at) == (5, 3)
    assert view.dead_letters.reasons == (("no x-ms-path", 3),)


async def test_the_oldest_is_the_head_of_its_queue(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    put(world, [parked("orders", "first")])
    put(world, [parked("orders", "second")])
    node = world.sandbox["secondary"].node
    head = node.namespace.message_queue(queue_path()).peek(0, 1)[0]
    head.enqueued_at -= 3600.0
    oldest = (await looked(paired)).oldest
    assert oldest.enqueued_at == pytest.approx(time.time() - 3600.0, abs=60)
    assert oldest.read_at == pytest.approx(time.time(), abs=60)
    assert oldest.destination == "orders"


async def test_the_engine_looks_by_itself_where_the_counts_say_there_is_something(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(Peeks, "run", RUN)
    monkeypatch.setattr(Peeks, "look", lambda self, index: _noted(looks, index))
    paired = await world.pair(backlog_queue_count=2)
    paired.looks.ask()
    await until(lambda: len(looks) >= 2)
    assert looks[:2] == [0, 1]


async def _noted(looks: list[int], index: int) -> None:
    looks.append(index)


async def test_empty_queues_cost_nothing_and_others_one_look_a_minute(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    view = await looked(paired)
    assert (paired.billed().receives, view.dead_letters.read_at, view.oldest.read_at) == (0, None, None)
    await bury(world, ("Undeliverable", "no x-ms-path"))
    put(world, [parked("orders", "x")])
    await looked(paired)
    assert paired.billed().receives == 2
    put(world, [parked("orders", "y")])
    await bury(world, ("Undeliverable", "no x-ms-path"))
    view = await looked(paired)
    assert paired.billed().receives == 2
    assert view.dead_letters.looked_at == 1


async def test_dead_letters_that_only_lie_there_are_looked_at_seldom(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_LOOK_SECONDS", 0.0)
    paired = await world.pair(backlog_queue_count=1)
    await bury(world, ("Undeliverable", "no x-ms-path"))
    await looked(paired)
    await looked(paired)
    assert paired.billed().receives == 1
    await bury(world, ("Undeliverable", "no x-ms-path"))
    assert (await looked(paired)).dead_letters.looked_at == 2
    assert paired.billed().receives == 2


async def test_a_peek_that_fails_is_said_beside_what_was_found_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "UNCHANGED_SECONDS", 0.0)
    paired = await world.pair(backlog_queue_count=1)
    await bury(world, ("Undeliverable", "no x-ms-path"))
    put(world, [parked("orders", "x")])
    before = await looked(paired)
    monkeypatch.setattr(message_looks, "LOOK_SECONDS", 0.3)
    heal = world.fault("black-holed", namespace="secondary")
    await paired._peeks.look(0)
    view = paired.queue_views()[0]
    assert view.dead_letters.trouble
    assert view.oldest.trouble
    assert (view.dead_letters.read_at, view.dead_letters.reasons) == (
        before.dead_letters.read_at,
        (("no x-ms-path", 1),),
    )
    assert view.oldest.enqueued_at == before.oldest.enqueued_at
    heal()
    monkeypatch.setattr(message_looks, "LOOK_SECONDS", 30.0)
    async with asyncio.timeout(60):  # the connection may have to be made again
        while (view := await looked(paired)).dead_letters.trouble or view.oldest.trouble:
            await asyncio.sleep(0.1)


async def test_what_is_gone_is_not_shown_any_more(world: World) -> None:
    paired = await world.pair(backlog_queue_count=1)
    put(world, [parked("orders", "x")])
    assert (await looked(paired)).oldest.enqueued_at is not None
    await world.received(queue_path(), 1, namespace="secondary")
    assert (await looked(paired)).oldest.read_at is None


def test_rare_reasons_are_counted_together() -> None:
    reasons = [str(kind) for kind in range(7) for _ in range(7 - kind)]
    assert most_frequent(reasons) == (("0", 7), ("1", 6), ("2", 5), ("3", 4), ("4", 3), ("other reasons", 3))

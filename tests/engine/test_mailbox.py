"""The bounded buffer: newest state, newest events, and an honest count of the rest."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as some

from paired_servicebus.engine.control.protocol import Mailbox, Skipped


async def drained(box: Mailbox[str, int]) -> list[object]:
    box.close()
    taken = []
    while (item := await box.take()) is not None:
        taken.append(item)
    return taken


async def test_a_newer_state_replaces_one_that_was_not_taken() -> None:
    box: Mailbox[str, int] = Mailbox(capacity=3)
    box.put_state("old")
    box.put_state("new")
    assert await drained(box) == ["new"]


async def test_the_state_comes_before_the_events() -> None:
    box: Mailbox[str, int] = Mailbox(capacity=3)
    box.put_event(1)
    box.put_state("now")
    assert await drained(box) == ["now", 1]


async def test_the_oldest_events_give_way_and_are_counted() -> None:
    box: Mailbox[str, int] = Mailbox(capacity=2)
    for number in range(5):
        box.put_event(number)
    assert await drained(box) == [Skipped(3), 3, 4]


async def test_a_number_of_missing_events_that_gives_way_is_added() -> None:
    box: Mailbox[str, int] = Mailbox(capacity=2)
    box.put_event(Skipped(10))
    for number in range(3):
        box.put_event(number)
    assert await drained(box) == [Skipped(11), 1, 2]


async def test_one_who_waits_is_woken() -> None:
    box: Mailbox[str, int] = Mailbox(capacity=2)
    waiting = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.put_event(7)
    assert await waiting == 7


async def test_closing_wakes_one_who_waits_for_nothing() -> None:
    box: Mailbox[str, int] = Mailbox(capacity=2)
    waiting = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.close()
    assert await waiting is None


@given(capacity=some.integers(1, 5), moves=some.lists(some.sampled_from(["put", "take"]), max_size=60))
def test_nothing_is_lost_silently(capacity: int, moves: list[str]) -> None:
    async def play() -> None:
        box: Mailbox[str, int] = Mailbox(capacity=capacity)
        put = heard = 0
        taken: list[object] = []
        for move in moves:
            if move == "put":
                box.put_event(put)
                put += 1
                heard += 1
            elif heard:
                taken.append(await box.take())
                heard = max(0, min(heard, capacity) - (0 if isinstance(taken[-1], Skipped) else 1))
        taken += await drained(box)
        told = 0
        for item in taken:
            if isinstance(item, Skipped):
                told += item.count
            else:
                assert item == told
                told += 1
        assert told == put

    asyncio.run(play())

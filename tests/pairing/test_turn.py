"""Whose turn it is: one after the other, in the order they asked."""

from __future__ import annotations

import asyncio

import pytest

from paired_servicebus.pairing.sending.link_gates import FairLock


async def passes(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def waiting(turn: FairLock, had: list[str], name: str) -> asyncio.Task[None]:
    """A task that notes when it has the turn, and keeps it."""

    async def wait() -> None:
        await turn.acquire()
        had.append(name)

    task = asyncio.create_task(wait())
    await passes(1)
    return task


async def test_what_nobody_has_is_taken_at_once() -> None:
    turn = FairLock()
    assert turn.acquire_nowait()
    assert not turn.acquire_nowait()
    turn.release()
    assert not turn.held


async def test_who_asked_first_has_it_first_and_nobody_comes_in_between() -> None:
    turn, had = FairLock(), list[str]()
    assert turn.acquire_nowait()
    for name in ("first", "second"):
        await waiting(turn, had, name)
    turn.release()
    assert not turn.acquire_nowait()
    await passes()
    assert had == ["first"]
    turn.release()
    await passes()
    assert had == ["first", "second"]


async def test_who_leaves_while_waiting_is_passed_over() -> None:
    turn, had = FairLock(), list[str]()
    assert turn.acquire_nowait()
    first = await waiting(turn, had, "first")
    await waiting(turn, had, "second")
    first.cancel()
    turn.release()
    await passes()
    assert had == ["second"]


async def test_a_turn_that_comes_together_with_a_cancellation_goes_to_the_next() -> None:
    turn, had = FairLock(), list[str]()
    assert turn.acquire_nowait()
    first = await waiting(turn, had, "first")
    await waiting(turn, had, "second")
    turn.release()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await passes()
    assert had == ["second"]

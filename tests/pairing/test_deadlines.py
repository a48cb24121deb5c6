"""Every wait on the SDK ends in our time, whatever the SDK does with a cancellation."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from console.pairing.deadlines import bounded, end_all
from console.pairing.tasks import Tasks

SOON = 0.05


async def deaf(times: int) -> str:
    """Loses so many cancellations, then ends by the next one."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    await asyncio.sleep(60)
    return "ended by itself"


async def test_what_ends_in_time_gives_its_result() -> None:
    assert await bounded(asyncio.sleep(0, "result"), 5, "it") == "result"


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_what_does_not_end_is_ended_even_when_it_loses_cancellations(times: int) -> None:
    """Ours ends it 1 s later whatever the SDK does."""
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError, match=r"^the wait did not end within 0\.05 s$"):
            await bounded(deaf(times), SOON, "the wait")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_result_that_comes_with_the_deadline_is_a_result() -> None:
    async def late() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "late"

    assert await bounded(late(), SOON, "it") == "late"


async def test_somebody_elses_cancellation_is_not_taken_for_a_deadline() -> None:
    task = asyncio.create_task(bounded(asyncio.sleep(60), 60, "it"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_passes_through() -> None:
    async def broken() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await bounded(broken(), 5, "it")


async def test_all_are_ended_and_one_that_never_does_is_told() -> None:
    good, bad = asyncio.create_task(deaf(2)), asyncio.create_task(deaf(12))
    assert await end_all([good], 10)
    assert not await end_all([good, bad], 0.6)
    assert good.cancelled()
    assert not bad.done()
    assert await end_all([bad], 10)


async def test_a_pairings_tasks_end_though_one_loses_a_cancellation() -> None:
    tasks = Tasks()
    await tasks.open()
    started = tasks.start(deaf(2), name="deaf")
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await tasks.close()
    assert started is not None
    assert started.done()
    assert tasks.start(deaf(0), name="too late") is None


async def test_a_task_that_crashes_faults_the_group_and_is_kept() -> None:
    """Faulted = … a task of ours that owned it crashed."""

    async def crash() -> None:
        raise RuntimeError("a bug")

    tasks = Tasks()
    await tasks.open()
    tasks.start(crash(), name="crash")
    async with asyncio.timeout(5):
        while tasks.failed is None:
            await asyncio.sleep(0.01)
    await tasks.close()
    assert "a bug" in repr(tasks.failed.exceptions)

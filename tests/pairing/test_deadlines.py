"""Every wait on the SDK ends in our time, whatever the SDK does with a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

import pytest

from paired_servicebus.pairing.runtime.deadlines import CANCEL_SECONDS, TaskOwner, Watch, bounded, end_all

SOON = 0.05


async def deaf(times: int) -> str:
    """Loses so many cancellations, then ends by the next one."""
    for _ in range(times):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
    await asyncio.sleep(600)
    return "ended by itself"


async def test_what_ends_in_time_gives_its_result() -> None:
    assert await bounded(asyncio.sleep(0, "result"), 5, "it") == "result"


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_what_does_not_end_is_ended_even_when_it_loses_cancellations(times: int) -> None:
    """Ours ends it 1 s later whatever the SDK does."""
    async with asyncio.timeout(60):
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
    tasks = TaskOwner()
    await tasks.open()
    started = tasks.start(deaf(2), name="deaf")
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await tasks.close()
    assert started is not None
    assert started.done()
    assert tasks.start(deaf(0), name="too late") is None


async def test_a_task_that_crashes_faults_the_group_and_is_kept() -> None:
    """Faulted = … a task of ours that owned it crashed."""

    async def crash() -> None:
        raise RuntimeError("a bug")

    tasks = TaskOwner()
    await tasks.open()
    tasks.start(crash(), name="crash")
    async with asyncio.timeout(60):
        while tasks.failed is None:
            await asyncio.sleep(0.01)
    await tasks.close()
    assert "a bug" in repr(tasks.failed.exceptions)


async def watched(watch: Watch, seconds: float, wait: Awaitable[str]) -> str:
    """`wait`, as a link awaits the SDK."""
    loop = asyncio.get_running_loop()
    watch.begin(seconds, "a send", loop, loop.time())
    error: BaseException | None = None
    try:
        return await wait
    except BaseException as caught:
        error = caught
        raise
    finally:
        watch.finish(error)


@pytest.mark.parametrize("times", [0, 2])
async def test_one_watch_ends_each_wait_in_its_own_time(times: int) -> None:
    watch = Watch("orders")
    assert await watched(watch, 60, asyncio.sleep(0, "in time")) == "in time"
    async with asyncio.timeout(60):
        with pytest.raises(TimeoutError, match=r"^a send on orders did not end within 0\.05 s$"):
            await watched(watch, SOON, deaf(times))  # shorter than what the timer was set for
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert await watched(watch, 60, asyncio.sleep(2 * CANCEL_SECONDS, "not told again")) == "not told again"
    watch.stop()


async def test_a_watch_that_was_set_for_a_wait_before_lets_the_next_have_its_time() -> None:
    watch = Watch("orders")
    assert await watched(watch, SOON, asyncio.sleep(0, "one")) == "one"
    assert await watched(watch, 60, asyncio.sleep(2 * SOON, "two")) == "two"
    watch.stop()


async def test_a_watch_takes_nobody_elses_cancellation_for_its_own_and_can_end_before_its_time() -> None:
    watch = Watch("orders")
    watch.end_now()  # nobody waits
    for end, error in ((asyncio.Task.cancel, asyncio.CancelledError), (lambda _: watch.end_now(), TimeoutError)):
        task = asyncio.create_task(watched(watch, 60, asyncio.sleep(60, "")))
        await asyncio.sleep(0)
        end(task)
        with pytest.raises(error):
            await task
    watch.stop()

"""A signal cancels the work once; its removal of entities runs to its end however often it is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from paired_servicebus.trials.temporary_entities import EndedBySignalError, run_to_end, until_signalled

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_ends_the_work_after_its_last_act(number: signal.Signals) -> None:
    done: list[str] = []

    async def remove() -> None:
        await asyncio.sleep(0.05)
        done.append("removed")

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), number)
            await run_to_end(remove())

    with pytest.raises(EndedBySignalError) as raised:
        await until_signalled(work(), SIGNALS)
    assert raised.value.status == 128 + number
    assert done == ["removed"]


async def test_without_a_signal_the_result_and_the_error_are_the_works() -> None:
    async def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 7

    assert await until_signalled(work(None), SIGNALS) == 7
    with pytest.raises(KeyError):
        await until_signalled(work(KeyError()), SIGNALS)
    assert await run_to_end(work(None)) == 7
    with pytest.raises(KeyError):
        await run_to_end(work(KeyError()))


async def test_a_cancellation_without_a_signal_stays_one() -> None:
    task = asyncio.create_task(until_signalled(asyncio.Event().wait(), SIGNALS))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

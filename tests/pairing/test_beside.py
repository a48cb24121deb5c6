"""Work done beside a wait: when it is done, and that it changes nothing about the wait."""

from __future__ import annotations

import asyncio

import pytest

from paired_servicebus.pairing.beside import beside


async def test_the_work_is_done_as_soon_as_there_is_something_to_wait_for() -> None:
    said: list[str] = []
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        said.append("written")
        return await answer

    waiting = asyncio.ensure_future(beside(wait(), lambda: said.append("worked")))
    await asyncio.sleep(0)
    assert said == ["written", "worked"]
    answer.set_result("accepted")
    assert await waiting == "accepted"


async def test_the_work_is_done_once_however_often_it_waits() -> None:
    worked: list[None] = []

    async def wait() -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return 3

    assert await beside(wait(), lambda: worked.append(None)) == 3
    assert len(worked) == 1


async def test_the_work_is_done_where_nothing_has_to_be_waited_for() -> None:
    worked: list[None] = []

    async def ready() -> str:
        return "at once"

    assert await beside(ready(), lambda: worked.append(None)) == "at once"
    assert len(worked) == 1


async def test_the_work_is_done_where_it_fails_at_once() -> None:
    worked: list[None] = []

    async def fails() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        await beside(fails(), lambda: worked.append(None))
    assert len(worked) == 1


async def test_a_failure_later_is_raised() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        await beside(fails(), lambda: None)


async def test_a_cancellation_ends_the_wait() -> None:
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await answer

    waiting = asyncio.ensure_future(beside(wait(), lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert answer.cancelled()


async def test_what_waits_may_outlive_a_cancellation() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def stubborn() -> str:
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            return await answer

    waiting = asyncio.ensure_future(beside(stubborn(), lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    answer.set_result("accepted all the same")
    assert await waiting == "accepted all the same"


async def test_what_waits_may_take_a_cancellation_for_its_end() -> None:
    async def content() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "ended"
        return "never"

    waiting = asyncio.ensure_future(beside(content(), lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await waiting == "ended"

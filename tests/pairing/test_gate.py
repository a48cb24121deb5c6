"""The gate that links open through."""

from __future__ import annotations

import asyncio

from paired_servicebus.pairing.sending.link_gates import OpenLimiter

from .conftest import until


class Crowd:
    """Tasks that want through, and who is inside."""

    def __init__(self, gate: OpenLimiter) -> None:
        self.gate = gate
        self.inside: list[str] = []
        self.leave = asyncio.Event()

    async def enter(self, name: str, *, urgent: bool = False) -> None:
        async with self.gate.slot(urgent=urgent):
            self.inside.append(name)
            await self.leave.wait()

    def start(self, name: str, *, urgent: bool = False) -> asyncio.Task[None]:
        return asyncio.create_task(self.enter(name, urgent=urgent))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_so_many_at_once_and_the_others_in_their_order() -> None:
    crowd = Crowd(OpenLimiter(width=2, lease=60))
    tasks = [crowd.start(name) for name in "abcd"]
    await turns()
    assert crowd.inside == ["a", "b"]
    crowd.leave.set()
    await asyncio.gather(*tasks)
    assert crowd.inside == ["a", "b", "c", "d"]


async def test_what_an_application_waits_for_goes_first() -> None:
    crowd = Crowd(OpenLimiter(width=1, lease=60))
    tasks = [crowd.start("a"), crowd.start("ping"), crowd.start("send", urgent=True)]
    await turns()
    crowd.leave.set()
    await asyncio.gather(*tasks)
    assert crowd.inside == ["a", "send", "ping"]


async def test_one_that_gets_no_answer_makes_way() -> None:
    crowd = Crowd(OpenLimiter(width=1, lease=0.01))
    tasks = [crowd.start("silent"), crowd.start("next")]
    await until(lambda: crowd.inside == ["silent", "next"])
    crowd.leave.set()
    await asyncio.gather(*tasks)
    third = crowd.start("third")  # nobody's place was given back twice
    fourth = crowd.start("fourth")
    await asyncio.gather(third, fourth)
    assert crowd.inside == ["silent", "next", "third", "fourth"]


async def test_one_that_leaves_the_line_holds_nobody_up() -> None:
    crowd = Crowd(OpenLimiter(width=1, lease=60))
    first, second, third = (crowd.start(name) for name in "abc")
    await turns()
    second.cancel()
    crowd.leave.set()
    await asyncio.gather(first, third)
    assert crowd.inside == ["a", "c"]


async def test_one_that_is_called_and_leaves_passes_its_turn_on() -> None:
    crowd = Crowd(OpenLimiter(width=1, lease=60))
    first, second, third = (crowd.start(name) for name in "abc")
    await turns()
    first.cancel()
    await asyncio.sleep(0)  # the turn is the second's now, and it has not run yet
    second.cancel()
    crowd.leave.set()
    await asyncio.gather(first, second, return_exceptions=True)
    await third
    assert crowd.inside[-1] == "c"

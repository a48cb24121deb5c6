"""The other engines of this machine are counted beside the one that is shown, and one that is not well is named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.engine.control.discovery import EngineStatus
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.ui.engines import other_engines
from paired_servicebus.ui.engines.other_engines import MultiEngineFeed
from paired_servicebus.ui.state.view import Neighbour, Neighbours


class Silent:
    async def run(self, tell: Any) -> None:
        await asyncio.Event().wait()


async def test_they_are_told_when_something_changed_and_the_own_one_is_none(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"orders": made.snapshot(), "billing": made.snapshot(), "audit": made.outage()}
    monkeypatch.setattr(other_engines, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(
        other_engines, "local_engines", lambda: [EnginePaths(state=Path(n), socket=Path(n)) for n in found]
    )
    monkeypatch.setattr(other_engines, "find_socket", lambda places: places.socket)

    async def look_at(places: Any) -> tuple[EngineStatus, ...]:
        await asyncio.sleep(0)
        return tuple(EngineStatus(pairing=one.name, snapshot=found[one.name]) for one in places if one.name in found)

    monkeypatch.setattr(other_engines, "query_engines", look_at)
    told: list[Neighbours] = []
    feed: Any = Silent()
    task = asyncio.create_task(MultiEngineFeed(feed, Path("orders"), now=lambda: made.AT).run(told.append))
    async with asyncio.timeout(60):
        while not told:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        del found["audit"]
        while len(told) < 2:
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    billing = Neighbour("billing", "", made.snapshot())
    assert told == [Neighbours((billing, Neighbour("audit", "degraded", made.outage()))), Neighbours((billing,))]


@pytest.mark.parametrize(
    ("neighbours", "size", "said"),
    [
        ((), (160, 40), " 7 Engines 8 Clients "),
        ((), (160, 40), "engine orders@web-1  "),
        ((Neighbour("billing", ""), Neighbour("audit", "")), (80, 24), " 7 8 "),
        ((Neighbour("billing", ""), Neighbour("audit", "")), (160, 40), " 7 Engines 3 8 Clients "),
        ((Neighbour("billing", ""), Neighbour("audit", "degraded")), (180, 40), "orders@web-1 +2 audit degraded  "),
        ((Neighbour("b", "degraded"), Neighbour("a", "unreachable")), (180, 40), "orders@web-1 +2 2 unhealthy  "),
        ((Neighbour("a-very-long-name-of-a-pairing", "unreachable"),), (80, 24), " 7! 8 "),
    ],
)
async def test_the_first_line_says_so_and_never_cuts_the_environment(
    open_console: Any, made: Any, neighbours: tuple[Neighbour, ...], size: tuple[int, int], said: str
) -> None:
    async with open_console(made.snapshot(), Neighbours(neighbours), size=size) as console:
        first = console.rows()[0]
    assert said in first
    assert " PRODUCTION " in first

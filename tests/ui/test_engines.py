"""Engines in processes of their own: several under one dashboard, one that does not answer, and a stopped one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.engine.control.discovery import EngineStatus, first_snapshot
from paired_servicebus.engine.control.protocol import Armed, Skipped
from paired_servicebus.engine.instance.engine_paths import EnginePaths, engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire, running
from paired_servicebus.ui.engines import feed as feed_module
from paired_servicebus.ui.engines.feed import EngineFeed, EngineReply, MultiEngineFeed
from paired_servicebus.ui.render.spans import Role
from paired_servicebus.ui.shell.app import SILENT_AFTER_SECONDS, PairedApp
from paired_servicebus.ui.state.view import (
    EngineLink,
    Neighbour,
    Neighbours,
    News,
    Page,
    Reached,
    Records,
    Unreachable,
)
from paired_servicebus.ui.widgets.entity_table import EntityTable
from paired_servicebus.verbs import status as follow_module
from paired_servicebus.verbs.status import Follower, follow
from tests.approval import Approve
from tests.bench.child_process import child_environment

ENTITY = "entity-0001"
SEEN_WITHIN = 10.0
"""Seconds that a busy machine may need on top of the documented ones."""


@contextlib.asynccontextmanager
async def engine(name: str, folder: Path) -> AsyncIterator[Path]:
    """An engine in a process of its own, and the lock that says where it is; its socket."""
    folder.mkdir()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.screen.screen_processes", "engine", str(folder), "3",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=child_environment(),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    lock = hold(name, folder / "s", process.pid)
    async with asyncio.timeout(60):
        await process.stdout.readline()
    yield folder / "s"
    process.stdin.close()
    async with asyncio.timeout(60):
        await process.wait()
    os.close(lock)


def hold(name: str, socket: Path, pid: int) -> int:
    places = engine_paths(name)
    places.prepare()
    return acquire(places.lock, LockHolder(pid=pid, socket=str(socket), log="/x.log"))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


def state(snapshot: Snapshot | None) -> State | None:
    return next((one.state for one in snapshot.entities if one.path == ENTITY), None) if snapshot else None


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(feed_module, "POLL_SECONDS", 0.2)
    return tmp_path


@pytest.mark.slow
async def test_an_order_for_three_engines_reaches_two_and_says_which_it_does_not(here: Path) -> None:
    async with engine("one", here / "1") as first, engine("two", here / "2") as second:
        lock = hold("three", here / "nobody", 4711)
        feed = MultiEngineFeed(first)
        app = PairedApp(feed, others=feed, pairing="one", by="kim")
        async with app.run_test(size=(140, 40)) as pilot:
            await until(lambda: app.view.fresh and len(app.view.neighbours) == 2)
            await pilot.press("7", "a", "1", "down")
            assert [one.name for one in app.view.reach] == ["three", "two"]
            await pilot.press("F")
            await until(lambda: len(app.screen_stack) == 2)
            await pilot.pause()
            assert "1 of 3" in text(app)
            assert "2 of 3 engines, " in text(app)
            assert "messages/s total" in text(app)
            await pilot.press(*ENTITY, "enter")
            await until(lambda: len(app.view.outcomes) == 3)
            said = {name: answer.good for name, answer in app.view.outcomes}
            assert said == {"one": True, "two": True, "three": False}
            assert app.view.answer is not None
            assert app.view.answer.text.startswith(f"force failover {ENTITY}:")
            assert state(await first_snapshot(first)) is state(await first_snapshot(second)) is State.FORCED
            await pilot.press("7")
            await until(lambda: "three is unreachable: no engine answers" in text(app))
            assert "✓" in text(app)
            await pilot.press("down", "down", "enter")
            await until(lambda: app.view.pairing == "two" and app.view.fresh and state(app.view.snapshot) is not None)
            assert app.view.page is Page.PAIRING
        os.close(lock)


@pytest.mark.slow
async def test_a_stopped_engine_is_silent_and_its_figures_are_old_until_it_goes_on(here: Path) -> None:
    """The kernel answers for a stopped process: its socket stays connected."""
    async with engine("one", here / "1") as socket:
        holder = running(engine_paths("one").lock)
        assert holder is not None
        app = PairedApp(EngineFeed(socket), pairing="one", by="kim")
        async with app.run_test(size=(140, 40)) as pilot:
            await until(lambda: app.view.fresh and ENTITY in text(app))
            os.kill(holder.pid, signal.SIGSTOP)
            try:
                stopped = time.monotonic()
                await until(lambda: app.view.link is EngineLink.SILENT)
                assert time.monotonic() - stopped < SILENT_AFTER_SECONDS + SEEN_WITHIN
                await until(lambda: "engine silent for" in text(app))
                assert app.view.snapshot is not None
                assert f"{clock(app.view.snapshot.at)}" in text(app)
                assert "last known: " in text(app)
                assert roles(app) == {Role.MUTED}
            finally:
                os.kill(holder.pid, signal.SIGCONT)
            await until(lambda: app.view.fresh and "engine silent" not in text(app))
            await pilot.pause()
            assert Role.HEALTHY in roles(app)


def roles(app: PairedApp) -> set[Role]:
    """The roles in the table of entities."""
    table = app.screen.query_one(EntityTable)
    drawn = (span for y in range(table.size.height) for span in table._line_at(y).spans)
    return {span.role for span in drawn if span.text.strip()}


def text(app: PairedApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


class Elsewhere:
    """Other engines that note what is ordered."""

    def __init__(self, to_type: str) -> None:
        self.to_type = to_type
        self.orders: list[tuple[str, str]] = []

    async def attend(self, name: str) -> None:
        raise NotImplementedError

    async def arm_at(self, names: Any, command: Command) -> tuple[EngineReply, ...]:
        armed = Armed(id=1, token="t2", to_type=self.to_type, seconds=30.0, until=0.0)
        return tuple(EngineReply(name=name, ok=True, text="armed", armed=armed) for name in names)

    async def execute_at(self, ready: Any, command: Command) -> tuple[EngineReply, ...]:
        self.orders += [(one.name, command.action_id) for one in ready]
        return tuple(replace(one, text="told") for one in ready)


@pytest.mark.parametrize(("to_type", "typed"), [("orders", "orders"), ("orders-2", "2 engines")])
async def test_what_is_typed_is_the_name_or_the_number_of_engines_where_names_differ(
    open_console: Any, made: Any, to_type: str, typed: str
) -> None:
    others = Elsewhere(to_type)
    news = (made.snapshot(), Neighbours((Neighbour("two", "", made.snapshot()),)))
    async with open_console(*news, others=others) as console:
        await console.press("7", "a", "1", "F")
        await console.press(*("x" if typed == "2 engines" else "or"), "enter")
        assert console.feed.orders == others.orders == []
        await console.press("escape", "F")
        await console.press(*typed, "enter")
        assert [action_id for action_id, _, _ in console.feed.orders] == ["force"]
        assert others.orders == [("two", "force")]


async def test_what_is_not_dangerous_goes_to_all_that_are_marked_at_once(open_console: Any, made: Any) -> None:
    others = Elsewhere("")
    news = (made.outage(), Neighbours((Neighbour("two", "", made.outage()), Neighbour("x", "", made.outage()))))
    async with open_console(*news, others=others, size=(140, 40)) as console:
        await console.press("7", "down", "space", "1", "S", "right", "enter")
        assert others.orders == [("two", "pause-syphon")]
        assert "2 of 2" in console.rows()[0]
        assert "2 of 2" in console.screen()
        await console.press("7", "u", "1", "S", "right", "enter")
        assert others.orders == [("two", "pause-syphon")]


async def test_a_read_only_dashboard_orders_nothing_anywhere(open_console: Any, made: Any) -> None:
    others = Elsewhere("orders")
    news = (made.outage(), Neighbours((Neighbour("two", "", made.outage()),)))
    async with open_console(*news, others=others, read_only=True) as console:
        await console.press("7", "a", "1", "S", "F")
        assert others.orders == console.feed.orders == []


async def test_marking_all_marks_what_the_filter_lists(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot()) as console:
        await console.press("slash", *"a", "y", "enter", "a")
        assert console.app.view.marked == ("payments",)


# -- The other engines of this machine are counted beside the one that is shown, and one that is not well is named.


async def test_they_are_told_when_something_changed_and_the_own_one_is_none(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"orders": made.snapshot(), "billing": made.snapshot(), "audit": made.outage()}
    monkeypatch.setattr(feed_module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(
        feed_module, "local_engines", lambda: [EnginePaths(state=Path(n), socket=Path(n)) for n in found]
    )
    monkeypatch.setattr(feed_module, "find_socket", lambda places: places.socket)

    async def look_at(places: Any) -> tuple[EngineStatus, ...]:
        await asyncio.sleep(0)
        return tuple(EngineStatus(pairing=one.name, snapshot=found[one.name]) for one in places if one.name in found)

    monkeypatch.setattr(feed_module, "query_engines", look_at)
    told: list[Neighbours] = []

    def tell(news: News) -> None:
        told.extend([news] if isinstance(news, Neighbours) else [])

    task = asyncio.create_task(MultiEngineFeed(Path("orders"), now=lambda: made.AT).run(tell))
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


# -- Engines followed without a screen: "One line a change, the same sentences, no colour codes".


@pytest.fixture
def said() -> list[str]:
    return []


async def test_an_engine_that_is_not_there_yet_is_waited_for(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "LOOK_AROUND", 0.0)
    places = EnginePaths(state=tmp_path / "orders", socket=tmp_path / "s")
    found: list[EnginePaths] = []
    started: list[Path] = []
    monkeypatch.setattr(follow_module, "find_socket", lambda each: each.socket)

    class Feed:
        def __init__(self, socket: Path) -> None:
            started.append(socket)

        async def run(self, tell: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(follow_module, "EngineFeed", Feed)
    task = asyncio.create_task(follow(lambda: found, said.append, named=True))
    async with asyncio.timeout(60):
        while not said:
            await asyncio.sleep(0)
        found.append(places)
        while not started:
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    assert "here yet" in said[0]
    assert started == [tmp_path / "s"], "followed once"


def test_what_was_told_before_the_engine_was_met_is_no_news(made: Any, said: list[str]) -> None:
    follower = Follower("orders", said.append, named=False)
    follower.tell(made.snapshot(boot="b2", seq=3))
    follower.tell(Records([made.record(e.Warned(at=made.AT - 60, about="journal", text="old"), 900, "b1")]))
    assert [line for line in said if "old" in line] == []


def test_followed_engines_are_as_approved(made: Any, said: list[str], approve: Approve) -> None:
    """`14:01:58 payments failed over: no send accepted for 60 s after "connection lost"`"""
    follower = Follower("orders", said.append, named=True)
    follower.tell(Reached())
    follower.tell(made.snapshot(seq=10))
    follower.tell(Records(made.records()))  # numbers 9 to 12: 9 and 10 are told already
    assert len(said) == 3
    for _ in range(3):
        follower.tell(Unreachable(made.at("14:05:00"), "it ended"))
    follower.tell(Skipped(4))
    said[-1] = said[-1].replace(said[-1].split()[0], "NOW")
    follower.tell(made.snapshot(boot="b2", seq=1))
    follower.tell(Records([made.record(e.Warned(at=made.AT, about="journal", text="\x1b[2Jred\nline"), 1, "b2")]))
    assert len(said) == 7
    assert not any("\x1b" in line or "\n" in line for line in said)
    approve("\n".join(said), "followed engines")

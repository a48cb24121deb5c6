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

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.engine.control.discovery import first_snapshot
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire, running
from paired_servicebus.ui.engines import other_engines
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.engines.other_engines import EngineReply, MultiEngineFeed
from paired_servicebus.ui.render.spans import Role
from paired_servicebus.ui.shell.app import SILENT_AFTER_SECONDS, PairedApp
from paired_servicebus.ui.state.view import EngineLink, Neighbour, Neighbours, Page
from paired_servicebus.ui.widgets.entity_table import EntityTable
from tests.bench.child_environment import child_environment

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
    monkeypatch.setattr(other_engines, "POLL_SECONDS", 0.2)
    return tmp_path


async def test_an_order_for_three_engines_reaches_two_and_says_which_it_does_not(here: Path) -> None:
    async with engine("one", here / "1") as first, engine("two", here / "2") as second:
        lock = hold("three", here / "nobody", 4711)
        feed = MultiEngineFeed(EngineFeed(first), first)
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

    async def arm_at(self, names: Any, action_id: str, *, targets: Any, scope: str, by: str) -> tuple[EngineReply, ...]:
        from paired_servicebus.engine.control.protocol import Armed

        armed = Armed(id=1, token="t2", to_type=self.to_type, seconds=30.0, until=0.0)
        return tuple(EngineReply(name=name, ok=True, text="armed", armed=armed) for name in names)

    async def command_at(self, ready: Any, action_id: str, **order: Any) -> tuple[EngineReply, ...]:
        self.orders += [(one.name, action_id) for one in ready]
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

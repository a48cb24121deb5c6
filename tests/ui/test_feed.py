"""The feed over a real control socket: reconnects by itself, loses nothing, says every loss."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus.core.errors import CommandRefusedError, EngineNotRunningError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_fold import for_newest
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import user_name
from paired_servicebus.engine.control.control_server import ControlServer
from paired_servicebus.engine.control.protocol import CommandDone, Skipped, Welcome
from paired_servicebus.engine.journal import records
from paired_servicebus.ui.display.terminal_app import EVERY_SECONDS, IDLE_SECONDS, LONGEST_SECONDS, IdleCollector
from paired_servicebus.ui.engines.feed import RETRY_DELAYS_SECONDS, EngineFeed
from paired_servicebus.ui.state import selection, view
from paired_servicebus.ui.state.view import EngineLink, News, Reached, Records, Silent, Unreachable, View


class Told:
    """What the feed told, and a way to wait for it."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self._came = asyncio.Condition()

    def __call__(self, news: News) -> None:
        self.news.append(news)
        asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def until(self, wanted: Callable[[list[News]], bool]) -> None:
        async with asyncio.timeout(60), self._came:
            await self._came.wait_for(lambda: wanted(self.news))

    def of(self, kind: type[Any]) -> list[Any]:
        return [news for news in self.news if isinstance(news, kind)]

    def warnings(self) -> list[str]:
        return [record.event.text for told in self.of(Records) for record in told.records]


def ends_with(kind: type[Any]) -> Callable[[list[News]], bool]:
    return lambda news: bool(news) and isinstance(news[-1], kind)


@asynccontextmanager
async def engine(socket: Path, *, boot: str = "b1") -> AsyncIterator[ControlServer]:
    async def execute(order: Any, viewer: bool) -> CommandDone:
        command = order.command
        ok = command.targets != ("nothing",)
        text = f"{command.action_id} {command.target} by {command.by}" if ok else "refused: no"
        return CommandDone(id=order.id, ok=ok, text=text)

    welcome = Welcome(engine="e", boot=boot, pid=1, pairing="orders", environment="", read_only=False)
    async with ControlServer(socket, welcome=welcome, execute=execute) as server:
        yield server


def warn(server: ControlServer, made: Any, seq: int, text: str, boot: str = "b1") -> None:
    record = made.record(e.Warned(at=made.AT, about="a", text=text), seq, boot)
    server.publish_event(seq, records.encode(record))


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[tuple[EngineFeed, Told, Path]]:
    """A feed that runs, with pauses that take no time but are noted."""
    told = Told()
    socket = tmp_path / "s"
    feed = EngineFeed(socket, now=lambda: 100.0, sleep=lambda _seconds: asyncio.sleep(0.01))
    task = asyncio.create_task(feed.run(told))
    yield feed, told, socket
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_tells_snapshots_and_events(followed: Any, made: Any) -> None:
    _, told, socket = followed
    async with engine(socket) as server:
        server.publish_snapshot(made.snapshot())
        warn(server, made, 1, "first")
        await told.until(lambda _: bool(told.of(Snapshot)) and told.warnings() == ["first"])
        assert told.of(Snapshot)[-1] == made.snapshot()
        assert told.of(Reached)


async def test_an_engine_that_is_not_there_is_said_since_when(followed: Any) -> None:
    _, told, socket = followed
    await told.until(lambda news: len(news) >= 3)
    assert {news.since for news in told.of(Unreachable)} == {100.0}
    assert str(socket) in told.of(Unreachable)[0].reason


async def test_it_comes_back_by_itself_and_misses_no_event(followed: Any, made: Any) -> None:
    _, told, socket = followed
    async with engine(socket) as server:
        server.publish_snapshot(made.snapshot())
        warn(server, made, 1, "first")
        await told.until(lambda _: told.warnings() == ["first"])
        server.farewell = "stopped by kim"
    await told.until(ends_with(Unreachable))
    lost = len(told.of(Unreachable))
    await told.until(lambda _: len(told.of(Unreachable)) >= lost + 2)
    assert told.of(Unreachable)[-1].reason.endswith("by kim"), "why it left tells more than that it is not there"
    async with engine(socket) as server:  # the same boot: as if the connection had been cut
        warn(server, made, 1, "first")
        warn(server, made, 2, "second")
        server.publish_snapshot(made.snapshot())
        await told.until(lambda _: len(told.of(Snapshot)) == 2 and len(told.warnings()) == 2)
    assert told.warnings() == ["first", "second"]
    assert told.of(Skipped) == []


async def test_an_engine_started_anew_is_followed_from_its_beginning(followed: Any, made: Any) -> None:
    _, told, socket = followed
    async with engine(socket) as server:
        warn(server, made, 7, "old")
        await told.until(lambda _: told.warnings() == ["old"])
    async with engine(socket, boot="b2") as server:
        warn(server, made, 1, "new", boot="b2")
        await told.until(lambda _: len(told.warnings()) == 2)
    assert told.warnings() == ["old", "new"]
    assert told.of(Skipped) == []


async def test_a_command_is_answered_in_the_engines_words(followed: Any, made: Any) -> None:
    feed, told, socket = followed
    async with engine(socket) as server:
        server.publish_snapshot(made.snapshot())
        await told.until(lambda _: bool(told.of(Snapshot)))
        assert (
            await feed.execute(Command(action_id="force", targets=("orders",), by="kim"))
            == f"force orders by {user_name()}"
        )
        with pytest.raises(CommandRefusedError, match="refused: no"):
            await feed.execute(Command(action_id="force", targets=("nothing",), by="kim"))


async def test_a_command_to_an_engine_that_is_gone_is_refused_at_once(followed: Any) -> None:
    feed, _, _ = followed
    with pytest.raises(EngineNotRunningError, match="not sent"):
        await feed.execute(Command(action_id="force", targets=("orders",), by="kim"))


async def test_the_pauses_grow_and_a_snapshot_ends_them(tmp_path: Path, made: Any) -> None:
    pauses: list[float] = []
    told = Told()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0.01)

    task = asyncio.create_task(EngineFeed(tmp_path / "s", now=lambda: 100.0, sleep=sleep).run(told))
    await told.until(lambda news: len(news) >= 7)
    assert pauses[:6] == [*RETRY_DELAYS_SECONDS, RETRY_DELAYS_SECONDS[-1]]
    async with engine(tmp_path / "s") as server:
        server.publish_snapshot(made.snapshot())
        await told.until(ends_with(Snapshot))
        del pauses[:]
    await told.until(ends_with(Unreachable))
    await told.until(lambda news: len(pauses) >= 1)
    assert pauses[0] == RETRY_DELAYS_SECONDS[0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# -- News change the view, and nothing is shown before the engine says it.


EMPTY = View(pairing="orders")


def test_reaching_the_engine_is_not_yet_news_of_it() -> None:
    assert view.apply_news(EMPTY, Reached()).link is EngineLink.CONNECTING


def test_a_snapshot_makes_it_live_and_selects_the_first_entity(made: Any) -> None:
    seen = view.apply_news(EMPTY, made.snapshot())
    assert seen.fresh
    assert seen.selected == "orders"


def test_a_lost_engine_keeps_the_last_figures_and_says_since_when(made: Any) -> None:
    lost = view.apply_news(view.apply_news(EMPTY, made.snapshot()), Unreachable(made.AT + 1, "gone"))
    assert (lost.link, lost.link_since, lost.link_reason) == (EngineLink.UNREACHABLE, made.AT + 1, "gone")
    assert lost.snapshot is not None
    assert view.apply_news(lost, Reached()).link is EngineLink.UNREACHABLE, "only a snapshot makes it live again"
    assert view.apply_news(lost, made.snapshot()).fresh


def test_silence_of_an_engine_that_is_lost_anyway_is_no_news(made: Any) -> None:
    lost = view.apply_news(EMPTY, Unreachable(made.AT, "gone"))
    assert view.apply_news(lost, Silent(made.AT)) == lost


def test_the_selection_is_kept_by_path_when_entities_come_and_go(made: Any) -> None:
    seen = selection.move_selection(view.apply_news(EMPTY, made.snapshot()), 1)
    assert seen.selected == "payments"
    more = made.snapshot(made.entity("new"), made.entity("orders"), made.entity("payments"))
    assert view.apply_news(seen, more).selected == "payments"
    assert view.apply_news(seen, made.snapshot(made.entity("audit"))).selected == "audit"


def test_the_selection_stops_at_both_ends(made: Any) -> None:
    seen = view.apply_news(EMPTY, made.snapshot())
    assert selection.move_selection(seen, -1).selected == "orders"
    assert selection.move_selection(seen, 99).selected == "audit"
    assert selection.move_selection(EMPTY, 1) == EMPTY


def test_read_only_is_the_consoles_or_the_engines(made: Any) -> None:
    seen = view.apply_news(EMPTY, made.snapshot(read_only=True))
    assert seen.read_only
    assert not view.apply_news(seen, made.snapshot()).read_only, (
        "an engine started anew may allow what the old one did not"
    )
    assert view.apply_news(replace(EMPTY, viewer=True), made.snapshot()).read_only


def test_missing_events_are_said_in_their_place(made: Any) -> None:
    seen = view.apply_news(view.apply_news(EMPTY, made.snapshot()), Skipped(3))
    seen = view.apply_news(seen, Records((made.record(e.Warned(at=made.AT, about="a", text="b")),)))
    assert "3 events" in seen.log[0].text
    assert len(seen.log) == 2


# -- What is asked of one view several times is computed once.


def test_an_answer_is_kept_for_the_newest_object_only() -> None:
    asked: list[list[int]] = []

    @for_newest
    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    first, equal, third = [1, 2], [1, 2], [3]
    assert [total(first), total(first), total(equal), total(first), total(third), total(first)] == [3] * 6
    assert [id(one) for one in asked] == [id(first), id(equal), id(third), id(first)]


# -- Full collections of garbage wait until nobody types.


class Clocked:
    """A collector with a clock to set, and the number of full collections."""

    def __init__(self) -> None:
        self.now = 100.0
        self.full = 0
        self.collector = IdleCollector(lambda: self.now)

    def note(self, phase: str, info: dict[str, int]) -> None:
        self.full += phase == "start" and info["generation"] == 2

    def collects_at(self, now: float) -> bool:
        before, self.now = self.full, now
        self.collector.tick()
        return self.full > before


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    found = Clocked()
    before = gc.get_threshold()
    gc.callbacks.append(found.note)
    yield found
    gc.callbacks.remove(found.note)
    found.collector.stop()
    gc.unfreeze()
    assert gc.get_threshold() == before
    assert gc.isenabled()


def test_before_the_start_python_collects(clocked: Clocked) -> None:
    before = gc.get_freeze_count()
    clocked.collector.keep_page()
    assert gc.get_freeze_count() == before
    assert not clocked.collects_at(100.0 + LONGEST_SECONDS)


def test_it_collects_while_nobody_types(clocked: Clocked) -> None:
    clocked.collector.start()
    assert not clocked.collects_at(100.0 + EVERY_SECONDS - 0.1)
    assert clocked.collects_at(100.0 + EVERY_SECONDS)
    assert not clocked.collects_at(100.0 + EVERY_SECONDS + 1.0)


def test_it_waits_for_the_end_of_typing_but_not_for_ever(clocked: Clocked) -> None:
    clocked.collector.start()
    clocked.now = 100.0 + EVERY_SECONDS
    clocked.collector.note_key()
    assert not clocked.collects_at(clocked.now + IDLE_SECONDS - 0.1)
    assert clocked.collects_at(clocked.now + 0.1)
    clocked.now += LONGEST_SECONDS
    clocked.collector.note_key()
    assert clocked.collects_at(clocked.now)


def test_a_kept_page_is_never_looked_at_again(clocked: Clocked) -> None:
    clocked.collector.start()
    before = gc.get_freeze_count()
    page = [[] for _ in range(1_000)]
    clocked.collector.keep_page()
    assert gc.get_freeze_count() >= before + len(page)

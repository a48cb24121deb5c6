"""Read-only has no leak: every dangerous action by every way in is refused by the engine. Generated from the table.

The screen's own courtesy is switched off here: what is tested is that the engine refuses, whatever a console thinks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paired_servicebus import cli
from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import ACTIONS
from paired_servicebus.core.operator.targets import ActionTarget, Scope
from paired_servicebus.engine.control import protocol
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.engine.instance.lock import LockHolder, acquire
from paired_servicebus.ui.commands import action_table as screen
from paired_servicebus.ui.engines.feed import EngineFeed
from paired_servicebus.ui.screens.pick_list import PickList, PickRows
from paired_servicebus.ui.shell.app import PairedApp
from paired_servicebus.ui.state.view import EngineLink

from .conftest import Engine, Hosted

DANGEROUS = [action for action in ACTIONS if action.dangerous and not action.lifts_read_only]
WITH_KEY = [action for action in DANGEROUS if action.key]
LIFTING = {action.key for action in ACTIONS if action.lifts_read_only}
OFFERED = [action for action in ACTIONS if action.key and action.key not in LIFTING]
"""All that the console can order, but what lifts read-only."""
TARGETS = {
    Scope.ALL: (),
    Scope.ENTITY: ("orders",),
    Scope.QUEUE: ("0",),
    Scope.UNUSED: ("contoso/x-servicebus-transfer/7",),
    Scope.DEAD_LETTERS: ("0/118,121",),
}


def by_id(action: Action) -> str:
    return action.id


@pytest.fixture
async def hosted(engine: Engine, short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hosted]:
    """A read-only engine of the pairing "orders", found by its lock and by a pairing.toml."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.chdir(short)
    key = "SharedAccessKeyName=Root;SharedAccessKey=k;UseDevelopmentEmulator=true"
    tables = "".join(
        f'[{name}]\nconnection_string = "Endpoint=sb://127.0.0.1;{key}"\n' for name in ("primary", "secondary")
    )
    (short / "pairing.toml").write_text(f'[pairing]\nname = "orders"\n{tables}')
    places = engine_paths("orders")
    places.prepare()
    async with engine(read_only=True, folder=places.state) as standing:
        fd = acquire(places.lock, LockHolder(pid=os.getpid(), socket=str(standing.socket), log="-"))
        standing.pairing.force("orders", by="setup")
        standing.pairing.acts.clear()
        yield standing
        assert standing.pairing.acts == []
        os.close(fd)


@pytest.mark.parametrize("action", DANGEROUS, ids=by_id)
async def test_the_raw_socket_is_refused(hosted: Hosted, action: Action) -> None:
    reader, writer = await asyncio.open_unix_connection(hosted.socket, limit=protocol.MAX_ENGINE_LINE_BYTES)
    targets = TARGETS[action.scope]
    lines = (
        protocol.Hello(),
        protocol.Arm(id=1, action_id=action.id, targets=targets, by="mallory"),
        protocol.Command(id=2, action_id=action.id, targets=targets, by="mallory"),
        protocol.Command(id=3, action_id=action.id, targets=targets, by="mallory", token="guessed", typed="orders"),
    )
    writer.write(b"".join(map(protocol.encode, lines)))
    answers: dict[int, Any] = {}
    async with asyncio.timeout(60):
        while len(answers) < 3:
            line = msgspec.json.decode(await reader.readline())
            assert line["t"] != "armed"
            if line["t"] == "done":
                answers[line["id"]] = line
    writer.close()
    assert all(not answer["ok"] and "read-only" in answer["text"] for answer in answers.values())


@pytest.mark.parametrize("action", DANGEROUS, ids=by_id)
async def test_a_client_is_refused_and_the_attempt_is_in_the_timeline(hosted: Hosted, action: Action) -> None:
    client = await hosted.connect()
    with pytest.raises(CommandRefusedError, match="read-only"):
        await client.command(action.id, targets=TARGETS[action.scope], by="ada", typed="orders")
    audited: list[Any] = []
    async with asyncio.timeout(60):
        async for update in client.updates():
            audited += [update.event] if hasattr(update, "event") else []
            if audited and isinstance(audited[-1], CommandEnded):
                break
    await client.close()
    assert isinstance(audited[-2], Commanded)
    assert "refused: this engine is read-only" in audited[-1].outcome


@pytest.mark.parametrize("action", DANGEROUS, ids=by_id)
async def test_the_verb_is_refused(hosted: Hosted, action: Action) -> None:
    typed = (TARGETS[action.scope] or ("orders",))[0]
    yes = [] if action.verb == "down" else ["--yes", typed]
    status = await asyncio.to_thread(cli.main, [*action.verb.split(), *TARGETS[action.scope], *yes])
    assert status == 2
    assert not hosted.host._ending.is_set()


async def press(app: PairedApp, action: Action, pilot: Any) -> None:
    """The key."""
    await pilot.press(action.key)


async def open_list(app: PairedApp, key: str, pilot: Any) -> PickList:
    """Open the menu or the command bar."""
    await pilot.press(key)
    async with asyncio.timeout(60):
        while not isinstance(app.screen, PickList) or not app.screen.query(PickRows):
            await pilot.pause(0.02)
    return app.screen


async def menu(app: PairedApp, action: Action, pilot: Any) -> None:
    """The menu of acts, and the key in it."""
    await open_list(app, "x", pilot)
    await pilot.press(action.key)


async def click_in_menu(app: PairedApp, action: Action, pilot: Any) -> None:
    """A click on its row in the menu."""
    opened = await open_list(app, "x", pilot)
    place = next(place for place, one in enumerate(opened.listed) if one.key == action.key)
    await pilot.press(*["down"] * place)
    rows = opened.query_one(PickRows)
    await pilot.click(rows, offset=(2, place - rows.scroll_offset.y))


async def command(app: PairedApp, action: Action, pilot: Any) -> None:
    """The command bar, by the action's name."""
    opened = await open_list(app, "colon", pilot)
    place = next(place for place, one in enumerate(opened.listed) if one.key == action.key)
    await pilot.press(*["down"] * place, "enter")


async def choose(app: PairedApp, action: Action, pilot: Any) -> None:
    """What the palette and the mouse call."""
    app.do(screen.CONSOLE_BY_ID[action.id], ActionTarget(action.scope, TARGETS[action.scope]))


Way = Callable[[PairedApp, Action, Any], Awaitable[None]]


@pytest.mark.parametrize("viewer", [False, True], ids=["engine read-only", "console read-only"])
@pytest.mark.parametrize("courtesy", [True, False], ids=["greyed", "not greyed"])
@pytest.mark.parametrize(
    "way",
    [press, *(pytest.param(way, marks=pytest.mark.slow) for way in (menu, choose, click_in_menu, command))],
    ids=lambda way: way.__name__,
)
async def test_key_palette_and_mouse_are_refused(
    hosted: Hosted, way: Way, courtesy: bool, viewer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not courtesy:  # as if the screen knew nothing of read-only: the engine does
        monkeypatch.setattr(screen.ConsoleAction, "why_not", lambda self, view, aim=None: "")
        monkeypatch.setattr(screen.ConsoleAction, "aim", lambda self, view: aim_of(self))
    app = PairedApp(EngineFeed(hosted.socket, read_only=viewer), pairing="orders", by="ada", read_only=viewer)
    async with app.run_test(size=(140, 40)) as pilot:
        async with asyncio.timeout(60):
            while app.view.link is not EngineLink.LIVE:
                await pilot.pause(0.02)
        for action in OFFERED if courtesy else WITH_KEY:
            asked = app.view.answer
            await way(app, action, pilot)
            async with asyncio.timeout(60):
                while app.view.answer is asked or app.view.answer is None:
                    await pilot.pause(0.02)
            assert not app.view.answer.good, action.id
            assert len(app.screen_stack) == 1, "no question was asked"
    assert hosted.pairing.acts == []


def aim_of(action: screen.ConsoleAction) -> screen.ActionTarget:
    if action.order is None:
        return ActionTarget()
    return ActionTarget(action.order.scope, TARGETS[action.order.scope])


async def test_a_viewers_conversation_orders_nothing_even_of_a_writable_engine(engine: Engine) -> None:
    async with engine() as standing:
        client = await ControlClient.connect(standing.socket, read_only=True)
        with pytest.raises(CommandRefusedError, match="opened to look only"):
            await client.command("pause-syphon", by="ada")
        with pytest.raises(CommandRefusedError, match="opened to look only"):
            await client.arm("force", targets=("orders",), by="ada")
        await client.close()
        assert standing.pairing.acts == []

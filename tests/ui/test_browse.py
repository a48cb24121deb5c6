"""`paired browse`: any entity of a namespace, read-only but for a test message to a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage
from paired_servicebus.engine.clients.namespace_source import NamespaceSource
from paired_servicebus.ui.display.profile import PROFILES, ProfileName
from paired_servicebus.ui.screens.messages_screen import MessageScreen
from paired_servicebus.ui.screens.pick_list import PickList
from paired_servicebus.ui.shell.browse_app import BrowseApp, BrowseScreen
from paired_servicebus.ui.shell.startup import ScreenSettings
from servicebus_sandbox.sandbox_host import Sandbox
from servicebus_sandbox.specs import primary_and_secondary

from .conftest import Console, FakeFeed, turns
from .test_messages import page, row

SETTINGS = ScreenSettings(theme="dark", profile=PROFILES[ProfileName.FULL])


class FakeNamespace(FakeFeed):
    """Two entities."""

    takes_tests = True

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self.is_listed = True

    async def counts(self) -> dict[tuple[str, MessageKind], int]:
        if not self.is_listed:
            raise CommandRefusedError("the entities cannot be listed: not authorized")
        orders = {("orders", MessageKind.ACTIVE): 7, ("orders", MessageKind.DEAD): 2}
        return {**orders, ("t/Subscriptions/s", MessageKind.ACTIVE): 0}

    async def send_test(self, path: str, text: str) -> None:
        self.sent.append((path, text))


@asynccontextmanager
async def browsing(source: Any, monkeypatch: pytest.MonkeyPatch, entity: str = "") -> AsyncIterator[Any]:
    monkeypatch.setattr("textual.app.wait_for_idle", turns)
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    app = BrowseApp(source, namespace="localhost:5672", entity=entity, by="kim", close=close, settings=SETTINGS)
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        yield Console(app, source, pilot)  # type: ignore[arg-type]
    assert closed == [True]


async def test_entities_are_listed_with_their_counts_and_one_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeNamespace()
    source.pages["orders", "active", 1] = MessagePage(
        queue="orders", kind=MessageKind.ACTIVE, rows=(row(1, destination=""),), looked_at=1, read_at=1.0
    )
    source.contents[1] = MessageContent(row=row(1), body=b"hello", body_size=5)
    async with browsing(source, monkeypatch) as console:
        assert isinstance(console.app.screen, PickList)
        assert "active 7 · dead 2" in console.screen()
        await console.press(*"orders", "enter")
        assert isinstance(console.app.screen, BrowseScreen)
        for part in ("localhost:5672", "read-only", "8f1c-0001", "dead 2"):
            assert part in console.screen(), part
        await console.press("enter")
        assert isinstance(console.app.screen, MessageScreen)
        assert "hello" in console.screen()
        await console.press("escape", "escape")
        assert isinstance(console.app.screen, PickList)
        await console.press("escape")
    assert console.app.return_value == 0


async def test_nothing_is_changed_but_a_test_message_to_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeNamespace()
    async with browsing(source, monkeypatch, "orders") as console:
        for key in ("R", "x"):
            await console.press(key)
            assert "only reads" in console.screen()
        await console.press("T", *"hi", "enter")
        assert source.sent == [("orders", "hi")]
        source.takes_tests = False
        await console.press("T")
        assert "sandbox alone" in console.screen()
        assert len(source.sent) == 1
        await console.press("q")
    assert console.app.return_value == 0


async def test_without_the_right_to_list_an_entitys_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeNamespace()
    source.is_listed = False
    async with browsing(source, monkeypatch) as console:
        assert "not authorized" in console.screen()
        assert "entity's name" in console.screen()
    source.pages["orders", "active", 1] = page(row(1))
    async with browsing(source, monkeypatch, "orders") as console:
        assert "8f1c-0001" in console.screen()
        assert "active –" in console.screen(), "what is not known is no number"


async def test_a_sandboxs_entities_are_counted_looked_into_and_searched() -> None:
    """Queues and subscriptions, dead letters too; a look changes nothing."""
    async with Sandbox.start(primary_and_secondary()) as sandbox:
        source = NamespaceSource(sandbox["primary"].connection_string, takes_tests=True)
        try:
            await source.send_test("orders", '{"order": {"id": 4711}}')
            await source.send_test("audit/Subscriptions/all", "hello")
            counts = await source.counts()
            assert counts["orders", MessageKind.ACTIVE] == 1
            assert counts["audit/Subscriptions/all", MessageKind.ACTIVE] == 1
            for path in ("orders", "audit/Subscriptions/all"):
                found = await source.look_at_messages(path, MessageKind.ACTIVE, by="kim")
                assert [(one.destination, one.reason) for one in found.rows] == [("", "")]
            searched = await source.look_at_messages("orders", MessageKind.ACTIVE, wanted="$.order.id = 4711", by="kim")
            content = await source.look_at_message("orders", MessageKind.ACTIVE, searched.rows[0].number, by="kim")
            assert content.body == b'{"order": {"id": 4711}}'
            assert (await source.look_at_messages("orders", MessageKind.DEAD, by="kim")).rows == ()
            with pytest.raises(CommandRefusedError, match="nothing"):
                await source.look_at_messages("nothing", MessageKind.ACTIVE, by="kim")
            assert await source.counts() == counts
        finally:
            await source.close()


async def test_a_namespace_gets_no_test_message() -> None:
    source = NamespaceSource("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=azE=", takes_tests=False)
    with pytest.raises(CommandRefusedError, match="sandbox"):
        await source.send_test("orders", "x")
    await source.close()

"""Signed orders over two engines: what an operator orders at one console holds on every host."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from textual.widgets import Input

from paired_servicebus import Fleet
from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.fleet import pace, roster
from paired_servicebus.core.fleet.fleet_documents import (
    Board,
    Order,
    OrderText,
    board_path,
    encode_order_text,
    order_id,
)
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetView
from paired_servicebus.core.operator.fleet_question import FleetRequest, OrderDraft, draft_order
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.fleet import fleet_part
from paired_servicebus.engine.fleet.service_bus_board import open_board
from paired_servicebus.engine.instance.engine_paths import engine_paths
from paired_servicebus.ui.engines.feed import EngineFeed, OrderSigner
from paired_servicebus.ui.screens.questions import FleetDialog, ReachDialog
from paired_servicebus.ui.shell.app import PairedApp
from servicebus_sandbox import Sandbox
from tests.engine.fleet.conftest import AUTHOR, TRUST, presence
from tests.engine.fleet.pens import Pen
from tests.engine.fleet.test_engines_meet import WAIT, Hosts, reporting, shown

PEN = Pen(1)


@pytest.fixture
async def hosts(short: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hosts]:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    for name in ("LOOK_LEAST", "READ_REPORTS", "CHANGE_FLOOR"):  # the test waits for looks
        monkeypatch.setattr(pace, name, 0.2)
    monkeypatch.setattr(fleet_part, "STAYING_SECONDS", 0.1)
    async with Sandbox.start() as sandbox, AsyncExitStack() as stack:
        yield Hosts(sandbox, stack, short, monkeypatch)


@pytest.fixture
def operators(short: Path) -> Path:
    file = short / "operators"
    file.write_text(f"operator-a {PEN.line}\n")
    file.chmod(0o600)
    return file


async def engine(hosts: Hosts, name: str, operators: Path | None, **options: Any) -> Any:
    return await hosts.engine(name, fleet=Fleet(name=name, operators=operators), **options)


def draft(view: FleetView, action: str, **more: Any) -> OrderText:
    made = drafted(view, action, **more)
    return made.confirm(made.to_type)


def drafted(
    view: FleetView, action: str, *, engines: tuple[str, ...] | None = None, scope: str = "entity",
    targets: tuple[str, ...] = ("payments",),
) -> OrderDraft:  # fmt: skip
    command = Command(action_id=action, scope=scope, targets=targets, why="drill")
    wanted = FleetRequest(command=command, engines=engines)
    return draft_order(view, wanted, primary="primary", secondary=SECONDARY[0], now=time.time())


SECONDARY = ["secondary"]


async def post(console: ControlClient, text: OrderText, pen: Pen = PEN) -> str:
    signed = encode_order_text(text)
    done = await console.post_order(Order(signed=signed.decode(), signature=pen.sign(signed)), by="ada")
    return done.text


def order_of(view: FleetView, text: OrderText) -> FleetOrder | None:
    return next((one for one in view.orders if one.id == order_id(encode_order_text(text))), None)


async def answered(console: ControlClient, text: OrderText, condition: Callable[[FleetOrder], Any]) -> FleetOrder:
    def is_met(view: FleetView) -> bool:
        order = order_of(view, text)
        return order is not None and bool(condition(order))

    snapshot = await shown(console, is_met)
    assert snapshot.fleet is not None
    found = order_of(snapshot.fleet, text)
    assert found is not None
    return found


class Pair:
    """Two engines on hosts of their own, and a console on the second. The first looks fast, since it starts watched."""

    def __init__(self, hosts: Hosts, operators: Path) -> None:
        self._hosts, self._operators = hosts, operators

    async def first(self) -> tuple[Any, ControlClient, FleetView]:
        """Start web-2 with its console."""
        pay = await engine(self._hosts, "web-2", self._operators)
        console = await self._hosts.watch("web-2")
        snapshot = await shown(console, lambda fleet: fleet.watched and reporting(fleet) == {"web-2"})
        SECONDARY[0] = snapshot.secondary
        assert snapshot.fleet is not None
        return pay, console, snapshot.fleet

    async def both(self, operators: Path | None) -> tuple[Any, Any, ControlClient, FleetView]:
        """Start web-2, then web-1 with its own file of operators."""
        pay, console, _ = await self.first()
        shop = await engine(self._hosts, "web-1", operators)
        snapshot = await shown(console, lambda fleet: reporting(fleet) == {"web-1", "web-2"})
        assert snapshot.fleet is not None
        return shop, pay, console, snapshot.fleet


@pytest.fixture
def pair(hosts: Hosts, operators: Path) -> Pair:
    return Pair(hosts, operators)


def state(paired: Any, path: str = "payments") -> State:
    return next((one.state for one in paired.entity_views() if one.path == path), State.UNKNOWN)


async def forge(hosts: Hosts, count: int) -> None:
    """Post presences of engines that nobody runs, with a key that has Send."""
    author = replace(AUTHOR, secondary=SECONDARY[0])
    client = ServiceBusClient.from_connection_string(hosts.sandbox["secondary"].connection_string, ssl_context=TRUST)
    async with client:
        board = open_board(client, primary="primary", posted_by=AUTHOR)
        for number in range(count):
            ghost = replace(author, engine=f"ghost-{number}", boot=f"b{number}")
            await board.write(presence(author=ghost), 3600.0)
        await board.close()


async def test_forged_presences_block_no_order(
    hosts: Hosts, pair: Pair, operators: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Presences are claims … nothing that an order needs depends on their number." """
    monkeypatch.setattr(roster, "MAX_ENGINES", 50)
    shop, pay, console, _ = await pair.both(operators)
    await forge(hosts, 80)
    flooded = (await shown(console, lambda fleet: fleet.is_flooded)).fleet
    assert flooded is not None
    for action, expected in (("force", State.FORCED), ("release", State.HEALTHY)):
        made = drafted(flooded, action)
        assert (made.needs_partial, made.to_type.removeprefix("payments").strip()) == ("", "")
        text = made.confirm(made.to_type)
        await post(console, text)
        await answered(console, text, lambda order: {"web-1", "web-2"} <= set(order.done))
        is_forced = [state(one) is State.FORCED for one in (shop, pay)]
        assert is_forced == [expected is State.FORCED] * 2


async def test_an_order_over_the_fleet_holds_on_every_host_until_it_is_released(pair: Pair, operators: Path) -> None:
    """`f` diverts everybody: also engines that have not sent to the entity yet."""
    shop, pay, console, view = await pair.both(operators)
    force = draft(view, "force")
    assert force.typed == "2"
    assert "is posted" in await post(console, force)
    order = await answered(console, force, lambda one: len(one.done) == 2)
    assert order.by == "operator-a"
    assert order.until is not None
    assert (state(shop), state(pay)) == (State.FORCED, State.FORCED)
    async with shop.get_queue_sender("payments") as sender:
        await sender.send_messages(ServiceBusMessage(b"x"))
    snapshot = await shown(console, lambda fleet: order_of(fleet, force))
    assert snapshot.fleet is not None
    release = draft(snapshot.fleet, "release")
    await post(console, release)
    await answered(console, release, lambda one: len(one.done) == 2)
    assert State.FORCED not in (state(shop), state(pay))


async def test_a_console_cannot_post_what_would_not_count(pair: Pair) -> None:
    _, console, view = await pair.first()
    with pytest.raises(CommandRefusedError, match="is not in the file of operators"):
        await post(console, draft(view, "force"), Pen(2))


async def test_an_engine_that_starts_later_takes_it_up_before_its_first_send(
    pair: Pair, hosts: Hosts, operators: Path
) -> None:
    """An engine that starts later reads the board before its first send."""
    _, console, view = await pair.first()
    force = draft(view, "force")
    await post(console, force)
    await answered(console, force, lambda one: one.done == ("web-2",))
    late = await engine(hosts, "web-1", operators)
    assert state(late) is State.FORCED
    await answered(console, force, lambda one: set(one.done) == {"web-1", "web-2"})
    await late.close()
    again = await engine(hosts, "web-1", operators)
    assert state(again) is State.FORCED


async def test_an_engine_whose_board_is_not_reached_keeps_what_it_stored_and_says_so(
    pair: Pair, hosts: Hosts, operators: Path
) -> None:
    """Not read: what it kept on disk until its end, and it says so."""
    pay, console, view = await pair.first()
    force = draft(view, "force")
    await post(console, force)
    await answered(console, force, lambda one: one.done == ("web-2",))
    await pay.close()
    for board in Board:
        hosts.sandbox["secondary"].node.faults.add("disabled", entity=board_path("primary", board))
    again = await engine(hosts, "web-2", operators)
    assert state(again) is State.FORCED
    console = await hosts.watch("web-2")
    warned = await event(console, lambda one: "the orders of the fleet are not read" in getattr(one, "text", ""))
    assert "those that held before stand until their end" in warned.text


async def test_a_local_release_differs_and_the_audit_has_the_signer(pair: Pair) -> None:
    """A local operator may release one engine by its socket; its reports then say that it differs."""
    pay, console, view = await pair.first()
    force = draft(view, "force")
    await post(console, force)
    forced = await event(console, lambda one: getattr(one, "by", "").startswith("operator-a"))
    assert re.fullmatch(r"operator-a \(SHA256:[^)]+\)", forced.by)
    await answered(console, force, lambda one: one.done == ("web-2",))
    await console.order(Command(action_id="release", targets=("payments",), by="ada"), typed="payments")
    await shown(console, lambda fleet: fleet.engines[0].differs)
    assert state(pay) is not State.FORCED


async def event(console: ControlClient, condition: Callable[[Any], bool]) -> Any:
    """Return the first event of the timeline that meets a condition."""
    async with asyncio.timeout(WAIT):
        async for update in console.updates():
            found = getattr(update, "event", None)
            if found is not None and condition(found):
                return found
    raise AssertionError("the engine left")


# -- A file of operators that changes while engines run: the right goes, and what stands by it; over two engines.


async def test_a_removed_operator_loses_the_right_and_what_stands_by_it_without_a_restart(
    pair: Pair, operators: Path
) -> None:
    shop, pay, console, view = await pair.both(operators)
    force = draft(view, "force")
    await post(console, force)
    await answered(console, force, lambda one: len(one.done) == 2)
    operators.write_text(f"operator-b {Pen(2).line}\n")
    with pytest.raises(CommandRefusedError, match="is not in the file of operators"):
        await post(console, draft(view, "pause-syphon", scope="all", targets=()))
    order = await answered(console, force, lambda one: len(one.refused) == 2)
    assert order.refused[0][1] == "its signer has no right to order"
    await shown(console, lambda fleet: State.FORCED not in (state(shop), state(pay)))


async def test_a_file_that_is_lost_refuses_orders_and_leaves_what_stands(pair: Pair, operators: Path) -> None:
    pay, console, view = await pair.first()
    force = draft(view, "force")
    await post(console, force)
    await answered(console, force, lambda one: one.done == ("web-2",))
    operators.unlink()
    async with asyncio.timeout(WAIT):
        async for update in console.updates():
            if any("there is no file of operators" in one.reason for one in getattr(update, "troubles", ())):
                break
    await post(console, pause := draft(view, "pause-syphon", scope="all", targets=()))
    order = await answered(console, pause, lambda one: one.refused)
    assert "look only: there is no file of operators" in order.refused[0][1]
    assert state(pay) is State.FORCED


async def test_an_engine_with_another_file_is_named_before_the_order(pair: Pair, operators: Path, short: Path) -> None:
    other = short / "other"
    other.write_text(f"operator-a {PEN.line}\n# here\n")
    other.chmod(0o600)
    _, _, console, _ = await pair.both(other)
    snapshot = await shown(console, lambda fleet: any("file of signers" in one for one in fleet.remarks))
    assert snapshot.fleet is not None
    assert drafted(snapshot.fleet, "force").takes == ("may refuse (another file of signers): web-1",)


# -- An order over the fleet from a dashboard over a real engine: two engines do it, and the screen shows it.


async def until(is_met: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT):
        while not is_met():
            await asyncio.sleep(0.02)


async def sign(signed: bytes) -> str:
    return PEN.sign(signed)


async def test_the_dashboard_orders_over_the_fleet_and_shows_the_answers(hosts: Hosts, operators: Path) -> None:
    shop, pay, _, _ = await Pair(hosts, operators).both(operators)
    shop.watch("payments")
    feed = EngineFeed(engine_paths("web-1").socket)
    app = PairedApp(feed, pairing="web-1", by="ada", signer=OrderSigner(key="k", sign=sign))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: app.view.entity is not None and len(app.view.snapshot.fleet.engines) == 2)  # type: ignore[union-attr]
        await until(lambda: not app.view.snapshot.fleet.trouble and app.view.snapshot.fleet.read_at)  # type: ignore[union-attr]
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ReachDialog) and app.focused is not None)
        await pilot.press("right", "enter")
        await until(lambda: isinstance(app.screen, FleetDialog))
        await until(lambda: app.screen.draft is not None and app.screen.to_type == "2 engines")  # type: ignore[attr-defined]
        assert (state(shop), state(pay)) != (State.FORCED, State.FORCED)
        app.screen.query_one("#typed", Input).focus()
        await pilot.press(*"2 engines", "enter")
        await until(lambda: app.view.answer is not None and "2 done" in app.view.answer.text)
        assert app.view.answer is not None
        assert app.view.answer.text.startswith("payments forced by operator-a until ")
    assert (state(shop), state(pay)) == (State.FORCED, State.FORCED)

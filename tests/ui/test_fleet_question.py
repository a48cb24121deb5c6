"""An order over the fleet from the dashboard: who does it, whom it reaches, and what keeps it from being ordered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Button, Input

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntity, FleetOrder, Takes
from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.ui.engines.feed import OrderSigner
from tests.fleet_views import AT, at, calm, engine, outage

Sign = Callable[[bytes], Awaitable[str]]


async def sign(signed: bytes) -> str:
    return f"signature of {len(signed)} bytes"


def signer(by: Sign = sign) -> OrderSigner:
    return OrderSigner(key="~/.ssh/id_ed25519", sign=by)


def focused(console: Any) -> str | None:
    return console.app.focused.id if console.app.focused is not None else None


async def ask(console: Any, *keys: str) -> str:
    """Press the keys that lead to the question over the fleet."""
    await console.press(*keys)
    console.app.screen.query_one("#fleet", Button).focus()
    await console.press("enter")
    return str(console.screen())


async def fill(console: Any, **values: str) -> None:
    for name, value in values.items():
        console.app.screen.query_one(f"#{name}", Input).value = value
        await console.pilot.pause()


async def tick(console: Any) -> None:
    console.app.screen.query_one("#partial", Button).focus()
    await console.press("space")


def order_button(console: Any) -> Button:
    button: Button = console.app.screen.query_one("#order", Button)
    return button


async def test_the_first_question_names_both_reaches_and_does_nothing(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=outage()), signer=signer()) as console:
        await console.press("F")
        text = console.screen()
        assert "who does" in text
        assert "web-16 alone" in text
        assert "20 engines" in text
        assert focused(console) == "here", "the smallest reach"
        await console.press("escape")
    assert (console.feed.armed, console.feed.posted, console.feed.orders) == ([], [], [])


NO_FLEET = (
    (outage(trouble="timeout"), "the fleet is unknown (timeout)"),
    (outage(read_at=None), "its boards are not read"),
    (replace(calm(), engines=tuple(engine(n, takes=Takes.LOOK_ONLY) for n in (1, 2))), "every engine looks only"),
)


@pytest.mark.slow
async def test_without_a_fleet_to_order_the_engine_on_screen_is_in_focus(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm()), signer=signer()) as console:
        for fleet, reason in NO_FLEET:
            await console.told(made.snapshot(fleet=fleet))
            await console.press("F")
            assert reason in console.screen().replace("\n", "")
            assert focused(console) == "here"
            await console.press("escape")
        await console.press("F", "enter")
        assert "Only web-1" in console.screen()
    assert console.feed.armed == [("force", ("orders",))]


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_the_question_says_whom_it_reaches_and_whom_not(
    open_console: Any, made: Any, size: tuple[int, int]
) -> None:
    async with open_console(made.snapshot(fleet=outage()), size=size, signer=signer()) as console:
        text = await ask(console, "F")
        first = next(row for row in text.split("\n") if row.lstrip(" │").strip() and "The fleet" in row)
        assert "20 engines" in first
        for part in ("18 of 20 engines now", "1 read-only: web-17", "2 silent: pay-3 since 13:58", "type 20", "4h"):
            assert part in text, part
        assert focused(console) == "cancel"
        await console.press("pagedown", "pagedown", "pagedown", "pagedown", "pagedown")
        assert "web-18" in console.screen()


@pytest.mark.slow
async def test_a_state_that_no_engine_knows_is_unknown_never_healthy(open_console: Any, made: Any) -> None:
    engines = tuple(replace(one, states=((State.UNKNOWN, 1),)) for one in calm().engines)
    unknown = FleetEntity(path="orders", states=((State.UNKNOWN, 3),))
    fleet = replace(calm(), engines=engines, entities=(unknown,))
    async with open_console(made.snapshot(fleet=fleet), size=(140, 40), signer=signer()) as console:
        rows = [row for row in (await ask(console, "F")).split("\n") if " web-" in row and "/s" in row]
    others = [row for row in rows if " web-1 " not in row]  # this engine knows its own state
    assert len(others) >= 2
    assert all("○ web-" in row and " unknown " in row for row in others[-2:])


async def test_it_is_ordered_after_the_tick_and_the_number(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=outage()), signer=signer()) as console:
        await ask(console, "F")
        await fill(console, typed="20 engines")
        assert order_button(console).disabled, "the silent engines are not ticked"
        await tick(console)
        assert not order_button(console).disabled
        await fill(console, typed="19")
        assert order_button(console).disabled
        await fill(console, why="vendor incident", **{"for": "90m"}, typed="20 engines")
        console.app.screen.query_one("#typed").focus()
        await console.press("enter")
    ((order, by),) = console.feed.posted
    text = order.text
    assert (text.verb, text.targets, text.engines, text.typed) == ("force", ("payments",), None, "20")
    assert (text.why, text.until - text.issued_at, by) == ("vendor incident", 5400.0, "kim")
    assert order.signature == f"signature of {len(order.signed)} bytes"
    assert console.feed.armed == []


@pytest.mark.slow
async def test_one_more_silent_engine_takes_the_tick_away(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=outage()), signer=signer()) as console:
        await ask(console, "F")
        await fill(console, typed="20 engines")
        await tick(console)
        fleet = outage()
        gone = replace(fleet.engines[0], status=fleet.engines[-1].status)
        await console.told(made.snapshot(fleet=replace(fleet, engines=(gone, *fleet.engines[1:]))))
        assert "although 3" in console.screen()
        assert order_button(console).disabled


FAULTS = (
    ({"for": "73h"}, "stands for 3 days at most"),
    ({"for": "long"}, "'long' is no time such as 30m, 4h or 72h"),
    ({"for": "4h", "engines": ""}, "no engine is named"),
    ({"engines": "web-1, WEB-1"}, "an engine was named twice"),
    ({"engines": "web-99"}, "1 silent: web-99 never heard"),
)


@pytest.mark.slow
async def test_a_field_that_cannot_be_is_one_sentence(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm()), signer=signer()) as console:
        await ask(console, "F")
        await fill(console, typed="3 engines")
        assert not order_button(console).disabled
        for values, sentence in FAULTS:
            await fill(console, **values)
            assert sentence in console.screen()
            assert order_button(console).disabled


async def test_one_named_engine_is_typed_by_the_target(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm()), signer=signer()) as console:
        await ask(console, "F")
        await fill(console, engines="web-2", typed="orders")
        assert "1 engine (web-2)" in console.screen()
        console.app.screen.query_one("#typed").focus()
        await console.press("enter")
    assert console.feed.posted[0][0].text.engines == ("web-2",)


async def test_where_a_reason_is_required_it_is_asked_for(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm(), require_reason=True), signer=signer()) as console:
        await ask(console, "F")
        for reason in ("", "planned"):
            await fill(console, typed="3 engines", why=reason)
            assert order_button(console).disabled == (not reason)
            assert ("a reason" in console.screen()) == (not reason)


async def test_a_key_that_cannot_sign_says_what_to_do_and_may_try_again(open_console: Any, made: Any) -> None:
    trouble = ["/home/operator-a/.ssh/id_ed25519 needs a passphrase: add it to the agent (ssh-add ~/.ssh/id_ed25519)"]

    async def fail_once(_signed: bytes) -> str:
        if trouble:
            raise PairedError(trouble.pop())
        return "signature"

    async with open_console(made.snapshot(fleet=calm()), signer=signer(fail_once)) as console:
        await ask(console, "F")
        await fill(console, typed="3 engines")
        console.app.screen.query_one("#typed").focus()
        await console.press("enter")
        text = " ".join(" ".join(row.strip("│ ") for row in console.rows()).split())
        assert "needs a" in text
        assert "ssh-add" in text
        assert console.feed.posted == []
        await console.press("enter")
    assert len(console.feed.posted) == 1


async def test_a_read_only_dashboard_refuses_over_the_fleet_in_the_same_way(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm()), read_only=True, signer=signer()) as console:
        await console.press("F")
        assert "is read-only" in console.screen()


@pytest.mark.slow
async def test_a_read_only_engine_may_still_post_for_the_others(open_console: Any, made: Any) -> None:
    async with open_console(made.snapshot(fleet=calm(), read_only=True), size=(140, 40), signer=signer()) as console:
        await console.press("F")
        assert "is read-only" in console.screen()
        assert focused(console) == "fleet"


@pytest.mark.slow
async def test_an_engine_without_a_syphon_can_pause_those_of_the_fleet(open_console: Any, made: Any) -> None:
    snapshot = made.snapshot(syphon=made.syphon(SyphonStatus.OFF), fleet=calm())
    async with open_console(snapshot, signer=signer()) as console:
        text = await ask(console, "S")
        assert "3 engines" in text
        paused = FleetOrder(id="o", verb="pause-syphon", targets=(), by="operator-a", at=AT, until=at("18:02:00"))
        await console.press("escape")
        await console.told(replace(snapshot, fleet=replace(calm(), orders=(paused,))))
        text = await ask(console, "S")
        assert "resume syphon" in text
        assert "until 18:02" in text


LOUD = (
    ("18:02:00", "over the fleet: orders forced by operator-a until 18:02", "orders forced by operator-a until"),
    ("14:30:00", "! orders forced by operator-a ends in 27 min", "until 14:30, ends in 27 min"),
    ("14:06:15", "! orders forced by operator-a ends in 4m00s", "until 14:06, ends in 4m00s"),
)


@pytest.mark.slow
async def test_what_stands_is_loud_on_every_page(open_console: Any, made: Any) -> None:
    order = FleetOrder(id="o", verb="force", targets=("orders",), by="operator-a", at=AT, until=AT)
    async with open_console(made.snapshot()) as console:
        for until, row, part in LOUD:
            standing = replace(calm(), orders=(replace(order, until=at(until), done=("web-1",)),))
            await console.told(made.snapshot(at=AT + 4, fleet=standing))
            for page in "1257":
                await console.press(page)
                assert row in "\n".join(console.rows()[:4]), page
                assert page not in "17" or part in "\n".join(console.rows()[4:])


async def test_the_bell_rings_30_and_5_minutes_before_the_end(
    open_console: Any, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = FleetOrder(id="o", verb="force", targets=("x",), by="a", at=AT, until=at("18:00:00"))
    fleet, rung = replace(calm(), orders=(order,)), []
    async with open_console(made.snapshot(fleet=fleet, at=at("17:29:00"))) as console:
        monkeypatch.setattr(console.app, "bell", lambda: rung.append(now))
        for now in ("17:29:59", "17:30:01", "17:31:00", "17:54:59", "17:55:01", "17:56:00"):
            await console.told(made.snapshot(fleet=fleet, at=at(now)))
    assert rung == ["17:30:01", "17:55:01"]


async def test_an_engine_that_differs_is_named_on_the_dashboard_and_its_page(open_console: Any, made: Any) -> None:
    how = "released here by operator-b: force failover payments, ordered by operator-a until 18:02"
    first, *others = calm().engines
    fleet = replace(calm(), engines=(replace(first, differs=(how,)), *others))
    async with open_console(made.snapshot(fleet=fleet), size=(140, 40)) as console:
        for key in ("1", "7"):
            await console.press(key)
            assert f"web-1 differs: {how}" in console.screen()


# -- What a person sees of an outage of twenty engines on the page of engines.


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_the_page_of_engines_names_every_engine(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    async with open_console(made.snapshot(fleet=outage()), size=size) as console:
        await console.press("7")
        text = console.screen()
    named = [f"web-{number}" for number in (1, 16, 17, 18)] + ["pay-3", "pay-4"]
    assert [one for one in named if one not in text] == []
    if size[0] >= 80:
        assert [f"web-{number}" for number in range(1, 19) if f"web-{number}" not in text] == []
        assert "operator-a" in text


async def test_500_engines_fit(open_console: Any, made: Any) -> None:
    engines = tuple(engine(number, State.HEALTHY if number % 2 else State.FAILED_OVER) for number in range(500))
    payments = FleetEntity(path="payments", states=((State.FAILED_OVER, 250), (State.HEALTHY, 249)))
    fleet = replace(calm(), engines=engines, entities=(payments,))
    async with open_console(made.snapshot(fleet=fleet)) as console:
        assert "failed over at 250 of 500 engines" in console.screen()
        await console.press("7")
        assert "▲ failed over 250" in console.screen()
        assert "● healthy 250" in console.screen()


async def test_without_a_fleet_nothing_of_it_is_drawn(open_console: Any, made: Any) -> None:
    async with open_console(made.outage()) as console:
        assert "fleet" not in console.screen()
        assert "all engines" not in console.screen()

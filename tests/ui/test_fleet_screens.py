"""What a person sees of an outage of twenty engines, on the dashboard and on the page of engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetEntity
from tests.fleet_views import AT, at, calm, engine, outage

ASKED = ("20 engines", "15 failed over", "payments", "pay-3", "pay-4", "forced by operator-a until 18:02", "17 done")


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
@pytest.mark.parametrize("trouble", ["", "connection refused"])
@pytest.mark.parametrize("here", ["snapshot", "outage"])
async def test_the_dashboard_answers_what_an_outage_asks(
    open_console: Any, made: Any, size: tuple[int, int], trouble: str, here: str
) -> None:
    fleet = outage(trouble=trouble, trouble_since=at("13:58:00") if trouble else None)
    async with open_console(getattr(made, here)(fleet=fleet), size=size) as console:
        text = console.screen()
    asked = [part for part in ASKED if not (trouble and size == (80, 24) and part in ("pay-3", "pay-4"))]
    assert [part for part in asked if part not in text] == []
    assert "2 silent" in text
    assert ("of then" in text) == bool(trouble)
    assert " quit" in text.split("\n")[-1]


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (140, 40)])
async def test_the_page_of_engines_names_every_engine(open_console: Any, made: Any, size: tuple[int, int]) -> None:
    async with open_console(made.snapshot(fleet=outage()), size=size) as console:
        await console.press("7")
        text = console.screen()
    named = [f"web-{number}" for number in (1, 16, 17, 18)] + ["pay-3", "pay-4"]
    assert [one for one in named if one not in text] == []
    if size[0] >= 80:
        assert [f"web-{number}" for number in range(1, 19) if f"web-{number}" not in text] == []
        assert "operator-a" in text


async def test_an_outage_elsewhere_is_not_drawn_as_healthy(open_console: Any, made: Any) -> None:
    """Finding: with two applications failed over, a console showed `orders healthy`."""
    fleet = outage(orders=())
    async with open_console(made.snapshot(fleet=fleet)) as console:
        rows = console.rows()
    assert rows[1].startswith(" ▲ 20 engines")
    row = next(row for row in rows if "payments  " in row and "healthy" in row)
    assert row.startswith(("  ▲ payments", " ▸▲ payments"))
    assert "15 failed over" in row
    assert "to do" not in "\n".join(rows)


async def test_500_engines_fit(open_console: Any, made: Any) -> None:
    engines = tuple(engine(number, State.FAILED_OVER if number % 2 else State.HEALTHY) for number in range(500))
    payments = FleetEntity(path="payments", states=((State.FAILED_OVER, 250), (State.HEALTHY, 250)))
    fleet = replace(calm(), engines=engines, entities=(payments,))
    async with open_console(made.snapshot(fleet=fleet)) as console:
        assert "250 healthy" in console.screen()
        await console.press("7")
        assert "▲ failed over 250" in console.screen()
        assert "● healthy 250" in console.screen()


async def test_hostile_names_move_nothing(open_console: Any, made: Any) -> None:
    evil = "\x1b[2J[bold red]x\n" + "y" * 300
    bad = engine(1, State.FAILED_OVER, engine=evil, host=evil, syphon=evil)
    entity = FleetEntity(path=evil, states=((State.FAILED_OVER, 1),), engines=((evil, State.FAILED_OVER, AT),))
    fleet = outage(engines=(bad,), entities=(entity,), trouble=evil)
    async with open_console(made.snapshot(fleet=fleet)) as console:
        for key in ("7", "1"):
            rows = console.rows()
            assert len(rows) == 24
            assert not any("\x1b" in row for row in rows)
            assert "\\x1b[2J" in "\n".join(rows)
            await console.press(key)


async def test_without_a_fleet_nothing_of_it_is_drawn(open_console: Any, made: Any) -> None:
    async with open_console(made.outage()) as console:
        assert "fleet" not in console.screen()
        assert "all engines" not in console.screen()

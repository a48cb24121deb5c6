"""When the terminal's bell rings, and when it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.ui.state.view import EngineLink, Records, Silent, Unreachable, View, apply_news, should_ring

LIVE = View(pairing="orders", link=EngineLink.LIVE)


def test_an_entity_that_leaves_the_primary_or_comes_back_rings(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    over = apply_news(well, made.outage())
    assert should_ring(well, over)
    assert should_ring(over, apply_news(over, made.snapshot()))
    assert not should_ring(over, apply_news(over, made.outage(seq=99)))


def test_a_suspicion_does_not_ring(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    assert not should_ring(well, apply_news(well, made.snapshot(made.entity("orders", State.SUSPECT))))


def test_an_alarm_rings_when_it_begins_and_when_it_is_over(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    alarmed = apply_news(
        well, made.snapshot(alarms=("3 messages are parked and no syphon is known to run: start one",))
    )
    assert should_ring(well, alarmed)
    assert not should_ring(
        alarmed, apply_news(alarmed, made.snapshot(alarms=("4 messages are parked and no syphon is known to run: go",)))
    )
    assert should_ring(alarmed, apply_news(alarmed, made.snapshot()))


def test_a_lost_engine_rings_once(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    lost = apply_news(well, Unreachable(1.0, "it went"))
    assert should_ring(well, lost)
    assert should_ring(apply_news(well, Silent(1.0)), lost)
    assert not should_ring(lost, apply_news(lost, Unreachable(1.0, "still")))
    assert not should_ring(LIVE, replace(LIVE, link=EngineLink.CONNECTING))


def test_what_was_there_at_first_sight_does_not_ring(made: Any) -> None:
    assert not should_ring(LIVE, apply_news(apply_news(LIVE, Records(made.records())), made.outage(alarms=("a",))))


@pytest.mark.parametrize("bell", [True, False])
async def test_it_can_be_silenced(open_console: Any, made: Any, bell: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[bool] = []
    async with open_console(made.snapshot(), bell=bell) as console:
        monkeypatch.setattr(console.app, "bell", lambda: rung.append(True))
        await console.told(made.outage())
        await console.told(made.outage(seq=13))
    assert len(rung) == bell

"""An engine older than the dashboard: what it does not report is unknown, on every page, and never none or healthy."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.ui.state.view import Reached


def as_an_older_engine_sends_it(value: Any) -> Any:
    """Without every field that has a default: those are the ones that were added."""
    if dataclasses.is_dataclass(value):
        needed = [
            field.name
            for field in dataclasses.fields(value)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        return {name: as_an_older_engine_sends_it(getattr(value, name)) for name in needed}
    if isinstance(value, list | tuple):
        return [as_an_older_engine_sends_it(each) for each in value]
    return msgspec.to_builtins(value)


@pytest.fixture
def old(made: Any) -> Snapshot:
    sent = msgspec.json.encode(as_an_older_engine_sends_it(made.outage()))
    return msgspec.json.decode(sent, type=Snapshot)


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_every_page_shows_what_it_sends(open_console: Any, old: Snapshot, size: tuple[int, int]) -> None:
    async with open_console(Reached(keeps_graphs=False), old, size=size) as console:
        for key in "12345678":
            await console.press(key)
            assert "failed over" in console.screen(), key
            await console.press("escape")


async def test_what_it_does_not_report_is_unknown(open_console: Any, old: Snapshot) -> None:
    async with open_console(Reached(keeps_graphs=False), old, size=(140, 40)) as console:
        shown = console.screen()
        assert "unknown" in shown
        assert "keeps none" in shown, "curves"
        assert "stranded" not in shown
        await console.press("!")
        assert "unknown: this" in console.screen()

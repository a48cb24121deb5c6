"""A screen without figures says what is waited for, and since when: as `paired attach` and the demo begin."""

from __future__ import annotations

from typing import Any

from paired_servicebus.ui.state.view import Unreachable

from .conftest import AT


async def test_a_hostile_reason_stays_one_text(open_console: Any) -> None:
    async with open_console(Unreachable(AT, "\x1b]52;c;ZXZpbA==\x07 [b]" + "x" * 400)) as console:
        assert "\x1b" not in console.screen()
        assert "[b]" in console.screen()

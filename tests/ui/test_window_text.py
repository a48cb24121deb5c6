"""The terminal's title and notifications: what they say, where they go, and that no name breaks out of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.ui.display.profile import PROFILES, ProfileName, profile_for
from paired_servicebus.ui.display.terminal_app import notification_sequence, title_sequence
from paired_servicebus.ui.state.summary import headline, window_title
from paired_servicebus.ui.state.view import EngineLink, Silent, View, apply_news

LIVE = View(pairing="orders", link=EngineLink.LIVE)


@given(st.text() | st.sampled_from(["\x07\x1b]52;c;ZXZpbA==\x07", "\x1b\\\x9c\x9d2;x", "\u202egnp.x", "x" * 500]))
def test_no_text_breaks_out_of_its_sequence(text: str) -> None:
    notified = notification_sequence(f"paired {text}", text, once=False).split("\x07")
    assert notified.pop() == ""
    titled = title_sequence(text).removesuffix("\x07")
    starts = ("\x1b]2;", "\x1b]9;", "\x1b]777;notify;")
    for sequence, start in zip((titled, *notified), starts, strict=True):
        assert sequence.startswith(start)
        inside = sequence.removeprefix(start)
        assert inside.isprintable()
        assert len(inside) <= 241
    assert notified[-1].split(";")[2].startswith("paired "), "the title ends at the first semicolon, and none is in it"


def test_a_terminal_that_knows_both_sequences_gets_one() -> None:
    assert notification_sequence("paired a;b", "down", once=True) == "\x1b]9;paired a;b: down\x07"
    both = "\x1b]9;paired a;b: down\x07\x1b]777;notify;paired a,b;down\x07"
    assert notification_sequence("paired a;b", "down", once=False) == both
    utf8 = {"LANG": "C.UTF-8"}
    assert profile_for({"TERM": "xterm-kitty", **utf8}).notifies_once
    assert profile_for({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm", **utf8}).notifies_once
    assert not profile_for({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", **utf8}).notifies_once


def test_the_title_counts_entities_in_trouble(made: Any) -> None:
    well = apply_news(LIVE, made.snapshot())
    assert window_title(well).endswith(" orders")
    assert not any(sign.isdigit() for sign in window_title(well))
    over = apply_news(well, made.snapshot(made.failed_over("payments"), made.entity("audit", State.SUSPECT)))
    assert window_title(over) == "▲2 orders"
    assert window_title(apply_news(over, Silent(1.0))) == "✗ orders"


@pytest.mark.parametrize("term", ["vt100", "dumb", "linux", ""])
def test_a_terminal_that_might_print_them_gets_none(term: str) -> None:
    assert not profile_for({"TERM": term, "LANG": "C.UTF-8"}).has_window
    assert profile_for({"TERM": "xterm-256color", "LANG": "C.UTF-8"}).has_window


@pytest.mark.parametrize(("options", "notified"), [({}, True), ({"notify": False}, False)])
async def test_what_rings_is_notified_too(
    open_console: Any, made: Any, options: dict[str, Any], notified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    async with open_console(made.snapshot(), **options) as console:
        monkeypatch.setattr(console.app, "_write_to_window", written.append)
        await console.told(made.outage())
        verdict = headline(console.app.view)
    said = [sequence for sequence in written if sequence.startswith("\x1b]9;")]
    sequences = f"\x1b]9;paired orders: {verdict}\x07\x1b]777;notify;paired orders;{verdict}\x07"
    assert said == ([sequences] if notified else [])
    assert [sequence for sequence in written if sequence.startswith("\x1b]2;")] == ["\x1b]2;▲1 orders\x07"]


async def test_the_plain_profile_has_no_window(open_console: Any, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    async with open_console(made.snapshot(), profile=PROFILES[ProfileName.PLAIN], theme="mono") as console:
        monkeypatch.setattr(console.app, "_write_to_window", written.append)
        await console.told(made.outage())
    assert written == []

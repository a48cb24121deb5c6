"""Names and reasons of any kind are shown as text on every page, and nothing else comes of them."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, copy_items
from paired_servicebus.ui.render.spans import fit
from paired_servicebus.ui.screens.pick_list import markup
from paired_servicebus.ui.screens.questions import ArmDialog
from paired_servicebus.ui.state.view import Page, Records, View, apply_news
from tests import fleet_views
from tests.alarm_views import remarks

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
NAMES = ("[red]red[/red]", "\x1b]52;c;ZXZpbA==\x07clip", "two\nlines; reboot", "[@click=app.quit]q[/]", "\u202egnp.x",
         "受注" * 20)  # fmt: skip
HUGE = "x" * 70_000


def hostile(made: Any) -> Any:
    entities = [made.failed_over(name, why=name) for name in (*NAMES, HUGE)]
    queue = replace(made.queues()[0], path=NAMES[1], pulled_reason=NAMES[2], in_rotation=False)
    syphon = replace(made.syphon(), text=NAMES[1])
    engine = fleet_views.engine(1, State.FAILED_OVER, engine=NAMES[1], host=NAMES[2], syphon=NAMES[3])
    fleet = fleet_views.outage(engines=(engine,), trouble=NAMES[1])
    return made.snapshot(
        *entities, queues=(queue,), syphon=syphon, troubles=remarks(*NAMES), primary=NAMES[1], environment=HUGE,
        fleet=fleet,
    )  # fmt: skip


def happened(made: Any) -> Records:
    kinds = [
        e.StateChanged(at=made.AT, entity=name, was="healthy", now="failed over", why=name) for name in (*NAMES, HUGE)
    ]
    return Records(tuple(made.record(kind, seq) for seq, kind in enumerate(kinds, 1)))


async def test_every_page_shows_them_and_no_more(open_console: Any, made: Any) -> None:
    seen = ""
    async with open_console(happened(made), hostile(made), size=(140, 40)) as console:
        for key in "1234567":
            await console.press(key)
            assert max(cell_len(row.rstrip()) for row in console.rows()) <= 140, key
            seen += console.screen()
        await console.press("1", "y")
        await console.pilot.pause(0.3)
        seen += console.screen()
        assert console.app.is_running
    assert not STEERING.search(seen)
    assert "[red]red[/red]" in seen
    assert "[@click=app.quit]q[/]" in seen
    assert "\\x1b]52;c;ZXZpbA" in seen
    assert "two\\x0alines" in seen


async def test_what_is_copied_has_no_line_break_of_a_stranger(open_console: Any, made: Any, monkeypatch: Any) -> None:
    """A line break in what is pasted into a shell runs what stands before it."""
    view = apply_news(View(pairing="orders"), hostile(made))
    for marks in (frozenset({NAMES[2]}), frozenset(NAMES[:3])):
        (name, row, *_) = copy_items(replace(view, marks=marks))
        assert "\n" not in name.text
        assert row.text.count("\n") == len(marks) - 1, "a line for each"
        assert not STEERING.search(name.text + row.text)
    (event, *_) = copy_items(replace(apply_news(view, happened(made)), page=Page.TIMELINE))
    assert "\n" not in event.text
    written: list[str] = []
    async with open_console(hostile(made)) as console:
        monkeypatch.setattr(console.app._driver, "write", written.append)
        console.app.copy_text(*copy_items(replace(view, marks=frozenset({NAMES[1]})))[0])
    (sent,) = [text for text in written if "\x1b]52;" in text]
    assert not STEERING.search(base64.b64decode(sent[len("\x1b]52;c;") : -1]).decode())


async def test_the_question_before_an_act_shows_what_is_to_be_typed(open_console: Any, made: Any) -> None:
    """The engine says what is to be typed: a name of an entity, say."""
    armed = Armed(id=1, token="t", to_type=NAMES[1], until=made.AT + 30, seconds=30.0)
    async with open_console(hostile(made), size=(140, 40)) as console:
        action, view = CONSOLE_BY_ID["force"], console.app.view
        aim = Command(action_id=action.id, scope=Scope.ENTITY, targets=(NAMES[1],))
        dialog = ArmDialog(action, aim, armed, lambda: view)
        console.app.push_screen(dialog)
        await console.pilot.pause(0.1)
        seen = console.screen()
    assert seen.count("\\x1b]52;c;ZXZpbA==\\x07clip") >= 2, "in the title and in the field"
    assert not STEERING.search(seen)


@given(st.text(st.one_of(st.characters(), st.sampled_from("[]\\/$@#ab ")), max_size=20))
def test_the_title_of_a_list_shows_a_text_and_takes_no_markup_from_it(text: str) -> None:
    assert Content.from_markup(markup(text)).plain == harmless(text)


@pytest.mark.parametrize("width", [0, 1, 20])
def test_a_cell_takes_so_many_characters_and_no_more(width: int) -> None:
    stacked = "e" + "\u0301" * 70_000
    assert len(fit(stacked, width)) <= 9 * width + 1

"""The messages of a backlog queue: opened from page 3, by key, without changing anything; hostile texts stay text."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Input

from paired_servicebus.core.model.message_view import MessageContent, MessageKind, MessagePage, MessageRow
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.ui.screens.arm_dialog import ArmDialog
from paired_servicebus.ui.screens.messages_screen import MessagesScreen
from paired_servicebus.ui.screens.pages import BacklogScreen
from paired_servicebus.ui.state.view import Page

from .conftest import AT

QUEUE = "contoso/x-servicebus-transfer/0"
UNUSED = "contoso/x-servicebus-transfer/12"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")
HOSTILE = ("\x1b]52;c;ZXZpbA==\x07", "\u202egnp.x", "[@click=app.quit]q[/]", "x" * 260, "漢" * 130, "e\u0301" * 100)


def row(number: int, **changes: Any) -> MessageRow:
    base = MessageRow(
        number=number,
        destination="payments",
        message_id=f"8f1c-{number:04}",
        enqueued_at=AT - 100 + number,
        size=1_234,
        deliveries=0,
    )
    return replace(base, **changes)


def page(*rows: MessageRow, kind: MessageKind = MessageKind.ACTIVE, **changes: Any) -> MessagePage:
    base = MessagePage(queue=QUEUE, kind=kind, rows=rows, looked_at=len(rows), read_at=AT + 1)
    return replace(base, **changes)


def parked(made: Any, **changes: Any) -> Snapshot:
    """Backlog queue 0 with messages, and an unused queue with stranded ones."""
    queue = replace(made.queues()[0], depth=5, dead_lettered=2, **changes)
    snapshot: Snapshot = made.snapshot(queues=(queue, *made.queues()[1:]), unused=made.unused())
    return snapshot


async def opened(console: Any, *pages: MessagePage) -> None:
    for one in pages:
        console.feed.pages[one.queue, one.kind.value, one.rows[0].number if one.rows else 1] = one
    await console.press("3", "enter")
    assert isinstance(console.app.screen, MessagesScreen)


async def test_tab_goes_through_the_parts_and_the_stranded(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        await opened(console)
        await console.press("tab", "tab", "tab", "tab")
        assert [look[:2] for look in console.feed.looks] == [
            (QUEUE, "active"), (QUEUE, "deferred"), (QUEUE, "dead"), (UNUSED, "stranded"), (QUEUE, "active")
        ]  # fmt: skip


async def test_an_empty_queue_with_dead_letters_opens_on_them(made: Any, open_console: Any) -> None:
    snapshot = parked(made)
    snapshot = replace(snapshot, queues=(replace(snapshot.queues[0], depth=0, parked=0), *snapshot.queues[1:]))
    async with open_console(snapshot) as console:
        await opened(console, page(row(1, reason="too often"), kind=MessageKind.DEAD))
        assert "dead letters" in console.screen()
        assert "too often" in console.screen()


async def test_a_queue_whose_messages_are_all_deferred_opens_on_them(made: Any, open_console: Any) -> None:
    async with open_console(parked(made, set_aside=5)) as console:
        await opened(console)
        assert console.feed.looks == [(QUEUE, "deferred", 1, "")]


async def test_what_is_not_known_is_never_an_empty_list(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.refusal = "unknown: contoso/x-servicebus-transfer/0 cannot be read: timeout"
        await opened(console)
        assert "read: timeout" in console.screen()
        assert "not read" in console.screen()
        assert "found none" not in console.screen()


async def test_a_look_without_an_answer_says_so_and_blocks_no_key(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.hold = asyncio.Event()
        await opened(console)
        assert "asking the" in console.screen()
        await console.press("escape")
        assert isinstance(console.app.screen, BacklogScreen)


async def test_pages_are_turned_and_turned_back(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        await opened(console, page(row(1), row(2), next_number=3), page(row(3)))
        await console.press("right")
        assert "8f1c-0003" in console.screen()
        assert "peek 3–3" in console.screen()
        await console.press("left")
        assert "8f1c-0001" in console.screen()


async def test_the_filter_lists_only_rows_with_its_words(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        await opened(console, page(row(1), row(2, destination="orders")))
        await console.press("slash", *"ORD", "enter")
        assert "8f1c-0002" in console.screen()
        assert "8f1c-0001" not in console.screen()
        await console.press("escape")
        assert "8f1c-0001" in console.screen()
        assert isinstance(console.app.screen, MessagesScreen), "escape removes the filter first"


def dead_page(*numbers: int) -> MessagePage:
    return page(*map(row, numbers), kind=MessageKind.DEAD)


async def test_a_capital_letter_asks_before_it_redrives_the_selected_dead_letter(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.pages[QUEUE, "dead", 1] = dead_page(118, 121)
        await opened(console)
        await console.press("R")
        assert "not possible" in console.screen()
        await console.press("tab", "tab", "j", "R")
        assert isinstance(console.app.screen, ArmDialog)
        assert console.feed.armed == [("redrive-letters", ("0/121",))]
        assert "letter 121" in console.screen()


async def test_marked_dead_letters_are_redriven_together(made: Any, open_console: Any) -> None:
    async with open_console(parked(made), size=(140, 40)) as console:
        console.feed.pages[QUEUE, "dead", 1] = dead_page(118, 119, 121)
        await opened(console)
        await console.press("tab", "tab", "space", "j", "space")
        shown = console.screen()
        assert "2 marked" in shown
        assert re.search(r"^\* +118 ", shown, re.MULTILINE)
        await console.press("x")
        assert "118, 121" in console.screen()
        assert "re-drive backlog/0" in console.screen(), "the whole queue is the other choice"
        await console.press("escape", "R")
        assert console.feed.armed == [("redrive-letters", ("0/118,121",))]
        await console.press("escape", "escape")
        assert isinstance(console.app.screen, MessagesScreen), "escape takes the marks away first"
        assert "marked" not in console.screen()


async def test_active_messages_are_not_marked_and_the_menu_says_why(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        await opened(console, page(row(1)))
        await console.press("space")
        assert "not possible" in console.screen()
        await console.press("x")
        assert "not now" in console.screen()


async def test_dead_letters_behind_too_many_are_refused_before_the_question(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.pages[QUEUE, "dead", 1] = replace(dead_page(118), next_number=3_000, looked_at=2_001)
        console.feed.pages[QUEUE, "dead", 3_000] = dead_page(3_000)
        await opened(console)
        await console.press("tab", "tab", "right", "R")
        assert not console.feed.armed
        assert "2,001 older" in console.screen()


async def test_small_letters_order_nothing(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.contents[1] = MessageContent(row=row(1))
        await opened(console, page(row(1)))
        screen = console.app.screen
        for key in ("r", "f", "g", "G", "j", "k", "y", "enter", "n", "space", "b", "i", "c", "m", "w", "tab"):
            await console.press(key)
            assert (console.feed.armed, console.feed.orders) == ([], []), key
            while console.app.screen is not screen or isinstance(console.app.focused, Input):
                await console.press("escape")
            assert console.app.screen is screen, key


async def test_a_read_only_console_looks_and_redrives_nothing(made: Any, open_console: Any) -> None:
    async with open_console(parked(made), read_only=True) as console:
        await opened(console, page(row(1)))
        assert "8f1c-0001" in console.screen()
        console.feed.pages[QUEUE, "dead", 1] = dead_page(118)
        await console.press("tab", "tab", "R")
        assert not console.feed.armed
        assert "read-only" in console.screen()


async def test_a_hidden_body_says_that_it_is_hidden(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.contents[1] = MessageContent(row=row(1), body_size=6, body_note="hidden: by pairing.toml")
        await opened(console, page(row(1)))
        await console.press("enter")
        assert "by pairing.toml" in console.screen()


async def test_of_a_large_body_the_screen_says_what_is_missing(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        console.feed.contents[1] = MessageContent(row=row(1), body=b"ab" * 32_768, body_size=100_000_000)
        await opened(console, page(row(1)))
        await console.press("enter")
        assert "65,536 of 100,000,000" in console.screen()


async def test_a_long_body_scrolls_to_its_end(made: Any, open_console: Any) -> None:
    async with open_console(parked(made)) as console:
        body = "\n".join(f"line {number}" for number in range(500)).encode()
        console.feed.contents[1] = MessageContent(row=row(1), body=body, body_size=len(body))
        await opened(console, page(row(1)))
        await console.press("enter", "end")
        assert "line 499" in console.screen()


@pytest.mark.parametrize(
    "size", [(60, 20), (140, 40), *(pytest.param(size, marks=pytest.mark.slow) for size in ((80, 24), (200, 50)))]
)
async def test_hostile_texts_stay_text(made: Any, open_console: Any, size: tuple[int, int]) -> None:
    rows = [
        row(number, destination=text, message_id=text, session=text, reason=text)
        for number, text in enumerate(HOSTILE, start=1)
    ]
    async with open_console(parked(made), size=size) as console:
        pairs = tuple((text, text) for text in HOSTILE)
        body = "\n".join(HOSTILE).encode()
        console.feed.contents[1] = MessageContent(row=rows[0], properties=pairs, body=body, body_size=len(body))
        await opened(console, page(*rows))
        for keys in ((), ("G",), ("g", "enter"), ("tab",), ("tab",)):
            await console.press(*keys)
            assert not STEERING.search(console.screen())
        assert console.app.view.page is Page.BACKLOG

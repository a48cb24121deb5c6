"""The messages of a backlog queue: opened from page 3, by key, without changing anything; hostile texts stay text."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from paired_servicebus.core.errors import CommandRefusedError
from paired_servicebus.core.model.message_view import (
    MAX_ROWS,
    MAX_SEARCHED,
    MessageContent,
    MessageKind,
    MessagePage,
    MessageRow,
)
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.ui.engines.message_export import export_messages
from paired_servicebus.ui.screens.messages_screen import MessageScreen, MessagesScreen
from paired_servicebus.ui.screens.pages import BacklogScreen
from paired_servicebus.ui.screens.pick_list import PickList
from paired_servicebus.ui.screens.questions import ArmDialog
from paired_servicebus.ui.state.view import Page

from .conftest import AT, Console
from .plays import MADE, Check, Play, fed, feed, holds, lacks, on, play, run, sees

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


def parked(**changes: Any) -> Snapshot:
    """Backlog queue 0 with messages, and an unused queue with stranded ones."""
    queue = replace(MADE.queues()[0], depth=5, dead_lettered=2, **changes)
    snapshot: Snapshot = MADE.snapshot(queues=(queue, *MADE.queues()[1:]), unused=MADE.unused())
    return snapshot


def dead_page(*numbers: int) -> MessagePage:
    return page(*map(row, numbers), kind=MessageKind.DEAD)


def holding(*found: MessagePage, content: MessageContent | None = None, **by_first: MessagePage) -> Check:
    """The feed has these pages, the first of their kind; `at_3` is one from number 3 on; and message 1's content."""

    def fill(console: Console) -> None:
        for one in found:
            console.feed.pages[one.queue, one.kind.value, 1] = one
        for name, one in by_first.items():
            console.feed.pages[one.queue, one.kind.value, int(name.removeprefix("at_"))] = one
        if content is not None:
            console.feed.contents[1] = content

    return fill


def body(data: bytes, size: int = 0, note: str = "") -> MessageContent:
    return MessageContent(row=row(1), body=data, body_size=size or len(data), body_note=note)


OPEN = ("3", "enter", on(MessagesScreen))
PARKED = parked()
EMPTY = replace(PARKED, queues=(replace(PARKED.queues[0], depth=0, parked=0), *PARKED.queues[1:]))
BEHIND = replace(dead_page(118), next_number=3_000, looked_at=2_001)
LINES = "\n".join(f"line {number}" for number in range(500)).encode()

PLAYS: dict[str, Play] = {
    "tab goes through the parts and the stranded": play(
        PARKED, *OPEN, "tab", "tab", "tab", "tab",
        holds(lambda console: [look[:2] for look in console.feed.looks] == [
            (QUEUE, "active"), (QUEUE, "deferred"), (QUEUE, "dead"), (UNUSED, "stranded"), (QUEUE, "active")]),
    ),
    "an empty queue with dead letters opens on them": play(
        EMPTY, holding(page(row(1, reason="too often"), kind=MessageKind.DEAD)), *OPEN,
        sees("dead letters", "too often"),
    ),
    "a queue whose messages are all deferred opens on them": play(
        parked(set_aside=5), *OPEN, fed(looks=[(QUEUE, "deferred", 1, "")])
    ),
    # what nobody here can know is "unknown", never "none"
    "what is not known is never an empty list": play(
        PARKED, feed(refusal="unknown: contoso/x-servicebus-transfer/0 cannot be read: timeout"), *OPEN,
        sees("read: timeout", "not read"), lacks("found none"),
    ),
    "pages are turned and turned back": play(
        PARKED, holding(page(row(1), row(2), next_number=3), at_3=page(row(3))), *OPEN, "right",
        sees("8f1c-0003", "peek 3–3"), "left", sees("8f1c-0001"),
    ),
    "a search narrows the page while it is typed, and enter has the engine search the queue": play(
        PARKED, holding(page(row(1), row(2, destination="orders"))), *OPEN, "slash", *"ORD", sees("8f1c-0002"),
        lacks("8f1c-0001"), "enter", fed(looks=[(QUEUE, "active", 1, ""), (QUEUE, "active", 1, "ORD")]),
        sees("search: ORD"), "escape", lacks("search: ORD"), on(MessagesScreen),
    ),
    "a search reads on until it is at the end, and says how much it read": play(
        PARKED, holding(page(row(1), next_number=251, looked_at=250), at_251=page(row(260), looked_at=20)), *OPEN,
        "slash", *"$.a", "enter", sees("2 matches in 270", "8f1c-0260"),
    ),
    "what a search did not read is said": play(
        PARKED, holding(page(row(1), note="bodies are hidden and were not searched")), *OPEN, "slash", *"x", "enter",
        sees("bodies are hidden"),
    ),
    "a capital letter asks before it redrives the selected dead letter": play(
        PARKED, holding(dead_page(118, 121)), *OPEN, "R", sees("not possible"), "tab", "tab", "j", "R", on(ArmDialog),
        fed(armed=[("redrive-letters", ("0/121",))]), sees("letter 121"),
    ),
    "marked dead letters are redriven together, the whole queue is the other choice, and escape takes the marks": play(
        PARKED, holding(dead_page(118, 119, 121)), *OPEN, "tab", "tab", "space", "j", "space", sees("2 marked"),
        holds(lambda console: re.search(r"^\* +118 ", console.screen(), re.MULTILINE)), "x",
        sees("118, 121", "re-drive backlog/0"), "escape", "R", fed(armed=[("redrive-letters", ("0/118,121",))]),
        "escape", "escape", on(MessagesScreen), lacks("marked"), size=(140, 40),
    ),
    "active messages are marked for an export, and the menu says why they are not redriven": play(
        PARKED, holding(page(row(1))), *OPEN, "space", sees("1 marked"), "x", sees("not now")
    ),
    "dead letters behind too many are refused before the question": play(
        PARKED, holding(BEHIND, at_3000=dead_page(3_000)), *OPEN, "tab", "tab", "right", "R", fed(armed=[]),
        sees("2,001 older"),
    ),
    "a read-only console looks and redrives nothing": play(
        PARKED, holding(page(row(1)), dead_page(118)), *OPEN, sees("8f1c-0001"), "tab", "tab", "R", fed(armed=[]),
        sees("read-only"), read_only=True,
    ),
    "a hidden body says that it is hidden": play(
        PARKED, holding(page(row(1)), content=body(b"", 6, "hidden: by pairing.toml")), *OPEN, "enter",
        sees("by pairing.toml"),
    ),
    "of a large body the screen says what is missing": play(
        PARKED, holding(page(row(1)), content=body(b"ab" * 32_768, 100_000_000)), *OPEN, "enter",
        sees("65,536 of 100,000,000"),
    ),
    "a long body scrolls to its end": play(
        PARKED, holding(page(row(1)), content=body(LINES)), *OPEN, "enter", "end", sees("line 499")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAYS)
async def test_messages_are_looked_at_and_redriven(open_console: Any, name: str) -> None:
    await run(open_console, PLAYS[name])


async def opened(console: Any, *pages: MessagePage) -> None:
    for one in pages:
        console.feed.pages[one.queue, one.kind.value, one.rows[0].number if one.rows else 1] = one
    await console.press("3", "enter")
    assert isinstance(console.app.screen, MessagesScreen)


async def test_a_look_without_an_answer_says_so_and_blocks_no_key(made: Any, open_console: Any) -> None:
    async with open_console(parked()) as console:
        console.feed.hold = asyncio.Event()
        await opened(console)
        assert "asking the" in console.screen()
        await console.press("escape")
        assert isinstance(console.app.screen, BacklogScreen)


async def test_small_letters_order_nothing(made: Any, open_console: Any) -> None:
    async with open_console(parked()) as console:
        console.feed.contents[1] = MessageContent(row=row(1))
        await opened(console, page(row(1)))
        screen = console.app.screen
        for key in ("r", "f", "g", "G", "j", "k", "y", "enter", "n", "space", "b", "i", "c", "m", "w", "tab"):
            await console.press(key)
            assert (console.feed.armed, console.feed.orders) == ([], []), key
            while console.app.screen is not screen or isinstance(console.app.focused, Input):
                await console.press("escape")
            assert console.app.screen is screen, key


@pytest.mark.parametrize(
    "size", [(60, 20), (140, 40), *(pytest.param(size, marks=pytest.mark.slow) for size in ((80, 24), (200, 50)))]
)
async def test_hostile_texts_stay_text(made: Any, open_console: Any, size: tuple[int, int]) -> None:
    rows = [
        row(number, destination=text, message_id=text, session=text, reason=text)
        for number, text in enumerate(HOSTILE, start=1)
    ]
    async with open_console(parked(), size=size) as console:
        pairs = tuple((text, text) for text in HOSTILE)
        body = "\n".join(HOSTILE).encode()
        console.feed.contents[1] = MessageContent(row=rows[0], properties=pairs, body=body, body_size=len(body))
        await opened(console, page(*rows))
        for keys in ((), ("G",), ("g", "enter"), ("tab",), ("tab",)):
            await console.press(*keys)
            assert not STEERING.search(console.screen())
        assert console.app.view.page is Page.BACKLOG


# -- Marked messages in a file.


async def exported(console: Any, path: Any) -> None:
    await console.press("e")
    console.app.focused.value = str(path)
    await console.press("enter")
    await finished(console, "write")


async def finished(console: Any, group: str) -> None:
    while any(one.group == group and not one.is_finished for one in console.app.workers):
        await asyncio.sleep(0.01)
    await console.pilot.pause()


async def test_marked_messages_are_exported_with_their_whole_bodies(
    made: Any, open_console: Any, tmp_path: Path
) -> None:
    """JSON lines, bodies as stored: text as it is, other bytes in base64; a body comes in parts."""
    long = "é" * 40_000
    stored = {1: long.encode(), 2: b"\xff\x00", 3: b"not marked"}
    async with open_console(parked()) as console:
        for number, data in stored.items():
            found = body(data)
            console.feed.contents[number] = replace(found, row=row(number), properties=(("app: tenant", "x"),))
        await opened(console, page(row(1), row(2), row(3)))
        await console.press("space", "space")
        await exported(console, tmp_path / "out.jsonl")
        assert "2 messages written" in console.screen()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["sequence_number"] for line in lines] == [1, 2]
    assert lines[0]["body"] == long
    assert base64.b64decode(lines[1]["body_base64"]) == b"\xff\x00"
    assert lines[0]["properties"] == {"app: tenant": "x"}
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600


async def test_an_export_changes_no_file_that_exists_and_leaves_no_half_of_one(
    made: Any, open_console: Any, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.write_text("kept")
    async with open_console(parked(), size=(140, 40)) as console:
        console.feed.contents[1] = body(b"x" * 100_000)
        await opened(console, page(row(1)))
        for path, reason in ((there, "exists"), (Path("/dev/full"), "exists"), (tmp_path / "no" / "f", "No such")):
            await exported(console, path)
            assert reason in console.screen()
        assert there.read_text() == "kept"
        console.feed.refusal = "unknown: the queue cannot be read"
        await exported(console, tmp_path / "half")
        assert "cannot be written" in console.screen()
        assert not (tmp_path / "half").exists()


async def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(number: int, *, from_byte: int = 0) -> MessageContent:
        return body(b"x" * 70_000)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("paired_servicebus.ui.engines.message_export.json.dumps", full)
    with pytest.raises(OSError, match="No space"):
        await export_messages(tmp_path / "f", numbers=(1,), look=look, queue="q", kind=MessageKind.DEAD)
    assert not (tmp_path / "f").exists()


async def test_messages_that_are_gone_are_counted(tmp_path: Path) -> None:
    async def look(number: int, *, from_byte: int = 0) -> MessageContent:
        if number == 2:
            raise CommandRefusedError("message 2 is not in the queue any more")
        return replace(body(b"x"), row=row(number))

    outcome = await export_messages(tmp_path / "f", numbers=(1, 2, 3), look=look, queue="q", kind=MessageKind.DEAD)
    assert outcome.startswith("2 messages written to ")
    assert outcome.endswith("1 missing: message 2 is not in the queue any more")


# -- One search over every queue and entity.


async def searched(console: Any, wanted: str = "x") -> None:
    await console.press("f", *wanted, "enter")
    await finished(console, "find")


async def test_a_message_is_searched_everywhere_and_what_was_not_read_is_named(open_console: Any) -> None:
    """Section 12: "A search for a message reads every backlog queue and every entity that the pairing knows"."""
    async with open_console(parked(), size=(140, 40)) as console:
        console.feed.pages[QUEUE, "stranded", 1] = page(row(1), next_number=9, looked_at=8)
        console.feed.pages[QUEUE, "stranded", 9] = page(looked_at=3)
        console.feed.pages["payments", "dead", 1] = page(row(2, message_id=HOSTILE[0], reason=HOSTILE[2]))
        console.feed.refusals["orders"] = f"unknown: orders cannot be read: {HOSTILE[1]}"
        await searched(console)
        snapshot = console.app.view.snapshot
        places = [one.path for one in (*snapshot.queues, *snapshot.unused.queues, *snapshot.entities)]
        kinds = {(look[0], look[1]) for look in console.feed.looks}
        assert kinds == {(path, kind) for path in places for kind in ("stranded", "dead")}
        seen = console.screen()
        read = f"{2 * len(places) - 2} of {2 * len(places)} parts read, 12 messages"
        for text in (f"2 messages with “x”: {read}", "8f1c-0001", "backlog/0 · for payments", "payments · dead letter"):
            assert text in seen, text
        assert "not read: orders, dead letters of orders" in seen
        assert not STEERING.search(seen)
        console.feed.contents[1] = MessageContent(row=row(1))
        await console.press("enter")
        assert isinstance(console.app.screen, MessageScreen)
        await console.press("escape")
        assert isinstance(console.app.screen, PickList)


async def test_a_search_everywhere_is_stopped_and_names_what_it_did_not_reach(open_console: Any) -> None:
    """Section 12: "It ends after 30 s, 100,000 messages or 200 matches, or by hand"."""
    async with open_console(parked(), size=(140, 40)) as console:
        console.feed.pages[QUEUE, "stranded", 1] = page(row(1), next_number=2_501, looked_at=2_500)
        console.feed.hold_from = 2_501
        await console.press("f", *"x", "enter")
        assert "esc stops" in console.screen()
        await console.press("escape")
        await console.pilot.pause()
        seen = console.screen()
        assert "1 message with “x”" in seen
        assert "2,500 messages" in seen
        assert "not read: backlog/0" in seen
        assert "the search ended before" in seen


@pytest.mark.parametrize(("rows", "looked_at"), [(MAX_ROWS, MAX_ROWS), (1, MAX_SEARCHED)])
async def test_a_search_everywhere_has_bounds(open_console: Any, rows: int, looked_at: int) -> None:
    async with open_console(parked(), size=(140, 40)) as console:
        many = page(*map(row, range(1, rows + 1)), next_number=looked_at + 1, looked_at=looked_at)
        console.feed.pages[QUEUE, "stranded", 1] = many
        await searched(console)
        assert (QUEUE, "stranded", looked_at + 1, "x") not in console.feed.looks
        await console.press("end", *"not", "space", *"read")
        assert "at 200 matches or 100,000 messages" in console.screen()


async def test_a_search_is_cancelled_and_keeps_what_it_found(made: Any, open_console: Any) -> None:
    async with open_console(parked()) as console:
        first = page(row(1), next_number=2_501, looked_at=2_500)
        console.feed.pages[QUEUE, "active", 1] = first
        await opened(console, first)
        await console.press("slash", *"x")
        console.feed.pages[QUEUE, "active", 1] = first
        console.feed.hold_from = 2_501
        await console.press("enter")
        assert "esc stops" in console.screen()
        await console.press("escape")
        assert "1 match in 2,500" in console.screen()
        assert "esc stops" not in console.screen()

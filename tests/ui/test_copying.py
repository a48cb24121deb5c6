"""What can be copied, that it reaches the terminal's clipboard, and that a file is never written over."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paired_servicebus import cli
from paired_servicebus.ui.commands.action_table import (
    CONSOLE_BY_ID,
    MAX_CLIPBOARD_BYTES,
    CopyItem,
    copy_items,
    file_name,
    write_new,
)
from paired_servicebus.ui.shell import app
from paired_servicebus.ui.shell.app import PairedApp
from paired_servicebus.ui.state.view import CommandAnswer, Page, Records, View, apply_news
from tests.approval import Approve

SECRET = "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=c4n4ry"


def view_of(snapshot: Any, **changes: Any) -> View:
    return replace(apply_news(View(pairing="orders"), snapshot), **changes)


def texts(view: View) -> dict[str, str]:
    return {piece.label: piece.text for piece in copy_items(view)}


def test_every_command_is_one_that_the_command_line_takes(made: Any) -> None:
    unused = "contoso/x-servicebus-transfer/11"
    views = [
        view_of(made.outage(), selected="payments"),
        view_of(made.backlog(), page=Page.BACKLOG, queue="8"),
        view_of(made.backlog(), page=Page.BACKLOG, on_unused=True, unused=unused),
    ]
    lines = [text for view in views for label, text in texts(view).items() if label.startswith("command")]
    assert len(lines) >= 6
    for text in lines:
        words = shlex.split(text)
        assert words[0] == "paired"
        cli.app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_a_name_that_moves_cursors_is_written_out_and_is_part_of_no_command(made: Any) -> None:
    view = view_of(made.snapshot(made.entity("a\x1b]0;x\a\n$(b)")))
    found = texts(view)
    assert all(character.isprintable() or character == "\n" for text in found.values() for character in text)
    assert not any(label.startswith("command") for label in found)
    quoted = texts(view_of(made.snapshot(made.entity("$(b) 'c'"))))["command: pin"]
    assert shlex.split(quoted)[2] == "$(b) 'c'"


def test_no_secret_is_copied(made: Any) -> None:
    found = texts(view_of(made.snapshot(made.entity("orders", why=f"refused: {SECRET}"))))
    assert "c4n4ry" not in str(found)


def test_where_nothing_is_there_is_nothing_to_copy() -> None:
    view = View(pairing="orders")
    assert copy_items(view) == ()
    assert CONSOLE_BY_ID["copy"].why_not(view).startswith("nothing here")


def test_a_file_is_new_and_its_name_needs_no_quotes(tmp_path: Path) -> None:
    name = file_name(CopyItem("name of ../a b/$(x)", ""), 0.0)
    assert name == "paired-19700101T000000Z-name-of-a-b.txt"
    path = tmp_path / name
    assert write_new(path, "one") == path
    with pytest.raises(FileExistsError):
        write_new(path, "two")
    assert path.read_text() == "one\n"


async def test_the_palette_copies_to_the_terminal(open_console: Any, outage_news: Any, monkeypatch: Any) -> None:
    copied: list[str] = []
    monkeypatch.setattr(PairedApp, "copy_to_clipboard", lambda self, text: copied.append(text))
    async with open_console(*outage_news) as console:
        await console.press("y")
        await console.pilot.pause(0.2)
        assert console.screen().count("name of") == 1
        await console.press(*"command release")
        await console.pilot.pause(0.3)
        await console.press("enter")
        await console.pilot.pause(0.1)
        if not copied:  # the first enter chose, the second does it
            await console.press("enter")
            await console.pilot.pause(0.1)
        assert copied == ["paired release payments --yes payments --engine orders"]
        assert "54 bytes" in console.screen()


async def test_tab_copies_to_a_new_file(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        await console.press("y", "down", "tab")
        await console.pilot.pause()
        assert "paired-20261120T140215Z-row-of-payments.txt" in console.screen()


async def test_what_is_too_long_for_a_clipboard_says_so(open_console: Any, outage_news: Any) -> None:
    async with open_console(*outage_news) as console:
        app.copy(console.app, CopyItem("timeline", "x" * (MAX_CLIPBOARD_BYTES + 1)))
        assert "74,995 bytes" in console.screen()


async def test_a_file_is_asked_for_written_once_and_named(
    open_console: Any, outage_news: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    piece = CopyItem("name of payments", "payments")
    async with open_console(*outage_news, size=(140, 40)) as console:
        for expected in (f"name of payments: written to {tmp_path}", "exists; it was not changed"):
            app.ask_file(console.app, piece)
            await console.pilot.pause()
            await console.press("enter")
            await until(console, expected)
        app.ask_file(console.app, piece)
        await console.pilot.pause()
        await console.press(*["backspace"] * 60, *"none/x", "enter")
        await until(console, "none/x cannot be written: No such file or directory")
        app.ask_file(console.app, piece)
        await console.pilot.pause()
        await console.press("escape")
    (written,) = tmp_path.iterdir()
    assert written.read_text() == "payments\n"


@pytest.fixture
def until() -> Any:
    async def wait(console: Any, text: str) -> None:
        for _ in range(500):
            if text in console.screen():
                return
            await console.pilot.pause(0.02)
        raise AssertionError(console.screen())

    return wait


def test_what_is_copied_is_as_approved(made: Any, approve: Approve) -> None:
    outage, pages = made.outage(), view_of(made.backlog(), page=Page.BACKLOG)
    answer = CommandAnswer("clean up 2 targets: 1 of 2 done: x was deleted; y holds 3 messages", good=False, at=made.AT)
    events = apply_news(view_of(outage, page=Page.TIMELINE, each_ping=True), Records(made.records()))
    filtered = replace(events, timeline_position=replace(events.timeline_position, filter="not accepting"))
    views = {
        "an entity": view_of(outage, selected="payments"),
        "two marked ones": view_of(outage, marks=frozenset({"orders", "payments"})),
        "a queue": replace(pages, queue="8"),
        "an unused queue": replace(pages, on_unused=True, unused="contoso/x-servicebus-transfer/11"),
        "the timeline": events,
        "what is listed of it": filtered,
        "an answer": view_of(outage, answer=answer),
    }
    shown = "\n\n".join(
        "\n".join((name, *(f"  {label}:\n    {text}" for label, text in texts(view).items())))
        for name, view in views.items()
    )
    assert texts(views["an entity"])["name of payments"] == "payments"
    assert texts(views["two marked ones"])["command: pin"].split()[-4:] == ["--yes", "2", "--engine", "orders"]
    assert texts(views["a queue"])["command: re-drive"].split()[:5] == ["paired", "redrive", "8", "--yes", "8"]
    assert [text.count("\n") for label, text in texts(events).items() if "4 events" in label] == [3]
    approve(shown, "copied texts")

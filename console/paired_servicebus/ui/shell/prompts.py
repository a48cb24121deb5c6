"""What a person is asked to type, and what is done with it: words to list by and to find, a time, a file's name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

from paired_servicebus.ui.commands.clipboard import MOST, CopyItem, file_name, write_new
from paired_servicebus.ui.screens.prompt_dialog import Prompt
from paired_servicebus.ui.shell.console_protocol import Console
from paired_servicebus.ui.state import selection, timeline_reader
from paired_servicebus.ui.state.view import Page


def ask_filter(app: Console) -> None:
    """Asks for the words to list by, and lists by them while they are typed."""
    page = app.view.page
    if page not in (Page.PAIRING, Page.TIMELINE):
        app.turn_to(Page.PAIRING)
    before = app.view.story.filter if page is Page.TIMELINE else app.view.filter

    def typed(words: str | None) -> None:
        app.show(selection.filtered(app.view, before if words is None else words))

    app.push_screen(Prompt("filter", before, changed=typed), typed)


def ask_find(app: Console) -> None:
    """Asks for words and goes to the next older event that has them."""
    app.push_screen(Prompt("find", app.view.story.find), partial(find, app, newer=False))


def find(app: Console, words: str | None, *, newer: bool) -> None:
    """Goes to the next event with the words; says so where there is none."""
    if not words:
        return
    story = timeline_reader.found(app.view.log, app.view.story, words, newer=newer)
    if story is None:
        side = "newer" if newer else "older"
        app.show(replace(app.view, story=replace(app.view.story, find=words)))
        app.answer(f"no {side} event has “{words}”", good=False)
    else:
        app.show(replace(app.view, story=story))


def ask_time(app: Console) -> None:
    """Asks for a time and goes to the first event from then on."""

    def typed(text: str | None) -> None:
        if not text:
            return
        at = timeline_reader.moment(text, app.now())
        if at is None:
            app.answer(f"“{text}” is no time: write 14:02, 14:02:03 or 2026-11-20 14:02 (UTC)", good=False)
        else:
            app.show(replace(app.view, story=timeline_reader.at_time(app.view.log, app.view.story, at)))

    app.push_screen(Prompt("go to time (UTC)", ""), typed)


def copy(app: Console, piece: CopyItem) -> None:
    """Hands it to the terminal's clipboard; whether that takes it no terminal says."""
    size = len(piece.text.encode())
    if size > MOST:
        app.answer(f"{piece.label}: {size:,} bytes are too many for a clipboard; copy it to a file", good=False)
        return
    app.copy_to_clipboard(piece.text)
    app.answer(f"{piece.label}: {size:,} bytes handed to the terminal's clipboard", good=True)


def ask_file(app: Console, piece: CopyItem) -> None:
    """Asks for a file that is not there yet, and writes it."""

    def typed(name: str | None) -> None:
        if name and name.strip():
            app.run_worker(_write(app, piece, Path(name.strip())), name="write", group="write")

    app.push_screen(Prompt("write to the new file", file_name(piece, app.now())), typed)


async def _write(app: Console, piece: CopyItem, path: Path) -> None:
    try:
        written = await asyncio.to_thread(write_new, path, piece.text)
    except FileExistsError:
        app.answer(f"{path} is there already, and was left as it is", good=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        app.answer(f"{path} cannot be written: {reason or error}", good=False)
    else:
        app.answer(f"{piece.label}: written to {written}", good=True)

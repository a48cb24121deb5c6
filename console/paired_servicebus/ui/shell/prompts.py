"""Prompts for a filter, a time, or a file's name, and their effects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from paired_servicebus.ui.commands.clipboard import MAX_CLIPBOARD_BYTES, CopyItem, file_name, write_new
from paired_servicebus.ui.screens.question_dialogs import Prompt
from paired_servicebus.ui.shell.console_protocol import Console
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.view import Page


def ask_filter(app: Console) -> None:
    """Ask for the words of the filter, and apply them while they are typed."""
    page = app.view.page
    if page not in (Page.PAIRING, Page.TIMELINE):
        app.turn_to(Page.PAIRING)
    before = app.view.timeline_position.filter if page is Page.TIMELINE else app.view.filter

    def typed(words: str | None) -> None:
        app.show(selection.apply_filter(app.view, before if words is None else words))

    app.push_screen(Prompt("filter", before, changed=typed), typed)


def ask_time(app: Console) -> None:
    """Ask for a time and select the first event from then on."""

    def typed(text: str | None) -> None:
        if not text:
            return
        at = selection.parse_time(text, app.now())
        if at is None:
            app.answer(f"“{text}” is not a time: type 14:02, 14:02:03 or 2026-11-20 14:02 (UTC)", good=False)
        else:
            app.show(
                replace(
                    app.view,
                    timeline_position=selection.go_to_time(app.view.events, app.view.timeline_position, at),
                )
            )

    app.push_screen(Prompt("go to time (UTC)", ""), typed)


def copy(app: Console, item: CopyItem) -> None:
    """Send it to the terminal's clipboard, which does not confirm it."""
    size = len(item.text.encode())
    if size > MAX_CLIPBOARD_BYTES:
        app.answer(f"{item.label}: {size:,} bytes are too large for a clipboard; copy it to a file", good=False)
        return
    app.copy_to_clipboard(item.text)
    app.answer(f"{item.label}: {size:,} bytes sent to the terminal's clipboard", good=True)


def ask_file(app: Console, item: CopyItem) -> None:
    """Ask for a new file's name, and write the file."""

    def typed(name: str | None) -> None:
        if name and name.strip():
            app.run_worker(_write(app, item, Path(name.strip())), name="write", group="write")

    app.push_screen(Prompt("new file", file_name(item, app.now())), typed)


async def _write(app: Console, item: CopyItem, path: Path) -> None:
    try:
        written = await asyncio.to_thread(write_new, path, item.text)
    except FileExistsError:
        app.answer(f"{path} exists; it was not changed", good=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        app.answer(f"{path} cannot be written: {reason or error}", good=False)
    else:
        app.answer(f"{item.label}: written to {written}", good=True)

"""Writes a new file under a name that the operator types, and answers how that went."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from textual.screen import Screen
from textual.worker import Worker

from paired_servicebus.core.errors import ControlError
from paired_servicebus.ui.screens.question_dialog import Prompt

T = TypeVar("T")
Write = Callable[[Path], Awaitable[str]]
"""Writes the file and returns the outcome as a sentence. Raises OSError, ControlError: there is no file then."""


class Writer(Protocol):
    """The app's interface."""

    def answer(self, text: str, *, good: bool) -> None: ...
    def push_screen(self, screen: Screen[T], callback: Callable[[T | None], None]) -> object: ...
    def run_worker(
        self, work: Coroutine[Any, Any, T], name: str = "", group: str = "", *, exclusive: bool = False
    ) -> Worker[T]: ...


def ask_new_file(app: Writer, what: str, name: str, write: Write) -> None:
    """Ask for the name of a new file for `what`, and write it."""

    def typed(name: str | None) -> None:
        if name and name.strip():
            app.run_worker(_write(app, Path(name.strip()), write), name="write", group="write")

    app.push_screen(Prompt(f"new file for {what}", name), typed)


async def _write(app: Writer, path: Path, write: Write) -> None:
    try:
        app.answer(await write(path), good=True)
    except FileExistsError:
        app.answer(f"{path} exists; it was not changed", good=False)
    except (OSError, ValueError, RuntimeError, ControlError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        app.answer(f"{path} cannot be written: {reason or error}", good=False)

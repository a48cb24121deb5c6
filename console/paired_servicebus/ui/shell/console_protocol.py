"""The part of the app that prompts, palette and dispatch use, so that they do not import the app."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from textual.screen import Screen
from textual.worker import Worker

from paired_servicebus.core.operator.targets import ActionTarget
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.state.view import Page, View

T = TypeVar("T")


class Console(Protocol):
    """The app's interface; see PairedApp and Textual's App."""

    view: View

    @property
    def screen(self) -> Screen[object]: ...
    @property
    def now(self) -> Callable[[], float]: ...
    @property
    def monotonic(self) -> Callable[[], float]: ...

    def newest(self) -> View: ...
    def show(self, new: View) -> None: ...
    def answer(self, text: str, *, good: bool) -> None: ...
    def choose(self, change: Callable[[View], View]) -> None: ...
    def turn_to(self, page: Page) -> None: ...
    def do(self, action: ConsoleAction, aim: ActionTarget | None = None) -> None: ...
    def copy_to_clipboard(self, text: str) -> None: ...
    def push_screen(self, screen: Screen[T], callback: Callable[[T | None], None]) -> object: ...
    def run_worker(
        self, work: Coroutine[Any, Any, T], name: str = "", group: str = "", *, exclusive: bool = False
    ) -> Worker[T]: ...

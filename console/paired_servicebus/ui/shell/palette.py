"""The command palette: actions and texts to copy, by name. An action that is not possible shows its reason."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, cast

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.widgets import Input

from paired_servicebus.core.text.untrusted_text import harmless
from paired_servicebus.ui.commands import action_table
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.commands.clipboard import copy_items
from paired_servicebus.ui.shell import prompts
from paired_servicebus.ui.shell.console_protocol import Console

LONGEST: Final = 200
"""Characters of a copied text that are shown."""


def as_text(text: str) -> str:
    """Escape a text for Textual, which expects markup."""
    return harmless(text).replace("[", r"\[")


class Palette(CommandPalette):
    """Textual's palette, without motion, dimming and signs that some terminals lack."""

    DEFAULT_CSS = """
    Palette { background: transparent; }
    Palette SearchIcon, Palette LoadingIndicator { display: none; }
    Palette > Vertical { margin-top: 2; }
    Palette > .command-palette--help-text { color: $role-muted; text-style: none; }
    """

    def __init__(self, provider: type[Provider], placeholder: str) -> None:
        super().__init__([provider], placeholder=placeholder)

    def on_mount(self) -> None:
        """Stop the blinking cursor, which costs bytes."""
        self.query_one(Input).cursor_blink = False


class ActionProvider(Provider):
    """Every action with a key, in the table's order."""

    async def discover(self) -> Hits:
        for action in self._actions():
            key = self._paired.view.keys.label(action)
            yield DiscoveryHit(f"{action.label}  ({key})", self._do(action), action.label, self._about(action))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions():
            if score := matcher.match(action.label):
                yield Hit(score, matcher.highlight(action.label), self._do(action), action.label, self._about(action))

    def _actions(self) -> Iterable[ConsoleAction]:
        return (action for action in action_table.by_key(self._paired.view) if action.id != "palette")

    def _do(self, action: ConsoleAction) -> partial[None]:
        return partial(self._paired.do, action)

    def _about(self, action: ConsoleAction) -> str:
        reason = action.why_not(self._paired.view)
        return as_text(f"not now: {reason}" if reason else action.help)

    @property
    def _paired(self) -> Console:
        return cast(Console, self.app)


class CopyProvider(Provider):
    """The texts to copy, each to the clipboard and to a file."""

    async def discover(self) -> Hits:
        for label, do, about in self._offers():
            yield DiscoveryHit(as_text(label), do, label, about)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for label, do, about in self._offers():
            if score := matcher.match(label):
                yield Hit(score, matcher.highlight(as_text(label)), do, label, about)

    def _offers(self) -> Iterable[tuple[str, partial[None], str]]:
        app = cast(Console, self.app)
        for item in copy_items(app.view):
            about = as_text(item.text.replace("\n", " · ")[:LONGEST])
            yield item.label, partial(prompts.copy, app, item), about
            yield f"{item.label}, to a file", partial(prompts.ask_file, app, item), about

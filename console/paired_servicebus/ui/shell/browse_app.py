"""Messages of any entity of a namespace, read-only but for a test message to a sandbox.

The list of entities, if the namespace shows it, and the page of messages that the console's page 3 opens.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, Protocol

from textual.binding import Binding, BindingType

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.message_view import MessageKind
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.ui.display.terminal_app import Report, TerminalApp
from paired_servicebus.ui.display.theme import load_all
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.render.spans import Line, Role, Span, spread
from paired_servicebus.ui.screens.messages_screen import MessagesScreen
from paired_servicebus.ui.screens.pick_list import Choice, PickList
from paired_servicebus.ui.screens.questions import Prompt
from paired_servicebus.ui.shell.startup import ScreenSettings
from paired_servicebus.ui.state.message_choices import tabs_of_entity
from paired_servicebus.ui.state.view import CommandAnswer, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines, LinesScreen
from paired_servicebus.ui.widgets.frame.page_lines import AnswerLine

READ_ONLY: Final = "nothing is changed from here: this page only reads"
Counts = Mapping[tuple[str, MessageKind], int]
"""Numbers of messages by entity and part."""


class EntitySource(MessageSource, Protocol):
    """The entities of one namespace."""

    takes_tests: bool
    """Whether it is a sandbox, which accepts test messages."""

    async def counts(self) -> Counts:
        """Return the counts of all entities. Raises ControlError: the namespace does not list them."""

    async def send_test(self, path: str, text: str) -> None:
        """Send one message. Raises ControlError: it was not accepted."""


class BrowseHead(Lines):
    """The namespace, that nothing is changed, and the time."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        names = [Span(" paired browse ", Role.TITLE), Span(view.pairing), Span("  read-only", Role.SUSPECT)]
        return (spread(names, [Span(f"{clock(view.clock)} UTC ", Role.MUTED)], width),)


class WaitScreen(LinesScreen):
    """Shown until the namespace has listed its entities."""

    PARTS = (BrowseHead, AnswerLine)


class BrowseScreen(MessagesScreen):
    """The messages of one entity."""

    PARTS = (BrowseHead, *MessagesScreen.LIST)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("T", "test", show=False), Binding("q", "quit_browser", show=False)]

    def action_redrive(self) -> None:
        self.acts.answer(READ_ONLY, good=False)

    action_menu = action_redrive

    def action_test(self) -> None:
        """Ask for a text, and send it to a sandbox's entity."""
        app = self.app
        assert isinstance(app, BrowseApp), "only the browser opens it"
        app.ask_test(self.choices.tab.path)

    def action_quit_browser(self) -> None:
        self.app.exit(0)

    def own_keys(self, marked: str, *, can_redrive: bool) -> Sequence[tuple[str, str, bool]]:
        app = self.app
        return (("T", "test message", True),) if isinstance(app, BrowseApp) and app.source.takes_tests else ()


class BrowseApp(TerminalApp):
    """The screens of `paired browse`.

    Args:
        namespace: the host, as it is shown.
        entity: the entity to open; empty: one is picked from the list.
        by: the operator's name.
        close: called at the end.
    """

    TITLE = "paired browse"

    def __init__(
        self,
        source: EntitySource,
        *,
        namespace: str,
        entity: str,
        by: str,
        close: Callable[[], Awaitable[None]],
        settings: ScreenSettings,
        report: Report | None = None,
    ) -> None:
        super().__init__(profile=settings.profile, report=report)
        self._close = close
        self.source = source
        self._entity = entity
        self.by = by
        self._view = View(pairing=namespace, viewer=True, clock=time.time())
        self.use_theme(load_all(), settings.theme)

    def get_default_screen(self) -> WaitScreen:
        return WaitScreen(self.newest)

    def on_mount(self) -> None:
        self.set_interval(self.profile.clock_every, self._show)
        self.run_worker(self._open(), name="entities", group="entities")

    async def on_unmount(self) -> None:
        await self._close()

    def newest(self) -> View:
        return replace(self._view, clock=time.time())

    def answer(self, text: str, *, good: bool) -> None:
        """Show an outcome in the answer line."""
        self._view = replace(self._view, answer=CommandAnswer(text, good, time.time()))
        self._show()

    def _show(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, LinesScreen) and screen.is_mounted:
                screen.show(self.newest())

    async def _open(self) -> None:
        """List the entities, then open one."""
        self.answer("asking the namespace for its entities …", good=True)
        try:
            self._view = replace(self._view, counts=await self.source.counts())
        except ControlError as error:
            if not self._entity:
                self.answer(f"{error}; paired browse takes an entity's name too · ctrl+q leaves", good=False)
                return
            self.answer(str(error), good=False)
        if self._entity:
            self._open_entity(self._entity)
        else:
            self._pick()

    def _pick(self) -> None:
        """Let the operator pick an entity."""
        paths = sorted({path for path, _ in self._view.counts})
        choices = [
            Choice(label=path, about=self._about(path), do=partial(self._open_entity, path), words="entity queue")
            for path in paths
        ]
        title = f"{plural(len(paths), 'entity', 'entities')} of {self._view.pairing}"
        self.push_screen(PickList(title, choices, self.newest(), placeholder="an entity's name"), self._picked)

    def _about(self, path: str) -> str:
        counts = self._view.counts
        return " · ".join(f"{kind} {counts[path, kind]:,}" for kind in MessageKind if (path, kind) in counts)

    def _picked(self, chosen: Choice | None) -> None:
        if chosen is None:
            self.exit(0)
        else:
            chosen.do()

    def _open_entity(self, path: str) -> None:
        self.push_screen(BrowseScreen(self.newest, tabs_of_entity(path)), lambda _: self._left())

    def show_help(self) -> None:
        self.answer("enter opens · / searches · e exports · y copies · q leaves", good=True)

    def _left(self) -> None:
        if self._entity:
            self.exit(0)
        else:
            self._pick()

    def ask_test(self, path: str) -> None:
        """Ask for a text, and send it; only to a sandbox."""
        if not self.source.takes_tests:
            self.answer(f"{READ_ONLY}; test messages go to a sandbox alone", good=False)
            return

        def typed(text: str | None) -> None:
            if text is not None:
                self.run_worker(self._send(path, text), name="test", group="test")

        self.push_screen(Prompt("test message", ""), typed)

    async def _send(self, path: str, text: str) -> None:
        try:
            await self.source.send_test(path, text)
        except ControlError as error:
            self.answer(f"test message: {error}", good=False)
            return
        self.answer("test message: accepted; r reads again", good=True)

"""The Textual app, wiring only: news into the View, the View onto screens, keys to actions, actions to the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.timer import Timer
from textual.worker import get_current_worker

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.message_view import MessageKind
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.targets import DeadLetters, Scope, names_of
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.ui.commands import action_table
from paired_servicebus.ui.commands.action_table import (
    CONSOLE_BY_ID,
    ConsoleAction,
    CopyItem,
    copy_items,
    file_name,
    write_new,
)
from paired_servicebus.ui.display.profile import PROFILES, Profile, ProfileName
from paired_servicebus.ui.display.terminal_app import IdleCollector, Report
from paired_servicebus.ui.display.theme import Themes, load_all
from paired_servicebus.ui.engines.feed import Feed, MultiEngineFeed, OrderSigner, join_records
from paired_servicebus.ui.engines.message_search import FoundMessage, MessageSearch
from paired_servicebus.ui.screens.messages_screen import MessageScreen, MessagesScreen
from paired_servicebus.ui.screens.pages import PAGES, DashboardScreen, PageScreen, with_size
from paired_servicebus.ui.screens.pick_list import Choice, PickList
from paired_servicebus.ui.screens.questions import Prompt
from paired_servicebus.ui.screens.text_screens import Findings, HelpText, TextScreen
from paired_servicebus.ui.shell.dispatch import OrderingApp
from paired_servicebus.ui.shell.kept_choices import ChoiceKeeper
from paired_servicebus.ui.state import selection, view
from paired_servicebus.ui.state.incident_history import IncidentHistory, may_change_incidents
from paired_servicebus.ui.state.message_choices import tabs_everywhere, tabs_of
from paired_servicebus.ui.state.summary import headline, window_title
from paired_servicebus.ui.state.view import (
    NO_KEYS,
    CommandAnswer,
    News,
    OwnKeys,
    Page,
    Records,
    ShowsView,
    Silent,
    View,
    should_ring,
)

# Prompts for a filter, a time, or a file's name, and their effects.


def ask_filter(app: PairedApp) -> None:
    """Ask for the words of the filter, and apply them while they are typed."""
    page = app.view.page
    if page not in (Page.PAIRING, Page.TIMELINE):
        app.turn_to(Page.PAIRING)
    before = app.view.timeline_position.filter if page is Page.TIMELINE else app.view.filter

    def typed(words: str | None) -> None:
        app.show(selection.apply_filter(app.view, before if words is None else words))

    app.push_screen(Prompt("filter", before, changed=typed), typed)


def ask_time(app: PairedApp) -> None:
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


def ask_message(app: PairedApp) -> None:
    """Ask for a text, and search every backlog queue and entity for messages with it."""

    def typed(text: str | None) -> None:
        if text and text.strip():
            app.find(text.strip())

    app.push_screen(Prompt("find a message everywhere (text or $.json.path = value)", ""), typed)


def found_messages(app: PairedApp, search: MessageSearch) -> PickList:
    """Return the messages that a search found, to open one; then what it did not read."""

    def opened(found: FoundMessage) -> None:
        shown = MessageScreen(app.newest, app.source, found.tab, found.row, by=app.by)
        app.push_screen(shown, lambda _: app.pick(found_messages(app, search)))

    choices = [
        Choice(label=one.row.message_id or str(one.row.number), about=str(one), do=partial(opened, one))
        for one in search.found
    ]
    for names, reason in search.unread():
        choices.append(Choice(label=f"not read: {names}", about=reason, do=lambda: None, possible=False))
    return PickList(search.progress, choices, app.view, placeholder="only rows with these words")


def ask_file(app: PairedApp, item: CopyItem) -> None:
    """Ask for a new file's name, and write the file."""

    async def write(path: Path) -> str:
        return f"{item.label}: written to {await asyncio.to_thread(write_new, path, item.text)}"

    app.ask_new_file(item.label, file_name(item, app.now()), write)


# The menu of acts, the command bar and the texts to copy, as lists to pick from (pick_list.py).

LONGEST: Final = 200
"""Characters of a copied text that are shown."""
SYNONYMS: Final[dict[str, str]] = {
    "force": "divert switch secondary backlog outage",
    "release": "unforce unpin automatic return home failback primary undo",
    "pin": "never fail over stay primary",
    "pause-syphon": "stop hold drain moving",
    "resume-syphon": "start continue drain moving",
    "clean-up": "delete remove drop unused queue",
    "redrive": "retry resend dead letters dlq replay",
    "redrive-letters": "retry resend dead letters dlq replay message one",
    "move-stranded": "unused queue orphan rescue",
    "drain": "empty spark backlog",
    "read-only": "lock freeze protect",
    "read-write": "unlock",
    "filter": "search find grep only",
    "find-message": "where is which queue search look for trace order id subject body lost",
    "go-to-time": "jump when clock",
    "sort": "order worst first",
    "next-theme": "colour color dark light contrast look",
    "copy": "yank clipboard osc52 export file",
    "help": "keys glossary manual what is",
    "quit": "exit leave detach close",
    "quit-with-engine": "exit leave close stop",
    "mark": "select choose several",
    "explain": "why what is wrong worst alarm reason problem",
    "select-text": "mouse copy paste select drag",
    "readiness": "would failover work ready test check",
    "overview": "home all entities callers first page state",
    "entity": "why details state since ping sends",
    "backlog": "parked eta drained drain lost dead letters dlq stranded oldest full when queue",
    "events": "who forced ordered released paused what happened when timeline log audit reason",
    "cost": "price bill money operations charge",
    "incidents": "outage lost report post mortem what happened yesterday errors refused how long write",
    "engines": "hosts fleet board silent where is who sends orders stand release",
    "clients": "gateway senders connected who errors where",
}
"""Other words that find an action, as people type them in an incident."""


def _act(
    app: PairedApp, action: ConsoleAction, aim: Command | None = None, *, named: bool = True, why_not: str = ""
) -> Choice:
    """Return an action's row.

    Args:
        named: with its targets, which then stay as they are now.
        why_not: a reason against it beside its own.
    """
    view = app.view
    aim = aim or action.aim(view)
    reason = why_not or action.why_not(view, aim)
    asks = "; asks first" if action.dangerous or action.asks else ""
    return Choice(
        label=f"{action.label} {names_of(aim)}".rstrip() if named else action.label,
        about=f"not now: {reason}" if reason else f"{action.help}{asks}",
        do=partial(app.do, action, aim, why_not),
        key=action.key(view.keys),
        words=f"{action.id} {action.help} {SYNONYMS.get(action.id, '')}",
        possible=not reason,
    )


def menu(app: PairedApp) -> PickList:
    """Return the menu of what changes something, for what is selected."""
    acts = [action for action in action_table.by_key(app.view) if action.changes]
    choices = [_act(app, action) for action in acts]
    ordered = sorted(choices, key=lambda one: not one.possible)
    return PickList("Acts: nothing is done before its question", ordered, app.view)


def command_bar(app: PairedApp) -> PickList:
    """Return every action and, by typed words, every entity and page."""
    actions = [one for one in action_table.by_key(app.view) if one.id not in ("palette", "menu")]
    choices = [_act(app, action, named=False) for action in actions]
    return PickList("Commands", [*choices, *_entities(app)], app.view, placeholder="an action, a page or an entity")


def _entities(app: PairedApp) -> Sequence[Choice]:
    return [
        Choice(label=one.path, about=f"{one.state}: open it", do=partial(_open, app, one.path), hidden=True)
        for one in app.view.entities
    ]


def _open(app: PairedApp, path: str) -> None:
    """Select the entity, and turn to its page."""
    app.show(replace(app.view, selected=path, on_fold=False))
    app.turn_to(Page.ENTITY)


def copies(app: PairedApp) -> PickList:
    """Return the texts to copy, to the clipboard or, by tab, to a new file."""
    choices: list[Choice] = []
    for item in copy_items(app.view):
        about = item.text.replace("\n", " · ")[:LONGEST]
        to_file = partial(ask_file, app, item)
        choices.append(Choice(label=item.label, about=about, do=partial(app.copy_text, *item), by_tab=to_file))
    return PickList("Copy to the clipboard, or with tab to a new file", choices, app.view, placeholder="what to copy")


SOME: Final = CONSOLE_BY_ID["redrive-letters"]
ALL: Final = CONSOLE_BY_ID["redrive"]


def _letters(index: str, numbers: Sequence[int]) -> Command:
    target = DeadLetters(index, tuple(numbers)).target
    return Command(action_id=SOME.id, scope=Scope.DEAD_LETTERS, targets=(target,))


SILENT_AFTER_SECONDS: Final = 3.0
"""Seconds without a snapshot: an engine sends one a second; the rest is for a slow link."""
SILENCE_CHECK_SECONDS: Final = 0.5
NEW_PAINT: Final = 0.9
"""The share of the clock's interval within which a paint is new: each snapshot paints the clock too."""
READ_AGAIN_SECONDS: Final = 1.0
"""Seconds until the journal has the change that was shown; one reading for all changes meanwhile."""
NO_TABLES: Final = "the folder of the pipeline's tables is unknown"

ReadPast = Callable[[str, str], IncidentHistory]
"""Reads the tables of a pairing, with the report of this episode, or else of the latest; blocks."""


def no_tables(_pairing: str, _chosen: str) -> IncidentHistory:
    """Return the news of a dashboard without tables."""
    return IncidentHistory(trouble=NO_TABLES)


class NewsArrived(Message):
    """News wait for the view."""


class PairedApp(OrderingApp):
    """The dashboard of one engine.

    Args:
        feed: the engine on screen.
        others: the other engines on this machine; None: commands are for the engine on screen only.
        by: the operator's name, sent with commands.
        engine_stays: whether the engine keeps running when the operator leaves.
        themes: the themes to choose from; default: the shipped ones.
        notices: errors in the operator's own files; the first is shown.
        past: reads the pipeline's tables, for the history page.
        start_steps: what the program that opens it starts before the engine, for the screen without figures.
        keeper: keeps theme, sort order and filter over restarts; None: they are not kept.
        signer: the operator's key, for orders over the fleet; None: they are not possible here.
        now, monotonic: seconds since the epoch, and seconds for ages.
        report: called with an unexpected exception, which then ends the app.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "show_quit_key", show=False, system=True)]
    TITLE = "paired"

    def __init__(
        self,
        feed: Feed,
        *,
        pairing: str,
        by: str,
        others: MultiEngineFeed | None = None,
        read_only: bool = False,
        engine_stays: bool = True,
        themes: Themes | None = None,
        theme: str | None = None,
        profile: Profile = PROFILES[ProfileName.FULL],
        bell: bool = True,
        notify: bool = True,
        notices: Sequence[str] = (),
        keys: OwnKeys = NO_KEYS,
        price: Price | None = None,
        past: ReadPast = no_tables,
        start_steps: Callable[[], Sequence[str]] = tuple,
        keeper: ChoiceKeeper | None = None,
        signer: OrderSigner | None = None,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        report: Report | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(profile=profile, report=report)
        self.source, self._others, self._signer = feed, others, signer
        self.by, self.now, self.monotonic = by, now, monotonic
        self._on_ready = on_ready
        self._bell = bell
        self._notifies = notify
        self._past = past
        self._news: list[News] = []
        self._snapshot_came = monotonic()
        self._themes = themes or load_all()
        self._shown_at = monotonic()
        self.collector = IdleCollector(monotonic)
        self._later: Timer | None = None
        """Set while changed figures wait for their paint."""
        unknown = self.use_theme(self._themes, theme)
        trouble = [*notices, *self._themes.notices, *([unknown] if unknown else [])]
        trouble += [keeper.notice()] if keeper is not None and keeper.notice() else []
        answer = CommandAnswer(_first_notice(trouble), good=False, at=now()) if trouble else None
        self.view: View = View(
            pairing=pairing, viewer=read_only, engine_stays=engine_stays, answer=answer, price=price, keys=keys
        )
        self._start_steps = start_steps
        self._read_soon: Timer | None = None
        self._search: MessageSearch | None = None
        """The search for messages that is under way."""
        self._keeper = keeper
        if keeper is not None:
            self.view = keeper.begin(self.view)

    # -- from the engine to the screen ---------------------------------------------------------------------------

    def get_default_screen(self) -> DashboardScreen:
        return DashboardScreen(self.newest)

    def on_mount(self) -> None:
        self.show(with_size(self.view, self.size))
        self.run_worker(self.source.run(self.receive), name="feed", group="feed")
        self.set_interval(SILENCE_CHECK_SECONDS, self._check_silence)
        self.set_interval(self.profile.clock_every, self._tick)
        self.app_resume_signal.subscribe(self, lambda _: self._return_to_terminal())
        self.call_after_refresh(self._on_ready or (lambda: None))

    def _return_to_terminal(self) -> None:
        """Paint everything and the title again after ctrl+z: the shell wrote meanwhile."""
        self._window_title = ""
        self.action_repaint()
        self.show(self.view)

    def on_resize(self, event: events.Resize) -> None:
        self.action_repaint()
        self.show(with_size(self.view, event.size))

    def receive(self, news: News) -> None:
        """Queue news from the feed; a burst is painted once."""
        if not self._news:
            self.post_message(NewsArrived())
        self._news.append(news)

    def on_news_arrived(self) -> None:
        """Fold the queued news into the view; paint events immediately, figures at the profile's interval."""
        news, self._news = self._news, []
        if any(isinstance(item, Snapshot) for item in news):
            self._snapshot_came = self.monotonic()
        folded = self.view
        for item in join_records(news):
            folded = view.apply_news(folded, item)
        self._call(self.view, folded)
        self._read_incidents_after(news)
        waits = self.profile.figures_every - (self.monotonic() - self._shown_at)
        if waits <= 0 or view.needs_paint_now(self.view, folded):
            self.show(folded)
            return
        self.view = folded
        if self._later is None:
            self._later = self.set_timer(waits, self._show_newest)

    def _call(self, before: View, after: View) -> None:
        """Ring, and notify, if something has happened that a person should see."""
        if not should_ring(before, after):
            return
        if self._bell:
            self.bell()
        if self._notifies:
            self.notify_window(f"paired {after.pairing}", headline(self.with_time(after)))

    def _check_silence(self) -> None:
        silent_for = self.monotonic() - self._snapshot_came
        if silent_for > SILENT_AFTER_SECONDS and self.view.fresh:
            self.show(view.apply_news(self.view, Silent(self.now() - silent_for)))

    def with_time(self, view: View) -> View:
        """Return the view with the present time and the age of its snapshot."""
        if view.snapshot is None:
            view = replace(view, start_steps=tuple(self._start_steps()))
        return replace(view, clock=self.now(), elapsed=max(0.0, self.monotonic() - self._snapshot_came))

    def _tick(self) -> None:
        self.collector.tick()
        if self._keeper is not None and self._keeper.take(self.theme, self.view):
            self.run_worker(self._keeper.write, name="keep", group="keeping", thread=True, exclusive=True)
        if self._keeper is not None and (trouble := self._keeper.new_trouble()):
            self.answer(trouble, good=False)
        if self._search is not None:
            self.answer(f"{self._search.progress} · esc stops", good=True)
        shown_for = self.monotonic() - self._shown_at
        if self._later is None and shown_for >= NEW_PAINT * self.profile.clock_every:  # nor is a paint due soon
            self.show(self.view)

    def keep_choices(self) -> None:
        """Write what the operator chose, at the end; leave collections to Python again."""
        self.collector.stop()
        if self._keeper is not None and self._keeper.take(self.theme, self.view):
            self._keeper.write()

    def _show_newest(self) -> None:
        self.show(self.view)

    def show(self, new: View) -> None:
        """Make this view the present one and paint it."""
        if not self.is_running:
            return  # a timer may fire while the screens are taken down
        self._shown_at = self.monotonic()
        new = self.view = self.drop_stale_question(self.with_time(new))
        if self._later is not None:
            self._later.stop()
            self._later = None
        self.name_window(window_title(new))
        for screen in self.screen_stack:
            if isinstance(screen, ShowsView) and screen.is_mounted:
                screen.show(new)

    # -- from keys to the engine -----------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Handle a page's keys and escape here, one by one: a key typed ahead goes to the screen that is then open.

        A pasted text is no key.
        """
        if isinstance(event, events.InputEvent):
            self.collector.note_key()
        if isinstance(event, events.Key):
            self.take_mouse()
        typed = isinstance(event, events.Key) and not event.is_forwarded and isinstance(self.screen, PageScreen)
        if isinstance(event, events.Key) and typed and action_table.actions_of_key(event.key, self.view):
            self.press(event.key)
        elif isinstance(event, events.Key) and event.key == "escape" and not event.is_forwarded:
            await self.press_escape()
        else:
            await super().on_event(event)

    def press(self, key: str) -> None:
        """Run the key's action, or show why it is not possible."""
        self.do(action_table.for_key(key, self.view))

    def do(self, action: ConsoleAction, aim: Command | None = None, why_not: str = "") -> None:
        """Run an action, or show why it is not possible. `aim`: its targets; default: the selection.

        Keys, palette and mouse all end here.
        """
        aim = aim or action.aim(self.view)
        reason = why_not or action.why_not(self.view, aim)
        if reason:
            self.answer(f"{action.label} is not possible: {reason}", good=False)
        elif action.order:
            self.start_order(action, aim)
        else:
            _LOCAL[action.id](self)

    def action_show_quit_key(self) -> None:
        """Show the key that quits: Ctrl+C is too easily hit."""
        self.answer(f"{CONSOLE_BY_ID['quit'].key(self.view.keys)} quits the dashboard", good=True)

    # -- from keys to what is shown ----------------------------------------------------------------------------------

    def select(self, steps: int) -> None:
        """Move the selection down by `steps`, or scroll what the page shows in its place."""
        if isinstance(self.screen, PageScreen) and self.screen.scrolled(steps):
            return
        self.show(selection.move_selection(self.view, steps))
        if self.view.page is Page.HISTORY:
            self._read_tables()

    def move_pages(self, pages: float) -> None:
        """Move the selection down by this many screens of rows."""
        self.select(round(pages * max(2, self.size.height // 2)))

    def turn_to(self, page: Page) -> None:
        self.show(selection.turn_to_page(self.view, page))
        while len(self.screen_stack) > 1:
            self.pop_screen()
        if page is not Page.PAIRING:
            self.push_screen(self._page_screen(page))
        if page is Page.HISTORY:
            self._read_tables()

    def _page_screen(self, page: Page) -> str:
        """Return the name of the page's screen, which is made when it is first opened, and kept."""
        if not self.is_screen_installed(page.value):
            self.install_screen(PAGES[page](self.newest), page.value)
            self.call_after_refresh(self.collector.keep_page)
        return page.value

    def go_back(self) -> None:
        """Cancel a question or a search; else end the timeline's filter; else go to the first page; there, list all."""
        if self.view.asking:
            self.cancel_question()
        elif self._search is not None:
            self.workers.cancel_group(self, "find")
        elif self.view.incident_open:
            self.show(replace(self.view, incident_open=False))
        elif self.view.page is Page.TIMELINE and self.view.timeline_position.filter:
            self.show(selection.apply_filter(self.view, ""))
        elif self.view.page is Page.PAIRING:
            self.show(replace(selection.unmark_all(selection.apply_filter(self.view, "")), is_unfolded=False))
        else:
            self.turn_to(Page.PAIRING)

    def _read_incidents_after(self, news: Sequence[News]) -> None:
        """Read the incidents again soon, if one may have begun or ended while they are on screen."""
        changed = any(isinstance(item, Records) and may_change_incidents(item.records) for item in news)
        if changed and self.view.page is Page.HISTORY and self._read_soon is None:
            self._read_soon = self.set_timer(READ_AGAIN_SECONDS, self._read_tables)

    def _read_tables(self) -> None:
        """Read the tables in a thread; a later call supersedes this one."""
        self._read_soon = None
        chosen = self.view.past.chosen if self.view.past is not None else ""
        reading = partial(self._report_tables, self.view.pairing, chosen)
        self.run_worker(reading, name="tables", group="tables", thread=True, exclusive=True)

    def _report_tables(self, pairing: str, chosen: str) -> None:
        worker = get_current_worker()
        past = self._past(pairing, chosen)
        if not worker.is_cancelled:
            self.call_from_thread(self.receive, past)

    def show_details(self) -> None:
        """Show the selected entity or incident in full; on the engines page, show the selected engine."""
        if self.view.page is Page.ENGINES:
            self.run_worker(self._attend(self.view.engine), group="attending", exclusive=True)
        elif self.view.page is Page.BACKLOG:
            self.show_messages()
        elif self.view.page is Page.HISTORY:
            self.show(replace(self.view, incident_open=True))
        elif self.view.page is Page.PAIRING and self.view.on_fold:
            self.show(selection.toggle_fold(self.view))
        else:
            self.turn_to(Page.ENTITY)

    def show_messages(self) -> None:
        """Show the messages of the selected backlog queue."""
        self.push_screen(MessagesScreen(self.newest, tabs_of(self.view)))

    def list_unused(self) -> None:
        """Have the engine list the unused queues now."""

        async def ask() -> None:
            try:
                await self.source.look_at_messages("", MessageKind.STRANDED, by=self.by)
            except ControlError as error:
                self.answer(f"unused queues: {error}", good=False)
            else:
                self.answer("unused queues: listed anew", good=True)

        self.run_worker(ask(), name="unused", group="unused", exclusive=True)

    def find(self, wanted: str) -> None:
        """Search every backlog queue and entity for messages."""
        search = MessageSearch(self.source, tabs_everywhere(self.view), wanted=wanted, by=self.by)
        self.run_worker(self._find(search), name="find", group="find", exclusive=True)

    async def _find(self, search: MessageSearch) -> None:
        """Search, and list what was found; if the operator opened something else meanwhile, say it."""
        self._search = search
        self.answer(f"{search.progress} · esc stops", good=True)
        try:
            await search.run()
        finally:
            if self._search is search:  # no later one
                self._search = None
                self.answer(search.progress, good=True)
                if isinstance(self.screen, PageScreen):
                    self.pick(found_messages(self, search))

    def redrive(self, index: str, numbers: Sequence[int]) -> None:
        """Ask before dead letters of a queue are re-driven, by its index and their sequence numbers."""
        self.do(SOME, _letters(index, numbers))

    def show_message_menu(self, index: str, numbers: Sequence[int], why_not: str) -> None:
        """Let the operator pick an act on the chosen messages, or on the whole queue."""
        some = replace(_letters(index, numbers), targets=()) if why_not else _letters(index, numbers)
        queue = Command(action_id=ALL.id, scope=Scope.QUEUE, targets=(index,) if index else ())
        choices = [_act(self, SOME, some, why_not=why_not), replace(_act(self, ALL, queue), key="")]
        self.pick(PickList("Acts: nothing is done before its question", choices, self.view))

    async def _attend(self, name: str) -> None:
        if self._others is None:
            return
        try:
            await self._others.attend(name)
        except ControlError as error:
            self.answer(str(error), good=False)
            return
        self._news.clear()
        self.workers.cancel_group(self, "tables")  # of the engine before
        self._snapshot_came = self.monotonic()
        self.show(view.view_of_engine(self.view, name))
        self.turn_to(Page.PAIRING)

    def explain(self) -> None:
        """Open the page that explains the worst of the first lines."""
        found = selection.explain(self.view)
        if found is not None:
            self.show(found)
            self.turn_to(found.page)

    def select_text(self) -> None:
        """Leave the mouse to the terminal until the next key."""
        self.free_mouse()
        self.answer("the terminal has the mouse until the next key: drag to select text", good=True)

    def show_help(self) -> None:
        self.push_screen(TextScreen(self.newest, HelpText()))

    def show_readiness(self) -> None:
        self.push_screen(TextScreen(self.newest, Findings()))

    def pick(self, choices: PickList) -> None:
        """Let the operator pick, and do it."""
        self.push_screen(choices, lambda chosen: chosen.do() if chosen is not None else None)

    def next_theme(self) -> None:
        self.theme = self._themes.after(self.theme).name


ALL_ROWS: Final = 1_000_000
"""Steps beyond any list's end."""

_LOCAL: Final[dict[str, Callable[[PairedApp], None]]] = {
    **{page.value: partial(PairedApp.turn_to, page=page) for page in Page},
    "details": PairedApp.show_details,
    "back": PairedApp.go_back,
    "filter": ask_filter,
    "sort": lambda app: app.choose(selection.next_sort_order),
    "mark": lambda app: app.choose(selection.mark),
    "mark-all": lambda app: app.choose(selection.mark_all),
    "unmark": lambda app: app.choose(selection.unmark_all),
    "menu": lambda app: app.pick(menu(app)),
    "palette": lambda app: app.pick(command_bar(app)),
    "copy": lambda app: app.pick(copies(app)),
    "list-unused": PairedApp.list_unused,
    "find-message": ask_message,
    "pings": lambda app: app.choose(selection.toggle_pings),
    "go-to-time": ask_time,
    "page-up": lambda app: app.move_pages(-1),
    "page-down": lambda app: app.move_pages(1),
    "half-up": lambda app: app.move_pages(-0.5),
    "half-down": lambda app: app.move_pages(0.5),
    "first": lambda app: app.select(-ALL_ROWS),
    "last": lambda app: app.select(ALL_ROWS),
    "select-previous": lambda app: app.select(-1),
    "select-next": lambda app: app.select(1),
    "next-theme": PairedApp.next_theme,
    "explain": PairedApp.explain,
    "select-text": PairedApp.select_text,
    "help": PairedApp.show_help,
    "readiness": PairedApp.show_readiness,
    "quit": lambda app: app.exit(0),
    "quit-with-engine": lambda app: app.exit(0),
}


def _first_notice(notices: Sequence[str]) -> str:
    """Return the first notice, and the number of others."""
    return notices[0] + (f" (and {plural(len(notices) - 1, 'more notice')})" if notices[1:] else "")

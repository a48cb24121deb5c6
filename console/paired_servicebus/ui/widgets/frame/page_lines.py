"""The lines of every page: header, summary, answer, keys; and the notice that the terminal is too small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol, cast

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget

from paired_servicebus.core.model.snapshot import FindingVerdict, Readiness
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import clock, roughly
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, ConsoleAction, for_key, in_key_line, label_width
from paired_servicebus.ui.render.spans import BLANK, Line, Role, Span, cut, fit, line, pack, spread, wrap
from paired_servicebus.ui.state.summary import Level, summary
from paired_servicebus.ui.state.view import CommandAnswer, EngineLink, Page, View
from paired_servicebus.ui.widgets.frame.lines_widget import Lines

# The tab bar in the header: the pages with their keys, as many by name as fit, the present one always.
#
# Page 7 shows the number of engines, page 8 that of the gateway's clients; "!" where an engine is unhealthy.


class Tab(NamedTuple):
    """One page's cells in the bar."""

    page: Page
    text: str
    trouble: bool = False


def tabs(view: View, room: int) -> tuple[Tab, ...]:
    """Return the tabs that fit into so many cells, each with a cell after it."""
    pages = list(Page)
    named = {view.page}
    if _width(view, named) > room:  # without room for all numbers: the present page only
        alone = Tab(view.page, _text(view, view.page, named), trouble=False)
        return (alone,) if len(alone.text) < room else ()
    for page in pages:
        if _width(view, named | {page}) <= room:
            named.add(page)
    return tuple(Tab(page, _text(view, page, named), page is Page.ENGINES and _unwell(view)) for page in pages)


def tab_spans(shown: Sequence[Tab], view: View) -> list[Span]:
    """Return the bar: the present page in brackets."""
    spans: list[Span] = []
    for tab in shown:
        role = Role.TITLE if tab.page is view.page else Role.SUSPECT if tab.trouble else Role.MUTED
        spans += [Span(tab.text, role), Span(" ")]
    return spans


def tab_at(shown: Sequence[Tab], cell: int) -> Page | None:
    """Return the page whose tab has that cell of the bar."""
    for tab in shown:
        if cell <= len(tab.text):
            return tab.page if cell >= 0 else None
        cell -= len(tab.text) + 1
    return None


def _width(view: View, named: set[Page]) -> int:
    return sum(len(_text(view, page, named)) + 1 for page in Page)


def _text(view: View, page: Page, named: set[Page]) -> str:
    number = list(Page).index(page) + 1
    text = f"{number} {page.title()}{_count(view, page)}" if page in named else str(number)
    text += "!" if page is Page.ENGINES and _unwell(view) else ""
    return f"[{text}]" if page is view.page else text


def _count(view: View, page: Page) -> str:
    """Return the number of engines, or of clients; empty if there is one engine, or no gateway."""
    if page is Page.ENGINES:
        engines = len(view.fleet.engines) if view.fleet is not None else 1 + len(view.neighbours)
        return f" {engines}" if engines > 1 else ""
    return f" {len(view.clients)}" if page is Page.CLIENTS and view.gateway is not None else ""


def _unwell(view: View) -> bool:
    return any(one.trouble for one in view.neighbours)


LONGEST_ENGINE: Final = 26
ANSWER_SECONDS: Final = 15.0
REFUSAL_SECONDS: Final = 30.0
"""Seconds until an answer leaves the screen."""
LEAST_ENGINE: Final = 8
"""Cells below which a part of its name is useless."""


class DoesActions(Protocol):
    """The app, for a click: it ends where its key does."""

    def do(self, action: ConsoleAction) -> None: ...


def do_action(widget: Widget, action: ConsoleAction) -> None:
    """Do what the key of the clicked action does."""
    cast(DoesActions, widget.app).do(action)


class HeaderLine(Horizontal):
    """Names and engine on the left, the time of day on the right."""

    DEFAULT_CSS = """
    HeaderLine { height: 1; }
    HeaderLine HeaderNames { width: 1fr; }
    HeaderLine HeaderClock { width: 13; }
    """

    def compose(self) -> ComposeResult:
        yield HeaderNames()
        yield HeaderClock()


class HeaderNames(Lines):
    """Pairing, environment, engine: still valid when the engine is lost."""

    ages: ClassVar[bool] = False
    shown: tuple[Tab, ...] = ()
    before: int = 0
    """Cells before the first tab."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        names = _names(view)
        self.before = sum(span.width for span in names)
        self.shown = tabs(view, width - self.before - 1)  # spread() keeps a cell free
        bar = tab_spans(self.shown, view)
        room = width - self.before - sum(span.width for span in bar)
        return (spread([*names, *bar], _engines(view, room) if room > LEAST_ENGINE else [], width),)

    def on_click(self, event: events.Click) -> None:
        page = tab_at(self.shown, event.x - self.before)
        if page is not None:
            event.stop()
            do_action(self, CONSOLE_BY_ID[page.value])


class HeaderClock(Lines):
    """The time of day, which runs without the engine: a clock that stops looks like a hung screen."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        return (line(Span(clock(view.clock), Role.TITLE), Span(" UTC", Role.MUTED)),)


def _engines(view: View, room: int) -> list[Span]:
    """Return the engine on screen and the state of the others, shortened to leave the names whole."""
    engine = fit(view.snapshot.engine, LONGEST_ENGINE).rstrip() if view.snapshot else ""
    unwell = [one for one in view.neighbours if one.trouble]
    more = f" +{len(view.neighbours)}" if view.neighbours else ""
    alone = (f" {unwell[0].name} {unwell[0].trouble}",) if len(unwell) == 1 else ()
    others = (*alone, f" {len(unwell)} unhealthy", " !") if unwell else ("",)
    names = (f"engine {engine}{more}", f"{engine}{more}") if engine else (more,)
    for name, other in ((name, other) for other in others for name in names):
        if cell_len(name + other) + 3 <= room:
            return [Span(name, Role.MUTED), Span(other, Role.SUSPECT), Span("  ", Role.MUTED)]
    return [Span(fit(names[-1], max(0, room - 5)).rstrip() + others[-1] + "  ", Role.MUTED)]


def _names(view: View) -> list[Span]:
    names = [Span(" paired ", Role.TITLE), Span(view.pairing, Role.TITLE), Span("  ")]
    environment = view.snapshot.environment if view.snapshot else ""
    if environment:
        role = Role.PRODUCTION if environment.casefold().startswith("prod") else Role.ENVIRONMENT
        names += [Span(f" {environment.upper()} ", role), Span("  ")]
    if view.read_only:
        names += [Span("read-only", Role.SUSPECT), Span("  ")]
    if view.marked and view.page is not Page.ENTITY:  # its commands ignore marks
        names += [Span(f"{len(view.marked):,} marked", Role.KEY), Span("  ")]
    if view.chosen:
        reached = 1 + sum(not one.unreachable for one in view.reach)
        names += [Span(f"for {reached} of {1 + len(view.reach)} engines", Role.SUSPECT), Span("  ")]
    return names


class KeyLine(Lines):
    """The last line. A key that is impossible now is grey and in brackets; pressing it shows why."""

    ages: ClassVar[bool] = False
    places: tuple[tuple[int, ConsoleAction], ...] = ()
    """Each action, and the cell after it."""

    def on_click(self, event: events.Click) -> None:
        action = next((one for end, one in self.places if event.x < end), None)
        if action is not None:
            event.stop()
            do_action(self, action)

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        spans: list[Span] = []
        places: list[tuple[int, ConsoleAction]] = []
        for name in in_key_line(view, width):
            action = for_key(CONSOLE_BY_ID[name].names(view.keys)[0], view)
            key, label = action.key(view.keys), fit(action.label, label_width(action))
            if action.why_not(view):
                gap = " " * (len(label) - len(action.label))
                spans += [Span(f"({key} {action.label}){gap}", Role.MUTED), Span(" ")]
            else:
                spans += [Span(f" {key}", Role.KEY), Span(f" {label} "), Span(" ")]
            places.append((sum(span.width for span in spans), action))
        self.places = tuple(places)
        return (Line(cut(spans[:-1], width)),)


INDENT: Final = 3
LOUD: Final = frozenset({Level.LOST, Level.BLIND})
"""Levels stated across the whole width."""
ROLES: Final[dict[Level, Role]] = {Level.WELL: Role.HEALTHY, Level.NOTABLE: Role.SUSPECT, Level.WRONG: Role.FAILED_OVER}


class SummaryLines(Lines):
    """State, start, cause, failing callers, healing and action, in as many lines as the page gives."""

    ages: ClassVar[bool] = False

    def on_click(self, event: events.Click) -> None:
        event.stop()
        do_action(self, CONSOLE_BY_ID["explain"])

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        found = summary(view)
        (first, _), *others = found.lines(width - INDENT, height)
        text = f" {found.glyph} {first}"
        loud = found.level in LOUD
        head = line(fit(text, width), ground=Role.STATEMENT) if loud else line(Span(text, ROLES[found.level]))
        return [head, *(line(Span(" " * INDENT + text, role)) for text, role in others)]


class AnswerLine(Lines):
    """The outcome of the operator's last command, or why it is not possible now."""

    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.waiting_for:
            return (Line(cut([Span(f" … {view.waiting_for}: ordered, no answer yet", Role.SUSPECT)], width)),)
        if view.asking:
            whose = f"{view.pairing}'" if view.pairing.endswith("s") else f"{view.pairing}'s"
            text = f" … asking {whose} engine: {view.asking} · esc cancels"
            return (Line(cut([Span(text, Role.SUSPECT)], width)),)
        answer = view.answer
        if answer is None or _is_past(answer, view.clock):
            trouble = f" retrying: {view.link_reason}" if view.link is EngineLink.UNREACHABLE else ""
            return (Line(cut([Span(trouble)], width)),)
        mark, role = ("✓", Role.HEALTHY) if answer.good else ("✗", Role.FAILED_OVER)
        if answer.pending:
            mark, role = "…", Role.SUSPECT
        head = [Span(f" {mark} ", role), Span(f"{clock(answer.at)} ", Role.MUTED)]
        if answer.shorter:
            room = width - sum(span.width for span in head)
            return (Line((*head, Span(pack(((answer.text, *answer.shorter),), room)))),)
        return (Line(cut([*head, Span(answer.text)], width)),)


def _is_past(answer: CommandAnswer, clock: float) -> bool:
    """Return whether it was read by now: it must not look like the present."""
    seconds = ANSWER_SECONDS if answer.good else REFUSAL_SECONDS
    return not answer.order and clock - answer.at > seconds


class TooSmall(Lines):
    """The size it has, the size it needs, and the summary."""

    DEFAULT_CSS = "TooSmall { height: 100%; }"
    ages: ClassVar[bool] = False

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        size = self.app.size
        need = (
            f"This terminal has {size.width} columns and {size.height} rows; the dashboard needs 60 and 20. "
            f"Make it larger, or the letters smaller. {CONSOLE_BY_ID['quit'].key(view.keys)} quits."
        )
        found = summary(view)
        role = Role.FAILED_OVER if found.level in LOUD else ROLES[found.level]
        rows = max(1, (height - 1) // 2)
        return [
            *[line(Span(text, role)) for text in wrap(f"{found.glyph} {found.text}", width, lines=rows)],
            BLANK,
            *[line(text) for text in wrap(need, width, lines=rows)],
        ]


class PairingLine(Lines):
    """The primary and its secondary on the left, the times on the right."""

    def lines(self, view: View, width: int, height: int) -> Sequence[Line]:
        if view.snapshot is None:
            return ()
        names = [
            Span(" "),
            Span(view.snapshot.primary),
            Span(" backed by ", Role.MUTED),
            *_secondary(view.snapshot.secondary, view.snapshot.readiness, view.now),
        ]
        return (spread(names, [Span(f"{view.snapshot.times} ", Role.MUTED)], width),)


def _secondary(name: str, found: Readiness | None, now: float) -> list[Span]:
    """Return its name between a glyph, which is never cut, and the latest readiness in words, if there is room.

    An engine that is not ready also has an alarm.
    """
    if found is None:  # not checked yet
        return [Span(name)]
    warnings = len(found.of(FindingVerdict.WARN))
    if not found.ready:
        glyph, words, role = "✗", f"not ready, checked {roughly(now - found.at)} ago", Role.FAILED_OVER
    elif warnings:
        glyph, words, role = "!", f"ready, {plural(warnings, 'warning')} (!)", Role.SUSPECT
    else:
        glyph, words, role = "●", "ready", Role.HEALTHY
    return [Span(f"{glyph} ", role), Span(name), Span(f"  {words}", role)]

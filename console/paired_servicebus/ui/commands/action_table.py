"""The console's actions: one table for keys, key line, palette and help.

Engine commands are rows of core.operator.actions, as for guard and command line; none is named here. An action that is
not possible now stays visible with its reason. `why_not` is only a courtesy: the engine's guard decides.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator import action_row
from paired_servicebus.core.operator.action_row import Action, Question, to_type
from paired_servicebus.core.operator.actions import ACTIONS, BY_ID
from paired_servicebus.core.operator.consequences import NOT_REACHED, REACHES, UNKNOWN, preview, sentence
from paired_servicebus.core.operator.fleet_question import has_fleet_order, why_not_over_fleet
from paired_servicebus.core.operator.fleet_sentences import engines_left_out
from paired_servicebus.core.operator.targets import (
    Scope,
    all_there,
    entities_of,
    named,
    names_of,
    not_reached,
    queue_at,
)
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import join_names, plural, rate
from paired_servicebus.core.text.untrusted_text import harmless, name
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.log_entries import LogEntry
from paired_servicebus.ui.state.message_choices import tabs_of
from paired_servicebus.ui.state.view import NO_KEYS, EngineLink, Neighbour, OwnKeys, Page, View

# Texts to copy from a page into the terminal's clipboard (OSC 52, which SSH carries), or into a new file.
#
# They are the selected row, its name and its command lines, the last answer, and the timeline as listed. No text can
# move a cursor, end a line or contain a secret. Terminals do not confirm OSC 52; tmux needs `set-clipboard on`.

MAX_CLIPBOARD_BYTES: Final = 74_994
"""Bytes that every clipboard accepts: terminals limit base64 to some 100,000."""


class CopyItem(NamedTuple):
    """A label and the text."""

    label: str
    text: str


Found = tuple[str, *tuple[str, ...]]
"""A label and the text's lines; a line break within one of them is untrusted."""


def copy_items(view: View) -> tuple[CopyItem, ...]:
    """Return the texts to copy from this page now."""
    found = [*_selected(view), *_story(view), *_last(view)]
    return tuple(
        CopyItem(harmless(label), "\n".join(harmless(masked(line)) for line in lines)) for label, *lines in found
    )


def write_new(path: Path, text: str) -> Path:
    """Write a new file and return its path.

    Raises:
        OSError: it exists, or cannot be written.
    """
    path = path.expanduser().absolute()
    with path.open("x", encoding="utf-8") as file:
        file.write(text + "\n")
    return path


def file_name(piece: CopyItem, at: float) -> str:
    """Return a file name for the item that sorts by time and needs no quoting."""
    label = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in piece.label).split()[:4])
    return f"paired-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}-{label}.txt"


# -- what is selected ------------------------------------------------------------------------------------------------


def _selected(view: View) -> Iterator[Found]:
    if view.page is Page.BACKLOG and view.on_unused and view.unused:
        yield from _unused(view)
    elif view.page is Page.BACKLOG and view.queue:
        yield from _queue(view)
    elif view.page in (Page.PAIRING, Page.ENTITY):
        yield from _entities(view)


def _entities(view: View) -> Iterator[Found]:
    marked = view.marked if view.page is Page.PAIRING else ()  # the entity page ignores marks
    paths = marked or ((view.selected,) if view.selected else ())
    found = [one for path in paths if (one := view.entity_at(path)) is not None]
    if not found:
        return
    name = found[0].path if len(found) == 1 else plural(len(found), "entity", "entities")
    yield (f"name of {name}", shlex.join(one.path for one in found) if len(found) > 1 else found[0].path)
    rows = [
        f"{one.path}: {one.state} since {_time(one.since)}; {one.route}, {rate(one.sends_per_second)}/s; {one.why}"
        for one in found
    ]
    yield (f"row of {name}", *rows)
    yield from _verbs(view, Scope.ENTITY, tuple(one.path for one in found))


def _queue(view: View) -> Iterator[Found]:
    one = queue_at(view.snapshot, view.queue) if view.snapshot else None
    if one is None:
        return
    yield (f"name of backlog/{one.index}", one.path)
    counts = "unknown" if one.depth is None else f"{one.depth:,}, and {one.dead_lettered or 0:,} dead-lettered"
    out = "" if one.in_rotation else f"; accepts no sends: {one.pulled_reason}"
    read = f" (read {_time(one.read_at)})" if one.read_at is not None else ""
    yield (f"row of backlog/{one.index}", f"{one.path}: messages {counts}{read}{out}")
    yield from _verbs(view, Scope.QUEUE, (str(one.index),))


def _unused(view: View) -> Iterator[Found]:
    queues = view.snapshot.unused.queues if view.snapshot else ()
    for one in queues:
        if one.path == view.unused:
            yield (f"name of unused queue {one.index}", one.path)
            counts = (
                "unknown" if one.messages is None else f"{one.messages:,}, {one.dead_lettered or 0:,} dead-lettered"
            )
            active = "unknown" if one.last_active is None else _time(one.last_active)
            row = f"{one.path}: messages {counts}; {one.status}; last active {active}"
            yield (f"row of unused queue {one.index}", row)
            yield from _verbs(view, Scope.UNUSED, (one.path,))


def _verbs(view: View, scope: Scope, targets: tuple[str, ...]) -> Iterator[Found]:
    """Yield the command lines for the targets; none for a name that is unsafe in a shell."""
    if view.snapshot is None or not all(target.isprintable() for target in targets):
        return
    for order in ACTIONS:
        if order.scopes[0] is scope:
            yes = to_type(view.snapshot, Command(action_id=order.id, scope=scope, targets=targets))
            words = ["paired", *order.verb.split(), *targets, *(["--yes", yes] if order.dangerous else [])]
            engine = ["--engine", view.snapshot.pairing]
            yield (f"command: {order.label}", shlex.join([*words, *engine]))


# -- what happened ---------------------------------------------------------------------------------------------------


def _story(view: View) -> Iterator[Found]:
    if view.page is not Page.TIMELINE:
        return
    shown = selection.entries(view.events, view.timeline_position.filter)
    place = selection.place_of(shown, view.timeline_position.cursor)
    if place >= 0:
        yield ("selected event", _event_line(shown[place]))
        yield (f"timeline, {plural(len(shown), 'event')} as listed", *map(_event_line, shown))


def _event_line(entry: LogEntry) -> str:
    return " ".join(filter(None, (_time(entry.at), entry.engine, entry.sentence.subject, entry.text)))


def _last(view: View) -> Iterator[Found]:
    if view.answer is not None:
        yield ("last answer", f"{_time(view.answer.at)} {view.answer.text}")


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"


WhyNot = Callable[[View], str]


def _always(_view: View) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ConsoleAction:
    """One action. With an `order` it is an engine command, without one it is local."""

    id: str
    keys: tuple[str, ...]
    """Textual's names, unless the operator chose another; the first is shown. Empty: only in the menu."""
    label: str
    help: str
    special: WhyNot = _always
    """Why this local action is not possible now."""
    key_label: str = ""
    """The label of the key, if it differs from its name."""
    order: Action | None = None
    page: Page | None = None
    """The page that it opens."""

    def names(self, own: OwnKeys) -> tuple[str, ...]:
        """Return Textual's names of its keys; the first is shown. Empty: it has no key."""
        return (own[self.id],) if self.id in own else self.keys

    def key(self, own: OwnKeys) -> str:
        """Return the label of its key; empty if it has none."""
        if self.id in own:
            return key_text(own[self.id])
        return self.key_label or (self.keys[0] if self.keys else "")

    @property
    def changes(self) -> bool:
        """Whether it changes anything in the system."""
        return self.order is not None

    @property
    def dangerous(self) -> bool:
        """Whether it is armed first, and fired from a dialog with its consequences."""
        return self.order is not None and self.order.dangerous

    @property
    def asks(self) -> bool:
        """Whether it asks yes or no first, without arming."""
        return self.order is not None and self.order.ask is not None

    def aim(self, view: View) -> Command:
        """Return its targets: the selection."""
        if self.order is None:
            return Command(action_id=self.id, scope=Scope.ALL)
        scope = self.order.scope
        if scope is Scope.ALL and Scope.QUEUE in self.order.scopes and _is_queue_meant(view):
            scope = Scope.QUEUE
        return Command(action_id=self.id, scope=scope, targets=_SELECTED[scope](view))

    def why_not(self, view: View, aim: Command | None = None) -> str:
        """Return why it is not possible now, as a clause after "not possible: "; empty if it is.

        What is possible over the fleet alone is possible. `aim`: its targets, if they are not the selection.
        """
        here = self.why_not_here(view, aim)
        return here if here and self.why_not_over_fleet(view, aim) else ""

    def why_not_here(self, view: View, aim: Command | None = None) -> str:
        """Return why the engine on screen cannot do it now."""
        if self.order is None:
            return self.special(view)
        return _no_command(view, self.order) or _no_aim(view, self.order, aim or self.aim(view))

    def why_not_over_fleet(self, view: View, aim: Command | None = None) -> str:
        """Return why it cannot be ordered over the fleet now."""
        if self.order is None:
            return "it is no order"
        aim = aim or self.aim(view)
        if text := _no_console(view) or _nothing_selected(aim):
            return text
        assert view.snapshot is not None, "without one no command is possible"
        return why_not_over_fleet(self.order, view.snapshot, aim)

    def asks_reach(self, view: View) -> bool:
        """Whether it asks first who does it: the engine on screen, or the fleet."""
        return view.fleet is not None and self.order is not None and self.order.over_fleet

    def ends_fleet_order(self, view: View) -> bool:
        """Whether it revokes an order of the fleet that stands."""
        return self.order is not None and has_fleet_order(self.order, view.snapshot, self.aim(view))

    def fits(self, view: View) -> bool:
        """Return whether its target allows it, regardless of permission."""
        if self.order is None:
            return not self.special(view)
        return view.snapshot is not None and not _no_aim(view, self.order, self.aim(view))


def _only(path: str) -> tuple[str, ...]:
    return (path,) if path else ()


_SELECTED: Final[dict[Scope, Callable[[View], tuple[str, ...]]]] = {
    Scope.ALL: lambda view: (),
    Scope.ENTITY: lambda view: (view.marked if view.page is not Page.ENTITY else ()) or _only(view.selected),
    Scope.QUEUE: lambda view: (view.queue,) if view.queue and not view.on_unused else (),
    Scope.DESTINATION: lambda view: (view.selected,) if view.selected else (),
    Scope.UNUSED: lambda view: (view.unused,) if view.unused else (),
    Scope.DEAD_LETTERS: lambda view: (),  # the list of messages names them
}


def _no_command(view: View, order: Action) -> str:
    if view.snapshot is None or not view.snapshot.read_only or view.viewer or view.link is EngineLink.UNREACHABLE:
        return _no_console(view)
    return action_row.read_only(order) or _no_console(view)


def _no_console(view: View) -> str:
    """Return why this console can order nothing now, from any engine."""
    if view.viewer:
        return "this dashboard is read-only"
    if view.link is EngineLink.UNREACHABLE:
        return "the engine is unreachable"
    if view.snapshot is None:
        return "the engine's state is unknown yet"
    if not view.legible:
        return "this terminal is too small to show the consequences"
    return f"waiting for the engine's answer to {view.waiting_for}" if view.waiting_for else ""


def _nothing_selected(aim: Command) -> str:
    return f"no {aim.scope} is selected" if aim.scope != Scope.ALL and not aim.targets else ""


def _no_aim(view: View, order: Action, aim: Command) -> str:
    if text := _nothing_selected(aim):
        return text
    assert view.snapshot is not None, "without one no command is possible"
    return action_row.fault(order, view.snapshot, aim) or action_row.why_not(order, view.snapshot, aim)


_ORDERED: Final = tuple(
    ConsoleAction(id=order.id, keys=(order.key,), label=order.label, help=order.help, order=order)
    for order in ACTIONS
    if order.key
)


def _is_queue_meant(view: View) -> bool:
    """Return whether the syphon's order is about the selected backlog queue: on its page, unless all is paused."""
    syphon = view.snapshot.syphon if view.snapshot else None
    of_queue = view.page is Page.BACKLOG and bool(view.queue) and not view.on_unused
    return of_queue and syphon is not None and syphon.status is not SyphonStatus.PAUSED


def _no_details(view: View) -> str:
    if view.page is Page.ENGINES:
        return "" if view.engine else "this engine is on screen already"
    if view.page is Page.BACKLOG:
        return "" if tabs_of(view) else "no queue is selected"
    if view.page is Page.PAIRING:
        return "" if view.entity or view.on_fold else "no entity is selected"
    if view.page is Page.HISTORY:
        return _no_incident(view)
    return f"the page {view.page} has no details"


def _no_incident(view: View) -> str:
    if view.incident_open:
        return "the incident is open; esc shows the list"
    return "" if view.past is not None and view.past.incidents else "no incident is listed"


def _no_marks(view: View) -> str:
    if view.page is Page.ENGINES:
        return "" if view.chosen else "commands go to this engine only"
    return "" if view.marks else "nothing is marked"


def _no_figures(view: View) -> str:
    return "" if view.snapshot is not None else "the engine's state is unknown yet"


def _nothing_wrong(view: View) -> str:
    return "" if selection.explain(view) is not None else "nothing is known to be wrong"


def _only_on(*pages: Page, why: str) -> WhyNot:
    """Return the guard of an action of these pages; `why`: with {} for the present page."""
    return lambda view: "" if view.page in pages else why.format(view.page)


_no_rows: Final = _only_on(*(page for page in Page if page is not Page.COST), why="the page {} has no rows to select")
_no_marking: Final = _only_on(Page.PAIRING, Page.ENGINES, why="the page {} has no rows to mark")
_no_sorting: Final = _only_on(Page.PAIRING, why="the page {} has no rows to sort")
_no_events: Final = _only_on(Page.PAIRING, Page.ENTITY, Page.TIMELINE, why="the page {} lists no events")
_only_timeline: Final = _only_on(Page.TIMELINE, why="it works on the timeline (page 4)")
_only_backlog: Final = _only_on(Page.BACKLOG, why="it works on the backlog (page 3)")


CONSOLE_ACTIONS: Final[tuple[ConsoleAction, ...]] = (
    *_ORDERED,
    ConsoleAction("select-previous", ("up", "k"), "previous", "select the row above", _no_rows, key_label="↑ k"),
    ConsoleAction("select-next", ("down", "j"), "next", "select the row below", _no_rows, key_label="↓ j"),
    ConsoleAction("details", ("enter",), "details", "entity, folded ones, messages, engine, incident", _no_details),
    ConsoleAction("filter", ("slash",), "filter", "only rows with these words", key_label="/"),
    *(
        ConsoleAction(page.value, (str(number),), page.value, f"open {page.value}", page=page)
        for number, page in enumerate(Page, start=1)
    ),
    ConsoleAction("back", ("escape",), "back", "to the first page; there: remove filter and marks", key_label="esc"),
    ConsoleAction("mark", ("space",), "mark", "mark it; commands go to marked rows", _no_marking),
    ConsoleAction("mark-all", ("a",), "mark all", "mark all listed rows, or all engines", _no_marking),
    ConsoleAction("unmark", ("u",), "unmark all", "remove all marks", _no_marks),
    ConsoleAction("sort", ("s",), "sort", "by state, name, rate or change; then as listed", _no_sorting),
    ConsoleAction("menu", ("x",), "acts", "what can be done to what is selected, and why not"),
    ConsoleAction("palette", ("colon", "ctrl+p"), "command", "find an act, page, entity by its name", key_label=":"),
    ConsoleAction(
        "copy",
        ("y",),
        "copy",
        "a name, row, command, answer; tab: to a file",
        lambda view: "" if copy_items(view) else "nothing here to copy",
    ),
    ConsoleAction("find-message", ("f",), "find", "a message in all queues and entities, by its text", _no_figures),
    ConsoleAction("list-unused", ("r",), "list anew", "list the unused queues now", _only_backlog),
    ConsoleAction("pings", ("P",), "each ping", "list each ping, or fold them onto the changes", _no_events),
    ConsoleAction("go-to-time", ("ctrl+g",), "go to time", "the events of a time", _only_timeline, key_label="^g"),
    ConsoleAction("page-up", ("pageup", "ctrl+b"), "page up", "the selection a page up", _no_rows, key_label="^b"),
    ConsoleAction(
        "page-down", ("pagedown", "ctrl+f"), "page down", "the selection a page down", _no_rows, key_label="^f"
    ),
    ConsoleAction("half-up", ("ctrl+u",), "half page up", "the selection half a page up", _no_rows, key_label="^u"),
    ConsoleAction("half-down", ("ctrl+d",), "half page down", "half a page down", _no_rows, key_label="^d"),
    ConsoleAction("first", ("g", "home"), "first", "select the first row", _no_rows),
    ConsoleAction("last", ("G", "end"), "last", "the last row; the timeline then follows the newest", _no_rows),
    ConsoleAction("next-theme", (), "theme", "use the next theme"),
    ConsoleAction("readiness", ("exclamation_mark",), "readiness", "would a failover work, and why", key_label="!"),
    ConsoleAction("explain", ("0",), "why", "the page that explains the first lines", _nothing_wrong),
    ConsoleAction("select-text", ("v",), "select text", "free the mouse until a key; or shift and drag"),
    ConsoleAction("help", ("question_mark",), "help", "show this help", key_label="?"),
    ConsoleAction(
        "quit",
        ("q",),
        "quit, engine runs",
        "leave; paired attach returns",
        lambda view: "" if view.engine_stays else "the engine stops with this dashboard",
    ),
    ConsoleAction(
        "quit-with-engine",
        ("q",),
        "quit, engine stops",
        "leave; this dashboard started the engine",
        lambda view: "the engine keeps running without this dashboard" if view.engine_stays else "",
    ),
)
CONSOLE_BY_ID: Final = {action.id: action for action in CONSOLE_ACTIONS}


def actions_of_key(key: str, view: View) -> tuple[ConsoleAction, ...]:
    """Return the actions with that key."""
    return tuple(action for action in CONSOLE_ACTIONS if key in action.names(view.keys))


def for_key(key: str, view: View) -> ConsoleAction:
    """Return the action of a key: of several the possible one, else the one that fits the state, else the first.

    One that ends an order of the fleet comes first, then one that is possible in the engine on screen.

    Raises:
        KeyError: no action has that key.
    """
    sharing = actions_of_key(key, view)
    if not sharing:
        raise KeyError(key)
    possible = [action for action in sharing if not action.why_not(view)]
    ending = (action for action in possible if action.ends_fleet_order(view))
    here = (action for action in possible if not action.why_not_here(view))
    fitting = (action for action in sharing if action.fits(view))
    return next(ending, None) or next(here, None) or next(iter(possible), None) or next(fitting, None) or sharing[0]


_OWN_KEY_LINE: Final[dict[Page, tuple[str, ...]]] = {
    Page.PAIRING: ("help", "quit", "details", "menu", "filter", "sort", "mark", "palette", "explain"),
    Page.ENTITY: ("help", "quit", "back", "menu", "palette"),
    Page.BACKLOG: ("help", "quit", "details", "back", "list-unused", "find-message", "palette"),
    Page.TIMELINE: ("help", "quit", "filter", "go-to-time", "last", "back", "palette"),
    Page.COST: ("help", "quit", "back", "palette"),
    Page.HISTORY: ("help", "quit", "details", "select-previous", "select-next", "back", "palette"),
    Page.ENGINES: ("help", "quit", "mark", "details", "back", "mark-all", "unmark", "palette"),
    Page.CLIENTS: ("help", "quit", "select-previous", "select-next", "back", "palette"),
}


def _key_line(page: Page) -> tuple[str, ...]:
    """Return the page's own actions, with the orders at the places that their rows have."""
    named = list(_OWN_KEY_LINE[page])
    for place, order in sorted((order.key_line[page], order.id) for order in ACTIONS if page in order.key_line):
        named.insert(place, order)
    return tuple(named)


KEY_LINE: Final[dict[Page, tuple[str, ...]]] = {page: _key_line(page) for page in Page}
"""The actions in each page's key line, the most important first: those without room are in the help."""


def in_key_line(view: View, width: int) -> tuple[str, ...]:
    """Return the ids of the actions that fit into a key line of that width, in the order of the table."""
    kept: set[str] = set()
    for shown in KEY_LINE[view.page]:
        wider = kept | {shown}
        if shown in CONSOLE_BY_ID and sum(_cells(CONSOLE_BY_ID[one], view) for one in wider) + len(wider) - 1 <= width:
            kept = wider
    return tuple(action.id for action in CONSOLE_ACTIONS if action.id in kept)


def _cells(action: ConsoleAction, view: View) -> int:
    return len(action.key(view.keys)) + label_width(action) + 3


@cache
def label_width(action: ConsoleAction) -> int:
    """Return the longest label of the actions that share its key, so that nothing moves when they alternate."""
    return max(
        len(other.label) for other in CONSOLE_ACTIONS if other is action or set(action.keys[:1]) & set(other.keys)
    )


def by_key(view: View) -> tuple[ConsoleAction, ...]:
    """Return the present action of each key, and those without a key, in the table's order."""
    names = ((action, action.names(view.keys)) for action in CONSOLE_ACTIONS)
    return tuple(dict.fromkeys(for_key(keys[0], view) if keys else action for action, keys in names))


# The operator's own keys, in place of those of the table:
#
#     [keys]                  # in console.toml: an action as the help names it, and a key
#     filter = "ctrl+t"
#     "force failover" = "X"
#
# Only a capital letter can be the key of an action that changes anything: small letters only look. An unknown action,
# an invalid or reserved key, and a key for two actions are ignored and reported. Actions that share a key, of which one
# is possible at a time, change their key together.

KEY_SIGNS: Final = {
    "/": "slash", "?": "question_mark", ":": "colon", ".": "full_stop", ",": "comma", ";": "semicolon",
    "-": "minus", "+": "plus", "*": "asterisk", "=": "equals_sign", "!": "exclamation_mark", "_": "underscore",
    "<": "less_than_sign", ">": "greater_than_sign", "#": "number_sign", "@": "at", "&": "ampersand",
    "'": "apostrophe", '"': "quotation_mark", "(": "left_parenthesis", ")": "right_parenthesis",
    "[": "left_square_bracket", "]": "right_square_bracket", "~": "tilde", "|": "vertical_line",
}  # fmt: skip
"""Textual's names of signs."""
NAMED: Final = {
    "space": "space", "up": "↑", "down": "↓", "left": "←", "right": "→", "home": "home", "end": "end",
    "pageup": "PgUp", "pagedown": "PgDn", "insert": "ins", "delete": "del", "backspace": "bksp",
}  # fmt: skip
"""Keys with a name, and their label."""
_OTHERS: Final = re.compile(r"[A-Za-z0-9]|f([1-9]|1[0-2])|ctrl\+[a-z]")
_CAPITAL: Final = re.compile("[A-Z]")
RESERVED: Final = frozenset(["escape", "enter", "tab", "shift+tab", *(f"ctrl+{letter}" for letter in "chijlmqsz")])
"""Keys of dialogs and terminals, keys that terminals cannot distinguish, and ctrl+c."""


def read_key(text: object) -> str:
    """Return Textual's name of the key; empty if it is invalid."""
    if not isinstance(text, str):
        return ""
    if text in KEY_SIGNS:
        return KEY_SIGNS[text]
    known = text in NAMED or text in KEY_SIGNS.values() or text in RESERVED or _OTHERS.fullmatch(text)
    return text if known else ""


def key_text(key: str) -> str:
    """Return the key's label on screen."""
    sign = next((sign for sign, named in KEY_SIGNS.items() if named == key), "")
    return sign or NAMED.get(key) or key.replace("ctrl+", "^")


def own_keys(values: object, actions: Sequence[ConsoleAction]) -> tuple[OwnKeys, tuple[str, ...]]:
    """Return the keys of a [keys] section, and a clause for each entry that is ignored."""
    if not isinstance(values, dict):
        return {}, ("must be a section of actions and their keys",)
    wrong: list[str] = []
    wanted: dict[str, str] = {}
    for action, text in values.items():
        together = _sharing_key(action, actions)
        trouble = _trouble(action, text, actions)
        if not trouble and any(wanted.get(one, read_key(text)) != read_key(text) for one in together):
            trouble = f"{action} shares its key with another action, which has a key of its own here"
        if trouble:
            wrong.append(trouble)
        else:
            wanted |= dict.fromkeys(together, read_key(text))
    return _drop_duplicates(wanted, actions, wrong), tuple(wrong)


def _trouble(name: str, text: object, actions: Sequence[ConsoleAction]) -> str:
    """Return the error of one entry; empty if it is valid."""
    if not _sharing_key(name, actions):
        known = [one for action in actions for one in (action.id, action.label)]
        close = difflib.get_close_matches(name, known, n=1)
        return f"unknown action {name}" + (f"; did you mean {close[0]}?" if close else "")
    if not read_key(text):
        return f"{name}: {text!r} is not a key such as F, ctrl+g, f5 or space"
    changes = any(action.changes for action in actions if name in (action.id, action.label))
    if changes and not _CAPITAL.fullmatch(read_key(text)):
        return f"{name} changes the system, so that only a capital letter can be its key, not {text}"
    return f"{name}: {text} is reserved" if read_key(text) in RESERVED else ""


def _sharing_key(name: str, actions: Sequence[ConsoleAction]) -> tuple[str, ...]:
    """Return the actions that share the key of that one, itself included."""
    found = next((action for action in actions if name in (action.id, action.label)), None)
    if found is None:
        return ()
    return tuple(one.id for one in actions if one is found or (found.keys and one.keys[:1] == found.keys[:1]))


def _drop_duplicates(wanted: dict[str, str], actions: Sequence[ConsoleAction], wrong: list[str]) -> dict[str, str]:
    """Drop the keys of two actions, until none is left: the table itself has no duplicates."""
    while True:
        holders: dict[str, set[str]] = {}
        for action in actions:
            for key in action.names(wanted):
                holders.setdefault(key, set()).add(action.keys[0] if action.keys else action.id)
        doubled = {key for key, groups in holders.items() if len(groups) > 1}
        taken = [action for action, key in wanted.items() if key in doubled]
        if not taken:
            return wanted
        wrong.extend(f"{key_text(key)} would be the key of {_named(key, wanted, actions)}" for key in sorted(doubled))
        wanted = {action: key for action, key in wanted.items() if action not in taken}


def _named(key: str, own: OwnKeys, actions: Sequence[ConsoleAction]) -> str:
    return " and ".join(action.label for action in actions if key in action.names(own))


# The questions before an order: the facts before a dangerous one is fired, and yes or no before one stops something.
#
# Their sentences are those of the table of actions; here they get the keys in force and the engines reached. They are
# recomputed from each snapshot while a dialog is open. The command line's previews use the same.


def facts(
    action_id: str,
    snapshot: Snapshot | None,
    aim: Command,
    keys: OwnKeys = NO_KEYS,
    others: Sequence[Neighbour] = (),
    left_out: Sequence[Neighbour] = (),
) -> tuple[tuple[str, str], ...]:
    """Return the consequences of `action_id` for its targets now, and how to undo it with the keys in force.

    Each has a label and a sentence.

    Args:
        others: engines that also receive it.
        left_out: known engines that do not receive it.

    Raises:
        KeyError: there is no such action.
    """
    action = BY_ID[action_id]
    undo = f"key {_undo_key(action, keys)}, {BY_ID[action.undo].label}" if action.undo else ""
    found = [*preview(action, snapshot, aim, undo=undo)]
    if snapshot is None or not all_there(snapshot, aim):
        return tuple(found)
    place = next((number for number, (label, _) in enumerate(found) if label == REACHES), None)
    if place is not None:
        found.insert(place + 1, found.pop())  # how to undo it is seen without scrolling
        if others:
            found[place] = (REACHES, _reaches_all(snapshot, others, aim))
        if missed := _left_out(snapshot, aim, others, left_out):
            found.insert(place + 1, (NOT_REACHED, missed))
    if len(aim.targets) > 1:
        found.insert(0, (aim.scope.capitalize(), ", ".join(named(aim.scope, one) for one in aim.targets)))
    return tuple(found)


def expectation(action_id: str, snapshot: Snapshot | None, aim: Command) -> str:
    """Return what the newest readings say against an order: a refusal, or that it does not help. Empty: nothing."""
    if snapshot is None or not all_there(snapshot, aim):
        return ""
    return sentence(BY_ID[action_id].expect, snapshot, aim)


def question(action: ConsoleAction, aim: Command, snapshot: Snapshot, keys: OwnKeys) -> Question:
    """Return the question of an action that asks first."""
    assert action.order is not None, "local actions ask nothing"
    assert action.order.ask is not None, "this action asks nothing"
    return action.order.ask(snapshot, aim, _undo_key(action.order, keys))


def _undo_key(action: Action, keys: OwnKeys) -> str:
    return CONSOLE_BY_ID[action.undo].key(keys) if action.undo else ""


def title(action_id: str, label: str, snapshot: Snapshot | None, aim: Command, pairing: str) -> str:
    """Return the dialog's first line: the command, its targets, and the senders that it does not reach."""
    names = f": {join_names(named(aim.scope, one) for one in aim.targets)}" if len(aim.targets) > 1 else ""
    asked = f"{only_here(BY_ID[action_id], snapshot)}{label}: {names_of(aim) or pairing}{names}"
    not_done = BY_ID[action_id].not_done
    missed = not_reached(not_done, entities_of(snapshot, aim)) if snapshot is not None else ""
    return f"{asked} — {missed}" if missed else asked


def only_here(action: Action | None, snapshot: Snapshot | None) -> str:
    """Return the reach of an order to the engine on screen, where the fleet could have it too: "Only web-1: "."""
    if action is None or snapshot is None or snapshot.fleet is None or not action.over_fleet:
        return ""
    return f"Only {name(snapshot.fleet.me)}: "


def _reaches_all(snapshot: Snapshot, others: Sequence[Neighbour], aim: Command) -> str:
    """Return the engines, and the affected sends at each and in total."""
    engines = [(snapshot.pairing, snapshot), *((one.name, one.snapshot) for one in others)]
    reached = [(name, found) for name, found in engines if found is not None]
    if aim.scope != Scope.ENTITY:
        return f"{_of(len(reached), len(engines))}: {', '.join(name for name, _ in reached)}"
    rates = [(name, sum(one.sends_per_second for one in entities_of(found, aim))) for name, found in reached]
    each = ", ".join(f"{name} {rate(per_second)}/s" for name, per_second in rates)
    total = f"{_of(len(reached), len(engines))}, {rate(sum(one for _, one in rates))} messages/s total"
    return f"{total}: {each}; senders elsewhere are not affected; their state is {UNKNOWN}"


def _left_out(snapshot: Snapshot, aim: Command, others: Sequence[Neighbour], left_out: Sequence[Neighbour]) -> str:
    """Return the known engines that send to the same entities and go on as they are; empty: none is known."""
    if aim.scope != Scope.ENTITY:
        return ""
    if snapshot.fleet is not None:
        return engines_left_out(snapshot, aim, len(others))
    beside = [one for one in left_out if one.snapshot is not None and one.snapshot.primary == snapshot.primary]
    found = [(one.name, entities_of(one.snapshot, aim)) for one in beside if one.snapshot is not None]
    sends = [f"{name} ({rate(sum(it.sends_per_second for it in has))}/s)" for name, has in found if has]
    return f"other engines here with the same: {', '.join(sends)}" if sends else ""


def _of(number: int, of: int) -> str:
    return f"{number} engines" if number == of else f"{number} of {of} engines"

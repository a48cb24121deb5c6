"""The console's actions: one table for keys, key line, palette and help.

Engine commands are rows of core.operator.action_table, which the guard and the command line read too. An action that is
not possible now stays visible with its reason. `why_not` is only a courtesy: the engine's guard decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator import action_table as orders
from paired_servicebus.core.operator.action_table import Scope
from paired_servicebus.ui.commands.clipboard import copy_items
from paired_servicebus.ui.state.view import ROWLESS, EngineLink, Page, View

WhyNot = Callable[[View], str]


class ActionTarget(NamedTuple):
    """The targets of a command. Without targets, nothing is selected."""

    scope: Scope = Scope.ALL
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the name for questions and answers."""
        if len(self.targets) > 1:
            return f"{len(self.targets)} targets"
        return orders.named(self.scope, self.targets[0]) if self.targets else ""


def _always(_view: View) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAction:
    """One action. With an `order` it is an engine command, without one it is local."""

    id: str
    keys: tuple[str, ...]
    """Textual's names, unless the operator chose another (keymap.py); the first is shown."""
    key_label: str = ""
    """The label of the key, if it differs from its name."""
    label: str
    help: str
    order: orders.Action | None = None
    special: WhyNot = _always
    """Why this local action is not possible now."""
    page: Page | None = None
    """The page that it opens."""

    @property
    def dangerous(self) -> bool:
        """Whether it is armed first, and fired from a dialog with its consequences."""
        return self.order is not None and self.order.dangerous

    def aim(self, view: View) -> ActionTarget:
        """Return its targets: the selection."""
        if self.order is None:
            return ActionTarget()
        if self.id in _SYPHON:
            return _syphon_aim(view)
        return ActionTarget(self.order.scope, _SELECTED[self.order.scope](view))

    def why_not(self, view: View, aim: ActionTarget | None = None) -> str:
        """Return why it is not possible now, as a clause after "not possible: "; empty if it is. `aim`: its targets, if
        they are not the selection.
        """
        if self.order is None:
            return self.special(view)
        return _no_command(view, self.order) or _no_aim(view, self.order, aim or self.aim(view))

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
    Scope.QUEUE: lambda view: (view.queue,) if view.queue else (),
    Scope.DESTINATION: lambda view: (view.selected,) if view.selected else (),
    Scope.UNUSED: lambda view: (view.unused,) if view.unused else (),
}


def _no_command(view: View, order: orders.Action) -> str:
    if view.viewer:
        return "this dashboard is read-only"
    if view.link is EngineLink.UNREACHABLE:
        return "the engine is unreachable"
    if view.snapshot is None:
        return "the engine's state is unknown yet"
    if view.snapshot.read_only and (text := orders.read_only(order)):
        return text
    if not view.legible:
        return "this terminal is too small to show the consequences"
    return f"waiting for the engine's answer to {view.waiting_for}" if view.waiting_for else ""


def _no_aim(view: View, order: orders.Action, aim: ActionTarget) -> str:
    if aim.scope is not Scope.ALL and not aim.targets:
        return f"no {aim.scope} is selected"
    assert view.snapshot is not None, "without one no command is possible"
    return orders.fault(order, view.snapshot, *aim) or orders.why_not(order, view.snapshot, *aim)


_ORDERED: Final = tuple(
    ConsoleAction(id=order.id, keys=(order.key,), label=order.label, help=order.help, order=order)
    for order in orders.ACTIONS
    if order.key
)


_SYPHON: Final = frozenset({"pause-syphon", "resume-syphon"})


def _syphon_aim(view: View) -> ActionTarget:
    """Return the selected backlog queue on its page, unless the whole syphon is paused: then the whole syphon."""
    syphon = view.snapshot.syphon if view.snapshot else None
    of_queue = view.page is Page.BACKLOG and view.queue and not view.on_unused
    if not of_queue or syphon is None or syphon.status is SyphonStatus.PAUSED:
        return ActionTarget()
    return ActionTarget(Scope.QUEUE, (view.queue,))


def _no_details(view: View) -> str:
    if view.page is Page.ENGINES:
        return "" if view.engine else "this engine is on screen already"
    if view.page is Page.PAIRING:
        return "" if view.entity else "no entity is selected"
    return f"the page {view.page} has no details"


def _no_marks(view: View) -> str:
    if view.page is Page.ENGINES:
        return "" if view.chosen else "commands are for the engine on screen only"
    return "" if view.marks else "nothing is marked"


def _no_entity_rows(view: View) -> str:
    return "" if view.page is Page.PAIRING else f"the page {view.page} has no rows to sort"


def _no_rows_to_mark(view: View) -> str:
    marks = view.page in (Page.PAIRING, Page.ENGINES)
    return "" if marks else f"the page {view.page} has no rows to mark"


def _no_rows(view: View) -> str:
    return f"the page {view.page} has no rows to select" if view.page in ROWLESS else ""


def _only_timeline(view: View) -> str:
    return "" if view.page is Page.TIMELINE else "only the timeline has it"


def _nothing_to_find(view: View) -> str:
    return _only_timeline(view) or ("" if view.timeline_position.find else "no words to find yet")


CONSOLE_ACTIONS: Final[tuple[ConsoleAction, ...]] = (
    *_ORDERED,
    ConsoleAction(
        id="select-previous",
        keys=("up", "k"),
        key_label="↑ k",
        label="previous",
        help="select the row above",
        special=_no_rows,
    ),
    ConsoleAction(
        id="select-next",
        keys=("down", "j"),
        key_label="↓ j",
        label="next",
        help="select the row below",
        special=_no_rows,
    ),
    ConsoleAction(
        id="details",
        keys=("enter",),
        label="details",
        help="the selected entity, or engine, in full",
        special=_no_details,
    ),
    ConsoleAction(id="filter", keys=("slash",), key_label="/", label="filter", help="list only rows with these words"),
    *(
        ConsoleAction(id=page.value, keys=(str(number),), label=page.value, help=f"open {page.value}", page=page)
        for number, page in enumerate(Page, start=1)
    ),
    ConsoleAction(
        id="back",
        keys=("escape",),
        key_label="esc",
        label="back",
        help="to the first page; there: remove filter and marks",
    ),
    ConsoleAction(
        id="mark", keys=("space",), label="mark", help="mark it; commands are for marked rows", special=_no_rows_to_mark
    ),
    ConsoleAction(
        id="mark-all",
        keys=("a",),
        label="mark all",
        help="mark all listed rows, or all engines",
        special=_no_rows_to_mark,
    ),
    ConsoleAction(id="unmark", keys=("u",), label="unmark all", help="remove all marks", special=_no_marks),
    ConsoleAction(
        id="sort",
        keys=("s",),
        label="sort",
        help="by state, name, rate or change; then as listed",
        special=_no_entity_rows,
    ),
    ConsoleAction(
        id="palette", keys=("colon", "ctrl+p"), key_label=":", label="palette", help="find an action by its name"
    ),
    ConsoleAction(
        id="copy",
        keys=("y",),
        label="copy",
        help="a name, row, command, answer; or to a file",
        special=lambda view: "" if copy_items(view) else "nothing here to copy",
    ),
    ConsoleAction(
        id="find",
        keys=("ctrl+f",),
        key_label="^f",
        label="find",
        help="the next older event with these words",
        special=_only_timeline,
    ),
    ConsoleAction(
        id="find-older", keys=("n",), label="find older", help="the same words again", special=_nothing_to_find
    ),
    ConsoleAction(
        id="find-newer", keys=("N",), label="find newer", help="the same words, the other way", special=_nothing_to_find
    ),
    ConsoleAction(
        id="go-to-time", keys=("g",), label="go to time", help="the events of a time", special=_only_timeline
    ),
    ConsoleAction(
        id="page-up",
        keys=("pageup",),
        key_label="PgUp",
        label="page up",
        help="the selection a page up",
        special=_no_rows,
    ),
    ConsoleAction(
        id="page-down",
        keys=("pagedown",),
        key_label="PgDn",
        label="page down",
        help="the selection a page down",
        special=_no_rows,
    ),
    ConsoleAction(id="first", keys=("home",), label="first", help="select the first row", special=_no_rows),
    ConsoleAction(
        id="last",
        keys=("end", "G"),
        label="last",
        help="the last row; the timeline then follows the newest",
        special=_no_rows,
    ),
    ConsoleAction(id="next-theme", keys=("t",), label="theme", help="use the next theme"),
    ConsoleAction(id="help", keys=("question_mark",), key_label="?", label="help", help="show this help"),
    ConsoleAction(
        id="quit",
        keys=("q",),
        label="quit, engine runs",
        help="leave; the engine keeps running; paired attach returns",
        special=lambda view: "" if view.engine_stays else "the engine stops with this dashboard",
    ),
    ConsoleAction(
        id="quit-with-engine",
        keys=("q",),
        label="quit, engine stops",
        help="leave; this dashboard started the engine",
        special=lambda view: "the engine keeps running without this dashboard" if view.engine_stays else "",
    ),
)
CONSOLE_BY_ID: Final = {action.id: action for action in CONSOLE_ACTIONS}


def actions_of_key(key: str, view: View) -> tuple[ConsoleAction, ...]:
    """Return the actions with that key."""
    return tuple(action for action in CONSOLE_ACTIONS if key in view.keys.names(action))


def for_key(key: str, view: View) -> ConsoleAction:
    """Return the action of a key: of several the possible one, else the one that fits the state, else the first.

    Raises:
        KeyError: no action has that key.
    """
    sharing = actions_of_key(key, view)
    if not sharing:
        raise KeyError(key)
    possible = (action for action in sharing if not action.why_not(view))
    fitting = (action for action in sharing if action.fits(view))
    return next(possible, None) or next(fitting, None) or sharing[0]


KEY_LINE: Final[dict[Page, tuple[str, ...]]] = {
    Page.PAIRING: ("help", "quit", "force", "release", "pause-syphon", "details", "filter", "sort", "mark", "palette"),
    Page.ENTITY: ("help", "quit", "force", "release", "back", "pin", "palette"),
    Page.BACKLOG: ("help", "quit", "redrive", "clean-up", "back", "move-stranded", "pause-syphon", "palette"),
    Page.TIMELINE: ("help", "quit", "filter", "find", "go-to-time", "last", "back", "palette"),
    Page.COST: ("help", "quit", "back", "palette"),
    Page.HISTORY: ("help", "quit", "select-previous", "select-next", "back", "palette"),
    Page.ENGINES: ("help", "quit", "mark", "details", "back", "mark-all", "unmark", "pause-syphon", "palette"),
}
"""The actions in each page's key line, the most important first: those without room are in the help."""


def in_key_line(view: View, width: int) -> tuple[str, ...]:
    """Return the ids of the actions that fit into a key line of that width, in the order of the table."""
    kept: set[str] = set()
    for name in KEY_LINE[view.page]:
        wider = kept | {name}
        if name in CONSOLE_BY_ID and sum(_cells(CONSOLE_BY_ID[one], view) for one in wider) + len(wider) - 1 <= width:
            kept = wider
    return tuple(action.id for action in CONSOLE_ACTIONS if action.id in kept)


def _cells(action: ConsoleAction, view: View) -> int:
    return len(view.keys.label(action)) + label_width(action) + 3


def label_width(action: ConsoleAction) -> int:
    """Return the longest label of the actions that share its key, so that nothing moves when they alternate."""
    return max(len(other.label) for other in CONSOLE_ACTIONS if action.keys[0] in other.keys)


def by_key(view: View) -> tuple[ConsoleAction, ...]:
    """Return the present action of each key, in the table's order."""
    return tuple(dict.fromkeys(for_key(view.keys.names(action)[0], view) for action in CONSOLE_ACTIONS))

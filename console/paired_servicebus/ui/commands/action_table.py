"""Everything a person can do on the screen: one table that feeds keys, key line, palette and help.

What is ordered from the engine is a row of paired_servicebus.core.operator.action_table, which guard and command line read too; the rest is
the screen's own affair. Rules: an action that is not possible now stays visible and says why; `why_not` is asked when
the key is pressed and again when an armed action is fired. This is courtesy: the engine's guard decides what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.operator import actions as orders
from paired_servicebus.core.operator.actions import Scope
from paired_servicebus.ui.commands.clipboard import copy_items
from paired_servicebus.ui.state.view import ROWLESS, EngineLink, Page, View

WhyNot = Callable[[View], str]


class ActionTarget(NamedTuple):
    """What an order is for. An empty aim at something that needs a target means that none is selected."""

    scope: Scope = Scope.ALL
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As the question and the answer name it."""
        if len(self.targets) > 1:
            return f"{len(self.targets)} targets"
        return orders.named(self.scope, self.targets[0]) if self.targets else ""


def _always(_view: View) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do. With an `order` it is ordered from the engine, without it is the screen's own affair."""

    id: str
    keys: tuple[str, ...]
    """Textual's names, unless a person chose another (keys.py); the first is the one shown."""
    key_label: str = ""
    """How the key is written, where its name is not what stands on it."""
    label: str
    help: str
    order: orders.Action | None = None
    special: WhyNot = _always
    """Why this action of the screen's own is not possible now."""
    page: Page | None = None
    """The page that it turns to."""

    @property
    def dangerous(self) -> bool:
        """Whether it is armed first: what it would do is shown, and fired from there."""
        return self.order is not None and self.order.dangerous

    def aim(self, view: View) -> ActionTarget:
        """What it would be done to: what is selected."""
        if self.order is None:
            return ActionTarget()
        if self.id in _SYPHON:
            return _syphon_aim(view)
        return ActionTarget(self.order.scope, _SELECTED[self.order.scope](view))

    def why_not(self, view: View, aim: ActionTarget | None = None) -> str:
        """Why it is not possible now, as a clause after "not possible: "; empty if it is. `aim`: what for, where that
        is not what is selected."""
        if self.order is None:
            return self.special(view)
        return _no_command(view, self.order) or _no_aim(view, self.order, aim or self.aim(view))

    def fits(self, view: View) -> bool:
        """Whether what it would be done to allows it, whoever may order it."""
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
        return "nothing is known of the engine yet"
    if view.snapshot.read_only and (text := orders.read_only(order)):
        return text
    if not view.legible:
        return "this terminal is too small to show what it would do"
    return f"waiting for the engine's answer to {view.waiting_for}" if view.waiting_for else ""


def _no_aim(view: View, order: orders.Action, aim: ActionTarget) -> str:
    if aim.scope is not Scope.ALL and not aim.targets:
        return f"no {aim.scope} is selected"
    assert view.snapshot is not None, "without one no command is possible"
    return orders.fault(order, view.snapshot, *aim) or orders.why_not(order, view.snapshot, *aim)


_ORDERED: Final = tuple(
    Action(
        id=order.id,
        keys=(order.key,),
        label=order.label,
        help=order.help,
        order=order,
    )
    for order in orders.ACTIONS
    if order.key
)


_SYPHON: Final = frozenset({"pause-syphon", "resume-syphon"})


def _syphon_aim(view: View) -> ActionTarget:
    """The selected backlog queue on the page of queues, unless all of the syphon is paused: then all of it."""
    syphon = view.snapshot.syphon if view.snapshot else None
    of_queue = view.page is Page.BACKLOG and view.queue and not view.on_unused
    if not of_queue or syphon is None or syphon.status is SyphonStatus.PAUSED:
        return ActionTarget()
    return ActionTarget(Scope.QUEUE, (view.queue,))


def _no_details(view: View) -> str:
    if view.page is Page.ENGINES:
        return "" if view.engine else "it is the engine that is shown"
    if view.page is Page.PAIRING:
        return "" if view.entity else "no entity is selected"
    return f"the page {view.page} shows all there is"


def _no_marks(view: View) -> str:
    if view.page is Page.ENGINES:
        return "" if view.chosen else "commands are for the engine that is shown alone"
    return "" if view.marks else "nothing is marked"


def _no_entity_rows(view: View) -> str:
    return "" if view.page is Page.PAIRING else f"the page {view.page} has no rows to sort"


def _no_rows_to_mark(view: View) -> str:
    marks = view.page in (Page.PAIRING, Page.ENGINES)
    return "" if marks else f"the page {view.page} has no rows to mark"


def _no_rows(view: View) -> str:
    return f"the page {view.page} has no rows to select" if view.page in ROWLESS else ""


def _only_timeline(view: View) -> str:
    return "" if view.page is Page.TIMELINE else "it is for the timeline"


def _nothing_to_find(view: View) -> str:
    return _only_timeline(view) or ("" if view.story.find else "nothing was looked for yet")


ACTIONS: Final[tuple[Action, ...]] = (
    *_ORDERED,
    Action(
        id="select-previous",
        keys=("up", "k"),
        key_label="↑ k",
        label="previous",
        help="select the row above",
        special=_no_rows,
    ),
    Action(
        id="select-next",
        keys=("down", "j"),
        key_label="↓ j",
        label="next",
        help="select the row below",
        special=_no_rows,
    ),
    Action(
        id="details",
        keys=("enter",),
        label="details",
        help="the selected entity, or engine, in full",
        special=_no_details,
    ),
    Action(id="filter", keys=("slash",), key_label="/", label="filter", help="list only what has these words"),
    *(
        Action(id=page.value, keys=(str(number),), label=page.value, help=f"turn to the page {page.value}", page=page)
        for number, page in enumerate(Page, start=1)
    ),
    Action(id="back", keys=("escape",), key_label="esc", label="back", help="to the first page; there: show all again"),
    Action(
        id="mark",
        keys=("space",),
        label="mark",
        help="mark it; commands are for the marked ones",
        special=_no_rows_to_mark,
    ),
    Action(
        id="mark-all",
        keys=("a",),
        label="mark all",
        help="all that are listed, by the filter; or all engines",
        special=_no_rows_to_mark,
    ),
    Action(id="unmark", keys=("u",), label="unmark all", help="nothing is marked any more", special=_no_marks),
    Action(
        id="sort",
        keys=("s",),
        label="sort",
        help="by state, name, rate or change; then as listed",
        special=_no_entity_rows,
    ),
    Action(id="palette", keys=("colon", "ctrl+p"), key_label=":", label="palette", help="find an action by its name"),
    Action(
        id="copy",
        keys=("y",),
        label="copy",
        help="a name, row, command, answer; or to a file",
        special=lambda view: "" if copy_items(view) else "there is nothing here to copy",
    ),
    Action(
        id="find",
        keys=("ctrl+f",),
        key_label="^f",
        label="find",
        help="the next older event with these words",
        special=_only_timeline,
    ),
    Action(id="find-older", keys=("n",), label="find older", help="the same words again", special=_nothing_to_find),
    Action(
        id="find-newer", keys=("N",), label="find newer", help="the same words, the other way", special=_nothing_to_find
    ),
    Action(id="go-to-time", keys=("g",), label="go to time", help="the events of a time", special=_only_timeline),
    Action(
        id="page-up",
        keys=("pageup",),
        key_label="PgUp",
        label="page up",
        help="the selection a page up",
        special=_no_rows,
    ),
    Action(
        id="page-down",
        keys=("pagedown",),
        key_label="PgDn",
        label="page down",
        help="the selection a page down",
        special=_no_rows,
    ),
    Action(id="first", keys=("home",), label="first", help="select the first row", special=_no_rows),
    Action(
        id="last",
        keys=("end", "G"),
        label="last",
        help="the last row; the timeline then follows the newest",
        special=_no_rows,
    ),
    Action(
        id="next-theme",
        keys=("t",),
        label="theme",
        help="use the next theme",
    ),
    Action(id="help", keys=("question_mark",), key_label="?", label="help", help="show this help"),
    Action(
        id="quit",
        keys=("q",),
        label="quit, engine stays",
        help="leave; paired attach comes back",
        special=lambda view: "" if view.engine_stays else "the engine ends with this dashboard",
    ),
    Action(
        id="quit-with-engine",
        keys=("q",),
        label="quit, engine ends",
        help="leave; the engine was made for this dashboard",
        special=lambda view: "the engine goes on without this dashboard" if view.engine_stays else "",
    ),
)
BY_ID: Final = {action.id: action for action in ACTIONS}


def stands_for(key: str, view: View) -> tuple[Action, ...]:
    """The actions that have that key."""
    return tuple(action for action in ACTIONS if key in view.keys.names(action))


def for_key(key: str, view: View) -> Action:
    """The action of a key: where several share one, the one that is possible now, else the one that fits how things
    stand, else the first.

    Raises:
        KeyError: no action has that key.
    """
    sharing = stands_for(key, view)
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
"""What the key line of each page names, the most important first: what has no room is left out, and is in the help."""


def in_key_line(view: View, width: int) -> tuple[str, ...]:
    """Ids of the actions that a key line of that width has room for, in the order of the table."""
    kept: set[str] = set()
    for name in KEY_LINE[view.page]:
        wider = kept | {name}
        if name in BY_ID and sum(_cells(BY_ID[one], view) for one in wider) + len(wider) - 1 <= width:
            kept = wider
    return tuple(action.id for action in ACTIONS if action.id in kept)


def _cells(action: Action, view: View) -> int:
    return len(view.keys.label(action)) + label_width(action) + 3


def label_width(action: Action) -> int:
    """The longest label of the actions that share its key, so that nothing moves when one takes the other's place."""
    return max(len(other.label) for other in ACTIONS if action.keys[0] in other.keys)


def by_key(view: View) -> tuple[Action, ...]:
    """One action a key, in the table's order: what each key stands for now."""
    return tuple(dict.fromkeys(for_key(view.keys.names(action)[0], view) for action in ACTIONS))

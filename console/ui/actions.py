"""Everything a person can do on the screen: one table that feeds keys, key line, palette and help.

What is ordered from the engine is a row of console.core.actions, which guard and command line read too; the rest is
the screen's own affair. Rules: an action that is not possible now stays visible and says why; `why_not` is asked when
the key is pressed and again when an armed action is fired. This is courtesy: the engine's guard decides what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from console.core import actions as orders
from console.core.actions import Scope
from console.ui.view import Link, View

WhyNot = Callable[[View], str]


class Aim(NamedTuple):
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
    """Textual's names; the first is the one shown."""
    key_label: str = ""
    """How the key is written, where its name is not what stands on it."""
    label: str
    help: str
    order: orders.Action | None = None
    special: WhyNot = _always
    """Why this action of the screen's own is not possible now."""
    in_key_line: bool = True

    @property
    def key(self) -> str:
        """The key as a person reads it."""
        return self.key_label or self.keys[0]

    @property
    def dangerous(self) -> bool:
        """Whether it is armed first: what it would do is shown, and fired from there."""
        return self.order is not None and self.order.dangerous

    def aim(self, view: View) -> Aim:
        """What it would be done to: what is selected."""
        if self.order is None:
            return Aim()
        return Aim(self.order.scope, _SELECTED[self.order.scope](view))

    def why_not(self, view: View, aim: Aim | None = None) -> str:
        """Why it is not possible now, as a clause after "not possible: "; empty if it is. `aim`: what for, where that
        is not what is selected."""
        if self.order is None:
            return self.special(view)
        return _no_command(view, self.order) or _no_aim(view, self.order, aim or self.aim(view))


_SELECTED: Final[dict[Scope, Callable[[View], tuple[str, ...]]]] = {
    Scope.ALL: lambda view: (),
    Scope.ENTITY: lambda view: (view.selected,) if view.selected else (),
    Scope.QUEUE: lambda view: (view.queue,) if view.queue else (),
    Scope.DESTINATION: lambda view: (view.selected,) if view.selected else (),
    Scope.UNUSED: lambda view: (view.unused,) if view.unused else (),
}


def _no_command(view: View, order: orders.Action) -> str:
    if view.viewer:
        return "this dashboard is read-only"
    if view.link is Link.UNREACHABLE:
        return "the engine is unreachable"
    if view.snapshot is None:
        return "nothing is known of the engine yet"
    if view.snapshot.read_only and (text := orders.read_only(order)):
        return text
    if not view.fits:
        return "this terminal is too small to show what it would do"
    return f"waiting for the engine's answer to {view.waiting_for}" if view.waiting_for else ""


def _no_aim(view: View, order: orders.Action, aim: Aim) -> str:
    if aim.scope is not Scope.ALL and not aim.targets:
        return f"no {aim.scope} is selected"
    assert view.snapshot is not None, "without one no command is possible"
    return orders.fault(order, view.snapshot, *aim) or orders.why_not(order, view.snapshot, *aim)


_SHORT: Final = frozenset({"force", "release", "pause-syphon", "resume-syphon"})
"""Those that the key line has room for."""

_ORDERED: Final = tuple(
    Action(
        id=order.id,
        keys=(order.key,),
        label=order.label,
        help=order.help,
        order=order,
        in_key_line=order.id in _SHORT,
    )
    for order in orders.ACTIONS
    if order.key
)

ACTIONS: Final[tuple[Action, ...]] = (
    *_ORDERED,
    Action(
        id="select-previous",
        keys=("up", "k"),
        key_label="↑ k",
        label="previous",
        help="select the entity above",
        in_key_line=False,
    ),
    Action(
        id="select-next",
        keys=("down", "j"),
        key_label="↓ j",
        label="next",
        help="select the entity below",
        in_key_line=False,
    ),
    Action(
        id="next-theme",
        keys=("t",),
        label="theme",
        help="use the next theme",
        in_key_line=False,
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


def all_keys() -> tuple[str, ...]:
    """Every key that does something, once."""
    return tuple(dict.fromkeys(key for action in ACTIONS for key in action.keys))


def for_key(key: str, view: View) -> Action:
    """The action of a key: where several share one, the one that is possible now, else the first.

    Raises:
        KeyError: no action has that key.
    """
    sharing = [action for action in ACTIONS if key in action.keys]
    if not sharing:
        raise KeyError(key)
    return next((action for action in sharing if not action.why_not(view)), sharing[0])


def label_width(key: str) -> int:
    """The longest label of the actions that share a key, so that nothing moves when one takes the other's place."""
    return max(len(action.label) for action in ACTIONS if key in action.keys)


def by_key(view: View) -> tuple[Action, ...]:
    """One action a key, in the table's order: what each key stands for now."""
    return tuple(dict.fromkeys(for_key(action.keys[0], view) for action in ACTIONS))

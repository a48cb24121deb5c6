"""Everything a person can do here: one table that feeds keys, key line, help and, with verbs, the command line.

Rules: an action that is not possible now stays visible and says why; `why_not` is asked when the key is pressed and
again when an armed action is fired. This is courtesy: the engine's guard decides what is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from console.core.entity import State
from console.core.snapshot import SyphonStatus
from console.ui.view import Link, View

WhyNot = Callable[[View], str]


def _always(_view: View) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do. With a `verb` it is ordered from the engine, without it is the screen's own affair."""

    id: str
    keys: tuple[str, ...]
    """Textual's names; the first is the one shown."""
    key_label: str = ""
    """How the key is written, where its name is not what stands on it."""
    label: str
    help: str
    verb: str = ""
    dangerous: bool = False
    """Armed first: what it would do is shown, and fired from there."""
    needs_target: bool = False
    special: WhyNot = _always
    """Why this action, of all that the engine would take, is not possible now."""
    in_key_line: bool = True

    @property
    def key(self) -> str:
        """The key as a person reads it."""
        return self.key_label or self.keys[0]

    def why_not(self, view: View) -> str:
        """Why it is not possible now, as a clause after "not possible: "; empty if it is."""
        if not self.verb:
            return self.special(view)
        return _no_command(view) or (_no_target(view) if self.needs_target else "") or self.special(view)


def _no_command(view: View) -> str:
    if view.read_only:
        return "this dashboard is read-only"
    if view.link is Link.UNREACHABLE:
        return "the engine is unreachable"
    if view.snapshot is None:
        return "nothing is known of the engine yet"
    if not view.fits:
        return "this terminal is too small to show what it would do"
    return f"waiting for the engine's answer to {view.waiting_for}" if view.waiting_for else ""


def _no_target(view: View) -> str:
    if view.entity:
        return ""
    return f"this engine knows no {view.selected}" if view.selected else "no entity is selected"


def _no_force(view: View) -> str:
    forced = view.entity is not None and view.entity.state is State.FORCED
    return f"{view.selected} is forced already" if forced else ""


def _no_release(view: View) -> str:
    held = (State.FORCED, State.PINNED, State.FAILED_OVER)
    if view.entity is None or view.entity.state in held:
        return ""
    return f"{view.selected} is {view.entity.state}: nothing to release"


def _no_pause(view: View) -> str:
    status = view.snapshot.syphon.status if view.snapshot else SyphonStatus.OFF
    if status is SyphonStatus.OFF:
        return "this engine runs no syphon"
    return "the syphon is paused already" if status is SyphonStatus.PAUSED else ""


def _no_resume(view: View) -> str:
    paused = view.snapshot is not None and view.snapshot.syphon.status is SyphonStatus.PAUSED
    return "" if paused else "the syphon is not paused"


ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        id="force",
        keys=("f",),
        label="force failover",
        help="send to the backlog until released",
        verb="force",
        dangerous=True,
        needs_target=True,
        special=_no_force,
    ),
    Action(
        id="release",
        keys=("b",),
        label="release",
        help="give the entity back to the rules",
        verb="release",
        dangerous=True,
        needs_target=True,
        special=_no_release,
    ),
    Action(
        id="pause-syphon",
        keys=("p",),
        label="pause syphon",
        help="leave parked messages where they are",
        verb="pause-syphon",
        special=_no_pause,
    ),
    Action(
        id="resume-syphon",
        keys=("p",),
        label="resume syphon",
        help="move parked messages again",
        verb="resume-syphon",
        special=_no_resume,
    ),
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

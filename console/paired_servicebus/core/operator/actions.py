"""The operator's actions on an engine: one table for guard, keys, palette, help and command line.

A row has an action's names, targets and danger, and the reason why it is impossible now. A dangerous action is armed
first and fired by typing `to_type`; paired_servicebus.engine.commands.guard enforces that. Screens use `why_not` to
grey out a key with its reason. Pure: the state is a Snapshot.

Not here: the actions' handlers (paired_servicebus.engine.commands.handlers), and a screen's own actions
(paired_servicebus.ui.commands.action_table).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.snapshot import EntityView, QueueView, Snapshot, SyphonStatus
from paired_servicebus.core.text.index_ranges import format_indices

ARMED_SECONDS: Final = 30.0
"""Seconds between arming and firing."""


class Scope(StrEnum):
    """The kind of an order's targets. The values are part of the control protocol."""

    ALL = "all"
    """The engine, or its whole syphon, without a target."""
    ENTITY = "entity"
    QUEUE = "queue"
    DESTINATION = "destination"
    """A destination of parked messages, by path."""
    UNUSED = "unused queue"
    """An unused backlog queue, by path."""


WhyNot = Callable[[Snapshot, Scope, str], str]
"""Returns why an action is impossible for a target now; empty if it is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action of an operator."""

    id: str
    key: str
    label: str
    help: str
    verb: str
    """The command line of the action, after `paired`."""
    dangerous: bool = False
    """Whether it is armed first, with a preview, then fired by typing the target's name within ARMED_SECONDS."""
    scopes: tuple[Scope, ...]
    """The allowed scopes; the first is the default."""
    confirms: str = ""
    """A statement by the operator of a fact that no engine can check, besides the name; empty: none."""
    needs_syphon: bool = False
    """Whether it needs a syphon in this engine."""
    slow: bool = False
    """Whether it takes longer than an operator waits for a key; other orders are accepted meanwhile."""
    lifts_read_only: bool = False
    special: WhyNot
    """The action's own check of a target; see `why_not`."""

    @property
    def scope(self) -> Scope:
        return self.scopes[0]


# -- checks of an order ---------------------------------------------------------------------------------------------


def fault(action: Action, snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> str:
    """Return the error in an order itself: a wrong scope or an unknown target. Empty if there is none."""
    if scope not in action.scopes:
        return f"{action.label} does not apply to {scope}; it applies to {', '.join(action.scopes)}"
    if scope is Scope.ALL:
        return f"{action.label} takes no target, but {targets[0]!r} was named" if targets else ""
    if not targets:
        return f"{action.label} needs a target ({scope})"
    twice = next((one for number, one in enumerate(targets) if one in targets[:number]), "")
    if twice:
        return f"{twice!r} was named twice"
    return next((text for target in targets if (text := _unknown_target(snapshot, scope, target))), "")


def why_not(action: Action, snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> str:
    """Return why a valid order is impossible now, apart from read-only; empty if it is possible.

    One impossible target is enough, since an order is carried out entirely or not at all.
    """
    if action.needs_syphon and snapshot.syphon.status is SyphonStatus.OFF:
        return "this engine runs no syphon"
    wanted = targets if scope is not Scope.ALL else ("",)
    return next((text for target in wanted if (text := action.special(snapshot, scope, target))), "")


def read_only(action: Action) -> str:
    """Return why a read-only engine refuses the action; empty if the action lifts read-only."""
    return "" if action.lifts_read_only else f"this engine is read-only, and {action.label} changes something"


def to_type(snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> str:
    """Return the text to type for firing: the target's name, the number of several targets, or the pairing's name."""
    if scope is Scope.ALL:
        return snapshot.pairing
    return targets[0] if len(targets) == 1 else str(len(targets))


def to_fire(action: Action, snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> str:
    """Return the complete text that fires an armed order: `to_type` and the action's confirmation."""
    return f"{to_type(snapshot, scope, targets)} {action.confirms}".rstrip()


def typed_right(typed: str, wanted: str) -> bool:
    """Return whether the typed text matches, without case, like the names of the service."""
    return typed.strip().casefold() == wanted.casefold()


def named(scope: Scope, target: str) -> str:
    """Return a target's name for audit lines and sentences."""
    return f"backlog/{target}" if scope is Scope.QUEUE else target


# -- targets --------------------------------------------------------------------------------------------------------


def entity_at(snapshot: Snapshot, path: str) -> EntityView | None:
    """Return the entity of that path, compared without case."""
    return next((one for one in snapshot.entities if one.path.casefold() == path.casefold()), None)


def queue_at(snapshot: Snapshot, index: str) -> QueueView | None:
    """Return the backlog queue in use with that index."""
    return next((one for one in snapshot.queues if str(one.index) == index), None)


def _unknown_target(snapshot: Snapshot, scope: Scope, target: str) -> str:
    """Return why a target is unknown; empty if it is known."""
    match scope:
        case Scope.ENTITY:
            known = [one.path for one in snapshot.entities]
            there = entity_at(snapshot, target) is not None
            return "" if there else f"this engine has no entity {target!r}; it has {', '.join(known) or 'none'}"
        case Scope.QUEUE:
            used = format_indices([one.index for one in snapshot.queues])
            there = queue_at(snapshot, target) is not None
            return "" if there else f"this pairing uses no backlog queue {target!r}; it uses {used}"
        case Scope.UNUSED:
            return _no_unused(snapshot, target)
        case _:  # a destination may be paused before its first message
            return "" if target.strip() else "a destination needs a name"


def _no_unused(snapshot: Snapshot, path: str) -> str:
    if snapshot.unused.read_at is None:
        return f"unused backlog queues are unknown: {snapshot.unused.trouble or 'not listed yet'}"
    paths = [one.path for one in snapshot.unused.queues]
    if path.casefold() in (one.casefold() for one in paths):
        return ""
    return f"{path!r} is not an unused backlog queue; there are {', '.join(paths) or 'none'}"


# -- reasons against an action now -----------------------------------------------------------------------------------


def _no_force(snapshot: Snapshot, _scope: Scope, path: str) -> str:
    entity = entity_at(snapshot, path)
    return f"{path} is forced already" if entity is not None and entity.state is State.FORCED else ""


def _no_pin(snapshot: Snapshot, _scope: Scope, path: str) -> str:
    entity = entity_at(snapshot, path)
    return f"{path} is pinned already" if entity is not None and entity.state is State.PINNED else ""


def _no_release(snapshot: Snapshot, _scope: Scope, path: str) -> str:
    entity = entity_at(snapshot, path)
    if entity is None or entity.state in (State.FORCED, State.PINNED, State.FAILED_OVER):
        return ""
    return f"{entity.path} is {entity.state}: nothing to release"


def _no_pause(snapshot: Snapshot, scope: Scope, target: str) -> str:
    return f"{_what(scope, target)} is paused already" if _is_paused(snapshot, scope, target) else ""


def _no_resume(snapshot: Snapshot, scope: Scope, target: str) -> str:
    return "" if _is_paused(snapshot, scope, target) else f"{_what(scope, target)} is not paused"


def _what(scope: Scope, target: str) -> str:
    return "the syphon" if scope is Scope.ALL else named(scope, target)


def _is_paused(snapshot: Snapshot, scope: Scope, target: str) -> bool:
    syphon = snapshot.syphon
    if scope is Scope.QUEUE:
        return target in map(str, syphon.paused_queues)
    if scope is Scope.DESTINATION:
        return target.casefold() in (path.casefold() for path in syphon.paused_destinations)
    return syphon.status is SyphonStatus.PAUSED


def _no_redrive(snapshot: Snapshot, _scope: Scope, index: str) -> str:
    queue = queue_at(snapshot, index)
    return f"backlog/{index} had no dead letters at the last reading" if queue and queue.dead_lettered == 0 else ""


def _no_clean_up(snapshot: Snapshot, _scope: Scope, _path: str) -> str:
    trouble = snapshot.unused.trouble
    return f"the secondary namespace cannot be managed now: {trouble}" if trouble else ""


def _no_move(snapshot: Snapshot, _scope: Scope, _path: str) -> str:
    return "the syphon is paused: resume it first" if snapshot.syphon.status is SyphonStatus.PAUSED else ""


def _no_drain(snapshot: Snapshot, _scope: Scope, _target: str) -> str:
    drain, depths = snapshot.drain, [queue.depth for queue in snapshot.queues]
    if drain is None:
        return "this engine cannot start one; use: paired drain"
    if drain.text or drain.trouble:
        return f"a drain runs already: {drain.text}" if drain.text else drain.trouble
    if snapshot.syphon.status not in (SyphonStatus.OFF, SyphonStatus.PAUSED):
        return "the syphon moves the same messages: pause it first"
    return "nothing was parked at the last reading" if depths and not any(depths) and None not in depths else ""


def _no_end_drain(snapshot: Snapshot, _scope: Scope, _target: str) -> str:
    return "" if snapshot.drain is not None and snapshot.drain.text else "no drain of this pairing runs"


def _no_lock(snapshot: Snapshot, _scope: Scope, _target: str) -> str:
    return "this engine is read-only already" if snapshot.read_only else ""


def _no_unlock(snapshot: Snapshot, _scope: Scope, _target: str) -> str:
    return "" if snapshot.read_only else "this engine is not read-only"


def _no_stop(snapshot: Snapshot, _scope: Scope, _target: str) -> str:
    return "" if snapshot.own_process else "this engine runs inside an application and stops with it"


ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        id="force",
        key="f",
        label="force failover",
        help="send to the backlog until released",
        verb="failover",
        dangerous=True,
        scopes=(Scope.ENTITY,),
        special=_no_force,
    ),
    Action(
        id="release",
        key="b",
        label="release",
        help="return the entity to automatic failover",
        verb="release",
        dangerous=True,
        scopes=(Scope.ENTITY,),
        special=_no_release,
    ),
    Action(
        id="pin",
        key="i",
        label="pin",
        help="send to the primary despite failures",
        verb="pin",
        dangerous=True,
        scopes=(Scope.ENTITY,),
        special=_no_pin,
    ),
    Action(
        id="pause-syphon",
        key="p",
        label="pause syphon",
        help="this engine moves no parked messages; others may",
        verb="syphon pause",
        scopes=(Scope.ALL, Scope.QUEUE, Scope.DESTINATION),
        needs_syphon=True,
        special=_no_pause,
    ),
    Action(
        id="resume-syphon",
        key="p",
        label="resume syphon",
        help="move parked messages again",
        verb="syphon resume",
        scopes=(Scope.ALL, Scope.QUEUE, Scope.DESTINATION),
        needs_syphon=True,
        special=_no_resume,
    ),
    Action(
        id="clean-up",
        key="c",
        label="clean up",
        help="delete an unused backlog queue that is empty",
        verb="cleanup",
        dangerous=True,
        scopes=(Scope.UNUSED,),
        confirms="no other host uses it",
        slow=True,
        special=_no_clean_up,
    ),
    Action(
        id="redrive",
        key="r",
        label="re-drive",
        help="return dead letters to their backlog queue",
        verb="redrive",
        dangerous=True,
        scopes=(Scope.QUEUE,),
        needs_syphon=True,
        slow=True,
        special=_no_redrive,
    ),
    Action(
        id="move-stranded",
        key="m",
        label="move stranded",
        help="move the messages of an unused backlog queue",
        verb="move-stranded",
        dangerous=True,
        scopes=(Scope.UNUSED,),
        needs_syphon=True,
        slow=True,
        special=_no_move,
    ),
    Action(
        id="drain",
        key="d",
        label="drain",
        help="move a large backlog with many Spark processes",
        verb="drain",
        dangerous=True,
        scopes=(Scope.ALL,),
        slow=True,
        special=_no_drain,
    ),
    Action(
        id="end-drain",
        key="d",
        label="end drain",
        help="finish the messages in flight, then stop",
        verb="end-drain",
        scopes=(Scope.ALL,),
        special=_no_end_drain,
    ),
    Action(
        id="read-only",
        key="w",
        label="make read-only",
        help="refuse every action that changes anything",
        verb="read-only on",
        scopes=(Scope.ALL,),
        special=_no_lock,
    ),
    Action(
        id="read-write",
        key="w",
        label="make writable",
        help="accept orders again",
        verb="read-only off",
        dangerous=True,
        scopes=(Scope.ALL,),
        lifts_read_only=True,
        special=_no_unlock,
    ),
    Action(
        id="stop",
        key="",
        label="end the engine",
        help="finish sends in flight and release locks",
        verb="down",
        dangerous=True,
        scopes=(Scope.ALL,),
        special=_no_stop,
    ),
)
BY_ID: Final = {action.id: action for action in ACTIONS}

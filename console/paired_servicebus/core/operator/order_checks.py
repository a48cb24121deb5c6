"""The checks of an order, for every action: what is wrong with it, why it is impossible now, what fires it.

Screens grey out a key with the reason of `why_not`; paired_servicebus.engine.commands.guard decides. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.targets import Scope, counted, dead_letters_of, named, unknown_target
from paired_servicebus.core.text.number_format import plural

ARMED_SECONDS: Final = 30.0
"""Seconds between arming and firing."""


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
    return next((text for target in targets if (text := unknown_target(snapshot, scope, target))), "")


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


def changes_something(action: Action, snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> bool:
    """Return whether an order does more than prolong what holds already: a read-only engine refuses that."""
    if fault(action, snapshot, scope, targets):
        return True
    return any(not why_not(action, snapshot, scope, (target,)) for target in targets or ("",))


def to_type(snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> str:
    """Return the text to type for firing: the target's name, the number of several targets, or the pairing's name."""
    if scope is Scope.ALL:
        return snapshot.pairing
    if scope is Scope.DEAD_LETTERS:
        return str(_letters(targets))
    return targets[0] if len(targets) == 1 else str(len(targets))


def to_fire(action: Action, snapshot: Snapshot, scope: Scope, targets: Sequence[str]) -> str:
    """Return the complete text that fires an armed order: `to_type` and the action's confirmation."""
    return f"{to_type(snapshot, scope, targets)} {action.confirms}".rstrip()


def spelled_out(action: Action, scope: Scope, targets: Sequence[str], *, asked: str) -> str:
    """Return what a person types on the screen for the text that an engine asks for: never a single character.

    A number gets its noun ("2 entities"), a backlog queue its prefix ("backlog/3").

    Args:
        asked: the text that the engine asks for; one that is not understood is returned as it is.
    """
    if scope is Scope.DEAD_LETTERS and asked == str(_letters(targets)):
        return plural(int(asked), "dead letter")
    number = str(len(targets))
    if len(targets) > 1 and asked == f"{number} {action.confirms}".rstrip():
        return f"{counted(scope, targets)} {action.confirms}".rstrip()
    if len(targets) == 1 and asked == targets[0] and scope is Scope.QUEUE:
        return named(scope, asked)
    return asked if len(asked) > 1 else f"{'pairing' if scope is Scope.ALL else scope} {asked}"


def _letters(targets: Sequence[str]) -> int:
    """Return the number of dead letters that the targets name."""
    return sum(len(letters.numbers) for target in targets if (letters := dead_letters_of(target)) is not None)


def typed_right(typed: str, wanted: str) -> bool:
    """Return whether the typed text matches, without case, like the names of the service."""
    return typed.strip().casefold() == wanted.casefold()

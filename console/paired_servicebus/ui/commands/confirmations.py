"""What is asked before an act that stops something: yes or no, with what stops and how long it lasts. Pure.

Not here: acts that can lose messages or move sends, which are armed and fired by typing (consequences.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import Scope, named
from paired_servicebus.ui.commands.action_table import BY_ID, Action, ActionTarget
from paired_servicebus.ui.render.number_format import plural
from paired_servicebus.ui.state.backlog_totals import parked
from paired_servicebus.ui.state.keymap import Keymap


class Choice(NamedTuple):
    """One way to say yes: what stands on its button, and what is then ordered."""

    label: str
    aim: ActionTarget


class Question(NamedTuple):
    """What is asked."""

    title: str
    sentences: tuple[str, ...]
    choices: tuple[Choice, ...]


def question(action: Action, aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    """Return the question for an act that asks first.

    Raises:
        KeyError: the act asks nothing.
    """
    return _QUESTIONS[action.id](aim, snapshot, keys)


def _pause(aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    sums = parked(snapshot)
    number = plural(sums.messages, "parked message") if sums.is_known else "parked messages"
    others = snapshot.syphon.elsewhere
    elsewhere = f"Syphons elsewhere go on: {', '.join(others)}." if others else "Syphons of other engines go on."
    part = named(aim.scope, aim.targets[0]) if aim.targets else ""
    choices = [Choice(f"Pause {part}", aim)] if part else []
    return Question(
        f"Pause the syphon of {snapshot.engine}",
        (
            f"{number} of {snapshot.secondary} stay where they are: this engine moves none to {snapshot.primary}.",
            f"Sends go on as now. {elsewhere}",
            f"It stays paused, also after a restart, until it is resumed (key {keys.label(BY_ID['resume-syphon'])}).",
        ),
        (*choices, Choice("Pause all of it", ActionTarget(Scope.ALL))),
    )


def _lock(aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    undo = f"key {keys.label(BY_ID['read-write'])}, then type {snapshot.pairing}"
    return Question(
        f"Make {snapshot.engine} read-only",
        (
            "Every order is refused from then on: force, release, pin, pause, clean up, re-drive, from any console.",
            "Sends, automatic failover and the syphon go on as now.",
            f"It stays read-only, also after a restart, until it is made writable ({undo}).",
        ),
        (Choice("Make read-only", aim),),
    )


_QUESTIONS: Final[dict[str, Callable[[ActionTarget, Snapshot, Keymap], Question]]] = {
    "pause-syphon": _pause,
    "read-only": _lock,
}
ASKED: Final = frozenset(_QUESTIONS)
"""Ids of the acts that ask yes or no first."""

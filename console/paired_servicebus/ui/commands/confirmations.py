"""Questions before a command that stops something: the parts that stop, and for how long.

Not here: commands that can lose messages or move sends, which are armed and fired by typing (consequences.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from paired_servicebus.core.backlog.backlog_totals import sum_backlog
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import Scope, named
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, ActionTarget, ConsoleAction
from paired_servicebus.ui.state.keymap import Keymap


class Choice(NamedTuple):
    """One button: its label, and its targets."""

    label: str
    aim: ActionTarget


class Question(NamedTuple):
    """The title, the sentences and the buttons."""

    title: str
    sentences: tuple[str, ...]
    choices: tuple[Choice, ...]


def question(action: ConsoleAction, aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    """Return the question of a command that asks first.

    Raises:
        KeyError: the command has no question.
    """
    return _QUESTIONS[action.id](aim, snapshot, keys)


def _pause(aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    sums = sum_backlog(snapshot)
    number = plural(sums.messages, "parked message") if sums.is_known else "parked messages"
    others = snapshot.syphon.elsewhere
    elsewhere = f"Syphons elsewhere continue: {', '.join(others)}." if others else "Other engines' syphons continue."
    undo = keys.label(CONSOLE_BY_ID["resume-syphon"])
    part = named(aim.scope, aim.targets[0]) if aim.targets else ""
    choices = [Choice(f"Pause {part}", aim)] if part else []
    return Question(
        f"Pause the syphon of {snapshot.engine}",
        (
            f"{number} of {snapshot.secondary} stay where they are: this engine moves none to {snapshot.primary}.",
            f"Sends continue as now. {elsewhere}",
            f"It stays paused, also after a restart, until it is resumed (key {undo}).",
        ),
        (*choices, Choice("Pause all of it", ActionTarget(Scope.ALL))),
    )


def _lock(aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    undo = f"key {keys.label(CONSOLE_BY_ID['read-write'])}, then type {snapshot.pairing}"
    return Question(
        f"Make {snapshot.engine} read-only",
        (
            "It then refuses every command from any console: force, release, pin, pause, clean up, re-drive.",
            "Sends, automatic failover and the syphon continue as now.",
            f"It stays read-only, also after a restart, until it is made writable ({undo}).",
        ),
        (Choice("Make read-only", aim),),
    )


_QUESTIONS: Final[dict[str, Callable[[ActionTarget, Snapshot, Keymap], Question]]] = {
    "pause-syphon": _pause,
    "read-only": _lock,
}
ASKED: Final = frozenset(_QUESTIONS)
"""Ids of the commands with a question."""

"""The columns of the table of actions: everything that keys, palette, help, previews and command line show of an order.

The rows are in actions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from paired_servicebus.core.fleet.order_rules import FleetVerb
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator.targets import Scope, counted, dead_letters_of, named, unknown_target
from paired_servicebus.core.text.number_format import plural

WhyNot = Callable[[Snapshot, str, str], str]
"""Returns why an action is impossible for a target of a scope now; empty if it is possible."""
Text = str | Callable[[Snapshot, Command], str]
"""A sentence, or what makes it of the newest snapshot and the targets."""
Fact = tuple[str, Text]
"""One line of a preview: its label and its sentence."""


class Choice(NamedTuple):
    """One button of a question: its label, and its targets."""

    label: str
    aim: Command


class Question(NamedTuple):
    """A question before an order that is not armed: the title, the sentences and the buttons."""

    title: str
    sentences: tuple[str, ...]
    choices: tuple[Choice, ...]


Ask = Callable[[Snapshot, Command, str], Question]
"""Makes the question of the newest snapshot, the targets, and the label of the key that undoes the order."""


def always_possible(_snapshot: Snapshot, _scope: str, _target: str) -> str:
    """Return no reason against an action."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(FleetVerb):
    """One action of an operator."""

    participle: str = ""
    """The order in the passive, as in "forced by ada"; empty: its label."""
    help: str
    scopes: tuple[Scope, ...]
    """The allowed scopes; the first is the default."""
    special: WhyNot = always_possible
    """The action's own check of a target; see `why_not`."""
    needs_syphon: bool = False
    """Whether it needs a syphon in this engine."""
    slow: bool = False
    """Whether it takes longer than an operator waits for a key; other orders are accepted meanwhile."""
    lifts_read_only: bool = False

    over_fleet: bool = False
    """Whether it can be ordered over the fleet: it sets a state that engines have each for itself."""
    whole: str = "all"
    """The subject of an order of the fleet without targets, as in "syphon paused by ada"."""

    # -- the console ----------------------------------------------------------------------------------------------

    key: str = ""
    """A capital letter, since small ones only look. Empty: the console does not have the action."""
    key_line: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Its place in the key lines of pages, by importance; the help and the palette have every action."""

    # -- the command line -----------------------------------------------------------------------------------------

    verb: str
    """Its one or two words after `paired`; the scopes give the arguments."""
    verb_help: str = ""
    """The help of the verb, if it differs from `help`."""
    lists_targets: bool = False
    """Whether the verb lists the possible targets if none is named."""
    own_verb: bool = False
    """Whether the command line has a function of its own for the verb."""

    # -- before it is done ----------------------------------------------------------------------------------------

    confirms_help: str = ""
    """What `confirms` is, for the help of the command line's option."""
    facts: tuple[Fact, ...] = ()
    """The preview of a dangerous action."""
    expect: Text = ""
    """What the newest readings say against it: a refusal, or that it does not help. Empty: nothing is known."""
    fleet_facts: tuple[Fact, ...] = ()
    """What the question over the fleet adds to its own facts."""
    not_done: str = ""
    """What does not happen at an entity without senders here; empty: it does not depend on senders."""
    undo: str = ""
    """The id of the action that undoes it; empty: there is none."""
    undo_note: Text = ""
    ask: Ask | None = None
    """The question of an action that is not armed; None: it is done without one."""

    @property
    def scope(self) -> Scope:
        return self.scopes[0]


# The checks of an order, for every action: what is wrong with it, why it is impossible now, what fires it.
#
# Screens grey out a key with the reason of `why_not`; paired_servicebus.engine.commands.guard decides. Pure.

ARMED_SECONDS: Final = 30.0
"""Seconds between arming and firing."""


def fault(action: Action, snapshot: Snapshot, command: Command) -> str:
    """Return the error in an order itself: a wrong scope or an unknown target. Empty if there is none."""
    scope, targets = command.scope, command.targets
    if scope not in action.scopes:
        return f"{action.label} does not apply to {scope}; it applies to {', '.join(action.scopes)}"
    if scope == Scope.ALL:
        return f"{action.label} takes no target, but {targets[0]!r} was named" if targets else ""
    if not targets:
        return f"{action.label} needs a target ({scope})"
    twice = next((one for number, one in enumerate(targets) if one in targets[:number]), "")
    if twice:
        return f"{twice!r} was named twice"
    return next((text for target in targets if (text := unknown_target(snapshot, scope, target))), "")


def why_not(action: Action, snapshot: Snapshot, command: Command) -> str:
    """Return why a valid order is impossible now, apart from read-only; empty if it is possible.

    One impossible target is enough, since an order is carried out entirely or not at all.
    """
    if action.needs_syphon and snapshot.syphon.status is SyphonStatus.OFF:
        return "this engine runs no syphon"
    wanted = command.targets if command.scope != Scope.ALL else ("",)
    return next((text for target in wanted if (text := action.special(snapshot, command.scope, target))), "")


def read_only(action: Action) -> str:
    """Return why a read-only engine refuses the action; empty if the action lifts read-only."""
    return "" if action.lifts_read_only else f"this engine is read-only, and {action.label} changes something"


def changes_something(action: Action, snapshot: Snapshot, command: Command) -> bool:
    """Return whether an order does more than prolong what holds already: a read-only engine refuses that."""
    if fault(action, snapshot, command):
        return True
    return any(not why_not(action, snapshot, one) for one in each_target(command))


def each_target(command: Command) -> tuple[Command, ...]:
    """Return the command for each of its targets; without targets, itself."""
    return tuple(replace(command, targets=(target,)) for target in command.targets) or (command,)


def to_type(snapshot: Snapshot, command: Command) -> str:
    """Return the text to type for firing: the target's name, the number of several targets, or the pairing's name."""
    if command.scope == Scope.ALL:
        return snapshot.pairing
    if command.scope == Scope.DEAD_LETTERS:
        return str(_letters(command.targets))
    return command.target if len(command.targets) == 1 else str(len(command.targets))


def to_fire(action: Action, snapshot: Snapshot, command: Command) -> str:
    """Return the complete text that fires an armed order: `to_type` and the action's confirmation."""
    return f"{to_type(snapshot, command)} {action.confirms}".rstrip()


def spelled_out(action: Action, command: Command, *, asked: str) -> str:
    """Return what a person types on the screen for the text that an engine asks for: never a single character.

    A number gets its noun ("2 entities"), a backlog queue its prefix ("backlog/3").

    Args:
        asked: the text that the engine asks for; one that is not understood is returned as it is.
    """
    scope, targets = command.scope, command.targets
    if scope == Scope.DEAD_LETTERS and asked == str(_letters(targets)):
        return plural(int(asked), "dead letter")
    number = str(len(targets))
    if len(targets) > 1 and asked == f"{number} {action.confirms}".rstrip():
        return f"{counted(command)} {action.confirms}".rstrip()
    if len(targets) == 1 and asked == targets[0] and scope == Scope.QUEUE:
        return named(scope, asked)
    return asked if len(asked) > 1 else f"{'pairing' if scope == Scope.ALL else scope} {asked}"


def _letters(targets: Sequence[str]) -> int:
    """Return the number of dead letters that the targets name."""
    return sum(len(letters.numbers) for target in targets if (letters := dead_letters_of(target)) is not None)


def typed_right(typed: str, wanted: str) -> bool:
    """Return whether the typed text matches, without case, like the names of the service."""
    return typed.strip().casefold() == wanted.casefold()

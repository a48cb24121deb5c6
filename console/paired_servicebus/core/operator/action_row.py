"""The columns of the table of actions: everything that keys, palette, help, previews and command line show of an order.

Not here: the rows (actions.py), and the checks of an order (order_checks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from paired_servicebus.core.fleet.orders.order_rules import EnginesPerOrder
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.targets import ActionTarget, Scope

WhyNot = Callable[[Snapshot, Scope, str], str]
"""Returns why an action is impossible for a target now; empty if it is possible."""
Text = str | Callable[[Snapshot, ActionTarget], str]
"""A sentence, or what makes it of the newest snapshot and the targets."""
Fact = tuple[str, Text]
"""One line of a preview: its label and its sentence."""


class Choice(NamedTuple):
    """One button of a question: its label, and its targets."""

    label: str
    aim: ActionTarget


class Question(NamedTuple):
    """A question before an order that is not armed: the title, the sentences and the buttons."""

    title: str
    sentences: tuple[str, ...]
    choices: tuple[Choice, ...]


Ask = Callable[[Snapshot, ActionTarget, str], Question]
"""Makes the question of the newest snapshot, the targets, and the label of the key that undoes the order."""


def always_possible(_snapshot: Snapshot, _scope: Scope, _target: str) -> str:
    """Return no reason against an action."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action of an operator."""

    id: str
    """Its name in the control protocol, the audit and standing.json; never changed."""
    label: str
    participle: str = ""
    """The order in the passive, as in "forced by ada"; empty: its label."""
    help: str
    scopes: tuple[Scope, ...]
    """The allowed scopes; the first is the default."""
    special: WhyNot = always_possible
    """The action's own check of a target; see `order_checks.why_not`."""
    needs_syphon: bool = False
    """Whether it needs a syphon in this engine."""
    slow: bool = False
    """Whether it takes longer than an operator waits for a key; other orders are accepted meanwhile."""
    lifts_read_only: bool = False
    stands_for: str = ""
    """The subject of an order that holds until revoked; the newest about a subject and target wins. Empty: none."""
    revokes: bool = False
    """Whether it ends the standing order about its subject and target."""

    over_fleet: EnginesPerOrder = EnginesPerOrder.NONE
    """How many engines one order may address."""
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

    dangerous: bool = False
    """Whether it is armed first, with a preview, then fired by typing the target's name within ARMED_SECONDS."""
    confirms: str = ""
    """A statement by the operator of a fact that no engine can check, besides the name; empty: none."""
    confirms_help: str = ""
    """The same for the help of the command line's option."""
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

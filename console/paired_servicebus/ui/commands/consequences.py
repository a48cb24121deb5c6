"""The questions before an order: the facts before a dangerous one is fired, and yes or no before one stops something.

Their sentences are those of the table of actions; here they get the keys in force and the engines reached. They are
recomputed from each snapshot while a dialog is open. The command line's previews use the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paired_servicebus.core.fleet.orders.fleet_verbs import EnginesPerOrder
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.action_row import Action, Question
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.command_reach import not_reached
from paired_servicebus.core.operator.consequences import NOT_REACHED, REACHES, UNKNOWN, preview, sentence
from paired_servicebus.core.operator.fleet_sentences import engines_left_out
from paired_servicebus.core.operator.targets import ActionTarget, Scope, all_there, entities_of, named
from paired_servicebus.core.text.foreign_words import name
from paired_servicebus.core.text.index_ranges import join_names
from paired_servicebus.core.text.number_format import rate
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, ConsoleAction
from paired_servicebus.ui.state.keymap import DEFAULT_KEYMAP, Keymap
from paired_servicebus.ui.state.view import Neighbour


class Fact(NamedTuple):
    """A label and a sentence."""

    label: str
    text: str


def facts(
    action_id: str,
    snapshot: Snapshot | None,
    aim: ActionTarget,
    keys: Keymap = DEFAULT_KEYMAP,
    others: Sequence[Neighbour] = (),
    left_out: Sequence[Neighbour] = (),
) -> tuple[Fact, ...]:
    """Return the consequences of `action_id` for its targets now, and how to undo it with the keys in force.

    Args:
        others: engines that also receive it.
        left_out: known engines that do not receive it.

    Raises:
        KeyError: there is no such action.
    """
    action = BY_ID[action_id]
    undo = f"key {_undo_key(action, keys)}, {BY_ID[action.undo].label}" if action.undo else ""
    found = [Fact(label, text) for label, text in preview(action, snapshot, aim, undo=undo)]
    if snapshot is None or not all_there(snapshot, aim):
        return tuple(found)
    place = next((number for number, it in enumerate(found) if it.label == REACHES), None)
    if place is not None:
        found.insert(place + 1, found.pop())  # how to undo it is seen without scrolling
        if others:
            found[place] = Fact(REACHES, _reaches_all(snapshot, others, aim))
        if missed := _left_out(snapshot, aim, others, left_out):
            found.insert(place + 1, Fact(NOT_REACHED, missed))
    if len(aim.targets) > 1:
        found.insert(0, Fact(aim.scope.capitalize(), ", ".join(named(aim.scope, one) for one in aim.targets)))
    return tuple(found)


def expectation(action_id: str, snapshot: Snapshot | None, aim: ActionTarget) -> str:
    """Return what the newest readings say against an order: a refusal, or that it does not help. Empty: nothing."""
    if snapshot is None or not all_there(snapshot, aim):
        return ""
    return sentence(BY_ID[action_id].expect, snapshot, aim)


def question(action: ConsoleAction, aim: ActionTarget, snapshot: Snapshot, keys: Keymap) -> Question:
    """Return the question of an action that asks first."""
    assert action.order is not None, "local actions ask nothing"
    assert action.order.ask is not None, "this action asks nothing"
    return action.order.ask(snapshot, aim, _undo_key(action.order, keys))


def _undo_key(action: Action, keys: Keymap) -> str:
    return keys.label(CONSOLE_BY_ID[action.undo]) if action.undo else ""


def title(action_id: str, label: str, snapshot: Snapshot | None, aim: ActionTarget, pairing: str) -> str:
    """Return the dialog's first line: the command, its targets, and the senders that it does not reach."""
    names = f": {join_names(named(aim.scope, one) for one in aim.targets)}" if len(aim.targets) > 1 else ""
    asked = f"{only_here(BY_ID[action_id], snapshot)}{label}: {str(aim) or pairing}{names}"
    not_done = BY_ID[action_id].not_done
    missed = not_reached(not_done, entities_of(snapshot, aim)) if snapshot is not None else ""
    return f"{asked} — {missed}" if missed else asked


def only_here(action: Action | None, snapshot: Snapshot | None) -> str:
    """Return the reach of an order to the engine on screen, where the fleet could have it too: "Only web-1: "."""
    if action is None or snapshot is None or snapshot.fleet is None or action.over_fleet is EnginesPerOrder.NONE:
        return ""
    return f"Only {name(snapshot.fleet.me)}: "


def _reaches_all(snapshot: Snapshot, others: Sequence[Neighbour], aim: ActionTarget) -> str:
    """Return the engines, and the affected sends at each and in total."""
    engines = [(snapshot.pairing, snapshot), *((one.name, one.snapshot) for one in others)]
    reached = [(name, found) for name, found in engines if found is not None]
    if aim.scope is not Scope.ENTITY:
        return f"{_of(len(reached), len(engines))}: {', '.join(name for name, _ in reached)}"
    rates = [(name, sum(one.sends_per_second for one in entities_of(found, aim))) for name, found in reached]
    each = ", ".join(f"{name} {rate(per_second)}/s" for name, per_second in rates)
    total = f"{_of(len(reached), len(engines))}, {rate(sum(one for _, one in rates))} messages/s total"
    return f"{total}: {each}; senders elsewhere are not affected; their state is {UNKNOWN}"


def _left_out(snapshot: Snapshot, aim: ActionTarget, others: Sequence[Neighbour], left_out: Sequence[Neighbour]) -> str:
    """Return the known engines that send to the same entities and go on as they are; empty: none is known."""
    if aim.scope is not Scope.ENTITY:
        return ""
    if snapshot.fleet is not None:
        return engines_left_out(snapshot, aim, len(others))
    beside = [one for one in left_out if one.snapshot is not None and one.snapshot.primary == snapshot.primary]
    found = [(one.name, entities_of(one.snapshot, aim)) for one in beside if one.snapshot is not None]
    sends = [f"{name} ({rate(sum(it.sends_per_second for it in has))}/s)" for name, has in found if has]
    return f"other engines here with the same: {', '.join(sends)}" if sends else ""


def _of(number: int, of: int) -> str:
    return f"{number} engines" if number == of else f"{number} of {of} engines"

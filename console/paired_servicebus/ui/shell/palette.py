"""The menu of acts, the command bar and the texts to copy, as lists to pick from (pick_list.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from paired_servicebus.ui.commands import action_table
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.commands.clipboard import copy_items
from paired_servicebus.ui.screens.pick_list import Choice, PickList
from paired_servicebus.ui.shell import prompts
from paired_servicebus.ui.shell.console_protocol import Console
from paired_servicebus.ui.state.view import Page

LONGEST: Final = 200
"""Characters of a copied text that are shown."""
SYNONYMS: Final[dict[str, str]] = {
    "force": "divert switch secondary backlog outage",
    "release": "unforce unpin automatic return home failback primary undo",
    "pin": "never fail over stay primary",
    "pause-syphon": "stop hold drain moving",
    "resume-syphon": "start continue drain moving",
    "clean-up": "delete remove drop unused queue",
    "redrive": "retry resend dead letters dlq replay",
    "redrive-letters": "retry resend dead letters dlq replay message one",
    "move-stranded": "unused queue orphan rescue",
    "drain": "empty spark backlog",
    "read-only": "lock freeze protect",
    "read-write": "unlock",
    "filter": "search find grep only",
    "go-to-time": "jump when clock",
    "sort": "order worst first",
    "next-theme": "colour color dark light contrast look",
    "copy": "yank clipboard osc52 export file",
    "help": "keys glossary manual what is",
    "quit": "exit leave detach close",
    "quit-with-engine": "exit leave close stop",
    "mark": "select choose several",
}
"""Other words that find an action."""


def _choice(app: Console, action: ConsoleAction, *, named: bool) -> Choice:
    """Return an action's row. `named`: with its targets, which then stay as they are now."""
    view = app.view
    aim = action.aim(view)
    reason = action.why_not(view, aim)
    asks = "; asks first" if action.dangerous or action.asks else ""
    return Choice(
        label=f"{action.label} {aim}".rstrip() if named else action.label,
        about=f"not now: {reason}" if reason else f"{action.help}{asks}",
        do=partial(app.do, action, aim),
        key=view.keys.label(action),
        words=f"{action.id} {action.help} {SYNONYMS.get(action.id, '')}",
        possible=not reason,
    )


def menu(app: Console) -> PickList:
    """Return the menu of what changes something, for what is selected."""
    acts = [action for action in action_table.by_key(app.view) if action.changes]
    choices = [_choice(app, action, named=True) for action in acts]
    ordered = sorted(choices, key=lambda one: not one.possible)
    return PickList("Acts: nothing is done before its question", ordered, app.view)


def command_bar(app: Console) -> PickList:
    """Return every action and, by typed words, every entity and page."""
    actions = [one for one in action_table.by_key(app.view) if one.id not in ("palette", "menu")]
    choices = [_choice(app, action, named=False) for action in actions]
    return PickList("Commands", [*choices, *_entities(app)], app.view, placeholder="an action, a page or an entity")


def _entities(app: Console) -> Sequence[Choice]:
    entities = app.view.snapshot.entities if app.view.snapshot else ()
    return [
        Choice(label=one.path, about=f"{one.state}: open it", do=partial(_open, app, one.path), hidden=True)
        for one in entities
    ]


def _open(app: Console, path: str) -> None:
    """Select the entity, and turn to its page."""
    app.show(replace(app.view, selected=path, on_fold=False))
    app.turn_to(Page.ENTITY)


def copies(app: Console) -> PickList:
    """Return the texts to copy, to the clipboard or, by tab, to a new file."""
    choices: list[Choice] = []
    for item in copy_items(app.view):
        about = item.text.replace("\n", " · ")[:LONGEST]
        to_file = partial(prompts.ask_file, app, item)
        choices.append(Choice(label=item.label, about=about, do=partial(prompts.copy, app, item), by_tab=to_file))
    return PickList("Copy to the clipboard, or with tab to a new file", choices, app.view, placeholder="what to copy")

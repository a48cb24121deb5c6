"""What the list of messages can have the app do: re-drive what is chosen, and the menu of acts on messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from paired_servicebus.core.operator.targets import ActionTarget, DeadLetters, Scope
from paired_servicebus.ui.commands.action_table import CONSOLE_BY_ID, ConsoleAction
from paired_servicebus.ui.commands.clipboard import CopyItem
from paired_servicebus.ui.engines.feed import MessageSource
from paired_servicebus.ui.screens.messages_screen import MessageActs, MessagesScreen
from paired_servicebus.ui.screens.pick_list import Choice, PickList
from paired_servicebus.ui.shell import prompts
from paired_servicebus.ui.shell.console_protocol import Console

SOME: Final = CONSOLE_BY_ID["redrive-letters"]
ALL: Final = CONSOLE_BY_ID["redrive"]


def messages_screen(app: Console, source: MessageSource, *, by: str, show_help: Callable[[], None]) -> MessagesScreen:
    """Return the list of the messages in the selected backlog queue."""
    acts = MessageActs(
        source=source,
        by=by,
        redrive=lambda index, numbers: app.do(SOME, _letters(index, numbers)),
        menu=partial(_show_menu, app),
        refuse=lambda text: app.answer(text, good=False),
        copy=lambda label, text: prompts.copy(app, CopyItem(label, text)),
        show_help=show_help,
    )
    return MessagesScreen(app.newest, acts)


def _letters(index: str, numbers: Sequence[int]) -> ActionTarget:
    return ActionTarget(Scope.DEAD_LETTERS, (DeadLetters(index, tuple(numbers)).target,))


def _show_menu(app: Console, index: str, numbers: Sequence[int], why_not: str) -> None:
    """Let the operator pick an act on the chosen messages, or on the whole queue."""
    some = _letters(index, numbers) if not why_not else ActionTarget(Scope.DEAD_LETTERS)
    queue = ActionTarget(Scope.QUEUE, (index,) if index else ())
    choices = [_choice(app, SOME, some, why_not), _choice(app, ALL, queue, "", key="")]
    menu = PickList("Acts: nothing is done before its question", choices, app.view)
    app.push_screen(menu, _do_chosen)


def _do_chosen(chosen: Choice | None) -> None:
    if chosen is not None:
        chosen.do()


def _choice(app: Console, action: ConsoleAction, aim: ActionTarget, why_not: str, key: str | None = None) -> Choice:
    reason = why_not or action.why_not(app.view, aim)
    return Choice(
        label=f"{action.label} {aim}".rstrip(),
        about=f"not now: {reason}" if reason else f"{action.help}; asks first",
        do=partial(_do, app, action, aim, reason),
        key=app.view.keys.label(action) if key is None else key,
        possible=not reason,
    )


def _do(app: Console, action: ConsoleAction, aim: ActionTarget, reason: str) -> None:
    if reason:
        app.answer(f"{action.label} is not possible: {reason}", good=False)
    else:
        app.do(action, aim)

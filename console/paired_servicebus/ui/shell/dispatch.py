"""Sends an action to the engines: arms it where it is dangerous, orders it, and shows the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from textual.screen import Screen
from textual.worker import Worker

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator.targets import names_of
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.engines.feed import EngineReply, Feed, OrderSigner, OtherEngines
from paired_servicebus.ui.screens.messages_screen import MessagesScreen
from paired_servicebus.ui.screens.pages import PageScreen
from paired_servicebus.ui.screens.questions import (
    ArmDialog,
    ConfirmDialog,
    FleetDialog,
    Reach,
    ReachDialog,
)
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.view import CommandAnswer, Page, View, follow_order

# The part of the app that prompts, palette and dispatch use, so that they do not import the app.

T = TypeVar("T")


class Console(Protocol):
    """The app's interface; see PairedApp and Textual's App."""

    view: View

    @property
    def screen(self) -> Screen[object]: ...
    @property
    def now(self) -> Callable[[], float]: ...
    @property
    def monotonic(self) -> Callable[[], float]: ...

    def newest(self) -> View: ...
    def show(self, new: View) -> None: ...
    def answer(self, text: str, *, good: bool) -> None: ...
    def choose(self, change: Callable[[View], View]) -> None: ...
    def turn_to(self, page: Page) -> None: ...
    def do(self, action: ConsoleAction, aim: Command | None = None) -> None: ...
    def copy_to_clipboard(self, text: str) -> None: ...
    def push_screen(self, screen: Screen[T], callback: Callable[[T | None], None]) -> object: ...
    def run_worker(
        self, work: Coroutine[Any, Any, T], name: str = "", group: str = "", *, exclusive: bool = False
    ) -> Worker[T]: ...


# Orders over the fleet from the dashboard: asks, has the engine post what was signed, and follows the answers.

NO_KEY = "this dashboard has no key to sign with: open it with paired attach --key"


class FleetDispatch:
    """The fleet's orders. signer: the operator's key; None: this dashboard has none."""

    def __init__(self, app: Console, feed: Feed, signer: OrderSigner | None, *, by: str) -> None:
        self._app = app
        self._feed = feed
        self._signer = signer
        self._by = by

    @property
    def cannot_sign(self) -> str:
        """Return why this dashboard cannot order over the fleet; empty if it can."""
        return "" if self._signer is not None else NO_KEY

    def ask(self, action: ConsoleAction, aim: Command) -> None:
        """Ask for the order over the fleet, then post it."""
        if self._signer is None:
            return
        dialog = FleetDialog(action, aim, self._app.newest, signer=self._signer, clock=self._app.now)
        self._app.push_screen(dialog, partial(self._signed, action, aim))

    def _signed(self, action: ConsoleAction, aim: Command, order: Order | None) -> None:
        if order is None:
            return
        asked = f"{action.label} {names_of(aim)}".rstrip() + " over the fleet"
        self._app.show(replace(self._app.view, waiting_for=asked, answer=None))
        self._app.choose(partial(selection.drop_marks, targets=aim.targets))
        self._app.run_worker(self._post(asked, order), name=action.id, group="command")

    async def _post(self, asked: str, order: Order) -> None:
        try:
            await self._feed.post_order(order, by=self._by)
        except ControlError as error:
            self._app.show(replace(self._app.view, waiting_for=""))
            self._app.answer(f"{asked}: {error}", good=False)
            return
        self._app.show(follow_order(self._app.view, order.id, f"{asked}: posted, no engine has answered yet"))


ARMING_MARGIN_SECONDS: Final = 5.0
"""Before the end of an arming, a fired order arms again: the way to the engine takes time."""


class PendingQuestion(NamedTuple):
    """A dialog that waits for the engine, and the operator's place on the screen at the time."""

    asked: str
    place: tuple[object, ...]
    worker: Worker[None]


def _place(view: View) -> tuple[object, ...]:
    """Return the operator's place on the screen; a question of another place is dropped."""
    return (view.page, view.selected, view.queue, view.unused, view.on_unused, view.marks, view.chosen)


class CommandDispatch:
    """The dashboard's commands. `others` None: they are for the engine on screen only."""

    def __init__(
        self, app: Console, feed: Feed, others: OtherEngines | None, *, by: str, signer: OrderSigner | None
    ) -> None:
        self._app = app
        self._feed = feed
        self._others = others
        self._by = by
        self._waiting: PendingQuestion | None = None
        self._fleet = FleetDispatch(app, feed, signer, by=by)

    def start(self, action: ConsoleAction, aim: Command) -> None:
        """Ask what is to be asked, then order it: first who does it, if the fleet could."""
        if not action.asks_reach(self._app.view):
            self._start_here(action, aim)
            return
        dialog = ReachDialog(action, aim, self._app.newest, cannot_sign=self._fleet.cannot_sign)
        self._app.push_screen(dialog, partial(self._reach_chosen, action, aim))

    def _reach_chosen(self, action: ConsoleAction, aim: Command, reach: Reach | None) -> None:
        if reach is Reach.FLEET:
            self._fleet.ask(action, aim)
        elif reach is Reach.HERE:
            self._start_here(action, aim)

    def _start_here(self, action: ConsoleAction, aim: Command) -> None:
        """Arm a dangerous action, ask about one that stops something, order any other."""
        if action.dangerous:
            self.arm(action, aim)
        elif action.asks:
            self.ask(action, aim)
        else:
            self.order(action, aim)

    def ask(self, action: ConsoleAction, aim: Command) -> None:
        """Ask yes or no, then order it."""
        self._app.push_screen(ConfirmDialog(action, aim, self._app.newest), partial(self._chosen, action))

    def _chosen(self, action: ConsoleAction, chosen: Command | None) -> None:
        if chosen is not None:
            self.order(action, chosen)

    def arm(self, action: ConsoleAction, aim: Command) -> None:
        """Show that the engine is asked, then ask it; the dialog opens when it answers."""
        asked = f"{action.label} {names_of(aim)}".rstrip()
        worker = self._app.run_worker(self._arm(action, aim), name=action.id, group="arming", exclusive=True)
        self._waiting = PendingQuestion(asked, _place(self._app.view), worker)
        self._app.show(replace(self._app.view, asking=asked, answer=None))

    def drop_stale_question(self, view: View) -> View:
        """Return the view; drop the pending question if the operator's place changed."""
        waiting = self._waiting
        if waiting is None or not view.asking or waiting.place == _place(view):
            return view
        self._stop_waiting()
        text = f"{waiting.asked}: cancelled, since the selection changed"
        return replace(view, asking="", answer=CommandAnswer(text, good=False, at=self._app.now()))

    def cancel_question(self) -> None:
        """Cancel the pending question."""
        waiting = self._waiting
        self._stop_waiting()
        asked = waiting.asked if waiting is not None else self._app.view.asking
        answer = CommandAnswer(f"{asked}: cancelled, nothing was ordered", good=True, at=self._app.now())
        self._app.show(replace(self._app.view, asking="", answer=answer))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.worker.cancel()
            self._waiting = None

    def _still_wanted(self) -> bool:
        """Return whether the dialog may open: the operator opened nothing else meanwhile."""
        wanted = bool(self._app.view.asking) and isinstance(self._app.screen, PageScreen | MessagesScreen)
        self._waiting = None
        self._app.show(replace(self._app.view, asking=""))
        return wanted

    async def _arm(self, action: ConsoleAction, aim: Command) -> None:
        """Arm the engines, then open the dialog."""
        began, names = self._app.monotonic(), sorted(self._app.view.chosen)
        command = replace(aim, by=self._by)
        try:
            armed, ready = await asyncio.gather(self._feed.arm(command), self._arm_others(names, command))
        except ControlError as error:
            if self._still_wanted():
                self._app.answer(f"{action.label} {names_of(aim)}".rstrip() + f": {error}", good=False)
            return
        if not self._still_wanted():
            return
        dialog = ArmDialog(action, aim, armed, self._app.newest, ready)
        over_at = began + armed.seconds - ARMING_MARGIN_SECONDS
        self._app.push_screen(dialog, partial(self._answered, action, armed, ready, over_at))

    async def _arm_others(self, names: Sequence[str], command: Command) -> tuple[EngineReply, ...]:
        return await self._others.arm_at(names, command) if self._others is not None and names else ()

    def _answered(
        self,
        action: ConsoleAction,
        armed: Armed,
        ready: tuple[EngineReply, ...],
        over_at: float,
        chosen: Command | None,
    ) -> None:
        if chosen is None:
            return
        self._app.choose(partial(selection.drop_marks, targets=chosen.targets))
        if self._app.monotonic() < over_at:
            self.order(action, chosen, armed, ready)
        else:
            self._app.run_worker(self._arm_again(action, chosen, armed, ready), name=action.id, group="command")

    async def _arm_again(
        self, action: ConsoleAction, aim: Command, before: Armed, ready: tuple[EngineReply, ...]
    ) -> None:
        """Renew an arming that ran out while the person typed, then fire; not if the engine asks for another text."""
        names = [one.name for one in ready if one.armed is not None]
        command = replace(aim, by=self._by)
        asked = f"{action.label} {names_of(aim)}".rstrip()
        try:
            armed, renewed = await asyncio.gather(self._feed.arm(command), self._arm_others(names, command))
        except ControlError as error:
            self._app.answer(f"{asked}: {error}", good=False)
            return
        if armed.to_type != before.to_type:
            self._app.answer(f"{asked}: nothing was ordered: the engine now asks for another text", good=False)
            return
        self.order(action, aim, armed, renewed)

    def order(
        self,
        action: ConsoleAction,
        aim: Command,
        armed: Armed | None = None,
        ready: tuple[EngineReply, ...] = (),
    ) -> None:
        """Order it from the engine, and from the others that are ready; show the answers when they arrive."""
        slow = action.order is not None and action.order.slow
        asked = f"{action.label} {names_of(aim)}".rstrip()
        if slow:  # it blocks no other command: the timeline shows its outcome
            self._app.answer(f"{asked}: ordered; its end is shown here and in the timeline", good=True)
        else:
            self._app.show(replace(self._app.view, waiting_for=asked, answer=None))
        if not action.dangerous:
            ready = tuple(EngineReply(name=name, ok=True, text="") for name in sorted(self._app.view.chosen))
        self._app.run_worker(self._command(action, aim, armed, ready, slow), name=action.id, group="command")

    async def _command(
        self, action: ConsoleAction, aim: Command, armed: Armed | None, ready: tuple[EngineReply, ...], slow: bool
    ) -> None:
        command = replace(aim, by=self._by)
        order = self._own(command, armed)
        if self._others is not None and ready:
            own, others = await asyncio.gather(order, self._others.execute_at(ready, command))
        else:
            own, others = await order, ()
        answers = [(one.name, CommandAnswer(one.text, one.ok, self._app.now())) for one in (own, *others)]
        waiting_for = self._app.view.waiting_for if slow else ""
        answer = _sum_answers(f"{action.label} {names_of(aim)}".rstrip(), answers)
        self._app.show(replace(self._app.view, waiting_for=waiting_for, answer=answer, outcomes=tuple(answers)))

    async def _own(self, command: Command, armed: Armed | None) -> EngineReply:
        try:
            text = await self._feed.execute(command, armed)
        except ControlError as error:
            return EngineReply(name=self._app.view.pairing, ok=False, text=str(error))
        return EngineReply(name=self._app.view.pairing, ok=True, text=text)


def _sum_answers(asked: str, answers: Sequence[tuple[str, CommandAnswer]]) -> CommandAnswer:
    """Return the answer of one engine, or the sum of several: failures first."""
    if len(answers) == 1:
        return replace(answers[0][1], text=f"{asked}: {answers[0][1].text}")
    good = sum(answer.good for _, answer in answers)
    each = "; ".join(f"{name}: {it.text}" for name, it in sorted(answers, key=lambda pair: pair[1].good))
    return CommandAnswer(
        f"{asked}: done by {good} of {len(answers)} engines; {each}", good == len(answers), answers[0][1].at
    )

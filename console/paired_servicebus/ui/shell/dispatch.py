"""Sends an action to the engines: arms it where it is dangerous, orders it, and shows the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from textual.worker import Worker

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.fleet.fleet_documents import Order
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.operator.targets import names_of
from paired_servicebus.engine.control.protocol import Armed
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.display.terminal_app import TerminalApp
from paired_servicebus.ui.engines.feed import EngineReply, Feed, MultiEngineFeed, OrderSigner
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
from paired_servicebus.ui.state.view import CommandAnswer, View, follow_order

NO_KEY: Final = "this dashboard has no key to sign with: open it with paired attach --key"
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


class OrderingApp(TerminalApp):
    """The part of the app that orders; PairedApp explains what it is made with."""

    view: View
    source: Feed
    by: str
    now: Callable[[], float]
    monotonic: Callable[[], float]
    _others: MultiEngineFeed | None
    _signer: OrderSigner | None
    _waiting: PendingQuestion | None = None

    def newest(self) -> View:
        return self.view

    def show(self, new: View) -> None:
        """Make this view the present one and paint it."""
        raise NotImplementedError

    def choose(self, change: Callable[[View], View]) -> None:
        """Show the changed view."""
        self.show(change(self.view))

    def answer(self, text: str, *, good: bool) -> None:
        """Show the outcome of a command in the answer line."""
        self.show(replace(self.view, answer=CommandAnswer(text, good, self.now())))

    def start_order(self, action: ConsoleAction, aim: Command) -> None:
        """Ask what is to be asked, then order it: first who does it, if the fleet could."""
        if not action.asks_reach(self.view):
            self._start_here(action, aim)
            return
        dialog = ReachDialog(action, aim, self.newest, cannot_sign="" if self._signer is not None else NO_KEY)
        self.push_screen(dialog, partial(self._reach_chosen, action, aim))

    def _reach_chosen(self, action: ConsoleAction, aim: Command, reach: Reach | None) -> None:
        if reach is Reach.FLEET:
            self._ask_fleet(action, aim)
        elif reach is Reach.HERE:
            self._start_here(action, aim)

    def _start_here(self, action: ConsoleAction, aim: Command) -> None:
        """Arm a dangerous action, ask about one that stops something, order any other."""
        if action.dangerous:
            self._ask_armed(action, aim)
        elif action.asks:
            self._confirm(action, aim)
        else:
            self._order(action, aim)

    def _confirm(self, action: ConsoleAction, aim: Command) -> None:
        """Ask yes or no, then order it."""
        self.push_screen(ConfirmDialog(action, aim, self.newest), partial(self._confirmed, action))

    def _confirmed(self, action: ConsoleAction, chosen: Command | None) -> None:
        if chosen is not None:
            self._order(action, chosen)

    def _ask_armed(self, action: ConsoleAction, aim: Command) -> None:
        """Show that the engine is asked, then ask it; the dialog opens when it answers."""
        asked = f"{action.label} {names_of(aim)}".rstrip()
        worker = self.run_worker(self._arm_engines(action, aim), name=action.id, group="arming", exclusive=True)
        self._waiting = PendingQuestion(asked, _place(self.view), worker)
        self.show(replace(self.view, asking=asked, answer=None))

    def drop_stale_question(self, view: View) -> View:
        """Return the view; drop the pending question if the operator's place changed."""
        waiting = self._waiting
        if waiting is None or not view.asking or waiting.place == _place(view):
            return view
        self._stop_waiting()
        text = f"{waiting.asked}: cancelled, since the selection changed"
        return replace(view, asking="", answer=CommandAnswer(text, good=False, at=self.now()))

    def cancel_question(self) -> None:
        """Cancel the pending question."""
        waiting = self._waiting
        self._stop_waiting()
        asked = waiting.asked if waiting is not None else self.view.asking
        answer = CommandAnswer(f"{asked}: cancelled, nothing was ordered", good=True, at=self.now())
        self.show(replace(self.view, asking="", answer=answer))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.worker.cancel()
            self._waiting = None

    def _still_wanted(self) -> bool:
        """Return whether the dialog may open: the operator opened nothing else meanwhile."""
        wanted = bool(self.view.asking) and isinstance(self.screen, PageScreen | MessagesScreen)
        self._waiting = None
        self.show(replace(self.view, asking=""))
        return wanted

    async def _arm_engines(self, action: ConsoleAction, aim: Command) -> None:
        """Arm the engines, then open the dialog."""
        began, names = self.monotonic(), sorted(self.view.chosen)
        command = replace(aim, by=self.by)
        try:
            armed, ready = await asyncio.gather(self.source.arm(command), self._arm_others(names, command))
        except ControlError as error:
            if self._still_wanted():
                self.answer(f"{action.label} {names_of(aim)}".rstrip() + f": {error}", good=False)
            return
        if not self._still_wanted():
            return
        dialog = ArmDialog(action, aim, armed, self.newest, ready)
        over_at = began + armed.seconds - ARMING_MARGIN_SECONDS
        self.push_screen(dialog, partial(self._answered, action, armed, ready, over_at))

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
        self.choose(partial(selection.drop_marks, targets=chosen.targets))
        if self.monotonic() < over_at:
            self._order(action, chosen, armed, ready)
        else:
            self.run_worker(self._arm_again(action, chosen, armed, ready), name=action.id, group="command")

    async def _arm_again(
        self, action: ConsoleAction, aim: Command, before: Armed, ready: tuple[EngineReply, ...]
    ) -> None:
        """Renew an arming that ran out while the person typed, then fire; not if the engine asks for another text."""
        names = [one.name for one in ready if one.armed is not None]
        command = replace(aim, by=self.by)
        asked = f"{action.label} {names_of(aim)}".rstrip()
        try:
            armed, renewed = await asyncio.gather(self.source.arm(command), self._arm_others(names, command))
        except ControlError as error:
            self.answer(f"{asked}: {error}", good=False)
            return
        if armed.to_type != before.to_type:
            self.answer(f"{asked}: nothing was ordered: the engine now asks for another text", good=False)
            return
        self._order(action, aim, armed, renewed)

    def _order(
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
            self.answer(f"{asked}: ordered; its end is shown here and in the timeline", good=True)
        else:
            self.show(replace(self.view, waiting_for=asked, answer=None))
        if not action.dangerous:
            ready = tuple(EngineReply(name=name, ok=True, text="") for name in sorted(self.view.chosen))
        self.run_worker(self._send(action, aim, armed, ready, slow), name=action.id, group="command")

    async def _send(
        self, action: ConsoleAction, aim: Command, armed: Armed | None, ready: tuple[EngineReply, ...], slow: bool
    ) -> None:
        command = replace(aim, by=self.by)
        order = self._send_own(command, armed)
        if self._others is not None and ready:
            own, others = await asyncio.gather(order, self._others.execute_at(ready, command))
        else:
            own, others = await order, ()
        answers = [(one.name, CommandAnswer(one.text, one.ok, self.now())) for one in (own, *others)]
        waiting_for = self.view.waiting_for if slow else ""
        answer = _sum_answers(f"{action.label} {names_of(aim)}".rstrip(), answers)
        self.show(replace(self.view, waiting_for=waiting_for, answer=answer, outcomes=tuple(answers)))

    async def _send_own(self, command: Command, armed: Armed | None) -> EngineReply:
        try:
            text = await self.source.execute(command, armed)
        except ControlError as error:
            return EngineReply(name=self.view.pairing, ok=False, text=str(error))
        return EngineReply(name=self.view.pairing, ok=True, text=text)

    # -- over the fleet -----------------------------------------------------------------------------------------------

    def _ask_fleet(self, action: ConsoleAction, aim: Command) -> None:
        """Ask for the order over the fleet, then post it."""
        if self._signer is None:
            return
        dialog = FleetDialog(action, aim, self.newest, signer=self._signer, clock=self.now)
        self.push_screen(dialog, partial(self._fleet_signed, action, aim))

    def _fleet_signed(self, action: ConsoleAction, aim: Command, order: Order | None) -> None:
        if order is None:
            return
        asked = f"{action.label} {names_of(aim)}".rstrip() + " over the fleet"
        self.show(replace(self.view, waiting_for=asked, answer=None))
        self.choose(partial(selection.drop_marks, targets=aim.targets))
        self.run_worker(self._post_order(asked, order), name=action.id, group="command")

    async def _post_order(self, asked: str, order: Order) -> None:
        try:
            await self.source.post_order(order, by=self.by)
        except ControlError as error:
            self.show(replace(self.view, waiting_for=""))
            self.answer(f"{asked}: {error}", good=False)
            return
        self.show(follow_order(self.view, order.id, f"{asked}: posted, no engine has answered yet"))


def _sum_answers(asked: str, answers: Sequence[tuple[str, CommandAnswer]]) -> CommandAnswer:
    """Return the answer of one engine, or the sum of several: failures first."""
    if len(answers) == 1:
        return replace(answers[0][1], text=f"{asked}: {answers[0][1].text}")
    good = sum(answer.good for _, answer in answers)
    each = "; ".join(f"{name}: {it.text}" for name, it in sorted(answers, key=lambda pair: pair[1].good))
    return CommandAnswer(
        f"{asked}: done by {good} of {len(answers)} engines; {each}", good == len(answers), answers[0][1].at
    )

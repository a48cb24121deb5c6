"""Orders over the fleet from the dashboard: asks, has the engine post what was signed, and follows the answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from paired_servicebus.core.errors import ControlError
from paired_servicebus.core.operator.targets import ActionTarget
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.engines.feed import Feed
from paired_servicebus.ui.engines.order_signer import OrderSigner
from paired_servicebus.ui.screens.fleet_dialog import FleetDialog, SignedOrder
from paired_servicebus.ui.shell.console_protocol import Console
from paired_servicebus.ui.state import selection
from paired_servicebus.ui.state.view import follow_order

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

    def ask(self, action: ConsoleAction, aim: ActionTarget) -> None:
        """Ask for the order over the fleet, then post it."""
        if self._signer is None:
            return
        dialog = FleetDialog(action, aim, self._app.newest, signer=self._signer, clock=self._app.now)
        self._app.push_screen(dialog, partial(self._signed, action, aim))

    def _signed(self, action: ConsoleAction, aim: ActionTarget, order: SignedOrder | None) -> None:
        if order is None:
            return
        asked = f"{action.label} {aim}".rstrip() + " over the fleet"
        self._app.show(replace(self._app.view, waiting_for=asked, answer=None))
        self._app.choose(partial(selection.drop_marks, targets=aim.targets))
        self._app.run_worker(self._post(asked, order), name=action.id, group="command")

    async def _post(self, asked: str, order: SignedOrder) -> None:
        try:
            await self._feed.post_order(order.text, signed=order.signed, signature=order.signature, by=self._by)
        except ControlError as error:
            self._app.show(replace(self._app.view, waiting_for=""))
            self._app.answer(f"{asked}: {error}", good=False)
            return
        self._app.show(follow_order(self._app.view, order.text.id, f"{asked}: posted, no engine has answered yet"))

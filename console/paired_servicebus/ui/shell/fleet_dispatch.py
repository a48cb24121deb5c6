"""Orders over the fleet from the dashboard: asks, signs with the operator's key, posts, and follows the answers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from paired_servicebus.core.errors import ControlError, PairedError
from paired_servicebus.core.fleet.fleet_documents import OrderText
from paired_servicebus.core.fleet.orders.order_text import encode_order_text
from paired_servicebus.core.operator.targets import ActionTarget
from paired_servicebus.ui.commands.action_table import ConsoleAction
from paired_servicebus.ui.engines.feed import Feed
from paired_servicebus.ui.engines.order_signer import OrderSigner
from paired_servicebus.ui.screens.fleet_dialog import FleetDialog
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
        """Ask for the order over the fleet, then sign and post it."""
        if self._signer is None:
            return
        dialog = FleetDialog(action, aim, self._app.newest, key=self._signer.key, clock=self._app.now)
        self._app.push_screen(dialog, partial(self._asked, action, aim, self._signer))

    def _asked(self, action: ConsoleAction, aim: ActionTarget, signer: OrderSigner, order: OrderText | None) -> None:
        if order is None:
            return
        asked = f"{action.label} {aim}".rstrip() + " over the fleet"
        self._app.show(replace(self._app.view, waiting_for=asked, answer=None))
        self._app.choose(partial(selection.drop_marks, targets=aim.targets))
        self._app.run_worker(self._post(asked, order, signer), name=order.verb, group="command")

    async def _post(self, asked: str, order: OrderText, signer: OrderSigner) -> None:
        try:
            signed = encode_order_text(order)
            signature = await signer.sign(signed)
        except PairedError as error:
            self._fail(f"{asked}: nothing was ordered: {error}")
            return
        try:
            await self._feed.post_order(order, signed=signed, signature=signature, by=self._by)
        except ControlError as error:
            self._fail(f"{asked}: {error}")
            return
        self._app.show(follow_order(self._app.view, order.id, f"{asked}: posted, no engine has answered yet"))

    def _fail(self, text: str) -> None:
        self._app.show(replace(self._app.view, waiting_for=""))
        self._app.answer(text, good=False)

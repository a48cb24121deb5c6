"""Carries out signed orders of the fleet through the guard: read-only, required reasons, the audit line, the act.

The rules have decided that an order counts, so it is not armed here: its author's confirmation is in the signed text.
An order of the fleet states what shall hold. An engine in which it holds already answers "done".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paired_servicebus.core.errors import FleetBoardError, PairedError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Order, Outcome, StandingFleetOrder
from paired_servicebus.core.fleet.fleet_events import CarryOut, OrderEnded, Undo
from paired_servicebus.core.fleet.orders.order_text import decode_order_text
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator import action_row
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope, entity_at
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.engine.commands.guard import (
    COMMAND_HANDLERS,
    CommandContext,
    CommandIntent,
    CommandTarget,
    Guard,
)
from paired_servicebus.engine.control.protocol import CommandDone, PostOrder


class OrderPoster(Protocol):
    """Posts orders on the board."""

    async def check(self, order: Order) -> str:
        """Return why the order would be void; empty if it would count."""

    async def post_order(self, order: Order) -> None:
        """Post the order. Raises FleetBoardError."""


class FleetGuard:
    """Carries out what the order rules decide, and posts orders of local consoles.

    Args:
        guard: writes the audit and executes.
        context: the context of the commands.
        look: returns the current snapshot.
        require_reason: whether an order needs a reason.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        guard: Guard,
        context: CommandContext,
        *,
        look: Callable[[], Snapshot],
        require_reason: bool,
        clock: Callable[[], float],
    ) -> None:
        self._guard = guard
        self._context = context
        self._look = look
        self._require_reason = require_reason
        self._clock = clock

    async def carry_out(self, effect: CarryOut | Undo) -> OrderEnded:
        """Carry out an order, or refuse it with a reason. Never raises PairedError."""
        if isinstance(effect, CarryOut):
            return await self._order(effect)
        action = BY_ID[BY_ID[effect.order.verb].undo]
        return await self._act(action, _meant(action, effect.order, f"{effect.order.by} (fleet)"), effect.text, "")

    async def post(self, request: PostOrder, poster: OrderPoster, *, viewer: bool) -> CommandDone:
        """Post a console's signed order, or refuse with a reason. Never raises.

        A read-only engine posts too: the order changes this engine by its own rules, as any other.
        """

        def refuse(text: str) -> CommandDone:
            return CommandDone(id=request.id, ok=False, text=f"refused: {text}")

        if viewer:
            return refuse("this console was opened to look only")
        signed = request.signed.encode()
        try:
            text = decode_order_text(signed)
        except UnreadableError as error:
            return refuse(str(error))
        order = Order(text=text, signed=signed, signature=request.signature)
        if self._require_reason and not text.why.strip():
            return refuse("an order needs a reason here (require_reason is set): give one")
        if void := await poster.check(order):
            return refuse(void)

        async def act() -> tuple[bool, str]:
            try:
                await poster.post_order(order)
            except FleetBoardError as error:
                return False, f"the order is not known to be on the board: {error}"
            return True, f"order {order.id} is posted"

        meant = CommandIntent(text.verb, Scope(text.scope), text.targets, request.by)
        done, said = await self._guard.write_through(meant, f"{text.why} (posted for the fleet)".strip(), act)
        return CommandDone(id=request.id, ok=done, text=said)

    async def _order(self, effect: CarryOut) -> OrderEnded:
        text, order_id = effect.order.text, effect.order.id
        action = BY_ID[text.verb]
        by = f"{effect.by} ({effect.fingerprint})"
        meant = CommandIntent(action.id, Scope(text.scope), effect.targets, by)
        why = f"{text.why} (order {order_id[:8]} of the fleet)".strip()
        if self._require_reason and not text.why.strip():
            refusal = f"{action.label} needs a reason here (require_reason is set)"
        else:
            refusal = self._read_only(action, meant)
        if refusal:
            await self._guard.refuse(meant, why, refusal)
            return self._refused(order_id, meant, refusal)
        return await self._act(action, meant, why, order_id, late=effect.late)

    def _read_only(self, action: Action, meant: CommandIntent) -> str:
        """Return why a read-only engine refuses an order; an order that only prolongs what holds here is none."""
        if not self._context.read_only:
            return ""
        is_new = action_row.changes_something(action, self._look(), meant.scope, meant.targets)
        return action_row.read_only(action) if is_new else ""

    async def _act(
        self, action: Action, meant: CommandIntent, why: str, order_id: str, *, late: str = ""
    ) -> OrderEnded:
        if action.stands_for and not action.revokes:
            self._make_known(meant)
        snapshot = self._look()
        fault = action_row.fault(action, snapshot, meant.scope, meant.targets)
        if fault and not (action.revokes and meant.scope is Scope.ENTITY):  # what is unknown here does not stand either
            return self._refused(order_id, meant, fault)
        targets = meant.targets or ("",)
        reasons = {one: fault or self._why_not(action, snapshot, meant.scope, one) for one in targets}
        reason = next(filter(None, reasons.values()), "")
        if reason and not action.stands_for:
            return self._refused(order_id, meant, reason)
        undone = tuple(one for one in targets if not reasons[one])
        outcomes, trouble = await self._perform(action, meant, undone, why)
        if action.stands_for:
            await self._guard.supersede(action, meant)
        failed = tuple(one for one, (ok, _) in zip(undone, outcomes, strict=True) if not ok)
        texts = (*reasons.values(), *(text for _, text in outcomes), late, trouble)
        return OrderEnded(
            at=self._clock(),
            order_id=order_id,
            outcome=Outcome.FAILED if failed else Outcome.DONE,
            text=repeated("; ".join(filter(None, texts))),
            not_held=failed,
        )

    def _make_known(self, meant: CommandIntent) -> None:
        """List entities whose first send may come later, so that the order holds for it."""
        if meant.scope is not Scope.ENTITY:
            return
        snapshot = self._look()
        for target in meant.targets:
            if entity_at(snapshot, target) is None:
                self._context.paired.watch(target)

    async def _perform(
        self, action: Action, meant: CommandIntent, targets: tuple[str, ...], why: str
    ) -> tuple[list[tuple[bool, str]], str]:
        if not targets:
            return [], ""
        part = CommandIntent(meant.action_id, meant.scope, tuple(filter(None, targets)), meant.by)
        return await self._guard.perform(action, part, why=why, is_local=False)

    def _why_not(self, action: Action, snapshot: Snapshot, scope: Scope, target: str) -> str:
        """Return why nothing is to do. A syphon that does not run moves nothing, so it is as good as paused."""
        is_off = action.needs_syphon and snapshot.syphon.status is SyphonStatus.OFF
        if is_off and action.stands_for:
            return "this engine runs no syphon"
        return action_row.why_not(action, snapshot, scope, (target,) if scope is not Scope.ALL else ())

    def _refused(self, order_id: str, meant: CommandIntent, text: str) -> OrderEnded:
        return OrderEnded(
            at=self._clock(),
            order_id=order_id,
            outcome=Outcome.REFUSED,
            text=repeated(text),
            not_held=meant.targets or ("",),
        )


def _meant(action: Action, order: StandingFleetOrder, by: str) -> CommandIntent:
    return CommandIntent(action.id, Scope(order.scope), (order.target,) if order.target else (), by)


async def take_up_stored(order: StandingFleetOrder, context: CommandContext) -> str:
    """Apply an order that the engine before stored, before any pump moves a message; return a sentence."""
    target = CommandTarget(scope=Scope(order.scope), target=order.target, by=order.by, why=order.why)
    if target.scope is Scope.ENTITY:
        context.paired.watch(order.target)
    try:
        await COMMAND_HANDLERS[order.verb](context, target)
    except (PairedError, ValueError) as error:  # ValueError: a target that is none, as a file's may be
        return f"cannot be taken up: {order}; {repeated(str(error))}"
    return f"still stands: {order}; taken up from the engine before"

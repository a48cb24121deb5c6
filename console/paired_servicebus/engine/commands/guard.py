"""The only module that executes commands; screens and command lines send requests to it.

Each command is a row of paired_servicebus.core.operator.actions. The guard checks, in this sequence: the request,
read-only mode, arming and confirmation, and current feasibility. It then syncs the audit line to disk, executes the
command and records the outcome. An engine killed in between leaves an audit line without an outcome, reported as
"outcome unknown" (timeline_replay.py). If the disk refuses the line, the command is executed anyway, and the reply
reports the missing audit.

Read-only mode is enforced here, so no client can bypass it. Refusals by read-only mode and by arming are audited too.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Event
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator import order_checks
from paired_servicebus.core.operator.action_row import Action
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope, named
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.commands.arming import ArmedCommands, CommandIntent
from paired_servicebus.engine.commands.handlers import COMMAND_HANDLERS, CommandContext, CommandTarget
from paired_servicebus.engine.commands.standing_orders import StandingOrders
from paired_servicebus.engine.control.protocol import Answer, Arm, Armed, Command, CommandDone, Order

MAX_ERROR_CHARS: Final = 400
"""Characters of an error text; the SDK's include whole responses."""

log = logging.getLogger(__name__)


class AuditLog(Protocol):
    """Where audit lines go."""

    @property
    def trouble(self) -> str:
        """The reason why lines are not being written; empty if they are."""

    def record(self, event: Event) -> int:
        """Write an event; return its number in this boot."""

    async def sync(self) -> bool:
        """Wait until all written events are on disk; return whether they are."""


class Guard:
    """Executes commands.

    Args:
        reach: the context of the commands; a command may switch `reach.read_only`.
        audit: receives each command before its execution.
        orders: stores standing orders for the next engine.
        look: returns the current snapshot.
        require_reason: whether a command needs a reason.
        clock: seconds since the epoch, for audit lines.
        monotonic: seconds that never jump, for arming.
        token: makes an unguessable token.
        ordered: called after a local order about something that stands.
    """

    def __init__(
        self,
        reach: CommandContext,
        audit: AuditLog,
        orders: StandingOrders,
        *,
        look: Callable[[], Snapshot],
        require_reason: bool = False,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = secrets.token_urlsafe,
        ordered: Callable[[Action, CommandIntent], object] = lambda _action, _meant: None,
    ) -> None:
        self._reach = reach
        self._audit = audit
        self._orders = orders
        self._look = look
        self._require_reason = require_reason
        self._clock = clock
        self._ordered = ordered
        self._armed = ArmedCommands(monotonic=monotonic, token=token)

    def arm(self, order: Arm, *, viewer: bool = False) -> Answer:
        """Arm a dangerous command, or refuse with a reason. Never raises."""
        snapshot = self._look()
        action, meant, fault = _read(order, snapshot)
        if action is None or fault:
            return _refusal(order, fault)
        if not action.dangerous:
            return _refusal(order, f"{action.label} is not dangerous: order it without arming")
        refusal = self._read_only(action, viewer) or order_checks.why_not(action, snapshot, meant.scope, meant.targets)
        if refusal:
            return _refusal(order, f"refused: {refusal}")
        to_type = order_checks.to_fire(action, snapshot, meant.scope, meant.targets)
        token = self._armed.arm(meant, to_type=to_type)
        until = self._clock() + order_checks.ARMED_SECONDS
        return Armed(id=order.id, token=token, to_type=to_type, seconds=order_checks.ARMED_SECONDS, until=until)

    async def execute(self, order: Command, *, viewer: bool = False) -> CommandDone:
        """Execute a command, or refuse with a reason. Never raises.

        Args:
            viewer: the console was opened as read-only.
        """
        snapshot = self._look()
        action, meant, fault = _read(order, snapshot)
        if action is None or fault:
            return _refusal(order, fault)
        if self._require_reason and not order.why.strip():
            return _refusal(order, f"{action.label} needs a reason here (require_reason is set): give one")
        refusal = self._read_only(action, viewer) or self._not_armed(action, order, meant)
        if refusal:
            return await self._refuse(order, meant, refusal)
        refusal = order_checks.why_not(action, snapshot, meant.scope, meant.targets)
        return _refusal(order, f"refused: {refusal}") if refusal else await self._do(action, order, meant)

    def _read_only(self, action: Action, viewer: bool) -> str:
        if viewer:
            return f"this console was opened to look only, and {action.label} changes something"
        return order_checks.read_only(action) if self._reach.read_only else ""

    def _not_armed(self, action: Action, order: Command, meant: CommandIntent) -> str:
        return self._armed.fire(order.token, meant, typed=order.typed) if action.dangerous else ""

    async def _refuse(self, order: Command, meant: CommandIntent, refusal: str) -> CommandDone:
        return _refusal(order, await self.refuse(meant, order.why, refusal))

    async def refuse(self, meant: CommandIntent, why: str, refusal: str) -> str:
        """Write a refused command to the audit; return its outcome."""
        outcome = f"refused: {refusal}"
        for line in self._write_audit(meant, why):
            self._end(line, outcome)
        return outcome

    async def _do(self, action: Action, order: Command, meant: CommandIntent) -> CommandDone:
        """Execute the command for each target, after syncing their audit lines."""
        why = "; ".join(text for text in (order.why, action.confirms and f"confirmed: {action.confirms}") if text)
        outcomes, trouble = await self.perform(action, meant, why=why, reason=order.why)
        return CommandDone(id=order.id, ok=all(ok for ok, _ in outcomes), text=_summarize(outcomes) + trouble)

    async def perform(
        self, action: Action, meant: CommandIntent, *, why: str, reason: str = "", is_local: bool = True
    ) -> tuple[list[tuple[bool, str]], str]:
        """Execute a permitted command for each target, after syncing the audit lines.

        Args:
            why: for the audit.
            reason: the operator's own words.
            is_local: a console of this engine gave it, so it stands until it is revoked.

        Returns: whether each target was done, with its sentence; and what could not be written.
        """
        lines = self._write_audit(meant, why)
        on_disk = await self._audit.sync()
        outcomes: list[tuple[bool, str]] = []
        stands = False
        for line, target in zip(lines, meant.targets or ("",), strict=True):
            deed = CommandTarget(scope=meant.scope, target=target, by=meant.by, why=reason if is_local else why)
            done, said = await self._act(action.id, deed)
            stands |= is_local and done and self._orders.note(action, deed, at=self._clock())
            outcomes.append((done, said))
            self._end(line, said)
        trouble = "" if on_disk else f" (the audit is not written: {self._audit.trouble})"
        if is_local and action.stands_for and any(done for done, _ in outcomes):
            self._ordered(action, meant)
        if stands and (unwritten := await self._orders.keep()):
            trouble += f" (the engine after this one will not know: {unwritten})"
        return outcomes, trouble

    async def write_through(
        self, meant: CommandIntent, why: str, act: Callable[[], Awaitable[tuple[bool, str]]]
    ) -> tuple[bool, str]:
        """Await an act that is not this engine's own, after syncing its audit lines; return its result."""
        lines = self._write_audit(meant, why)
        on_disk = await self._audit.sync()
        done, said = await act()
        for line in lines:
            self._end(line, said)
        return done, said if on_disk else f"{said} (the audit is not written: {self._audit.trouble})"

    async def supersede(self, action: Action, meant: CommandIntent) -> None:
        """Forget local standing orders about the same subjects: an order of the fleet holds now."""
        if self._orders.forget(action, meant.scope, meant.targets or ("",)) and (trouble := await self._orders.keep()):
            log.warning("an order of the fleet superseded a local one, which is still stored: %s", trouble)

    def _write_audit(self, meant: CommandIntent, why: str) -> list[int]:
        return [
            self._audit.record(
                Commanded(
                    at=self._clock(),
                    command=meant.action_id,
                    target=named(meant.scope, target),
                    by=meant.by,
                    why=why,
                )
            )
            for target in meant.targets or ("",)
        ]

    def _end(self, line: int, outcome: str) -> None:
        self._audit.record(CommandEnded(at=self._clock(), command_seq=line, outcome=outcome))

    async def _act(self, action_id: str, deed: CommandTarget) -> tuple[bool, str]:
        try:
            return True, await COMMAND_HANDLERS[action_id](self._reach, deed)
        except (PairedError, AzureError, ServiceBusError, TimeoutError) as error:
            return False, masked(" ".join(str(error).split())[:MAX_ERROR_CHARS]) or type(error).__name__
        except Exception as error:
            log.exception("the command %s failed", action_id)
            return False, f"{action_id} failed in the engine ({type(error).__name__}: {error}); see its log"


def _read(order: Order, snapshot: Snapshot) -> tuple[Action | None, CommandIntent, str]:
    """Return the command's row, its intent and its fault; the fault is empty if there is none."""
    action = BY_ID.get(order.action_id)
    nothing = CommandIntent(order.action_id, Scope.ALL, order.targets, order.by)
    if action is None:
        return None, nothing, f"there is no command {order.action_id!r}; there are {', '.join(BY_ID)}"
    if not order.by.strip():
        return action, nothing, f"{order.action_id} needs the name of its operator"
    try:
        scope = Scope(order.scope) if order.scope else action.scope
    except ValueError:
        return action, nothing, f"{order.scope!r} is no kind of target; the kinds are {', '.join(Scope)}"
    meant = CommandIntent(order.action_id, scope, order.targets, order.by)
    return action, meant, order_checks.fault(action, snapshot, scope, order.targets)


def _refusal(order: Order, text: str) -> CommandDone:
    return CommandDone(id=order.id, ok=False, text=text)


def _summarize(outcomes: list[tuple[bool, str]]) -> str:
    if len(outcomes) == 1:
        return outcomes[0][1]
    done = sum(ok for ok, _ in outcomes)
    return f"{done} of {len(outcomes)} done: " + "; ".join(text for _, text in outcomes)

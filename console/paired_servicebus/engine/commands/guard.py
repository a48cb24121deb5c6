"""The only module that executes commands; screens and command lines send requests to it.

Each command is a row of paired_servicebus.core.operator.actions. The guard checks, in this sequence: the request,
read-only mode, arming and confirmation, and current feasibility. It then syncs the audit line to disk, executes the
command and records the outcome. An engine killed in between leaves an audit line without an outcome, reported as
"outcome unknown" (timeline_replay.py). If the disk refuses the line, the command is executed anyway, and the reply
reports the missing audit.

Read-only mode is enforced here, so no client can bypass it. Refusals by read-only mode and by arming are audited too.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.errors import DrainError, FleetBoardError, IllegalEventError, PairedError, UnreadableError
from paired_servicebus.core.fleet.fleet_documents import Order, Outcome, StandingFleetOrder
from paired_servicebus.core.fleet.fleet_events import CarryOut, OrderEnded, Undo
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Event
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator import action_row
from paired_servicebus.core.operator.action_row import ARMED_SECONDS, Action, each_target, typed_right
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope, dead_letters_of, named
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.commands.drain_process import DrainProcess
from paired_servicebus.engine.control.protocol import Answer, Arm, Armed, CommandDone, Execute, PostOrder
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

# Armed commands, until they are fired or expire.
#
# A token authorizes one command in every detail: action, targets and operator. It is valid once, for ARMED_SECONDS of
# monotonic time. A wrong confirmation text does not consume it; firing does, regardless of the result.

MAX_ARMED: Final = 64
"""Orders that are armed at one time; the oldest goes first. Each holds a few names."""


@dataclass(frozen=True, slots=True)
class _Armed:
    command: Command
    to_type: str
    until: float


class ArmedCommands:
    """The armed commands of one engine.

    Args:
        monotonic: seconds that never jump.
        token: makes a new, unguessable token.
    """

    def __init__(self, *, monotonic: Callable[[], float], token: Callable[[], str]) -> None:
        self._monotonic = monotonic
        self._token = token
        self._armed: dict[str, _Armed] = {}

    def arm(self, command: Command, *, to_type: str) -> str:
        """Arm a command; return its token. The reason may be given later."""
        self._forget()
        token = self._token()
        self._armed[token] = _Armed(replace(command, why=""), to_type, self._monotonic() + ARMED_SECONDS)
        while len(self._armed) > MAX_ARMED:
            del self._armed[next(iter(self._armed))]
        return token

    def fire(self, token: str, command: Command, *, typed: str) -> str:
        """Return the reason why a command may not be fired; empty if it may, once."""
        self._forget()
        armed = self._armed.get(token)
        if armed is None:
            over = f"its {ARMED_SECONDS:g} s are over or it was fired already" if token else "it was not"
            return f"{command.action_id} is dangerous and has to be armed first: {over}"
        if armed.command != replace(command, why=""):
            return f"another order was armed: {armed.command.action_id} {' '.join(armed.command.targets)}".rstrip()
        if not typed_right(typed, armed.to_type):
            return f"{typed!r} was typed, and firing needs {armed.to_type!r}"
        del self._armed[token]
        return ""

    def _forget(self) -> None:
        now = self._monotonic()
        self._armed = {token: armed for token, armed in self._armed.items() if armed.until > now}


# Handlers of the orders of the action table: one function a row, which returns a sentence about the result.
#
# To add an order, add its method to PairedServiceBusClient and its handler; pairing/paired_client.py has the method
# itself. A handler may raise PairedError or an SDK error; the guard reports it and completes the audit. Handlers check
# no permission.

QueuesOfOtherEngines = Callable[[PairedServiceBusClient], Awaitable[frozenset[int]]]
"""Returns the indices of the backlog queues that other known engines of the same namespaces use.

Raises:
    CleanUpError: an engine that may use them does not report its queues.
"""


async def no_other_engines(_paired: PairedServiceBusClient) -> frozenset[int]:
    """Return no indices: for an engine that knows no others."""
    return frozenset()


@dataclass(slots=True)
class CommandContext:
    """The context of commands: the pairing and the engine. `end` stops the engine with a reason."""

    paired: PairedServiceBusClient
    end: Callable[[str], None]
    read_only: bool = False
    others: QueuesOfOtherEngines = no_other_engines
    drains: DrainProcess | None = None


CommandHandler = Callable[[CommandContext, Command], Awaitable[str]]
"""Executes a command for its only target."""
COMMAND_HANDLERS: Final[dict[str, CommandHandler]] = {}
"""By the action's id: every action of the table has one."""


def _handles(action_id: str) -> Callable[[CommandHandler], CommandHandler]:
    """Enter a handler under the id of its action."""

    def enter(handler: CommandHandler) -> CommandHandler:
        assert action_id not in COMMAND_HANDLERS, f"{action_id} has two handlers"
        COMMAND_HANDLERS[action_id] = handler
        return handler

    return enter


def _part(command: Command) -> tuple[int | None, str]:
    """Return the queue or the destination that a command about the syphon names; None and empty: the whole syphon."""
    queue = int(command.target) if command.scope == Scope.QUEUE else None
    return queue, command.target if command.scope == Scope.DESTINATION else ""


@_handles("force")
async def _force(context: CommandContext, command: Command) -> str:
    return context.paired.force(command.target, by=command.by, why=command.why)


@_handles("release")
async def _release(context: CommandContext, command: Command) -> str:
    return context.paired.release(command.target, by=command.by, why=command.why)


@_handles("pin")
async def _pin(context: CommandContext, command: Command) -> str:
    return context.paired.pin(command.target, by=command.by, why=command.why)


@_handles("pause-syphon")
async def _pause(context: CommandContext, command: Command) -> str:
    queue, destination = _part(command)
    return context.paired.pause_syphon(by=command.by, why=command.why, queue=queue, destination=destination)


@_handles("resume-syphon")
async def _resume(context: CommandContext, command: Command) -> str:
    queue, destination = _part(command)
    return context.paired.resume_syphon(by=command.by, why=command.why, queue=queue, destination=destination)


@_handles("clean-up")
async def _clean_up(context: CommandContext, command: Command) -> str:
    return await context.paired.clean_up(command.target, elsewhere=partial(context.others, context.paired))


@_handles("redrive")
async def _redrive(context: CommandContext, command: Command) -> str:
    return await context.paired.redrive(int(command.target))


@_handles("redrive-letters")
async def _redrive_letters(context: CommandContext, command: Command) -> str:
    letters = dead_letters_of(command.target)
    if letters is None:
        raise IllegalEventError(f"{command.target!r} names no dead letters")
    return await context.paired.redrive(int(letters.queue), letters.numbers)


@_handles("move-stranded")
async def _move_stranded(context: CommandContext, command: Command) -> str:
    return await context.paired.move_stranded(command.target)


@_handles("drain")
async def _drain(context: CommandContext, command: Command) -> str:
    if context.drains is None:
        raise DrainError("this engine starts no drain: run `paired drain` in a shell")
    return await context.drains.start(why=command.why)


@_handles("end-drain")
async def _end_drain(context: CommandContext, _command: Command) -> str:
    if context.drains is None:
        raise DrainError("this engine ends no drain; end it where it was started")
    return context.drains.end()


@_handles("read-only")
async def _lock(context: CommandContext, _command: Command) -> str:
    context.read_only = True
    return "the engine is read-only: it accepts only the order that makes it writable"


@_handles("read-write")
async def _unlock(context: CommandContext, _command: Command) -> str:
    context.read_only = False
    return "the engine accepts orders again"


@_handles("stop")
async def _stop(context: CommandContext, command: Command) -> str:
    context.end(f"stopped by {command.by}" + (f': "{command.why}"' if command.why else ""))
    return "the engine ends cleanly: sends in flight finish, locks are released"


# Standing orders: forced, pinned, paused, read-only. They hold until revoked, beyond the end of their engine.
#
# An operator who paused a failing destination relies on it, even if the engine is killed and restarted. Standing orders
# are therefore stored beside the journal, and the next engine applies and reports them before its first pump moves a
# message. In an application (`control=True`) orders end with the process, because its restart is a deployment; the next
# one reports them. The guard stores them after the command.
#
# Not here: permission (guard.py), and commands without a lasting effect.

MAX_SENTENCE_CHARS: Final = 500
"""Characters of an order in a sentence."""
_NAME: Final = "standing.json"


class StandingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A command for one target that stands, given at `at` (seconds since the epoch)."""

    command: Command
    at: float

    def __str__(self) -> str:
        one = self.command
        target, reason = named(one.scope, one.target), f' "{one.why}"' if one.why else ""
        order = f"{one.action_id} {target}".rstrip() + f", ordered {day_and_clock(self.at)} by {one.by}{reason}"
        return one_line(order, most=MAX_SENTENCE_CHARS)


def _subject(command: Command) -> tuple[str, str, str]:
    action = BY_ID.get(command.action_id)
    return "" if action is None else action.stands_for, command.scope, command.target.casefold()


_ORDERS: Final = msgspec.json.Decoder(tuple[StandingOrder, ...])


class StandingOrders:
    """The orders that stand in one engine, and the file that keeps them.

    Args:
        spool: the journal's folder; it need not be there yet.
        is_usable: returns whether the folder is this engine's.
    """

    def __init__(self, spool: Path, *, is_usable: Callable[[], bool] = lambda: True) -> None:
        self._file = spool / _NAME
        self._is_usable = is_usable
        self._standing: tuple[StandingOrder, ...] = ()
        self._writing = asyncio.Lock()

    def read(self) -> tuple[StandingOrder, ...]:
        """Return the previous engine's standing orders, oldest first. None of them holds until `note` adds it.

        Raises:
            OSError: the file cannot be read.
            UnreadableError: it contains no orders.
        """
        try:
            return read_json(_ORDERS, self._file.read_bytes())
        except FileNotFoundError:
            return ()

    def note(self, command: Command, *, at: float) -> bool:
        """Note an executed command for one target; return whether it changed the standing orders."""
        action = BY_ID[command.action_id]
        if not action.stands_for:
            return False
        others = tuple(each for each in self._standing if _subject(each.command) != _subject(command))
        order = StandingOrder(command=command, at=at)
        before, self._standing = self._standing, others if action.revokes else (*others, order)
        return self._standing != before

    def forget(self, command: Command) -> bool:
        """Forget the orders about the same subjects as an order of the fleet; return whether there were any."""
        subjects = {_subject(one) for one in each_target(command)}
        before = self._standing
        self._standing = tuple(each for each in before if _subject(each.command) not in subjects)
        return self._standing != before

    async def keep(self) -> str:
        """Write the standing orders to disk; return the reason of a failure, or ""."""
        if not self._is_usable():
            return f"{self._file.parent} cannot be used"
        async with self._writing:
            try:
                await asyncio.to_thread(replace_file, self._file, msgspec.json.encode(self._standing))
            except OSError as error:
                return f"{error.strerror} in {self._file.parent}"
        return ""

    async def take_up(self, order: StandingOrder, reach: CommandContext) -> str:
        """Apply an order of the previous engine; return a sentence for the timeline."""
        if trouble := await take_up(order.command, reach):
            return f"cannot be taken up: {order}; {trouble}"
        self.note(order.command, at=order.at)
        return f"still stands: {order}; taken up from the engine before"


async def take_up(command: Command, context: CommandContext) -> str:
    """Execute a command that stood in the engine before, before any pump moves a message; return why it cannot."""
    action = BY_ID.get(command.action_id)
    if action is None or not action.stands_for or command.scope not in action.scopes:
        return "this version knows no such order"
    if command.scope == Scope.ENTITY:
        context.paired.watch(command.target)
    try:
        await COMMAND_HANDLERS[command.action_id](context, command)
    except (PairedError, ValueError) as error:  # ValueError: a target that is none, as a file's may be
        return repeated(str(error))
    return ""


async def take_up_stored(order: StandingFleetOrder, context: CommandContext) -> str:
    """Apply an order that the engine before stored; return a sentence."""
    if trouble := await take_up(order.command, context):
        return f"cannot be taken up: {order}; {trouble}"
    return f"still stands: {order}; taken up from the engine before"


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


class OrderPoster(Protocol):
    """Posts orders on the board."""

    async def check(self, order: Order) -> str:
        """Return why the order would be void; empty if it would count."""

    async def post_order(self, order: Order) -> None:
        """Post the order. Raises FleetBoardError."""


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
        ordered: Callable[[Command], object] = lambda _command: None,
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
        action, command, fault = _read(order.command, snapshot)
        if action is None or fault:
            return _refusal(order, fault)
        if not action.dangerous:
            return _refusal(order, f"{action.label} is not dangerous: order it without arming")
        refusal = self._read_only(action, viewer) or action_row.why_not(action, snapshot, command)
        if refusal:
            return _refusal(order, f"refused: {refusal}")
        to_type = action_row.to_fire(action, snapshot, command)
        token = self._armed.arm(command, to_type=to_type)
        until = self._clock() + action_row.ARMED_SECONDS
        return Armed(id=order.id, token=token, to_type=to_type, seconds=action_row.ARMED_SECONDS, until=until)

    async def execute(self, order: Execute, *, viewer: bool = False) -> CommandDone:
        """Execute a command, or refuse with a reason. Never raises.

        Args:
            viewer: the console was opened as read-only.
        """
        snapshot = self._look()
        action, command, fault = _read(order.command, snapshot)
        if action is None or fault:
            return _refusal(order, fault)
        if self._require_reason and not command.why.strip():
            return _refusal(order, f"{action.label} needs a reason here (require_reason is set): give one")
        refusal = self._read_only(action, viewer)
        if not refusal and action.dangerous:
            refusal = self._armed.fire(order.token, command, typed=order.typed)
        if refusal:
            return _refusal(order, await self.refuse(command, refusal))
        if refusal := action_row.why_not(action, snapshot, command):
            return _refusal(order, f"refused: {refusal}")
        confirmed = f"confirmed: {action.confirms}" if action.confirms else ""
        outcomes, trouble = await self.perform(action, command, note=confirmed)
        return CommandDone(id=order.id, ok=all(ok for ok, _ in outcomes), text=_summarize(outcomes) + trouble)

    def _read_only(self, action: Action, viewer: bool) -> str:
        if viewer:
            return f"this console was opened to look only, and {action.label} changes something"
        return action_row.read_only(action) if self._reach.read_only else ""

    async def refuse(self, command: Command, refusal: str) -> str:
        """Write a refused command to the audit; return its outcome."""
        outcome = f"refused: {refusal}"
        for line in self._write_audit(command):
            self._end(line, outcome)
        return outcome

    async def perform(
        self, action: Action, command: Command, *, note: str = "", is_local: bool = True
    ) -> tuple[list[tuple[bool, str]], str]:
        """Execute a permitted command for each target, after syncing the audit lines.

        Args:
            note: what the audit has beside the reason.
            is_local: a console of this engine gave it, so it stands until it is revoked.

        Returns: whether each target was done, with its sentence; and what could not be written.
        """
        lines = self._write_audit(command, note)
        on_disk = await self._audit.sync()
        outcomes: list[tuple[bool, str]] = []
        stands = False
        for line, one in zip(lines, each_target(command), strict=True):
            done, said = await self._act(one)
            stands |= is_local and done and self._orders.note(one, at=self._clock())
            outcomes.append((done, said))
            self._end(line, said)
        trouble = "" if on_disk else f" (the audit is not written: {self._audit.trouble})"
        if is_local and action.stands_for and any(done for done, _ in outcomes):
            self._ordered(command)
        if stands and (unwritten := await self._orders.keep()):
            trouble += f" (the engine after this one will not know: {unwritten})"
        return outcomes, trouble

    async def write_through(self, command: Command, act: Callable[[], Awaitable[tuple[bool, str]]]) -> tuple[bool, str]:
        """Await an act that is not this engine's own, after syncing its audit lines; return its result."""
        lines = self._write_audit(command)
        on_disk = await self._audit.sync()
        done, said = await act()
        for line in lines:
            self._end(line, said)
        return done, said if on_disk else f"{said} (the audit is not written: {self._audit.trouble})"

    async def supersede(self, command: Command) -> None:
        """Forget local standing orders about the same subjects: an order of the fleet holds now."""
        if self._orders.forget(command) and (trouble := await self._orders.keep()):
            log.warning("an order of the fleet superseded a local one, which is still stored: %s", trouble)

    def _write_audit(self, command: Command, note: str = "") -> list[int]:
        why = "; ".join(filter(None, (command.why, note)))
        return [
            self._audit.record(
                Commanded(
                    at=self._clock(),
                    command=one.action_id,
                    target=named(one.scope, one.target),
                    by=one.by,
                    why=why,
                )
            )
            for one in each_target(command)
        ]

    def _end(self, line: int, outcome: str) -> None:
        self._audit.record(CommandEnded(at=self._clock(), command_seq=line, outcome=outcome))

    async def _act(self, command: Command) -> tuple[bool, str]:
        try:
            return True, await COMMAND_HANDLERS[command.action_id](self._reach, command)
        except (PairedError, AzureError, ServiceBusError, TimeoutError) as error:
            return False, masked(" ".join(str(error).split())[:MAX_ERROR_CHARS]) or type(error).__name__
        except Exception as error:
            log.exception("the command %s failed", command.action_id)
            return False, f"{command.action_id} failed in the engine ({type(error).__name__}: {error}); see its log"

    # -- orders of the fleet: they count by the rules, and their signed text has the confirmation, so none is armed

    async def carry_out(self, effect: CarryOut | Undo) -> OrderEnded:
        """Carry out an order, or refuse it with a reason. Never raises PairedError."""
        if isinstance(effect, CarryOut):
            return await self._carry_out(effect)
        held = effect.order.command
        undo = BY_ID[BY_ID[held.action_id].undo]
        command = replace(held, action_id=undo.id, by=f"{held.by} (fleet)", why=effect.text)
        return await self._set_state(undo, command, "")

    async def post(self, request: PostOrder, poster: OrderPoster | None, *, viewer: bool) -> CommandDone:
        """Post a console's signed order, or refuse with a reason. Never raises.

        A read-only engine posts too: the order changes this engine by its own rules, as any other.
        """

        def refuse(text: str) -> CommandDone:
            return CommandDone(id=request.id, ok=False, text=f"refused: {text}")

        if viewer:
            return refuse("this console was opened to look only")
        if poster is None:
            return refuse("the fleet is off in this engine: add [fleet] to its pairing.toml")
        order = Order(signed=request.signed, signature=request.signature)
        try:
            text = order.text
        except UnreadableError as error:
            return refuse(str(error))
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

        why = f"{text.why} (posted for the fleet)".strip()
        command = Command(action_id=text.verb, scope=text.scope, targets=text.targets, by=request.by, why=why)
        done, said = await self.write_through(command, act)
        return CommandDone(id=request.id, ok=done, text=said)

    async def _carry_out(self, effect: CarryOut) -> OrderEnded:
        command, order_id = effect.command, effect.order.id
        action = BY_ID[command.action_id]
        is_new = action_row.changes_something(action, self._look(), command)  # else it only prolongs what holds here
        refusal = self._read_only(action, viewer=False) if is_new else ""
        if self._require_reason and not command.why.strip():
            refusal = f"{action.label} needs a reason here (require_reason is set)"
        command = replace(command, why=f"{command.why} (order {order_id[:8]} of the fleet)".strip())
        if refusal:
            await self.refuse(command, refusal)
            return self._refused(order_id, command, refusal)
        return await self._set_state(action, command, order_id, late=effect.late)

    async def _set_state(self, action: Action, command: Command, order_id: str, *, late: str = "") -> OrderEnded:
        """Let the state of an order hold here. An engine in which it holds already has done it."""
        if command.scope == Scope.ENTITY and not action.revokes:
            for target in command.targets:
                self._reach.paired.watch(target)  # its first send may come later
        snapshot = self._look()
        fault = action_row.fault(action, snapshot, command)
        is_unknown_here = action.revokes and command.scope == Scope.ENTITY  # so it does not stand here either
        if fault and not is_unknown_here:
            return self._refused(order_id, command, fault)
        reasons = {one.target: fault or self._why_not(action, snapshot, one) for one in each_target(command)}
        undone = tuple(target for target, reason in reasons.items() if not reason)
        outcomes: list[tuple[bool, str]] = []
        trouble = ""
        if undone:
            part = replace(command, targets=tuple(filter(None, undone)))
            outcomes, trouble = await self.perform(action, part, is_local=False)
        await self.supersede(command)
        failed = tuple(one for one, (ok, _) in zip(undone, outcomes, strict=True) if not ok)
        texts = (*reasons.values(), *(text for _, text in outcomes), late, trouble)
        return OrderEnded(
            order_id=order_id,
            outcome=Outcome.FAILED if failed else Outcome.DONE,
            text=repeated("; ".join(filter(None, texts))),
            not_held=failed,
        )

    def _why_not(self, action: Action, snapshot: Snapshot, command: Command) -> str:
        """Return why nothing is to do. A syphon that does not run moves nothing, so it is as good as paused."""
        if action.needs_syphon and snapshot.syphon.status is SyphonStatus.OFF:
            return "this engine runs no syphon"
        return action_row.why_not(action, snapshot, command)

    def _refused(self, order_id: str, command: Command, text: str) -> OrderEnded:
        named = command.targets or ("",)
        return OrderEnded(order_id=order_id, outcome=Outcome.REFUSED, text=repeated(text), not_held=named)


def _read(command: Command, snapshot: Snapshot) -> tuple[Action | None, Command, str]:
    """Return the command's row, the command with its scope, and its fault; the fault is empty if there is none."""
    action = BY_ID.get(command.action_id)
    if action is None:
        return None, command, f"there is no command {command.action_id!r}; there are {', '.join(BY_ID)}"
    if not command.by.strip():
        return action, command, f"{command.action_id} needs the name of its operator"
    if command.scope and command.scope not in list(Scope):
        return action, command, f"{command.scope!r} is no kind of target; the kinds are {', '.join(Scope)}"
    command = replace(command, scope=command.scope or action.scope)
    return action, command, action_row.fault(action, snapshot, command)


def _refusal(order: Arm | Execute, text: str) -> CommandDone:
    return CommandDone(id=order.id, ok=False, text=text)


def _summarize(outcomes: list[tuple[bool, str]]) -> str:
    if len(outcomes) == 1:
        return outcomes[0][1]
    done = sum(ok for ok, _ in outcomes)
    return f"{done} of {len(outcomes)} done: " + "; ".join(text for _, text in outcomes)

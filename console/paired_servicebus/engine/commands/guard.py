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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import ServiceBusError

from paired_servicebus.core.errors import DrainError, IllegalEventError, PairedError
from paired_servicebus.core.model.pairing_events import Commanded, CommandEnded, Event
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator import action_row
from paired_servicebus.core.operator.action_row import ARMED_SECONDS, Action, typed_right
from paired_servicebus.core.operator.actions import BY_ID
from paired_servicebus.core.operator.targets import Scope, dead_letters_of, named
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import day_and_clock
from paired_servicebus.core.text.untrusted_text import one_line, repeated
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.control.protocol import Answer, Arm, Armed, Command, CommandDone, Order
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

# Armed commands, until they are fired or expire.
#
# A token authorizes one command in every detail: action, targets and operator. It is valid once, for ARMED_SECONDS of
# monotonic time. A wrong confirmation text does not consume it; firing does, regardless of the result.

MAX_ARMED: Final = 64
"""Orders that are armed at one time; the oldest goes first. Each holds a few names."""


@dataclass(frozen=True, slots=True)
class CommandIntent:
    """A command with all details that its preview showed."""

    action_id: str
    scope: Scope
    targets: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class _Armed:
    meant: CommandIntent
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

    def arm(self, meant: CommandIntent, *, to_type: str) -> str:
        """Arm a command; return its token."""
        self._forget()
        token = self._token()
        self._armed[token] = _Armed(meant, to_type, self._monotonic() + ARMED_SECONDS)
        while len(self._armed) > MAX_ARMED:
            del self._armed[next(iter(self._armed))]
        return token

    def fire(self, token: str, meant: CommandIntent, *, typed: str) -> str:
        """Return the reason why a command may not be fired; empty if it may, once."""
        self._forget()
        armed = self._armed.get(token)
        if armed is None:
            over = f"its {ARMED_SECONDS:g} s are over or it was fired already" if token else "it was not"
            return f"{meant.action_id} is dangerous and has to be armed first: {over}"
        if armed.meant != meant:
            return f"another order was armed: {armed.meant.action_id} {' '.join(armed.meant.targets)}".rstrip()
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


class DrainControl(Protocol):
    """Starts and ends drains. Both methods raise DrainError."""

    async def start(self, *, why: str) -> str:
        """Start a drain; return a sentence when it runs."""

    def end(self) -> str:
        """Signal the drain to end; return a sentence."""


@dataclass(slots=True)
class CommandContext:
    """The context of commands: the pairing and the engine. `end` stops the engine with a reason."""

    paired: PairedServiceBusClient
    end: Callable[[str], None]
    read_only: bool = False
    others: QueuesOfOtherEngines = no_other_engines
    drains: DrainControl | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """One target of a command, with operator and reason."""

    scope: Scope
    target: str
    by: str
    why: str = ""

    @property
    def queue(self) -> int | None:
        """The index, if the target is a backlog queue."""
        return int(self.target) if self.scope is Scope.QUEUE else None

    @property
    def destination(self) -> str:
        """The path, if the target is a destination; else empty."""
        return self.target if self.scope is Scope.DESTINATION else ""


CommandHandler = Callable[[CommandContext, CommandTarget], Awaitable[str]]
COMMAND_HANDLERS: Final[dict[str, CommandHandler]] = {}
"""By the action's id: every action of the table has one."""


def _handles(action_id: str) -> Callable[[CommandHandler], CommandHandler]:
    """Enter a handler under the id of its action."""

    def enter(handler: CommandHandler) -> CommandHandler:
        assert action_id not in COMMAND_HANDLERS, f"{action_id} has two handlers"
        COMMAND_HANDLERS[action_id] = handler
        return handler

    return enter


@_handles("force")
async def _force(context: CommandContext, target: CommandTarget) -> str:
    return context.paired.force(target.target, by=target.by, why=target.why)


@_handles("release")
async def _release(context: CommandContext, target: CommandTarget) -> str:
    return context.paired.release(target.target, by=target.by, why=target.why)


@_handles("pin")
async def _pin(context: CommandContext, target: CommandTarget) -> str:
    return context.paired.pin(target.target, by=target.by, why=target.why)


@_handles("pause-syphon")
async def _pause(context: CommandContext, target: CommandTarget) -> str:
    return context.paired.pause_syphon(by=target.by, why=target.why, queue=target.queue, destination=target.destination)


@_handles("resume-syphon")
async def _resume(context: CommandContext, target: CommandTarget) -> str:
    return context.paired.resume_syphon(
        by=target.by, why=target.why, queue=target.queue, destination=target.destination
    )


@_handles("clean-up")
async def _clean_up(context: CommandContext, target: CommandTarget) -> str:
    return await context.paired.clean_up(target.target, elsewhere=partial(context.others, context.paired))


@_handles("redrive")
async def _redrive(context: CommandContext, target: CommandTarget) -> str:
    return await context.paired.redrive(int(target.target))


@_handles("redrive-letters")
async def _redrive_letters(context: CommandContext, target: CommandTarget) -> str:
    letters = dead_letters_of(target.target)
    if letters is None:
        raise IllegalEventError(f"{target.target!r} names no dead letters")
    return await context.paired.redrive_letters(int(letters.queue), letters.numbers)


@_handles("move-stranded")
async def _move_stranded(context: CommandContext, target: CommandTarget) -> str:
    return await context.paired.move_stranded(target.target)


@_handles("drain")
async def _drain(context: CommandContext, target: CommandTarget) -> str:
    if context.drains is None:
        raise DrainError("this engine starts no drain: run `paired drain` in a shell")
    return await context.drains.start(why=target.why)


@_handles("end-drain")
async def _end_drain(context: CommandContext, _target: CommandTarget) -> str:
    if context.drains is None:
        raise DrainError("this engine ends no drain; end it where it was started")
    return context.drains.end()


@_handles("read-only")
async def _lock(context: CommandContext, _target: CommandTarget) -> str:
    context.read_only = True
    return "the engine is read-only: it accepts only the order that makes it writable"


@_handles("read-write")
async def _unlock(context: CommandContext, _target: CommandTarget) -> str:
    context.read_only = False
    return "the engine accepts orders again"


@_handles("stop")
async def _stop(context: CommandContext, target: CommandTarget) -> str:
    context.end(f"stopped by {target.by}" + (f': "{target.why}"' if target.why else ""))
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
    """One standing order, given at `at` (seconds since the epoch)."""

    action_id: str = msgspec.field(name="verb")
    scope: Scope
    target: str
    by: str
    at: float
    why: str = ""

    def __str__(self) -> str:
        target = named(self.scope, self.target)
        reason = f' "{self.why}"' if self.why else ""
        order = (
            f"{self.action_id}{f' {target}' if target else ''}, ordered {day_and_clock(self.at)} by {self.by}{reason}"
        )
        return one_line(order, most=MAX_SENTENCE_CHARS)

    @property
    def _subject_key(self) -> tuple[str, Scope, str]:
        return BY_ID[self.action_id].stands_for, self.scope, self.target.casefold()


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

    def note(self, action: Action, deed: CommandTarget, *, at: float) -> bool:
        """Note an executed command; return whether it changed the standing orders."""
        if not action.stands_for:
            return False
        order = StandingOrder(
            action_id=action.id, scope=deed.scope, target=deed.target, by=deed.by, why=deed.why, at=at
        )
        others = tuple(each for each in self._standing if each._subject_key != order._subject_key)
        before, self._standing = self._standing, others if action.revokes else (*others, order)
        return self._standing != before

    def forget(self, action: Action, scope: Scope, targets: tuple[str, ...]) -> bool:
        """Forget the orders about the same subjects as an order of the fleet; return whether there were any."""
        subjects = {(action.stands_for, scope, target.casefold()) for target in targets}
        before = self._standing
        self._standing = tuple(each for each in before if each._subject_key not in subjects)
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
        action = BY_ID.get(order.action_id)
        if action is None or not action.stands_for:
            return f"cannot be taken up: {order}; this version knows no such order"
        deed = CommandTarget(scope=order.scope, target=order.target, by=order.by, why=order.why)
        if order.scope is Scope.ENTITY:
            reach.paired.watch(order.target)
        try:
            await COMMAND_HANDLERS[action.id](reach, deed)
        except (PairedError, ValueError) as error:  # ValueError: its target is none, as a file's may be
            return f"cannot be taken up: {order}; {repeated(str(error))}"
        self.note(action, deed, at=order.at)
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
        refusal = self._read_only(action, viewer) or action_row.why_not(action, snapshot, meant.scope, meant.targets)
        if refusal:
            return _refusal(order, f"refused: {refusal}")
        to_type = action_row.to_fire(action, snapshot, meant.scope, meant.targets)
        token = self._armed.arm(meant, to_type=to_type)
        until = self._clock() + action_row.ARMED_SECONDS
        return Armed(id=order.id, token=token, to_type=to_type, seconds=action_row.ARMED_SECONDS, until=until)

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
        refusal = action_row.why_not(action, snapshot, meant.scope, meant.targets)
        return _refusal(order, f"refused: {refusal}") if refusal else await self._do(action, order, meant)

    def _read_only(self, action: Action, viewer: bool) -> str:
        if viewer:
            return f"this console was opened to look only, and {action.label} changes something"
        return action_row.read_only(action) if self._reach.read_only else ""

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


def _read(order: Arm | Command, snapshot: Snapshot) -> tuple[Action | None, CommandIntent, str]:
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
    return action, meant, action_row.fault(action, snapshot, scope, order.targets)


def _refusal(order: Order, text: str) -> CommandDone:
    return CommandDone(id=order.id, ok=False, text=text)


def _summarize(outcomes: list[tuple[bool, str]]) -> str:
    if len(outcomes) == 1:
        return outcomes[0][1]
    done = sum(ok for ok, _ in outcomes)
    return f"{done} of {len(outcomes)} done: " + "; ".join(text for _, text in outcomes)

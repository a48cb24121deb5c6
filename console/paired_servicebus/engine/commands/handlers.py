"""Handlers of the orders of the action table: one function a row, which returns a sentence about the result.

To add an order, add its method to PairedServiceBusClient and its handler; pairing/operator_orders.py has the method
itself. A handler may raise PairedError or an SDK error; the guard reports it and completes the audit. Handlers check no
permission.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from paired_servicebus.core.errors import DrainError, IllegalEventError
from paired_servicebus.core.operator.targets import Scope, dead_letters_of
from paired_servicebus.pairing.paired_client import PairedServiceBusClient

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

"""Handlers of the commands of the action table: one function a row, which returns a sentence about the result.

A handler may raise PairedError or an SDK error; the guard reports it and completes the audit. Handlers check no
permission.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from paired_servicebus.core.errors import DrainError
from paired_servicebus.core.operator.action_table import Scope
from paired_servicebus.engine.pairing_port import ControllablePairing

QueuesOfOtherEngines = Callable[[ControllablePairing], Awaitable[frozenset[int]]]
"""Returns the indices of the backlog queues that other known engines of the same namespaces use.

Raises:
    CleanUpError: an engine that may use them does not report its queues.
"""


async def no_other_engines(_paired: ControllablePairing) -> frozenset[int]:
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

    paired: ControllablePairing
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


async def _force(reach: CommandContext, deed: CommandTarget) -> str:
    return reach.paired.force(deed.target, by=deed.by, why=deed.why)


async def _release(reach: CommandContext, deed: CommandTarget) -> str:
    return reach.paired.release(deed.target, by=deed.by, why=deed.why)


async def _pin(reach: CommandContext, deed: CommandTarget) -> str:
    return reach.paired.pin(deed.target, by=deed.by, why=deed.why)


async def _pause(reach: CommandContext, deed: CommandTarget) -> str:
    return reach.paired.pause_syphon(by=deed.by, why=deed.why, queue=deed.queue, destination=deed.destination)


async def _resume(reach: CommandContext, deed: CommandTarget) -> str:
    return reach.paired.resume_syphon(by=deed.by, why=deed.why, queue=deed.queue, destination=deed.destination)


async def _clean_up(reach: CommandContext, deed: CommandTarget) -> str:
    return await reach.paired.clean_up(deed.target, elsewhere=partial(reach.others, reach.paired))


async def _redrive(reach: CommandContext, deed: CommandTarget) -> str:
    return await reach.paired.redrive(int(deed.target))


async def _move_stranded(reach: CommandContext, deed: CommandTarget) -> str:
    return await reach.paired.move_stranded(deed.target)


async def _drain(reach: CommandContext, deed: CommandTarget) -> str:
    if reach.drains is None:
        raise DrainError("this engine starts no drain; the command does: paired drain")
    return await reach.drains.start(why=deed.why)


async def _end_drain(reach: CommandContext, _deed: CommandTarget) -> str:
    if reach.drains is None:
        raise DrainError("this engine ends no drain; end it where it was started")
    return reach.drains.end()


async def _lock(reach: CommandContext, _deed: CommandTarget) -> str:
    reach.read_only = True
    return "the engine is read-only: it accepts only the order that makes it writable"


async def _unlock(reach: CommandContext, _deed: CommandTarget) -> str:
    reach.read_only = False
    return "the engine accepts orders again"


async def _stop(reach: CommandContext, deed: CommandTarget) -> str:
    reach.end(f"stopped by {deed.by}" + (f': "{deed.why}"' if deed.why else ""))
    return "the engine ends cleanly: sends in flight finish, locks are released"


COMMAND_HANDLERS: Final[dict[str, CommandHandler]] = {
    "force": _force,
    "release": _release,
    "pin": _pin,
    "pause-syphon": _pause,
    "resume-syphon": _resume,
    "clean-up": _clean_up,
    "redrive": _redrive,
    "move-stranded": _move_stranded,
    "drain": _drain,
    "end-drain": _end_drain,
    "read-only": _lock,
    "read-write": _unlock,
    "stop": _stop,
}
"""By the action's id: every action of the table has one."""
STANDING_SUBJECTS: Final = {
    "force": "entity",
    "pin": "entity",
    "release": "entity",
    "pause-syphon": "syphon",
    "resume-syphon": "syphon",
    "read-only": "orders",
    "read-write": "orders",
}
"""The subject of each command with a lasting effect: the newest order about the same target and subject wins."""
REVOKING_COMMANDS: Final = ("release", "resume-syphon", "read-write")
"""Commands that end the standing order about their subject and target."""
